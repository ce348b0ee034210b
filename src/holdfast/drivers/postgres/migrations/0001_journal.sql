-- A text as JSON that every operator can read: PostgreSQL refuses to take a NUL, or half of a surrogate pair,
-- out of JSON, so both are shown as U+FFFD. What is stored stays as it was written. JSON holds no control
-- characters: until the others are replaced, chr(1) stands for an escaped backslash, chr(2) for the \u of a pair.
CREATE FUNCTION readable(stored text) RETURNS json
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE
    WHEN strpos(stored, '\u') = 0 THEN stored
    ELSE replace(
        replace(
            regexp_replace(
                regexp_replace(
                    replace(replace(stored, '\\', chr(1)), '\u0000', '\ufffd'),
                    '\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})',
                    chr(2) || '\1' || chr(2) || '\2',
                    'g'
                ),
                '\\u[dD][89a-fA-F][0-9a-fA-F]{2}',
                '\\ufffd',
                'g'
            ),
            chr(2),
            '\u'
        ),
        chr(1),
        '\\'
    )
END::json;

-- Journals, one row a chunk; `seq` is that of its last entry. Facts, details and said are one line of JSON each;
-- details and said are null if they are empty. A row above 2 kB is compressed, the largest column first, and a
-- reader that leaves out `said` does not read what is stored apart. Ids are compared byte by byte, as
-- everywhere else.
CREATE TABLE chunks (
    session text COLLATE "C" NOT NULL,
    seq bigint NOT NULL,
    sum text COLLATE "C" NOT NULL,
    facts text COLLATE "C" NOT NULL,
    details text COLLATE "C",
    said text COLLATE "C",
    PRIMARY KEY (session, seq)
);

-- The runs that began in a session: with entry `seq`, at the time `at`, in the chunk `started`. `ended` is the
-- chunk with the end that came last.
CREATE TABLE run_chunks (
    session text COLLATE "C" NOT NULL,
    run text COLLATE "C" NOT NULL,
    at text COLLATE "C" NOT NULL,
    seq bigint NOT NULL,
    started bigint NOT NULL,
    ended bigint,
    PRIMARY KEY (session, run)
);

CREATE INDEX run_chunks_at ON run_chunks (at, session, seq);

-- Where each journal ends. `head` is JSON; the columns beside it are what listings filter by. A label is
-- '["key","value"]'. The row is replaced by every commit: room in its page keeps the indexes out of it.
CREATE TABLE sessions (
    session text COLLATE "C" NOT NULL PRIMARY KEY,
    uid text NOT NULL,
    seq bigint NOT NULL,
    sum text NOT NULL,
    status text COLLATE "C" NOT NULL,
    parent text COLLATE "C",
    open_run text,
    in_doubt bigint NOT NULL,
    unfinished boolean NOT NULL GENERATED ALWAYS AS (open_run IS NOT NULL OR in_doubt > 0) STORED,
    labels text[] NOT NULL,
    -- The holder of the lease; since when the session is due, for which agent; when the oldest inbox item came.
    holder text COLLATE "C",
    due timestamptz,
    agent text,
    posted_at timestamptz,
    posted bigint NOT NULL DEFAULT 0,
    origin_uid text,
    head text NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05);

CREATE INDEX sessions_uid ON sessions (uid);
-- One index for both: while a run is open, an effect that begins and ends does not touch it.
CREATE INDEX sessions_unfinished ON sessions (session) WHERE unfinished;
-- A step of a running session changes no column of an index, so it writes to none.
CREATE INDEX sessions_status ON sessions (status, session);
CREATE INDEX sessions_parent ON sessions (parent, session) WHERE parent IS NOT NULL;
CREATE INDEX sessions_labels ON sessions USING gin (labels) WHERE labels <> '{}';

