-- No index is on an expression, and no trigger calls a function of JSON: any SQLite since 3.38 reads and writes the
-- file, also with `PRAGMA trusted_schema = off`.

-- Journals, one row a chunk, under the `seq` of its last entry. An ordinary table, so that the rows of all
-- sessions are appended at its end: a commit of many sessions changes few pages. `said` comes last, so that a
-- reader that does without it need not read the pages that only `said` is on.
CREATE TABLE chunks (
    session TEXT NOT NULL,
    seq INTEGER NOT NULL,
    sum TEXT NOT NULL,
    facts TEXT NOT NULL,
    details TEXT,
    said TEXT,
    PRIMARY KEY (session, seq)
);

-- The runs that began in a session: with entry `seq`, in the chunk `started`, at the time `at`. `ended` is the
-- chunk with the end that came last.
CREATE TABLE run_chunks (
    session TEXT NOT NULL,
    run TEXT NOT NULL,
    seq INTEGER NOT NULL,
    at TEXT NOT NULL,
    started INTEGER NOT NULL,
    ended INTEGER,
    PRIMARY KEY (session, run, seq)
) WITHOUT ROWID;

CREATE INDEX run_chunks_at ON run_chunks (at, session, seq);

-- Where each journal ends. `head` is JSON; the columns beside it are what listings filter by.
CREATE TABLE sessions (
    session TEXT NOT NULL PRIMARY KEY,
    uid TEXT NOT NULL,
    origin_uid TEXT,
    seq INTEGER NOT NULL,
    sum TEXT NOT NULL,
    -- The number of the newest item in the inbox, and when the oldest one came that is still there.
    posted INTEGER NOT NULL DEFAULT 0,
    posted_at TEXT,
    status TEXT NOT NULL,
    parent TEXT,
    open_run TEXT,
    in_doubt INTEGER NOT NULL DEFAULT 0,
    -- Whether a run is open or an effect has no outcome. A column by itself: an effect that begins and ends in a
    -- run does not change it, so that its index need not be written.
    unfinished INTEGER NOT NULL DEFAULT 0,
    holder TEXT,
    due TEXT,
    -- Since when the session is due: the earlier one of `due` and `posted_at`.
    since TEXT,
    head TEXT NOT NULL
) WITHOUT ROWID;

CREATE INDEX sessions_unfinished ON sessions (session) WHERE unfinished;
CREATE INDEX sessions_parent ON sessions (parent, session) WHERE parent IS NOT NULL;
-- While a session is at work its status is `active`, so no step writes to this index.
CREATE INDEX sessions_status ON sessions (status, session) WHERE status <> 'active';
-- What workers look for: sessions that are due, by the holder of their lease, the longest due first.
CREATE INDEX sessions_due ON sessions (holder, since, session) WHERE since IS NOT NULL;

