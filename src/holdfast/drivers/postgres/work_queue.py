"""The queries of workers: sessions that are due, the holders of leases, and waiting for new posts."""

from __future__ import annotations

import hashlib
import logging
from typing import Any, Final

import psycopg

from ...ids import HolderId
from ...limits import ANSWER_S
from ...system import threads
from ...system.clock import monotonic_s
from ..contract import Beat, DueFilter
from .binary_arrays import TextArray
from .claims import escape
from .commit import encode_labels
from .connections import Connection, connect, unwatch
from .statements import Statements

log = logging.getLogger("holdfast")

TIP: Final = "SELECT session, seq, sum, posted, head FROM $schema.sessions"
AGE: Final = "extract(epoch FROM clock_timestamp() - beat_at)::float8"

# By its bytes, which no string in a head can hold: PostgreSQL cannot parse JSON with a NUL in a title.
_AT_ONCE: Final = """position('"postponed":true' in head) = 0"""
NO_REPLICA: Final = """position('"replica":true' in head) = 0"""
# `coalesce(holder, '')` and `least(due, posted_at)` word for word as in the index `sessions_due`.
_WANTED: Final = f"""
    (due IS NOT NULL OR posted_at IS NOT NULL) AND coalesce(holder, '') = %(holder)s
    AND (posted_at IS NOT NULL OR due <= %(until)s OR {_AT_ONCE})
"""
# Steps from one holder to the next, however many sessions each of them has.
_HOLDERS: Final = f"""
    WITH RECURSIVE lessees (holder) AS (
        SELECT min(coalesce(holder, '')) FROM $schema.sessions
        WHERE due IS NOT NULL OR posted_at IS NOT NULL
        UNION ALL
        SELECT (
            SELECT min(coalesce(sessions.holder, '')) FROM $schema.sessions AS sessions
            WHERE (due IS NOT NULL OR posted_at IS NOT NULL)
                AND coalesce(sessions.holder, '') > lessees.holder
        )
        FROM lessees WHERE lessees.holder IS NOT NULL
    ),
    named (holder) AS (
        SELECT holder FROM lessees WHERE holder <> '' UNION SELECT holder FROM $schema.holders
    )
    SELECT named.holder, record, {AGE} FROM named LEFT JOIN $schema.holders AS holders USING (holder)
    ORDER BY named.holder
"""


def find_due(sql: Statements, connection: Connection, wanted: DueFilter, limit: int) -> list[tuple[Any, ...]]:
    """The rows of the sessions that are due, the longest due first."""
    where = [_WANTED]
    values: dict[str, Any] = {"holder": wanted.holder or "", "until": wanted.until, "limit": limit}
    if wanted.agents is not None:
        where.append("agent = ANY (%(agents)s)")
        values["agents"] = TextArray(list(map(escape, wanted.agents)))
    if wanted.labels:
        where.append("labels @> %(labels)s")
        values["labels"] = TextArray(encode_labels(wanted.labels))
    query = f"{TIP} WHERE {' AND '.join(where)} ORDER BY least(due, posted_at), session LIMIT %(limit)s"
    return sql.rows(connection, query, values)


def find_holders(sql: Statements, connection: Connection) -> list[tuple[HolderId, Beat | None]]:
    """Every holder with a heartbeat, or with the lease of a session that is due; and its heartbeat."""
    return [
        (HolderId(holder), None if record is None else Beat(record.encode(), max(0.0, age_s)))
        for holder, record, age_s in sql.rows(connection, _HOLDERS)
    ]


def channel_of(schema: str) -> str:
    """The channel of posts to the sessions of a schema: a short name that needs no quotes."""
    return f"holdfast_{hashlib.sha256(schema.encode()).hexdigest()[:16]}"


class PostgresListener:
    """Waits for posts of any process, on a connection of its own that LISTENs from the first wait on.

    A notification is only a hint. A pooler that hands each transaction to another connection offers none to
    listen on, and notifications are lost with a connection: then a wait ends at its timeout.
    """

    def __init__(self, conninfo: str, schema: str) -> None:
        self._conninfo, self._channel = conninfo, channel_of(schema)
        self._lock = threads.Lock()
        self._closed = threads.Event()
        self._connection: Connection | None = None
        self._possible = True

    def wait(self, timeout_s: float) -> None:
        """Wait until an item was posted since the last call, at most `timeout_s`."""
        deadline_s = monotonic_s() + timeout_s
        with self._lock:
            try:
                if self._possible and self._hear(timeout_s):
                    return
            except psycopg.Error as error:
                log.debug("not listening for posts: %s", error)
                self._drop()
        self._closed.wait(max(0.0, deadline_s - monotonic_s()))

    def _hear(self, timeout_s: float) -> bool:
        if self._connection is None:
            self._connection = self._listen()
            # Earlier posts sent no notification to this connection: let the caller look.
            return self._connection is not None
        heard = bool(list(self._connection.notifies(timeout=timeout_s, stop_after=1)))
        if heard:
            # The caller looks once for all of them.
            list(self._connection.notifies(timeout=0))
        return heard

    def _listen(self) -> Connection | None:
        connection = connect(self._conninfo, ANSWER_S)
        row = connection.execute("SELECT pg_backend_pid()", prepare=False).fetchone()
        if row is None or row[0] != connection.info.backend_pid:
            # There is a pooler: the connection that would listen is shared.
            connection.close()
            self._possible = False
            return None
        connection.execute(f"LISTEN {self._channel}".encode(), prepare=False)
        unwatch(connection)  # From now on, silence is normal.
        return connection

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def close(self) -> None:
        """Stop listening. A wait that is listening ends at its timeout, and is waited for."""
        self._closed.set()
        with self._lock:
            self._possible = False
            self._drop()