-- What workers look for, by the holder of the lease, the longest due first.
CREATE INDEX sessions_due ON sessions (coalesce(holder, ''), least(due, posted_at), session)
WHERE due IS NOT NULL OR posted_at IS NOT NULL;

CREATE TABLE keyframes (
    session text COLLATE "C" NOT NULL PRIMARY KEY,
    body text NOT NULL
);

CREATE TABLE inbox (
    session text COLLATE "C" NOT NULL,
    number bigint NOT NULL,
    item text NOT NULL,
    at timestamptz NOT NULL,
    PRIMARY KEY (session, number)
);

-- A fork needs the chunks of its origin up to `seq`.
CREATE TABLE pins (
    origin_uid text NOT NULL,
    fork_uid text NOT NULL,
    seq bigint NOT NULL,
    PRIMARY KEY (origin_uid, fork_uid)
);

-- `digest` is the SHA-256 of the key: keys may be longer than an index takes.
CREATE TABLE claims (
    digest text COLLATE "C" NOT NULL PRIMARY KEY,
    key text NOT NULL,
    record text NOT NULL
);

-- `beat_at` is this server's clock.
CREATE TABLE holders (
    holder text COLLATE "C" NOT NULL PRIMARY KEY,
    record text NOT NULL,
    beat_at timestamptz NOT NULL
) WITH (fillfactor = 50);

-- A blob's bytes are the parts of its upload, rows of up to 1 MiB. An upload that is not done has no blob.
CREATE TABLE blobs (
    digest text COLLATE "C" NOT NULL PRIMARY KEY,
    upload text NOT NULL,
    size bigint NOT NULL,
    put_at timestamptz NOT NULL,
    info text NOT NULL
);

CREATE TABLE uploads (
    upload text NOT NULL PRIMARY KEY,
    begun_at timestamptz NOT NULL
);

CREATE TABLE blob_parts (
    upload text NOT NULL,
    part bigint NOT NULL,
    data bytea NOT NULL,
    PRIMARY KEY (upload, part)
);

ALTER TABLE blob_parts ALTER COLUMN data SET STORAGE EXTERNAL;

-- Which store this is, the version of the format of its chunks, and the number of the last of these scripts.
CREATE TABLE store (
    id text NOT NULL,
    format bigint NOT NULL,
    version bigint NOT NULL
);

-- A commit: moves the heads that are where they should be, and writes what belongs to them. A session that has
-- not landed wrote nothing. Gives the sessions that have, and then how much was ever posted to each.
--
-- It is a function because the server then plans its statements once for each connection, whatever pooler
-- stands before it; settings keep these plans right for tables of any size. It is told its own schema, and not
-- made for one: schemas can be renamed. The call itself is planned each time, so it has few parameters: tables,
-- as arrays with a row for each column.
CREATE FUNCTION append(
    p_path text,
    -- session, seq, sum, status, parent, open_run, in_doubt, labels, holder, due, agent, head; the sum that it
    -- follows; up to which number inbox items are taken in, or null. If some sessions are new: uid, origin,
    -- origin_uid, pinned.
    p_heads text[],
    -- Of each chunk: session, seq, sum, facts, details; and what was said, which is large, by itself.
    p_chunks text[],
    p_said text[],
    -- Of each run that begins or ends: session, run; at, seq, started (null if it only ends); ended.
    p_runs text[],
    -- session, body
    p_frames text[],
    -- session, digest, key, expect, record
    p_claims text[]
) RETURNS text
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
AS $body$
DECLARE
    some_are_new boolean := array_length(p_heads, 1) > 14;
    has_claims boolean := p_claims <> '{}';
    refused text[] := '{}';
    landed text[];
    posts bigint[];
    some_take boolean;
    all_landed boolean;
    setting text;
