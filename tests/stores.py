"""Stores of tests that start other processes: named by a scheme and a path, opened and copied anywhere.

In PostgreSQL, a path stands for a schema. The file at the path says which, and goes with its folder.
"""

from __future__ import annotations

import hashlib
import os
import random
import shutil
from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import cache
from os import open as really_open
from os import write as really_write
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import urlencode

import psycopg
import pytest
from psycopg import sql

from holdfast.blobs.home import BlobContext, ListedBlob, StoredBlob, StoreHome
from holdfast.drivers.contract import Driver
from holdfast.drivers.directory import DirectoryDriver
from holdfast.drivers.postgres import PostgresDriver
from holdfast.drivers.sqlite import SqliteDriver

POSTGRES: Final = "HOLDFAST_TEST_POSTGRES_URL"
"""Names the server in the environment: given by a person, or set by the tests for those they start."""

EVERYWHERE: Final = "HOLDFAST_KILL_EVERYWHERE"
"""Set in the environment: of many trials, none is left out."""

PREFIX: Final = "holdfast_test_"
_STRIDE: Final = 16

on_every_driver = pytest.mark.parametrize("scheme", ["dir", "sqlite", "postgresql"], indirect=True)
"""In `make test`, too; other tests meet PostgreSQL in `make test-long` only."""

on_files = pytest.mark.parametrize("scheme", ["dir", "sqlite"], indirect=True)
"""For what is about files."""


T = TypeVar("T")


@cache
def get_seed() -> int:
    """The seed of this process for what tests choose. It is printed by those that choose something."""
    return int(os.environ.get("HOLDFAST_SEED") or random.randrange(10**6))


def every_nth(trials: Sequence[T], stride: int) -> Sequence[T]:
    """Some of the trials, others for another seed; all of them if the environment says so."""
    if os.environ.get(EVERYWHERE):
        return trials
    print(f"HOLDFAST_SEED={get_seed()}")
    return (
        trials[random.Random(f"{get_seed()} {stride} {len(trials)}").randrange(stride) :: stride]
        or trials[:1]
    )


def share(scheme: str, trials: Sequence[T], stride: int = _STRIDE) -> Sequence[T]:
    """All of them on files; on a server, where each takes several times as long, some, others each time."""
    return trials if scheme != "postgresql" else every_nth(trials, stride)


def open_driver(url: str) -> Driver:
    """The driver that the URL names."""
    scheme, _, path = url.partition(":")
    if scheme == "dir":
        return DirectoryDriver(Path(path))
    if scheme == "sqlite":
        return SqliteDriver(Path(path))
    _mark(path)
    return PostgresDriver(server_url(schema_of(path)))


def _mark(path: str) -> None:
    # Not a write of the driver's: it passes by whoever counts those.
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    marked = really_open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    really_write(marked, schema_of(path).encode())
    os.close(marked)


def schema_of(path: Path | str) -> str:
    """The schema that a path stands for."""
    return PREFIX + hashlib.sha256(str(path).encode()).hexdigest()[:24]


def server_url(schema: str) -> str:
    """The URL of a store in this schema."""
    url = os.environ[POSTGRES]
    return f"{url}{'&' if '?' in url else '?'}{urlencode({'schema': schema})}"


def connect() -> psycopg.Connection[tuple[object, ...]]:
    """A connection of the test's own."""
    return psycopg.connect(os.environ[POSTGRES], autocommit=True)


def rows(schema: str, query: str) -> list[tuple[Any, ...]]:
    """What a person with `psql` gets, after `SET search_path`."""
    with connect() as connection, connection.transaction():
        connection.execute(sql.SQL("SET LOCAL search_path TO {}").format(sql.Identifier(schema)))
        return connection.execute(query.encode()).fetchall()


def copy_store(source: Path, target: Path, name: str = "store") -> None:
    """Copy a folder, and what its store has on a server."""
    shutil.copytree(source, target, dirs_exist_ok=True)
    if not _is_on_server(source / name):
        return
    old, new = schema_of(source / name), schema_of(target / name)
    open_driver(f"postgresql:{target / name}").close()
    tables = """
        SELECT table_name, array_agg(column_name::text) FROM information_schema.columns
        WHERE table_schema = %s AND is_generated = 'NEVER'
            AND table_name IN (SELECT tablename FROM pg_tables WHERE schemaname = table_schema)
        GROUP BY table_name
    """
    with connect() as connection, connection.transaction():
        connection.execute(sql.SQL("DELETE FROM {}").format(sql.Identifier(new, "store")))
        found: Any = connection.execute(tables, (new,)).fetchall()
        for table, columns in found:
            names = sql.SQL(", ").join(map(sql.Identifier, columns))
            copy = sql.SQL("INSERT INTO {} ({}) SELECT {} FROM {}")
            there, here = sql.Identifier(new, table), sql.Identifier(old, table)
            connection.execute(copy.format(there, names, names, here))


def remove_store(folder: Path) -> None:
    """Remove a folder, and what the stores in it have on a server."""
    drop([path.read_text() for path in folder.rglob("*") if _is_on_server(path)])
    shutil.rmtree(folder, ignore_errors=True)


def drop(schemas: list[str]) -> None:
    """Remove them."""
    if not schemas:
        return
    with connect() as connection:
        connection.execute("SET client_min_messages TO warning")
        for schema in schemas:
            connection.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(schema)))


def _is_on_server(path: Path) -> bool:
    if not path.is_file() or path.stat().st_size > 100:
        return False
    return path.read_bytes().startswith(PREFIX.encode())


class ForwardingHome(StoreHome):
    """A driver's own home, for tests that change some of its methods."""

    def __init__(self, driver: Driver) -> None:
        super().__init__(driver.store_id())
        self._home = driver.blobs

    def put(self, digest: str, parts: Iterable[bytes], context: BlobContext, *, owner: str) -> None:
        self._home.put(digest, parts, context, owner=owner)

    def find(self, digest: str) -> StoredBlob | None:
        return self._home.find(digest)

    def list_blobs(self, after: str | None, limit: int) -> Sequence[ListedBlob]:
        return self._home.list_blobs(after, limit)

    def remove(self, digest: str, *, put_before: datetime) -> bool:
        return self._home.remove(digest, put_before=put_before)

    def sweep(self, *, begun_before: datetime) -> int:
        return self._home.sweep(begun_before=begun_before)
