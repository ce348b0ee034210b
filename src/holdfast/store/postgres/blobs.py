"""Blobs in rows of up to 1 MiB, each written by itself: nobody waits for a large one to arrive.

The parts have the name of their upload, and one row makes them a blob. Times are the server's.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

from ...errors import StoreFailed
from ...ids import fresh_uid
from ...limits import BLOB_PART_BYTES
from ..driver import BlobRow, FoundBlob
from .connections import Connection, Connections
from .removal import transaction
from .statements import Statements

_BEGIN: Final = """
    INSERT INTO $schema.uploads (upload, begun_at) VALUES (%s, clock_timestamp())
    ON CONFLICT DO NOTHING RETURNING $durable
"""
# Nothing, if somebody took this upload for dead.
_PART: Final = """
    INSERT INTO $schema.blob_parts (upload, part, data)
    SELECT upload, %(part)s, %(data)s FROM $schema.uploads WHERE upload = %(upload)s
    ON CONFLICT DO NOTHING RETURNING $durable
"""
_FINISH: Final = """
    INSERT INTO $schema.blobs (digest, upload, size, put_at, info)
    VALUES (%s, %s, %s, clock_timestamp(), %s)
    ON CONFLICT (digest) DO UPDATE SET put_at = excluded.put_at
    RETURNING upload
"""
_AGAIN: Final = "UPDATE $schema.blobs SET put_at = clock_timestamp() WHERE digest = %s RETURNING $durable"
_REMOVE: Final = """
    WITH removed AS (
        DELETE FROM $schema.blobs WHERE digest = %s AND put_at < %s RETURNING upload
    ),
    left_over AS (
        INSERT INTO $schema.uploads (upload, begun_at) SELECT upload, '-infinity' FROM removed
    )
    SELECT upload, $durable FROM removed
"""


class Blobs:
    """The blobs of one store."""

    def __init__(self, db: Connections, sql: Statements) -> None:
        self._db, self._sql = db, sql

    def put(self, digest: str, parts: Iterable[bytes], info: bytes) -> None:
        """Keep the bytes under their digest, unless they are there already. Durable."""
        if self._look(_AGAIN, [digest]):
            return
        upload = fresh_uid()
        self._look(_BEGIN, [upload])
        try:
            size = self._receive(upload, parts)
            finish = partial(self._finish, digest=digest, upload=upload, size=size, info=info)
            first = self._db.again(finish)
        except BaseException:
            with suppress(StoreFailed):
                self._clear(upload)
            raise
        if first != upload:
            self._clear(upload)

    def _receive(self, upload: str, parts: Iterable[bytes]) -> int:
        size = 0
        for part, data in enumerate(_cut(parts)):
            # Writing a part twice is harmless: what is there already is the same.
            self._look(_PART, {"upload": upload, "part": part, "data": data})
            size += len(data)
        return size

    def _finish(self, connection: Connection, digest: str, upload: str, size: int, info: bytes) -> str:
        """Make it a blob, if it is the first; the upload that has the blob's parts."""
        sql = self._sql
        with transaction(sql, connection):
            find = "SELECT 1 FROM $schema.uploads WHERE upload = %s FOR UPDATE"
            if sql.row(connection, find, [upload]) is None:
                there = sql.row(connection, "SELECT upload FROM $schema.blobs WHERE digest = %s", [digest])
                if there is not None and there[0] == upload:
                    return upload  # An earlier try had landed.
                raise StoreFailed(
                    f"{self._db.shown}: blob {digest} took so long to arrive that it was swept away as an "
                    "upload that had died; put it again, and collect blobs with a longer grace period"
                )
            (first,) = sql.row(connection, _FINISH, [digest, upload, size, info.decode()]) or (None,)
            if first == upload:
                sql.do(connection, "DELETE FROM $schema.uploads WHERE upload = %s", [upload])
            return str(first)

    def find(self, digest: str) -> FoundBlob | None:
        """The blob; its parts are fetched one at a time."""
        rows = self._look("SELECT info, upload, size FROM $schema.blobs WHERE digest = %s", [digest])
        return FoundBlob(rows[0][0].encode(), self._parts(rows[0][1]), rows[0][2]) if rows else None

    def _parts(self, upload: str) -> Iterator[bytes]:
        query = "SELECT data FROM $schema.blob_parts WHERE upload = %s AND part = %s"
        for part in itertools.count():
            rows = self._look(query, [upload, part])
            if not rows:
                return
            yield rows[0][0]

    def list_rows(self, after: str | None, limit: int) -> Sequence[BlobRow]:
        """In the order of their digests."""
        query = """
            SELECT digest, size, put_at, info FROM $schema.blobs
            WHERE digest > %s ORDER BY digest LIMIT %s
        """
        return [
            BlobRow(digest, size, put_at.astimezone(UTC), info.encode())
            for digest, size, put_at, info in self._look(query, [after or "", limit])
        ]

    def remove(self, digest: str, put_before: datetime) -> bool:
        """First it is no blob any more; then its parts go, like those of an upload that died."""
        row = self._db.once(lambda connection: self._sql.row(connection, _REMOVE, [digest, put_before]))
        if row is None:
            return False
        self._clear(row[0])
        return True

    def sweep(self, begun_before: datetime) -> int:
        """Remove the parts of uploads that began before then and never ended."""
        rows = self._look("SELECT upload FROM $schema.uploads WHERE begun_at < %s", [begun_before])
        for (upload,) in rows:
            self._clear(upload)
        return len(rows)

    def _clear(self, upload: str) -> None:
        """Remove the parts of an upload that is no blob."""
        self._db.again(lambda connection: self._clear_at_once(connection, upload))

    def _clear_at_once(self, connection: Connection, upload: str) -> None:
        # Locked: it may be about to become a blob.
        find = "SELECT 1 FROM $schema.uploads WHERE upload = %s FOR UPDATE"
        with transaction(self._sql, connection):
            if self._sql.row(connection, find, [upload]) is not None:
                for table in ("blob_parts", "uploads"):
                    self._sql.do(connection, f"DELETE FROM $schema.{table} WHERE upload = %s", [upload])

    def _look(self, statement: str, values: list[Any] | dict[str, Any]) -> list[tuple[Any, ...]]:
        return self._db.again(lambda connection: self._sql.rows(connection, statement, values))


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
