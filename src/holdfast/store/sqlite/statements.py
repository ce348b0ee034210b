"""The statements of a commit, each for as many rows as one call takes."""

from __future__ import annotations

from typing import Final

CHUNKS: Final = (1, 4, 16, 64, 256, 1024)
"""Rows in one statement; what is missing to the next size is filled with NULLs, which are passed over. apsw
gives up the interpreter lock for every call into SQLite: row by row, a busy event loop would make the
committer wait for each."""

INSERTS: Final = {
    rows: f"""
        INSERT INTO entries (session, seq, kind, line)
        SELECT * FROM (VALUES {", ".join(["(?, ?, ?, ?)"] * rows)}) WHERE column1 IS NOT NULL
    """
    for rows in CHUNKS
}
MOVES: Final = {
    rows: f"""
        UPDATE sessions
        SET seq = new.column2, sum = new.column3, status = new.column4, parent = new.column5,
            open_run = new.column6, in_doubt = new.column7, holder = new.column8, due = new.column9,
            head = new.column10
        FROM (VALUES {", ".join(["(?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"] * rows)}) AS new
        WHERE session = new.column1
    """
    for rows in CHUNKS
}
MOVE: Final = """
    UPDATE sessions
    SET seq = ?2, sum = ?3, status = ?4, parent = ?5, open_run = ?6, in_doubt = ?7, holder = ?8, due = ?9,
        head = ?10
    WHERE session = ?1 AND sum = ?11
    RETURNING posted
"""
INSERT: Final = "INSERT INTO entries (session, seq, kind, line) VALUES (?, ?, ?, ?)"
CREATE: Final = """
    INSERT INTO sessions (
        uid, origin_uid, session, seq, sum, status, parent, open_run, in_doubt, holder, due, head
    )
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
POSTED_AT: Final = """
    UPDATE sessions
    SET posted_at = (SELECT at FROM inbox WHERE session = ?1 ORDER BY number LIMIT 1)
    WHERE session = ?1
"""
RUNS: Final = """
    SELECT
        started.line ->> '$.at', started.session, started.seq, CAST(started.line AS BLOB),
        (
            SELECT CAST(ended.line AS BLOB) FROM entries AS ended
            WHERE ended.session = started.session
                AND ended.line ->> '$.run' = started.line ->> '$.run'
                AND ended.kind IN ('run.completed', 'run.failed', 'run.cancelled', 'run.paused')
            ORDER BY ended.seq DESC LIMIT 1
        )
    FROM entries AS started
    WHERE started.kind = 'run.started' AND started.session NOT LIKE '~%'
        AND {session}
        AND (started.line ->> '$.at', started.session, started.seq) > (:at, :after, :seq)
    ORDER BY started.line ->> '$.at', started.session, started.seq
    LIMIT :limit
"""
