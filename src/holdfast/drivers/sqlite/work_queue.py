"""The queries of workers: sessions that are due, the holders of leases, and waiting for new posts."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

import apsw

from ...core.codec import timestamp
from ...system import threads
from ...system.clock import monotonic_s
from ..contract import DueFilter
from .connections import SqliteConnections, repeated

_POLL_S: Final = 0.004
"""Interval at which the counter of the database's changes is read, which takes microseconds."""

HEAD: Final = "iif(json_valid(head), head, '{}')"
"""Without this, SQLite would refuse the whole query because of one damaged head."""

_WANTED: Final = """
    since IS NOT NULL AND holder IS :holder
    AND (posted_at IS NOT NULL OR since <= :until OR head ->> '$.postponed' IS NULL)
"""
_HOLDERS: Final = """
    WITH RECURSIVE
        -- Steps from one holder to the next, however many sessions each of them has.
        lessees (holder) AS (
            SELECT min(holder) FROM sessions WHERE since IS NOT NULL
            UNION ALL
            SELECT (
                SELECT min(sessions.holder) FROM sessions
                WHERE since IS NOT NULL AND sessions.holder > lessees.holder
            )
            FROM lessees WHERE lessees.holder IS NOT NULL
        ),
        named (holder) AS (
            SELECT holder FROM lessees WHERE holder IS NOT NULL UNION SELECT holder FROM holders
        )
    SELECT holder, CAST(record AS BLOB) FROM named LEFT JOIN holders USING (holder) ORDER BY holder
"""


def stamp(at: datetime) -> str:
    """Format a time as text that sorts as times do."""
    return timestamp(at.astimezone(UTC))


def find_due(db: apsw.Connection, wanted: DueFilter, limit: int) -> list[Any]:
    """The rows of the sessions that are due, the longest due first."""
    where = [_WANTED]
    bindings: dict[str, Any] = {"holder": wanted.holder, "until": stamp(wanted.until), "limit": limit}
    if wanted.agents is not None:
        names = [f"agent{number}" for number in range(len(wanted.agents))]
        where.append(f"{HEAD} ->> '$.agent' IN ({', '.join(f':{name}' for name in names)})")
        bindings |= zip(names, wanted.agents, strict=True)
    for number, (label, value) in enumerate(wanted.labels.items()):
        where.append(
            f"EXISTS (SELECT 1 FROM json_each({HEAD}, '$.labels') "
            f"WHERE key = :label{number} AND value = :value{number})"
        )
        bindings |= {f"label{number}": label, f"value{number}": value}
    query = f"""
        SELECT session, seq, sum, posted, head FROM sessions
        WHERE {" AND ".join(where)} ORDER BY since, session LIMIT :limit
    """
    return db.execute(query, bindings).fetchall()


def find_holders(db: apsw.Connection) -> list[Any]:
    """Every holder with a heartbeat, or with the lease of a session that is due; and its heartbeat."""
    return db.execute(_HOLDERS).fetchall()


class SqliteListener:
    """Waits for posts of any process: SQLite counts the changes of the file, and the file counts its
    posts."""

    def __init__(self, db: SqliteConnections) -> None:
        self._db = db
        self._lock = threads.Lock()
        self._posts = -1

    def wait(self, timeout_s: float) -> None:
        """Wait until an item was posted since the last call, at most `timeout_s`."""
        with self._lock:
            self._wait(monotonic_s() + timeout_s)

    @repeated
    def _wait(self, deadline_s: float) -> None:
        seen = -1
        with self._db.reading() as db:
            while not self._db.is_lost():
                version = int(db.pragma("data_version"))
                if version != seen:
                    seen = version
                    posts = int(db.execute("SELECT posts FROM store").get)
                    if posts != self._posts:
                        self._posts = posts
                        return
                left_s = deadline_s - monotonic_s()
                if left_s <= 0:
                    return
                threads.sleep(min(_POLL_S, left_s))
