-- Journals, one row an entry. An ordinary table: rows of a kilobyte would spill out of a WITHOUT ROWID one.
CREATE TABLE entries (
    session TEXT NOT NULL,
    seq INTEGER NOT NULL,
    kind TEXT NOT NULL,
    line TEXT NOT NULL,
    PRIMARY KEY (session, seq)
);

CREATE INDEX entries_run_started ON entries (line ->> '$.at', session, seq)
WHERE kind = 'run.started';

CREATE INDEX entries_run_ended ON entries (session, line ->> '$.run')
WHERE kind IN ('run.completed', 'run.failed', 'run.cancelled', 'run.paused');

CREATE INDEX entries_run_of_session ON entries (session, seq)
WHERE kind = 'run.started';

-- For the views: what became of an effect, and which versions were dropped.
CREATE INDEX entries_outcome ON entries (session, line ->> '$.body.issued', seq)
WHERE kind IN (
    'tool.completed', 'tool.failed', 'tool.in_doubt', 'tool.discarded', 'tool.settled', 'tool.undone'
);

CREATE INDEX entries_dropped ON entries (session, line ->> '$.body.version')
WHERE kind = 'checkpoint.dropped';

-- Where each journal ends. `head` is JSON; the columns beside it are what listings filter by.
CREATE TABLE sessions (
    session TEXT NOT NULL PRIMARY KEY,
    uid TEXT NOT NULL,
    seq INTEGER NOT NULL,
    sum TEXT NOT NULL,
    status TEXT NOT NULL,
    parent TEXT,
    open_run TEXT,
    in_doubt INTEGER NOT NULL,
    posted INTEGER NOT NULL DEFAULT 0,
    origin_uid TEXT,
    head TEXT NOT NULL
) WITHOUT ROWID;

-- One index for both: while a run is open, an effect that begins and ends does not touch it.
CREATE INDEX sessions_unfinished ON sessions (session) WHERE open_run IS NOT NULL OR in_doubt > 0;
CREATE INDEX sessions_parent ON sessions (parent, session) WHERE parent IS NOT NULL;

CREATE TABLE keyframes (
    session TEXT NOT NULL PRIMARY KEY,
    body TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE inbox (
    session TEXT NOT NULL,
    number INTEGER NOT NULL,
    item TEXT NOT NULL,
    PRIMARY KEY (session, number)
) WITHOUT ROWID;

-- A fork needs the entries of its origin up to `seq`.
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

CREATE TABLE store (
    id TEXT NOT NULL
);

-- For people with `sqlite3`: what the words mean, in rows.
CREATE VIEW messages AS
SELECT
    session,
    seq,
    line ->> '$.at' AS at,
    line ->> '$.run' AS run,
    line ->> '$.step' AS step,
    coalesce(line ->> '$.body.format', 'holdfast') AS format,
    coalesce(line ->> '$.body.role', 'assistant') AS role,
    line ->> '$.content.agent' AS agent,
    coalesce(
        (
            SELECT group_concat(value ->> '$.text', '')
            FROM json_each(line, '$.content.blocks')
            WHERE value ->> '$.kind' = 'text'
        ),
        line ->> '$.content.content'
    ) AS text,
    line -> '$.content' AS message
FROM entries
WHERE kind IN ('message.added', 'model.replied') AND session NOT LIKE '~%';

CREATE VIEW effects AS
SELECT
    issued.session,
    issued.seq,
    issued.line ->> '$.at' AS at,
    issued.line ->> '$.run' AS run,
    issued.line ->> '$.body.tool' AS tool,
    issued.line ->> '$.body.call.id' AS call,
    issued.line -> '$.body.args' AS args,
    coalesce(issued.line ->> '$.body.attempt', 1) AS attempt,
    issued.line ->> '$.body.key' AS key,
    coalesce(
        (
            SELECT CASE outcome.kind
                WHEN 'tool.settled' THEN outcome.line ->> '$.body.verdict'
                ELSE substr(outcome.kind, 6)
            END
            FROM entries AS outcome
            WHERE outcome.session = issued.session
                AND outcome.seq > issued.seq
                AND outcome.kind IN (
                    'tool.completed', 'tool.failed', 'tool.in_doubt', 'tool.discarded', 'tool.settled',
                    'tool.undone'
                )
                AND outcome.line ->> '$.body.issued' = issued.seq
            ORDER BY outcome.seq DESC
            LIMIT 1
        ),
        iif(issued.kind = 'tool.ran', 'completed', 'issued')
    ) AS status
FROM entries AS issued
WHERE issued.kind IN ('tool.issued', 'tool.ran') AND issued.session NOT LIKE '~%';

CREATE VIEW checkpoints AS
SELECT
    taken.session,
    taken.line ->> '$.body.version' AS version,
    taken.seq,
    taken.line ->> '$.at' AS at,
    taken.line ->> '$.step' AS step,
    taken.line ->> '$.run' AS run,
    taken.line -> '$.body.why' IS NULL AS continuable
FROM entries AS taken
WHERE taken.kind = 'checkpoint.taken'
    AND taken.session NOT LIKE '~%'
    AND NOT EXISTS (
        SELECT 1
        FROM entries AS dropped
        WHERE dropped.session = taken.session
            AND dropped.kind = 'checkpoint.dropped'
            AND dropped.line ->> '$.body.version' = taken.line ->> '$.body.version'
    );

CREATE VIEW runs AS
SELECT
    started.session,
    started.line ->> '$.run' AS run,
    started.line ->> '$.body.agent' AS agent,
    started.line ->> '$.body.model' AS model,
    started.line ->> '$.body.parent.run' AS parent,
    started.line ->> '$.at' AS started_at,
    ended.line ->> '$.at' AS ended_at,
    coalesce(substr(ended.kind, 5), 'no end') AS status,
    ended.line ->> '$.body.reason' AS reason
FROM entries AS started
LEFT JOIN entries AS ended
    ON ended.session = started.session
    AND ended.line ->> '$.run' = started.line ->> '$.run'
    AND ended.kind IN ('run.completed', 'run.failed', 'run.cancelled', 'run.paused')
WHERE started.kind = 'run.started' AND started.session NOT LIKE '~%';
