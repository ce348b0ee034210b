"""The statements of a commit, each for as many rows as one call takes."""

from __future__ import annotations

from typing import Final

_CHUNKS: Final = (1, 2, 3, 4, 8, 16, 64, 256, 512)
"""Rows in one statement; what is missing to the next size is filled with NULLs, which are passed over. apsw
gives up the interpreter lock for every call into SQLite: row by row, a busy event loop would make the
committer wait for each. It keeps no statement of more than 16 KB prepared, which is what limits them."""

INSERTS: Final = {
    rows: f"""
        INSERT INTO entries (session, seq, kind, line)
        SELECT column1, column2, column3, CAST(column4 AS TEXT)
        FROM (VALUES {",".join(["(?,?,?,?)"] * rows)}) WHERE column1 IS NOT NULL
    """
    for rows in (*_CHUNKS, 1536)
}
"""Lines are bound as the bytes they are: decoding them would only have SQLite encode them again."""

HEADS: Final = {
    rows: f"""
        INSERT INTO sessions (
            session, uid, origin_uid, seq, sum, status, parent, open_run, in_doubt, holder, due, head
        )
        SELECT * FROM (VALUES {",".join(["(?,?,?,?,?,?,?,?,?,?,?,?)"] * rows)}) WHERE column1 IS NOT NULL
        ON CONFLICT (session) DO UPDATE
        SET seq = excluded.seq, sum = excluded.sum, status = excluded.status, parent = excluded.parent,
            open_run = excluded.open_run, in_doubt = excluded.in_doubt, holder = excluded.holder,
            due = excluded.due, head = excluded.head
    """
    for rows in _CHUNKS
}
MOVE: Final = """
    UPDATE sessions
    SET seq = ?4, sum = ?5, status = ?6, parent = ?7, open_run = ?8, in_doubt = ?9, holder = ?10, due = ?11,
        head = ?12
    WHERE session = ?1
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
                AND (
                    ended.kind = 'run.completed' OR ended.kind = 'run.failed'
                    OR ended.kind = 'run.cancelled' OR ended.kind = 'run.paused'
                )
            ORDER BY ended.seq DESC LIMIT 1
        )
    FROM entries AS started
    WHERE started.kind = 'run.started' AND started.session NOT LIKE '~%'
        AND {session}
        AND (started.line ->> '$.at', started.session, started.seq) > (:at, :after, :seq)
    ORDER BY started.line ->> '$.at', started.session, started.seq
    LIMIT :limit
"""