BEGIN
    setting := set_config('search_path', p_path, true);
    -- The commit waits for the disk, even where the server's or the role's default is not to. Any stronger
    -- default stays.
    IF current_setting('synchronous_commit') = 'off' THEN
        setting := set_config('synchronous_commit', 'on', true);
    END IF;

    -- Claims first, then sessions, both in order: two commits never wait for each other in a circle.
    IF has_claims THEN
        WITH held AS MATERIALIZED (
            SELECT digest, record FROM claims WHERE digest = ANY (p_claims[2:2]) ORDER BY digest FOR UPDATE
        )
        SELECT coalesce(array_agg(claim.session), '{}') INTO refused
        FROM unnest(p_claims[1:1], p_claims[2:2], p_claims[4:4]) AS claim (session, digest, expect)
        LEFT JOIN held ON held.digest = claim.digest
        WHERE held.record IS DISTINCT FROM claim.expect;
    END IF;
    IF some_are_new THEN
        WITH origin AS MATERIALIZED (
            SELECT session, uid FROM sessions WHERE session = ANY (p_heads[16:16])
            ORDER BY session FOR KEY SHARE
        )
        SELECT refused || array_agg(item.session) INTO refused
        FROM unnest(p_heads[1:1], p_heads[16:16], p_heads[17:17]) AS item (session, origin, origin_uid)
        LEFT JOIN origin ON origin.session = item.origin
        WHERE item.origin IS NOT NULL AND origin.uid IS DISTINCT FROM item.origin_uid;
    END IF;
    IF array_length(p_heads, 2) > 1 THEN
        PERFORM FROM sessions WHERE session = ANY (p_heads[1:1]) ORDER BY session FOR NO KEY UPDATE;
    END IF;

    WITH moved AS (
        UPDATE sessions AS old
        SET seq = item.seq::bigint, sum = item.sum, status = item.status, parent = item.parent,
            open_run = item.open_run, in_doubt = item.in_doubt::bigint,
            labels = string_to_array(item.labels, chr(31)), holder = item.holder,
            due = item.due::timestamptz, agent = item.agent, head = item.head,
            -- What was posted by somebody whom this had to wait for is counted, but not yet to be seen.
            posted_at = CASE
                WHEN item.taken IS NULL THEN old.posted_at
                WHEN item.taken::bigint < old.posted THEN coalesce(
                    (
                        SELECT inbox.at FROM inbox
                        WHERE inbox.session = item.session AND inbox.number > item.taken::bigint
                        ORDER BY inbox.number LIMIT 1
                    ),
                    old.posted_at
                )
            END
        FROM unnest(
            p_heads[1:1], p_heads[2:2], p_heads[3:3], p_heads[4:4], p_heads[5:5], p_heads[6:6], p_heads[7:7],
            p_heads[8:8], p_heads[9:9], p_heads[10:10], p_heads[11:11], p_heads[12:12], p_heads[13:13],
            p_heads[14:14]
        ) AS item (
            session, seq, sum, status, parent, open_run, in_doubt,
            labels, holder, due, agent, head, after,
            taken
        )
        WHERE old.session = item.session AND old.sum = item.after AND item.session <> ALL (refused)
        RETURNING old.session, old.posted, item.taken
    )
    SELECT coalesce(array_agg(session), '{}'), coalesce(array_agg(posted), '{}'), bool_or(taken IS NOT NULL)
    INTO landed, posts, some_take FROM moved;

    IF some_are_new THEN
        WITH created AS (
            INSERT INTO sessions
                (session, uid, origin_uid, seq, sum, status, parent, open_run, in_doubt,
                labels, holder, due, agent, head)
            SELECT
                session, uid, origin_uid, seq::bigint, sum, status, parent, open_run, in_doubt::bigint,
                string_to_array(labels, chr(31)), holder, due::timestamptz, agent, head
            FROM unnest(
                p_heads[1:1], p_heads[2:2], p_heads[3:3], p_heads[4:4], p_heads[5:5], p_heads[6:6],
                p_heads[7:7], p_heads[8:8], p_heads[9:9], p_heads[10:10], p_heads[11:11], p_heads[12:12],
                p_heads[13:13], p_heads[15:15], p_heads[17:17]
            ) AS item (
                session, seq, sum, status, parent, open_run,
                in_doubt, labels, holder, due, agent, head,
                after, uid, origin_uid
            )
            WHERE after IS NULL AND session <> ALL (refused)
            ORDER BY session
            ON CONFLICT (session) DO NOTHING
            RETURNING session, posted
        )
        SELECT landed || array_agg(session), posts || array_agg(posted) INTO landed, posts FROM created;
    END IF;
    all_landed := cardinality(landed) = array_length(p_heads, 2);

    INSERT INTO chunks (session, seq, sum, facts, details, said)
    SELECT session, seq::bigint, sum, facts, details, said
    FROM unnest(p_chunks[1:1], p_chunks[2:2], p_chunks[3:3], p_chunks[4:4], p_chunks[5:5], p_said)
        AS chunk (session, seq, sum, facts, details, said)
    WHERE all_landed OR chunk.session = ANY (landed);

    IF p_runs <> '{}' THEN
        INSERT INTO run_chunks (session, run, at, seq, started, ended)
        SELECT session, run, at, seq::bigint, started::bigint, ended::bigint
        FROM unnest(p_runs[1:1], p_runs[2:2], p_runs[3:3], p_runs[4:4], p_runs[5:5], p_runs[6:6])
            AS run (session, run, at, seq, started, ended)
        WHERE started IS NOT NULL AND session = ANY (landed)
        ON CONFLICT (session, run) DO UPDATE
        SET at = excluded.at, seq = excluded.seq, started = excluded.started, ended = excluded.ended;

        UPDATE run_chunks AS known SET ended = run.ended::bigint
        FROM unnest(p_runs[1:1], p_runs[2:2], p_runs[5:5], p_runs[6:6]) AS run (session, run, started, ended)
        WHERE known.session = run.session AND known.run = run.run AND run.started IS NULL
            AND run.session = ANY (landed);
    END IF;

    IF p_frames <> '{}' THEN
        INSERT INTO keyframes (session, body)
        SELECT * FROM unnest(p_frames[1:1], p_frames[2:2]) AS frame (session, body)
        WHERE frame.session = ANY (landed)
        ON CONFLICT (session) DO UPDATE SET body = excluded.body;
    END IF;
    IF some_take THEN
        DELETE FROM inbox USING unnest(p_heads[1:1], p_heads[14:14]) AS item (session, taken)
        WHERE inbox.session = item.session AND inbox.number <= item.taken::bigint
            AND item.session = ANY (landed);
    END IF;
    IF has_claims THEN
        INSERT INTO claims (digest, key, record)
        SELECT digest, key, record
        FROM unnest(p_claims[1:1], p_claims[2:2], p_claims[3:3], p_claims[4:4], p_claims[5:5])
            AS claim (session, digest, key, expect, record)
        WHERE expect IS NULL AND record IS NOT NULL AND session = ANY (landed);

        UPDATE claims SET record = claim.record
        FROM unnest(p_claims[1:1], p_claims[2:2], p_claims[4:4], p_claims[5:5])
            AS claim (session, digest, expect, record)
        WHERE claims.digest = claim.digest AND claim.expect IS NOT NULL AND claim.record IS NOT NULL
            AND claim.session = ANY (landed);

        DELETE FROM claims
        USING unnest(p_claims[1:1], p_claims[2:2], p_claims[4:4], p_claims[5:5])
            AS claim (session, digest, expect, record)
        WHERE claims.digest = claim.digest AND claim.expect IS NOT NULL AND claim.record IS NULL
            AND claim.session = ANY (landed);
    END IF;
    IF some_are_new THEN
        INSERT INTO pins (origin_uid, fork_uid, seq)
        SELECT origin_uid, uid, pinned::bigint
        FROM unnest(p_heads[1:1], p_heads[15:15], p_heads[16:16], p_heads[17:17], p_heads[18:18])
            AS item (session, uid, origin, origin_uid, pinned)
        WHERE origin IS NOT NULL AND session = ANY (landed);
    END IF;
    RETURN array_to_string(landed || posts::text[], chr(31));
