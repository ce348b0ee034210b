-- Whether a run is open or an effect has no outcome, by itself: SQLite writes the indices of whatever is
-- assigned, be it the same as before. So an effect that begins and ends in a run does not touch this one.
ALTER TABLE sessions ADD COLUMN unfinished INTEGER NOT NULL DEFAULT 0;
UPDATE sessions SET unfinished = open_run IS NOT NULL OR in_doubt > 0;
DROP INDEX sessions_unfinished;
CREATE INDEX sessions_unfinished ON sessions (session) WHERE unfinished;

-- What a commit appends: a row for each line, the last one of a session with the head that it comes to and the
-- sum that it follows. One statement is a whole commit: a process with other things to do need not be asked
-- between its parts.
CREATE VIEW feed (session, seq, kind, line, after, due, head) AS
SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL WHERE FALSE;

CREATE TRIGGER feed_line INSTEAD OF INSERT ON feed WHEN new.line IS NOT NULL
BEGIN
    INSERT INTO entries (session, seq, kind, line)
    VALUES (new.session, new.seq, new.kind, CAST(new.line AS TEXT));
END;

CREATE TRIGGER feed_head INSTEAD OF INSERT ON feed WHEN new.head IS NOT NULL
BEGIN
    UPDATE sessions
    SET seq = new.seq,
        sum = new.head ->> '$.sum',
        status = new.head ->> '$.status',
        open_run = new.head ->> '$.open_run',
        in_doubt = coalesce(new.head ->> '$.in_doubt', 0),
        head = new.head
    WHERE session = new.session AND sum = new.after;
    SELECT raise(ABORT, 'a journal has moved on') WHERE changes() = 0;
    -- What is in an index, only where it changes.
    UPDATE sessions
    SET parent = head ->> '$.parent',
        holder = head ->> '$.lease.holder',
        unfinished = open_run IS NOT NULL OR in_doubt > 0,
        due = new.due
    WHERE session = new.session
        AND (parent, holder, unfinished, due) IS NOT (
            head ->> '$.parent', head ->> '$.lease.holder', open_run IS NOT NULL OR in_doubt > 0, new.due
        );
END;
