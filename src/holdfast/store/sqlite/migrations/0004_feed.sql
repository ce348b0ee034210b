-- What a commit appends: a row for each line, the last one of a session with the head that it comes to and the
-- sum that it follows. One statement is a whole commit: a process with other things to do need not be asked
-- between its parts.
CREATE VIEW feed (session, seq, kind, line, after, due, head) AS
SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL;

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
        parent = new.head ->> '$.parent',
        open_run = new.head ->> '$.open_run',
        in_doubt = coalesce(new.head ->> '$.in_doubt', 0),
        holder = new.head ->> '$.lease.holder',
        due = new.due,
        head = new.head
    WHERE session = new.session AND sum = new.after;
    SELECT raise(ABORT, 'a journal has moved on') WHERE changes() = 0;
END;