END
$body$;

-- The same for a commit of one session that goes on by one chunk, and changes nothing else: most commits do. It
-- takes half of the time, because it unpacks no tables. Gives how much was ever posted, or nothing if it has not
-- landed. The chunk ends the journal, so its `seq` and `sum` are those of the head.
CREATE FUNCTION append_chunk(
    p_path text,
    p_session text,
    p_seq text,
    p_sum text,
    p_status text,
    p_parent text,
    p_open_run text,
    p_in_doubt text,
    p_labels text,
    p_holder text,
    p_due text,
    p_agent text,
    p_head text,
    p_after text,
    p_facts text,
    p_details text,
    p_said text
) RETURNS text
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
AS $body$
DECLARE
    landed bigint;
    setting text;
BEGIN
    setting := set_config('search_path', p_path, true);
    IF current_setting('synchronous_commit') = 'off' THEN
        setting := set_config('synchronous_commit', 'on', true);
    END IF;

    UPDATE sessions
    SET seq = p_seq::bigint, sum = p_sum, status = p_status, parent = p_parent, open_run = p_open_run,
        in_doubt = p_in_doubt::bigint, labels = string_to_array(p_labels, chr(31)), holder = p_holder,
        due = p_due::timestamptz, agent = p_agent, head = p_head
    WHERE session = p_session AND sum = p_after
    RETURNING posted INTO landed;
    IF NOT FOUND THEN
        RETURN '';
    END IF;

    INSERT INTO chunks (session, seq, sum, facts, details, said)
    VALUES (p_session, p_seq::bigint, p_sum, p_facts, p_details, p_said);
    RETURN landed::text;
