-- A line as JSON that every operator can read: PostgreSQL refuses to take a NUL, or half of a surrogate pair,
-- out of JSON, so both are shown as U+FFFD. What is stored stays as it was written.
CREATE FUNCTION readable(line text) RETURNS json
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE
    WHEN strpos(line, '\u') = 0 THEN line
    ELSE regexp_replace(
        line,
        '(?<!\\)((?:\\\\)*)(?:\\u0000|\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])'
            || '|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F][0-9a-fA-F]{2})',
        '\1\\ufffd',
        'g'
    )
END::json;

-- Journals, one row an entry. Ids are compared byte by byte, as everywhere else.
CREATE TABLE entries (
    session text COLLATE "C" NOT NULL,
    seq bigint NOT NULL,
    kind text COLLATE "C" NOT NULL,
    line text NOT NULL,
    PRIMARY KEY (session, seq)
);

CREATE INDEX entries_run_started
ON entries ((readable(line) ->> 'at') COLLATE "C", session, seq)
WHERE kind = 'run.started';

CREATE INDEX entries_run_ended ON entries (session, (readable(line) ->> 'run'))
WHERE kind IN ('run.completed', 'run.failed', 'run.cancelled', 'run.paused');

CREATE INDEX entries_run_of_session ON entries (session, seq)
WHERE kind = 'run.started';

-- For the views: what became of an effect, and which versions were dropped.
CREATE INDEX entries_outcome ON entries (session, (readable(line) #>> '{body,issued}'), seq)
WHERE kind IN (
    'tool.completed', 'tool.failed', 'tool.in_doubt', 'tool.discarded', 'tool.settled', 'tool.undone'
);

CREATE INDEX entries_dropped ON entries (session, (readable(line) #>> '{body,version}'))
WHERE kind = 'checkpoint.dropped';

-- Where each journal ends. `head` is JSON; the columns beside it are what listings filter by. A label is
-- '["key","value"]'. The row is replaced by every commit: room in its page keeps the indexes out of it.
CREATE TABLE sessions (
    session text COLLATE "C" NOT NULL PRIMARY KEY,
    uid text NOT NULL,
    seq bigint NOT NULL,
    sum text NOT NULL,
    status text NOT NULL,
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

-- A fork needs the entries of its origin up to `seq`.
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

-- Which store this is, and the number of the last of these scripts.
CREATE TABLE store (
    id text NOT NULL,
    version bigint NOT NULL
);

-- For people with `psql`: what the words mean, in rows.
CREATE VIEW messages AS
SELECT
    session,
    seq,
    (json ->> 'at')::timestamptz AS at,
    json ->> 'run' AS run,
    (json ->> 'step')::bigint AS step,
    coalesce(json #>> '{body,format}', 'holdfast') AS format,
    coalesce(json #>> '{body,role}', 'assistant') AS role,
    json #>> '{content,agent}' AS agent,
    CASE
        WHEN json_typeof(json #> '{content,blocks}') = 'array' THEN (
            SELECT string_agg(block ->> 'text', '' ORDER BY place)
            FROM json_array_elements(json #> '{content,blocks}') WITH ORDINALITY AS one (block, place)
            WHERE block ->> 'kind' = 'text'
        )
        ELSE json #>> '{content,content}'
    END AS text,
    json -> 'content' AS message
FROM entries, readable(line) AS json
WHERE kind IN ('message.added', 'model.replied') AND session NOT LIKE '~%';

CREATE VIEW effects AS
SELECT
    issued.session,
    issued.seq,
    (json ->> 'at')::timestamptz AS at,
    json ->> 'run' AS run,
    json #>> '{body,tool}' AS tool,
    json #>> '{body,call,id}' AS call,
    json #> '{body,args}' AS args,
    coalesce((json #>> '{body,attempt}')::bigint, 1) AS attempt,
    json #>> '{body,key}' AS key,
    coalesce(
        (
            SELECT CASE outcome.kind
                WHEN 'tool.settled' THEN readable(outcome.line) #>> '{body,verdict}'
                ELSE substr(outcome.kind, 6)
            END
            FROM entries AS outcome
            WHERE outcome.session = issued.session
                AND outcome.seq > issued.seq
                AND outcome.kind IN (
                    'tool.completed', 'tool.failed', 'tool.in_doubt', 'tool.discarded', 'tool.settled',
                    'tool.undone'
                )
                AND readable(outcome.line) #>> '{body,issued}' = issued.seq::text
            ORDER BY outcome.seq DESC
            LIMIT 1
        ),
        CASE issued.kind WHEN 'tool.ran' THEN 'completed' ELSE 'issued' END
    ) AS status
FROM entries AS issued, readable(issued.line) AS json
WHERE issued.kind IN ('tool.issued', 'tool.ran') AND issued.session NOT LIKE '~%';

CREATE VIEW checkpoints AS
SELECT
    taken.session,
    (json #>> '{body,version}')::bigint AS version,
    taken.seq,
    (json ->> 'at')::timestamptz AS at,
    (json ->> 'step')::bigint AS step,
    json ->> 'run' AS run,
    json #> '{body,why}' IS NULL AS continuable
FROM entries AS taken, readable(taken.line) AS json
WHERE taken.kind = 'checkpoint.taken'
    AND taken.session NOT LIKE '~%'
    AND NOT EXISTS (
        SELECT 1
        FROM entries AS dropped
        WHERE dropped.session = taken.session
            AND dropped.kind = 'checkpoint.dropped'
            AND readable(dropped.line) #>> '{body,version}' = json #>> '{body,version}'
    );

CREATE VIEW runs AS
SELECT
    started.session,
    json ->> 'run' AS run,
    json #>> '{body,agent}' AS agent,
    json #>> '{body,model}' AS model,
    json #>> '{body,parent,run}' AS parent,
    (json ->> 'at')::timestamptz AS started_at,
    (readable(ended.line) ->> 'at')::timestamptz AS ended_at,
    coalesce(substr(ended.kind, 5), 'no end') AS status,
    readable(ended.line) #>> '{body,reason}' AS reason
FROM entries AS started
CROSS JOIN readable(started.line) AS json
LEFT JOIN entries AS ended
    ON ended.session = started.session
    AND readable(ended.line) ->> 'run' = json ->> 'run'
    AND ended.kind IN ('run.completed', 'run.failed', 'run.cancelled', 'run.paused')
WHERE started.kind = 'run.started' AND started.session NOT LIKE '~%';