CREATE TABLE keyframes (
    session TEXT NOT NULL PRIMARY KEY,
    body TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE inbox (
    session TEXT NOT NULL,
    number INTEGER NOT NULL,
    item TEXT NOT NULL,
    at TEXT NOT NULL,
    PRIMARY KEY (session, number)
) WITHOUT ROWID;

-- A fork needs the chunks of its origin up to `seq`.
CREATE TABLE pins (
    origin_uid TEXT NOT NULL,
    fork_uid TEXT NOT NULL,
    seq INTEGER NOT NULL,
    PRIMARY KEY (origin_uid, fork_uid)
) WITHOUT ROWID;

CREATE TABLE claims (
    key TEXT NOT NULL PRIMARY KEY,
    record TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE holders (
    holder TEXT NOT NULL PRIMARY KEY,
    record TEXT NOT NULL
) WITHOUT ROWID;

-- A blob is whole once it has a row here; until then its parts belong to an upload alone.
CREATE TABLE blobs (
    digest TEXT NOT NULL PRIMARY KEY,
    info TEXT NOT NULL,
    upload TEXT NOT NULL,
    size INTEGER NOT NULL,
    put_at TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE blob_parts (
    upload TEXT NOT NULL,
    part INTEGER NOT NULL,
    data BLOB NOT NULL,
    PRIMARY KEY (upload, part)
) WITHOUT ROWID;

-- Uploads that are under way or have died, and what is left of blobs that are being removed.
CREATE TABLE blob_uploads (
    upload TEXT NOT NULL PRIMARY KEY,
    begun_at TEXT NOT NULL
) WITHOUT ROWID;

-- `posts` counts the posts to all sessions, for workers that wait.
CREATE TABLE store (
    id TEXT NOT NULL,
    posts INTEGER NOT NULL DEFAULT 0
);

-- What a commit appends: a row for each chunk, the last one of a session with the head that it comes to and the
-- sum that it follows; then a row for each run that begins (with `at`) or ends. One statement is a whole commit:
-- a process with other things to do need not be asked between its parts.
CREATE VIEW feed (
    session, seq, sum, facts, details, said,
    after, head, status, parent, open_run, in_doubt, holder, due,
    run, at, chunk
) AS
SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
WHERE FALSE;

CREATE TRIGGER feed_chunk INSTEAD OF INSERT ON feed WHEN new.facts IS NOT NULL
BEGIN
    INSERT INTO chunks (session, seq, sum, facts, details, said)
    VALUES (
        new.session, new.seq, new.sum,
        CAST(new.facts AS TEXT), CAST(new.details AS TEXT), CAST(new.said AS TEXT)
    );
END;

CREATE TRIGGER feed_head INSTEAD OF INSERT ON feed WHEN new.head IS NOT NULL
BEGIN
    UPDATE sessions
    SET seq = new.seq,
        sum = new.sum,
        open_run = new.open_run,
        in_doubt = new.in_doubt,
        head = CAST(new.head AS TEXT)
    WHERE session = new.session AND sum = new.after;
    SELECT raise(ABORT, 'a journal has moved on') WHERE changes() = 0;
    -- What is in an index, only where it changes: SQLite writes the indices of all columns that are assigned.
    UPDATE sessions
    SET status = new.status,
        parent = new.parent,
        unfinished = new.open_run IS NOT NULL OR new.in_doubt > 0,
        holder = new.holder,
        due = new.due,
        since = min(coalesce(new.due, posted_at), coalesce(posted_at, new.due))
    WHERE session = new.session
        AND (status, parent, unfinished, holder, due) IS NOT (
            new.status, new.parent, new.open_run IS NOT NULL OR new.in_doubt > 0, new.holder, new.due
        );
END;

CREATE TRIGGER feed_run_start INSTEAD OF INSERT ON feed WHEN new.at IS NOT NULL
BEGIN
    INSERT INTO run_chunks (session, run, seq, at, started)
    VALUES (new.session, new.run, new.seq, new.at, new.chunk);
END;

CREATE TRIGGER feed_run_end INSTEAD OF INSERT ON feed WHEN new.run IS NOT NULL AND new.at IS NULL
BEGIN
    UPDATE run_chunks SET ended = new.chunk WHERE session = new.session AND run = new.run;
END;

-- For people with `sqlite3`: what the chunks mean, in rows. Hidden sessions are left out; what was erased is NULL.
--
-- The only function of JSON in them is `json_each`: with `trusted_schema = off`, SQLite before 3.41 runs no other in
-- a view. Of a path to a single value, it gives one row.

-- Entries, each with its parts: the entry in the facts, microseconds after the first entry, details, what was said.
-- An element of details and of what was said is an array of a salt and a value, or what is left of an erased one.
-- The parts of a chunk are put together once, as JSON: looking up each element by its place would take time that
-- grows with the square of a chunk's length.
CREATE VIEW entry_parts AS
SELECT
    session,
    seq,
    strftime('%Y-%m-%dT%H:%M:%S', us / 1000000, 'unixepoch') || printf('.%06dZ', us % 1000000) AS at,
    run,
    step,
    kind,
    parts,
    chunk
FROM (
    SELECT
        chunks.session,
        first.value + entry.key AS seq,
        strftime('%s', substr(at.value, 1, 19)) * 1000000
            + substr(at.value, 21, 6)
            + (SELECT value FROM json_each(entry.value, '$[1]')) AS us,
        nullif(coalesce((SELECT value FROM json_each(entry.value, '$[0].run')), run.value), '') AS run,
        step.value AS step,
        (SELECT value FROM json_each(entry.value, '$[0].kind')) AS kind,
        entry.value AS parts,
        chunks.seq AS chunk
    FROM chunks
    CROSS JOIN json_each(chunks.facts, '$.seq') AS first
    CROSS JOIN json_each(chunks.facts, '$.at') AS at
    CROSS JOIN json_each(chunks.facts, '$.step') AS step
    LEFT JOIN json_each(chunks.facts, '$.run') AS run
    CROSS JOIN json_each(
        (
            SELECT '[' || group_concat(
                '[' || coalesce(entry, 'null') || ',' || coalesce(us, 0) || ','
                || coalesce(details, 'null') || ',' || coalesce(said, 'null') || ']'
            ) || ']'
            FROM (
                SELECT max(entry) AS entry, max(us) AS us, max(details) AS details, max(said) AS said
                FROM (
                    SELECT key, value AS entry, NULL AS us, NULL AS details, NULL AS said
                    FROM json_each(chunks.facts, '$.entries')
                    UNION ALL
                    SELECT key, NULL, value, NULL, NULL FROM json_each(chunks.facts, '$.us')
                    UNION ALL
                    SELECT key, NULL, NULL, value, NULL FROM json_each(chunks.details)
                    UNION ALL
                    SELECT key, NULL, NULL, NULL, value FROM json_each(chunks.said)
                )
                GROUP BY key
                ORDER BY key
            )
        )
    ) AS entry
    WHERE chunks.session NOT LIKE '~%'
);

-- The same without what was said, which costs less to read.
CREATE VIEW entry_facts AS
SELECT
    session,
    seq,
    strftime('%Y-%m-%dT%H:%M:%S', us / 1000000, 'unixepoch') || printf('.%06dZ', us % 1000000) AS at,
    run,
    step,
    kind,
    parts,
    chunk
FROM (
    SELECT
        chunks.session,
        first.value + entry.key AS seq,
        strftime('%s', substr(at.value, 1, 19)) * 1000000
            + substr(at.value, 21, 6)
            + (SELECT value FROM json_each(entry.value, '$[1]')) AS us,
        nullif(coalesce((SELECT value FROM json_each(entry.value, '$[0].run')), run.value), '') AS run,
        step.value AS step,
        (SELECT value FROM json_each(entry.value, '$[0].kind')) AS kind,
        entry.value AS parts,
        chunks.seq AS chunk
    FROM chunks
    CROSS JOIN json_each(chunks.facts, '$.seq') AS first
    CROSS JOIN json_each(chunks.facts, '$.at') AS at
    CROSS JOIN json_each(chunks.facts, '$.step') AS step
    LEFT JOIN json_each(chunks.facts, '$.run') AS run
    CROSS JOIN json_each(
        (
            SELECT '[' || group_concat(
                '[' || coalesce(entry, 'null') || ',' || coalesce(us, 0) || ',' || coalesce(details, 'null') || ']'
            ) || ']'
            FROM (
                SELECT max(entry) AS entry, max(us) AS us, max(details) AS details
                FROM (
                    SELECT key, value AS entry, NULL AS us, NULL AS details
                    FROM json_each(chunks.facts, '$.entries')
                    UNION ALL
                    SELECT key, NULL, value, NULL FROM json_each(chunks.facts, '$.us')
                    UNION ALL
                    SELECT key, NULL, NULL, value FROM json_each(chunks.details)
                )
                GROUP BY key
                ORDER BY key
            )
        )
    ) AS entry
    WHERE chunks.session NOT LIKE '~%'
);

CREATE VIEW entries AS
SELECT
    session,
    seq,
    at,
    run,
    step,
    kind,
    (SELECT value FROM json_each(parts, '$[0]') WHERE key = 'body') AS body,
    (SELECT value FROM json_each(parts, '$[2]') WHERE key = 1) AS details,
    (SELECT value FROM json_each(parts, '$[3]') WHERE key = 1) AS content,
    chunk
FROM entry_parts;

-- Messages in every format that holdfast reads itself. `text` is what was said; `calls` has a call on each line, with
-- its arguments as JSON, and `results` the results in the message. A message has its parts in one of several fields,
-- or (an item of OpenAI's Responses API) it is one itself. LangGraph's are in the values of its checkpoints, packed.
CREATE VIEW messages AS
SELECT
    session,
    seq,
    at,
    run,
    step,
    format,
    role,
    (SELECT value FROM json_each(parts, '$[3][1].agent')) AS agent,
    (
        SELECT group_concat(piece, '')
        FROM (
            SELECT field.value AS piece
            FROM json_each(parts, '$[3][1]') AS field
            WHERE field.key IN ('content', 'refusal') AND field.type = 'text' AND role <> 'tool'
            UNION ALL
            SELECT
                CASE said.type
                    WHEN 'text' THEN said.value
                    ELSE (
                        SELECT group_concat(one.value, ' ')
                        FROM json_each(CASE said.type WHEN 'array' THEN said.value ELSE '[]' END) AS one
                        WHERE one.type = 'text'
                    )
                END
            FROM json_each(parts, '$[3][1]') AS field
            CROSS JOIN json_each(
                CASE
                    WHEN field.type = 'array' AND field.key IN ('blocks', 'content', 'parts') THEN field.value
                    ELSE '[]'
                END
            ) AS part
            CROSS JOIN json_each(CASE part.type WHEN 'object' THEN part.value ELSE '[]' END) AS said
            WHERE role <> 'tool'
                AND said.type IN ('text', 'array')
                AND said.key = CASE (
                    SELECT coalesce(max(value), '')
                    FROM json_each(CASE part.type WHEN 'object' THEN part.value ELSE '[]' END)
                    WHERE key IN ('kind', 'type', 'part_kind')
                )
                    WHEN 'reasoning' THEN ''
                    WHEN 'refusal' THEN 'refusal'
                    WHEN 'user-prompt' THEN 'content'
                    WHEN 'system-prompt' THEN 'content'
                    WHEN 'text' THEN CASE field.key WHEN 'parts' THEN 'content' ELSE 'text' END
                    ELSE 'text'
                END
        )
    ) AS text,
    (
        SELECT group_concat(name || '(' || coalesce(args, '') || ')', char(10))
        FROM (
            SELECT
                (SELECT value FROM json_each(called) WHERE key IN ('name', 'tool_name')) AS name,
                (SELECT value FROM json_each(called) WHERE key IN ('args', 'input', 'arguments')) AS args
            FROM (
                SELECT
                    coalesce(
                        (
                            SELECT inner.value
                            FROM json_each(part) AS inner
                            WHERE inner.key IN ('function', 'custom') AND inner.type = 'object'
                        ),
                        part
                    ) AS called
                FROM (
                    SELECT one.value AS part
                    FROM json_each(parts, '$[3][1]') AS field
                    CROSS JOIN json_each(
                        CASE
                            WHEN field.type = 'array' AND field.key IN ('blocks', 'content', 'parts', 'tool_calls')
                                THEN field.value
                            ELSE '[]'
                        END
                    ) AS one
                    WHERE one.type = 'object'
                    UNION ALL
                    SELECT whole.value FROM json_each(parts, '$[3]') AS whole
                    WHERE whole.key = 1 AND whole.type = 'object'
                )
                WHERE EXISTS (
                    SELECT 1
                    FROM json_each(part)
                    WHERE key IN ('kind', 'type', 'part_kind')
                        AND value IN (
                            'tool_call', 'tool_use', 'server_tool_use', 'tool-call', 'builtin-tool-call',
                            'function', 'custom', 'function_call', 'custom_tool_call'
                        )
                )
            )
        )
        WHERE name IS NOT NULL
    ) AS calls,
    (
        SELECT group_concat(result, char(10))
        FROM (
            SELECT
                (
                    SELECT
                        coalesce(
                            (
                                SELECT group_concat(text.value, '')
                                FROM json_each(CASE said.type WHEN 'array' THEN said.value ELSE '[]' END) AS one
                                CROSS JOIN json_each(
                                    CASE one.type WHEN 'object' THEN one.value ELSE '[]' END
                                ) AS text
                                WHERE text.key = 'text' AND text.type = 'text'
                            ),
                            said.value
                        )
                    FROM json_each(part) AS said
                    WHERE said.key IN ('content', 'output')
                ) AS result
            FROM (
                SELECT one.value AS part
                FROM json_each(parts, '$[3][1]') AS field
                CROSS JOIN json_each(
                    CASE
                        WHEN field.type = 'array' AND field.key IN ('blocks', 'content', 'parts') THEN field.value
                        ELSE '[]'
                    END
                ) AS one
                WHERE one.type = 'object'
                    AND EXISTS (
                        SELECT 1
                        FROM json_each(one.value)
                        WHERE key IN ('kind', 'type', 'part_kind')
                            AND (
                                value IN ('tool_result', 'tool-return', 'builtin-tool-return')
                                OR (value = 'retry-prompt' AND role = 'tool')
                            )
                    )
                UNION ALL
                SELECT whole.value
                FROM json_each(parts, '$[3]') AS whole
                WHERE whole.key = 1
                    AND whole.type = 'object'
                    AND EXISTS (
                        SELECT 1
                        FROM json_each(whole.value)
                        WHERE (key = 'role' AND value IN ('tool', 'function'))
                            OR (key = 'type' AND value LIKE '%_call_output')
                    )
                    AND NOT EXISTS (SELECT 1 FROM json_each(whole.value) WHERE key = 'blocks')
            )
        )
    ) AS results,
    (SELECT value FROM json_each(parts, '$[3]') WHERE key = 1) AS message
FROM (
    SELECT
        *,
        coalesce((SELECT value FROM json_each(parts, '$[0].body.format')), 'holdfast') AS format,
        coalesce((SELECT value FROM json_each(parts, '$[0].body.role')), 'assistant') AS role
    FROM entry_parts
    WHERE kind IN ('message.added', 'model.replied')
);

-- An effect and what became of it have the `seq` of the intent in common; the last entry of them tells the status.
CREATE VIEW effects AS
SELECT session, seq, at, run, tool, call, args, attempt, key, status
FROM (
    SELECT
        session,
        seq,
        at,
        run,
        kind,
        (SELECT value FROM json_each(parts, '$[0].body.tool')) AS tool,
        (SELECT value FROM json_each(parts, '$[0].body.call.id')) AS call,
        (SELECT value FROM json_each(parts, '$[2][1]') WHERE key = 'args') AS args,
        coalesce((SELECT value FROM json_each(parts, '$[0].body.attempt')), 1) AS attempt,
        (SELECT value FROM json_each(parts, '$[0].body.key')) AS key,
        first_value(
            CASE kind
                WHEN 'tool.ran' THEN 'completed'
                WHEN 'tool.settled' THEN (SELECT value FROM json_each(parts, '$[0].body.verdict'))
                ELSE substr(kind, 6)
            END
        ) OVER (
            PARTITION BY
                session,
                CASE
                    WHEN kind IN ('tool.issued', 'tool.ran') THEN seq
                    ELSE (SELECT value FROM json_each(parts, '$[0].body.issued'))
                END
            ORDER BY seq DESC
        ) AS status
    FROM entry_facts
    WHERE kind IN (
        'tool.issued', 'tool.ran', 'tool.completed', 'tool.failed', 'tool.in_doubt', 'tool.discarded',
        'tool.settled', 'tool.undone'
    )
)
WHERE kind IN ('tool.issued', 'tool.ran');

CREATE VIEW checkpoints AS
SELECT session, version, seq, at, step, run, continuable
FROM (
    SELECT
        session,
        (SELECT value FROM json_each(parts, '$[0].body.version')) AS version,
        seq,
        at,
        step,
        run,
        kind,
        NOT EXISTS (SELECT 1 FROM json_each(parts, '$[0].body.why')) AS continuable,
        max(kind = 'checkpoint.dropped') OVER (
            PARTITION BY session, (SELECT value FROM json_each(parts, '$[0].body.version'))
        ) AS dropped
    FROM entry_facts
    WHERE kind IN ('checkpoint.taken', 'checkpoint.dropped')
)
WHERE kind = 'checkpoint.taken' AND NOT dropped;

CREATE VIEW runs AS
SELECT
    session,
    run,
    (SELECT value FROM json_each(started, '$[0].body.agent')) AS agent,
    (SELECT value FROM json_each(started, '$[0].body.model')) AS model,
    (SELECT value FROM json_each(started, '$[0].body.parent.run')) AS parent,
    started_at,
    ended_at,
    coalesce(substr((SELECT value FROM json_each(ended, '$[0].kind')), 5), 'no end') AS status,
    coalesce(
        (SELECT value FROM json_each(ended, '$[0].body.reason')),
        (SELECT value FROM json_each(ended, '$[2][1].reason'))
    ) AS reason
FROM (
    SELECT
        run_chunks.session,
        run_chunks.run,
        first.parts AS started,
        first.at AS started_at,
        -- Each of these reads one chunk.
        (
            SELECT last.parts
            FROM entry_facts AS last
            WHERE last.session = run_chunks.session
                AND last.chunk = run_chunks.ended
                AND last.run = run_chunks.run
                AND last.kind IN ('run.completed', 'run.failed', 'run.cancelled', 'run.paused')
            ORDER BY last.seq DESC
            LIMIT 1
        ) AS ended,
        (
            SELECT last.at
            FROM entry_facts AS last
            WHERE last.session = run_chunks.session
                AND last.chunk = run_chunks.ended
                AND last.run = run_chunks.run
                AND last.kind IN ('run.completed', 'run.failed', 'run.cancelled', 'run.paused')
            ORDER BY last.seq DESC
            LIMIT 1
        ) AS ended_at
    FROM run_chunks
    JOIN entry_facts AS first
        ON first.session = run_chunks.session
        AND first.chunk = run_chunks.started
        AND first.seq = run_chunks.seq
);
