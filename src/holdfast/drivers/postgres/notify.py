"""Noticing that somebody has posted something: the server tells whoever listens, on a connection of its own.

Only a hint. A pooler that hands each transaction to another connection has none to listen on, and notices get
lost with a connection: then whoever waits looks when the time is over.
"""

from __future__ import annotations

import hashlib
import logging

import psycopg

from ...limits import ANSWER_S
from ...system import threads
from ...system.clock import monotonic_s
from .connections import Connection, connect, unwatch

log = logging.getLogger("holdfast")


def channel_of(schema: str) -> str:
    """Where posts to the sessions of a schema are told. Names are short, and need no quotes."""
    return f"holdfast_{hashlib.sha256(schema.encode()).hexdigest()[:16]}"


class Hints:
    """Listens from the first time that somebody waits."""

    def __init__(self, conninfo: str, schema: str) -> None:
        self._conninfo, self._channel = conninfo, channel_of(schema)
        self._lock = threads.Lock()
        self._closed = threads.Event()
        self._connection: Connection | None = None
        self._possible = True

    def wait(self, timeout_s: float) -> None:
        """Return when something was posted since the last time, and after `timeout_s` in any case."""
        deadline_s = monotonic_s() + timeout_s
        with self._lock:
            try:
                if self._possible and self._hear(timeout_s):
                    return
            except psycopg.Error as error:
                log.debug("no hints for now: %s", error)
                self._drop()
        self._closed.wait(max(0.0, deadline_s - monotonic_s()))

    def _hear(self, timeout_s: float) -> bool:
        if self._connection is None:
            self._connection = self._listen()
            # What was posted until now was told to nobody: look.
            return self._connection is not None
        heard = bool(list(self._connection.notifies(timeout=timeout_s, stop_after=1)))
        if heard:
            # One look finds whatever else there is.
            list(self._connection.notifies(timeout=0))
        return heard

    def _listen(self) -> Connection | None:
        connection = connect(self._conninfo, ANSWER_S)
        row = connection.execute("SELECT pg_backend_pid()", prepare=False).fetchone()
        if row is None or row[0] != connection.info.backend_pid:
            # There is a pooler in between: the connection that would listen is everybody's.
            connection.close()
            self._possible = False
            return None
        connection.execute(f"LISTEN {self._channel}".encode(), prepare=False)
        unwatch(connection)  # From now on, silence is what it hears most of the time.
        return connection

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def close(self) -> None:
        """Stop listening. Who waits comes back when its time is over."""
        self._closed.set()
        with self._lock:
            self._possible = False
            self._drop()
