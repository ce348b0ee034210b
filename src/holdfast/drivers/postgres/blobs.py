"""Blobs: rows of parts under the id of their upload, and one row that makes them a blob.

Times are the server's.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

from ...blobs.home import ListedBlob, upload_swept
from ...blobs.metadata import decode_context
from ...blobs.uploads import UploadedBlobs, UploadRow
from .connections import Connection, PostgresConnections
from .statements import Statements, transaction

_BEGIN: Final = """
    INSERT INTO $schema.uploads (upload, begun_at) VALUES (%s, clock_timestamp())
    ON CONFLICT DO NOTHING RETURNING $durable
"""
# Inserts nothing if the upload was swept. Locked: a part that came during a sweep would stay for good.
_PART: Final = """
    INSERT INTO $schema.blob_parts (upload, part, data)
    SELECT upload, %(part)s, %(data)s FROM $schema.uploads WHERE upload = %(upload)s FOR KEY SHARE
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


class PostgresBlobs(UploadedBlobs):
    """The blobs of one store."""

    def __init__(self, db: PostgresConnections, sql: Statements, store_id: str) -> None:
        super().__init__(store_id)
        self._db, self._sql = db, sql

    def _put_again(self, digest: str) -> bool:
        return bool(self._look(_AGAIN, [digest]))

    def _begin(self, upload: str) -> None:
        self._look(_BEGIN, [upload])

    def _add_part(self, upload: str, number: int, data: bytes) -> None:
        # Writing a part twice is harmless: what is there already is the same.
        self._look(_PART, {"upload": upload, "part": number, "data": data})

    def _finish(self, digest: str, upload: str, size: int, info: bytes) -> str:
        return self._db.again(lambda connection: self._finish_at_once(connection, digest, upload, size, info))

    def _finish_at_once(
        self, connection: Connection, digest: str, upload: str, size: int, info: bytes
    ) -> str:
        sql = self._sql
        with transaction(sql, connection):
            find = "SELECT 1 FROM $schema.uploads WHERE upload = %s FOR UPDATE"
            if sql.row(connection, find, [upload]) is None:
                there = sql.row(connection, "SELECT upload FROM $schema.blobs WHERE digest = %s", [digest])
                if there is not None and there[0] == upload:
                    return upload  # An earlier try had landed.
                raise upload_swept(digest, self._db.shown)
            (first,) = sql.row(connection, _FINISH, [digest, upload, size, info.decode()]) or (None,)
            if first == upload:
                sql.do(connection, "DELETE FROM $schema.uploads WHERE upload = %s", [upload])
            return str(first)

    def _find_row(self, digest: str) -> UploadRow | None:
        rows = self._look("SELECT info, upload, size FROM $schema.blobs WHERE digest = %s", [digest])
        return UploadRow(rows[0][0].encode(), rows[0][1], rows[0][2]) if rows else None

    def _find_part(self, upload: str, number: int) -> bytes | None:
        query = "SELECT data FROM $schema.blob_parts WHERE upload = %s AND part = %s"
        rows = self._look(query, [upload, number])
        return rows[0][0] if rows else None

    def list_blobs(self, after: str | None, limit: int) -> Sequence[ListedBlob]:
        query = """
            SELECT digest, size, put_at, info FROM $schema.blobs
            WHERE digest > %s ORDER BY digest LIMIT %s
        """
        return [
            ListedBlob(digest, size, put_at.astimezone(UTC), decode_context(info.encode(), digest, self.name))
            for digest, size, put_at, info in self._look(query, [after or "", limit])
        ]

    def _unmake(self, digest: str, put_before: datetime) -> str | None:
        row = self._db.once(lambda connection: self._sql.row(connection, _REMOVE, [digest, put_before]))
        return None if row is None else row[0]

    def _list_uploads(self, begun_before: datetime) -> Sequence[str]:
        rows = self._look("SELECT upload FROM $schema.uploads WHERE begun_at < %s", [begun_before])
        return [upload for (upload,) in rows]

    def _clear(self, upload: str) -> None:
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
