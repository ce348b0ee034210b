-- Whether a row belongs into an index is asked for every line of every commit. `IN` makes a table of what it
-- compares with, every time; a chain of comparisons takes half as long. Queries must say it word for word.
DROP INDEX entries_run_ended;
-- With `seq`, for queries of the last one: without it, SQLite reads the session from its end.
CREATE INDEX entries_run_ended ON entries (session, line ->> '$.run', seq)
WHERE kind = 'run.completed' OR kind = 'run.failed'
    OR kind = 'run.cancelled' OR kind = 'run.paused';

DROP INDEX entries_outcome;
CREATE INDEX entries_outcome ON entries (session, line ->> '$.body.issued', seq)
WHERE kind = 'tool.completed' OR kind = 'tool.failed'
    OR kind = 'tool.in_doubt' OR kind = 'tool.discarded'
    OR kind = 'tool.settled' OR kind = 'tool.undone';

DROP VIEW effects;
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
                AND (
                    outcome.kind = 'tool.completed' OR outcome.kind = 'tool.failed'
                    OR outcome.kind = 'tool.in_doubt' OR outcome.kind = 'tool.discarded'
                    OR outcome.kind = 'tool.settled' OR outcome.kind = 'tool.undone'
                )
                -- Without the affinity of a column, which an expression in an index does not have.
                AND outcome.line ->> '$.body.issued' = +issued.seq
            ORDER BY outcome.seq DESC
            LIMIT 1
        ),
        iif(issued.kind = 'tool.ran', 'completed', 'issued')
    ) AS status
FROM entries AS issued
WHERE issued.kind IN ('tool.issued', 'tool.ran') AND issued.session NOT LIKE '~%';

DROP VIEW runs;
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
    AND (
        ended.kind = 'run.completed' OR ended.kind = 'run.failed'
        OR ended.kind = 'run.cancelled' OR ended.kind = 'run.paused'
    )
WHERE started.kind = 'run.started' AND started.session NOT LIKE '~%';
