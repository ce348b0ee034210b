"""Blobs in rows of up to 1 MiB, each written by itself: nobody waits for a large one to arrive."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from functools import partial

from ...errors import StoreFailed
from ...ids import fresh_uid
from ...limits import BLOB_PART_BYTES
from .connections import Connection, Connections
from .removal import transaction
from .statements import Statements

_BEGIN = "INSERT INTO $schema.uploads (upload, begun_at) VALUES (%s, clock_timestamp()) RETURNING $durable"
_PART = """
    INSERT INTO $schema.blob_parts (upload, part, data) VALUES (%s, %s, %s)
    ON CONFLICT (upload, part) DO NOTHING
    RETURNING $durable
"""
_NAME = """
    INSERT INTO $schema.blobs (digest, upload, size, put_at, info)
    VALUES (%s, %s, %s, clock_timestamp(), %s)
    ON CONFLICT (digest) DO NOTHING
    RETURNING 1
"""


class Blobs:
    """The blobs of one store."""

    def __init__(self, db: Connections, sql: Statements) -> None:
        self._db, self._sql = db, sql

    def put(self, digest: str, parts: Iterable[bytes], info: bytes) -> None:
        if self.find(digest) is not None:
            return
        # A name of this upload's own until it is whole.
        upload = fresh_uid()
        self._write(_BEGIN, [upload])
        size = 0
        for part, data in enumerate(_cut(parts)):
            self._write(_PART, [upload, part, data])
            size += len(data)
        self._db.again(lambda connection: self._finish(connection, digest, upload, size, info))

    def _write(self, statement: str, values: list[object]) -> None:
        # Doing it twice is harmless: the name is new, and what is there already is the same.
        self._db.again(lambda connection: self._sql.rows(connection, statement, values))

    def _finish(self, connection: Connection, digest: str, upload: str, size: int, info: bytes) -> None:
        sql = self._sql
        with transaction(sql, connection):
            if (
                sql.row(connection, "DELETE FROM $schema.uploads WHERE upload = %s RETURNING 1", [upload])
                is None
            ):
                there = "SELECT 1 FROM $schema.blobs WHERE digest = %s"
                if sql.row(connection, there, [digest]) is None:
                    raise StoreFailed("an upload took so long that it was swept away: put the blob again")
                return  # An earlier try had landed.
            if sql.row(connection, _NAME, [digest, upload, size, info.decode()]) is None:
                sql.do(connection, "DELETE FROM $schema.blob_parts WHERE upload = %s", [upload])

    def find(self, digest: str) -> tuple[bytes, Iterator[bytes]] | None:
        query = "SELECT upload, info FROM $schema.blobs WHERE digest = %s"
        row = self._db.again(lambda connection: self._sql.row(connection, query, [digest]))
        return None if row is None else (row[1].encode(), self._parts(row[0]))

    def _parts(self, upload: str) -> Iterator[bytes]:
        query = "SELECT data FROM $schema.blob_parts WHERE upload = %s AND part = %s"
        for part in itertools.count():
            row = self._db.again(partial(self._sql.row, statement=query, values=[upload, part]))
            if row is None:
                return
            yield row[0]


def _cut(parts: Iterable[bytes]) -> Iterator[bytes]:
    """The same bytes in parts of one size, the last one smaller."""
    kept = bytearray()
    for part in parts:
        kept += part
        while len(kept) >= BLOB_PART_BYTES:
            yield bytes(kept[:BLOB_PART_BYTES])
            del kept[:BLOB_PART_BYTES]
    if kept:
        yield bytes(kept)
