"""Create the tables of a schema, or bring them up to date: once, by the first process that opens it."""

from __future__ import annotations

from pathlib import Path

import psycopg
from psycopg import sql

from ...core.codec import VERSION
from ...errors import BadUrl, NewerFormat, NotFound, StoreFailed
from ...ids import fresh_uid
from ...limits import BUSY_S
from ...system import files
from .connections import Connection, PostgresConnections


def migrations() -> list[str]:
    """The scripts that make the schema, in order."""
    # Not by `importlib.resources`, which imports much more than opening a store needs.
    folder = Path(__file__).parent / "migrations"
    return [files.read_bytes(folder / name).decode() for name in sorted(files.list_names(folder))]


def prepare(db: PostgresConnections, *, create: bool, read_only: bool = False) -> str:
    """Make sure that the tables exist and are current; the store's id.

    If they are current, the role needs no rights but to read and write rows.
    """
    found = db.again(lambda connection: _find_store(connection, db))
    if found is None and not create:
        raise NotFound(f"there is no store in schema {db.schema!r} of {db.shown}")
    if found is not None and found[1] < len(migrations()) and read_only:
        raise StoreFailed(
            f"schema {db.schema!r} of {db.shown} has version {found[1]}, this holdfast {len(migrations())}. "
            "It is not brought up to date where it is only read: open it once to write"
        )
    if found is None or found[1] < len(migrations()):
        found = db.again(lambda connection: _migrate(connection, db), patient=True)
    id, version = found
    if version > len(migrations()):
        raise NewerFormat(
            f"schema {db.schema!r} of {db.shown} has version {version}; this holdfast knows "
            f"{len(migrations())}. Upgrade holdfast."
        )
    return id


def _find_store(connection: Connection, db: PostgresConnections) -> tuple[str, int] | None:
    """The store's id and the number of its last script, if its format is this one."""
    # `format` last: the error names the first column that is missing.
    query = "SELECT id, version, format FROM {}.store"
    try:
        row = connection.execute(_name(query, db.schema), prepare=False).fetchone()
    except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName):
        return None
    except psycopg.errors.UndefinedColumn as error:
        if "format" in (error.diag.message_primary or ""):
            raise _too_old(db, 1) from error
        raise BadUrl(
            f"schema {db.schema!r} of {db.shown} has a table 'store' that is not holdfast's: choose another "
            "one with ?schema=…"
        ) from error
    if row is None:
        return None
    id, version, format = row
    if format > VERSION:
        raise NewerFormat(
            f"schema {db.schema!r} of {db.shown} has format {format}; this holdfast reads {VERSION}. "
            "Upgrade holdfast."
        )
    if format < VERSION:
        raise _too_old(db, format)
    return str(id), int(version)


def _too_old(db: PostgresConnections, format: int) -> BadUrl:
    return BadUrl(
        f"schema {db.schema!r} of {db.shown} is a store of format {format}, which only development versions "
        f"of holdfast wrote; this one reads format {VERSION}. Name another schema with ?schema=… for a new "
        "store; to read this one, use the version that wrote it"
    )


def _migrate(connection: Connection, db: PostgresConnections) -> tuple[str, int]:
    scripts = migrations()
    with connection.transaction():
        _check_encoding(connection, db)
        # The scripts use plain backslashes.
        connection.execute("SET LOCAL standard_conforming_strings TO on", prepare=False)
        wait = "SELECT set_config('lock_timeout', %s, true)"
        connection.execute(wait, (f"{BUSY_S * 1000:.0f}ms",), prepare=False)
        # Held until the transaction ends, so it works behind a pooler.
        lock = "SELECT pg_advisory_xact_lock(hashtextextended('holdfast:' || %s, 0))"
        connection.execute(lock, (db.schema,), prepare=False)
        there = "SELECT 1 FROM pg_namespace WHERE nspname = %s"
        if connection.execute(there, (db.schema,), prepare=False).fetchone() is None:
            connection.execute(_name("CREATE SCHEMA {}", db.schema), prepare=False)
        connection.execute(_name("SET LOCAL search_path TO {}", db.schema), prepare=False)
        connection.execute("SET LOCAL synchronous_commit TO on", prepare=False)
        id, version = _find_locked(connection, db)
        if version >= len(scripts):
            return id, version
        try:
            for script in scripts[version:]:
                # In bytes: `%` is no placeholder in them.
                connection.execute(script.encode(), prepare=False)
        except (psycopg.errors.DuplicateTable, psycopg.errors.DuplicateFunction) as error:
            raise BadUrl(
                f"schema {db.schema!r} of {db.shown} holds other tables: {error.diag.message_primary}; "
                "choose another one with ?schema=…"
            ) from error
        connection.execute("DELETE FROM store", prepare=False)
        record = "INSERT INTO store (id, format, version) VALUES (%s, %s, %s)"
        connection.execute(record, (id, VERSION, len(scripts)), prepare=False)
    return id, len(scripts)


def _find_locked(connection: Connection, db: PostgresConnections) -> tuple[str, int]:
    """The store's id and version under the lock, with which no other process creates it."""
    named = _name("{}.store", db.schema).as_string(connection)
    there = "SELECT to_regclass(%s) IS NOT NULL"
    row = connection.execute(there, (named,), prepare=False).fetchone()
    found = _find_store(connection, db) if row and row[0] else None
    return found or (fresh_uid(), 0)


def _check_encoding(connection: Connection, db: PostgresConnections) -> None:
    row = connection.execute("SELECT current_setting('server_encoding')", prepare=False).fetchone()
    if row and row[0] != "UTF8":
        raise BadUrl(
            f"the encoding of {db.shown} is {row[0]}, which cannot hold every text: make a database with "
            "UTF8 (createdb -E UTF8 -T template0 …)"
        )


def _name(query: str, schema: str) -> sql.Composed:
    return sql.SQL(query).format(sql.Identifier(schema))
