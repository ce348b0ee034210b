"""The longer statements."""

from __future__ import annotations

from typing import Final

FEED_ROWS_MAX: Final = 1000
"""apsw keeps no statement of more than 16 KB prepared, which is what limits them."""

_SIZES: Final = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, FEED_ROWS_MAX)


def _feed(rows: int) -> str:
    if rows == 1:
        return "INSERT INTO feed VALUES (?,?,?,?,?,?,?)"
    values = ",".join(["(?,?,?,?,?,?,?)"] * rows)
    return f"INSERT INTO feed SELECT * FROM (VALUES {values}) WHERE column1 IS NOT NULL"


FEEDS: Final = [(rows, _feed(rows)) for rows in _SIZES]
"""Statements for so many lines, whoever's they are; what is missing to the next size is filled with NULLs.
Lines are bound as the bytes they are: decoding them would only have SQLite encode them again."""

NEW_SESSION: Final = """
    INSERT INTO sessions (session, uid, origin_uid, seq, sum, status, in_doubt, head)
    VALUES (?, ?, ?, 0, '', ?, 0, '')
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