END
$body$;

-- For people with `psql`: what the chunks mean, in rows. Values that were erased are null.

-- The entries of a chunk. Its facts are parsed once, and its parts are walked side by side, so that a chunk costs
-- its length. A part that is given as null is not read. `details` are the fields of the body that can be erased.
CREATE FUNCTION entries_of(facts text, details text, said text)
RETURNS TABLE (seq bigint, at timestamptz, run text, step bigint, kind text, body json, details json, content json)
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT
        chunk.seq + element.place - 1,
        chunk.at + coalesce((element.us #>> '{}')::bigint, 0) * interval '1 microsecond',
        nullif(coalesce(entry.run, chunk.run), ''),
        chunk.step,
        entry.kind,
        entry.body,
        -- An element is ["salt", value], {"erased": digest} or null.
        element.detail -> 1,
        element.content -> 1
    FROM json_to_record(readable(entries_of.facts))
        AS chunk (seq bigint, at timestamptz, run text, step bigint, us json, entries json)
    CROSS JOIN LATERAL ROWS FROM (
        json_array_elements(chunk.entries),
        json_array_elements(chunk.us),
        json_array_elements(readable(entries_of.details)),
        json_array_elements(readable(entries_of.said))
    ) WITH ORDINALITY AS element (entry, us, detail, content, place)
    CROSS JOIN LATERAL json_to_record(element.entry) AS entry (kind text, run text, body json);
END;

CREATE VIEW entries AS
SELECT session, entry.*, chunks.seq AS chunk
FROM chunks CROSS JOIN LATERAL entries_of(facts, chunks.details, said) AS entry
WHERE session NOT LIKE '~%';

-- The parts of a message in any format that holdfast reads itself: they are in one of several fields; or (an item of
-- OpenAI's Responses API, a message of a tool) the message is one itself.
CREATE FUNCTION parts_of(message json)
RETURNS TABLE (part json, field text, what text, place bigint)
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT
        found.part,
        found.field,
        coalesce(found.part ->> 'part_kind', found.part ->> 'kind', found.part ->> 'type', ''),
        found.place
    FROM (
        SELECT one.part, list.field, list.number * 1000000 + one.place AS place
        FROM (VALUES (1, 'blocks'), (2, 'content'), (3, 'parts'), (4, 'tool_calls')) AS list (number, field)
        CROSS JOIN LATERAL json_array_elements(
            CASE
                WHEN json_typeof(parts_of.message) = 'object'
                    AND json_typeof(parts_of.message -> list.field) = 'array'
                    THEN parts_of.message -> list.field
                ELSE '[]'
            END
        ) WITH ORDINALITY AS one (part, place)
        UNION ALL
        SELECT parts_of.message, 'message', 9000000
    ) AS found
    WHERE json_typeof(found.part) = 'object';
END;

-- The texts in a list of texts, or of parts with a text; null if there are none.
CREATE FUNCTION texts_in(list json, gap text)
RETURNS text
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT
        string_agg(
            CASE json_typeof(one.item) WHEN 'string' THEN one.item #>> '{}' ELSE one.item ->> 'text' END,
            texts_in.gap ORDER BY one.place
        )
    FROM json_array_elements(
        CASE json_typeof(texts_in.list) WHEN 'array' THEN texts_in.list ELSE '[]' END
    ) WITH ORDINALITY AS one (item, place)
    WHERE json_typeof(one.item) IN ('string', 'object');
END;

-- `text` is what was said; `calls` has a call on each line, with its arguments as JSON, and `results` the results in
-- the message. LangGraph's messages are in the values of its checkpoints, packed.
CREATE VIEW messages AS
SELECT
    session,
    seq,
    at,
    run,
    step,
    format,
    role,
    content ->> 'agent' AS agent,
    CASE
        WHEN role = 'tool' THEN NULL
        WHEN json_typeof(content -> 'content') = 'string' THEN content ->> 'content'
        ELSE (
            SELECT
                string_agg(
                    CASE
                        WHEN what IN ('user-prompt', 'system-prompt') OR (what = 'text' AND field = 'parts')
                            THEN coalesce(texts_in(part -> 'content', ' '), part ->> 'content')
                        WHEN what = 'refusal' OR field = 'message' THEN part ->> 'refusal'
                        WHEN what <> 'reasoning' THEN part ->> 'text'
                    END,
                    '' ORDER BY place
                )
            FROM parts_of(content)
        )
    END AS text,
    (
        SELECT
            string_agg(
                coalesce(called ->> 'name', called ->> 'tool_name') || '('
                || coalesce(called ->> 'args', called ->> 'input', called ->> 'arguments', '') || ')',
                chr(10) ORDER BY place
            )
        FROM parts_of(content)
        CROSS JOIN LATERAL (SELECT coalesce(part -> 'function', part -> 'custom', part)) AS one (called)
        WHERE what IN (
            'tool_call', 'tool_use', 'server_tool_use', 'tool-call', 'builtin-tool-call', 'function', 'custom',
            'function_call', 'custom_tool_call'
        )
    ) AS calls,
    (
        SELECT
            string_agg(
                coalesce(
                    texts_in(part -> 'content', ''), texts_in(part -> 'output', ''), part ->> 'content',
                    part ->> 'output'
                ),
                chr(10) ORDER BY place
            )
        FROM parts_of(content)
        WHERE what IN ('tool_result', 'tool-return', 'builtin-tool-return')
            OR (what = 'retry-prompt' AND role = 'tool')
            OR (
                field = 'message'
                AND (part ->> 'role' IN ('tool', 'function') OR what LIKE '%\_call\_output')
                AND part -> 'blocks' IS NULL
            )
    ) AS results,
    content AS message
FROM (
    SELECT
        *,
        coalesce(body ->> 'format', 'holdfast') AS format,
        coalesce(body ->> 'role', 'assistant') AS role
    FROM entries
    WHERE kind IN ('message.added', 'model.replied')
) AS said;

CREATE VIEW effects AS
SELECT
    issued.session,
    issued.seq,
    issued.at,
    issued.run,
    issued.body ->> 'tool' AS tool,
    issued.body #>> '{call,id}' AS call,
    issued.details -> 'args' AS args,
    coalesce((issued.body ->> 'attempt')::bigint, 1) AS attempt,
    issued.body ->> 'key' AS key,
    coalesce(
        outcome.status, CASE issued.kind WHEN 'tool.ran' THEN 'completed' ELSE 'issued' END
    ) AS status
FROM (
    SELECT session, entry.*
    FROM chunks CROSS JOIN LATERAL entries_of(facts, chunks.details, NULL) AS entry
    WHERE kind IN ('tool.issued', 'tool.ran') AND session NOT LIKE '~%'
) AS issued
LEFT JOIN (
    SELECT DISTINCT ON (session, (body ->> 'issued')::bigint)
        session,
        (body ->> 'issued')::bigint AS issued,
        CASE kind WHEN 'tool.settled' THEN body ->> 'verdict' ELSE substr(kind, 6) END AS status
    FROM chunks CROSS JOIN LATERAL entries_of(facts, NULL, NULL) AS entry
    WHERE kind IN (
        'tool.completed', 'tool.failed', 'tool.in_doubt', 'tool.discarded', 'tool.settled', 'tool.undone'
    )
    ORDER BY session, (body ->> 'issued')::bigint, entry.seq DESC
) AS outcome
    ON outcome.session = issued.session AND outcome.issued = issued.seq;

CREATE VIEW checkpoints AS
SELECT
    taken.session,
    (taken.body ->> 'version')::bigint AS version,
    taken.seq,
    taken.at,
    taken.step,
    taken.run,
    taken.body -> 'why' IS NULL AS continuable
FROM (
    SELECT session, entry.*
    FROM chunks CROSS JOIN LATERAL entries_of(facts, NULL, NULL) AS entry
    WHERE kind = 'checkpoint.taken' AND session NOT LIKE '~%'
) AS taken
LEFT JOIN (
    SELECT DISTINCT session, entry.body ->> 'version' AS version
    FROM chunks CROSS JOIN LATERAL entries_of(facts, NULL, NULL) AS entry
    WHERE kind = 'checkpoint.dropped'
) AS dropped
    ON dropped.session = taken.session AND dropped.version = taken.body ->> 'version'
WHERE dropped.session IS NULL;

CREATE VIEW runs AS
SELECT
    session,
    run,
    started.body ->> 'agent' AS agent,
    started.body ->> 'model' AS model,
    started.body #>> '{parent,run}' AS parent,
    started.at AS started_at,
    ended.at AS ended_at,
    coalesce(substr(ended.kind, 5), 'no end') AS status,
    coalesce(ended.details ->> 'reason', ended.body ->> 'reason') AS reason
FROM (
    SELECT session, entry.*
    FROM (SELECT DISTINCT session, started AS seq FROM run_chunks) AS place
    JOIN chunks USING (session, seq)
    CROSS JOIN LATERAL entries_of(facts, NULL, NULL) AS entry
    WHERE kind = 'run.started'
) AS started
LEFT JOIN (
    SELECT DISTINCT ON (session, run) session, entry.*
    FROM (SELECT DISTINCT session, ended AS seq FROM run_chunks WHERE ended IS NOT NULL) AS place
    JOIN chunks USING (session, seq)
    CROSS JOIN LATERAL entries_of(facts, chunks.details, NULL) AS entry
    WHERE kind IN ('run.completed', 'run.failed', 'run.cancelled', 'run.paused')
    ORDER BY session, run, entry.seq DESC
) AS ended USING (session, run);
