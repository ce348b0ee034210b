"""A PostgreSQL that is in trouble itself: restarted, its connections cut, its answers lost on the way."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import psycopg

from tests.crash.database_proxy import Wire
from tests.server import PostgresServer

_LOST = 0.002
"""The share of answers that are lost, with the connection: one does not know whether it was committed."""


class TroubledServer:
    """A server of the test's own, and a wire to it that loses answers while there is trouble."""

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self._choose = random.Random()
        self._lock = threading.Lock()
        self.lost = 0
        self._calm = False
        self._wire = Wire(lambda piece, send: send(piece), self._lose, server=server.url)
        self.url = self._wire.url

    def _lose(self, piece: bytes, send: Callable[[bytes], None]) -> None:
        with self._lock:
            lost = not self._calm and self._choose.random() < _LOST
            self.lost += lost
        if lost:
            raise OSError("the answer is lost")
        send(piece)

    def restart(self, choose: random.Random) -> None:
        """At once, as after a crash."""
        self._server.stop()
        self._server.start()

    def cut(self, choose: random.Random) -> None:
        """All connections but our own."""
        with psycopg.connect(self._server.url, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
            )

    def close(self) -> None:
        """Cut what is left."""
        self._wire.close()
        self._server.close()

    def calm_down(self) -> None:
        """No more trouble."""
        self._calm = True

    @property
    def troubles(self) -> Mapping[str, Callable[[random.Random], None]]:
        """By name."""
        return {"restart": self.restart, "cut": self.cut}


@contextmanager
def troubled_server() -> Iterator[TroubledServer]:
    """For the length of the block."""
    server = TroubledServer(PostgresServer())
    try:
        yield server
    finally:
        server.close()
