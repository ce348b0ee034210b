"""A PostgreSQL of the benchmarks' own, with all its syncs, and an empty database for each measurement."""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg

from tests.server import PostgresServer


class Server:
    """A running one."""

    def __init__(self, url: str, pid: int | None) -> None:
        self.url, self.pid = url, pid
        """The process to trace, where it is ours."""
        self._numbers = itertools.count()

    @property
    def version(self) -> str:
        """Of the server."""
        with psycopg.connect(self.url) as connection:
            found = connection.execute("SHOW server_version").fetchone()
        assert found is not None
        return str(found[0])

    @contextmanager
    def database(self) -> Iterator[str]:
        """The address of an empty one, dropped in the end with whoever still uses it."""
        name = f"bench_{os.getpid()}_{next(self._numbers)}"
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
            try:
                yield urlunsplit(urlsplit(self.url)._replace(path=f"/{name}"))
            finally:
                connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


@contextmanager
def serve(url: str | None, directory: Path | None) -> Iterator[Server]:
    """The server that the address names, else one that is started here and ended again."""
    if url is not None:
        yield Server(url, None)
        return
    folder = Path(tempfile.mkdtemp(prefix="holdfast-bench-", dir=directory))
    folder.chmod(0o755)
    started = PostgresServer(folder / "server", sync=True, settings={"max_wal_size": "1GB"})
    try:
        pid = int((folder / "server" / "data" / "postmaster.pid").read_text().split("\n", 1)[0])
        yield Server(started.url, pid)
    finally:
        started.close()
        shutil.rmtree(folder)
