"""Blobs: rows of parts under the name of their upload, and one row that makes them a blob."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final

from ...clock import utc_now
from ...errors import StoreFailed
from ...ids import fresh_uid
from ..driver import BlobRow, FoundBlob, swept_away
from .connections import Connections

_REMOVED_AT_ONCE: Final = 16
"""Parts that one transaction removes: like those that bring them, it must be short."""

_FINISH: Final = """
    INSERT INTO blobs (digest, info, upload, size, put_at) VALUES (?, ?, ?, ?, ?)
    ON CONFLICT (digest) DO UPDATE SET put_at = excluded.put_at
    RETURNING upload
"""


class Blobs:
    """The blobs of one store."""

    def __init__(self, db: Connections) -> None:
        self._db = db

    def put(self, digest: str, parts: Iterable[bytes], info: bytes) -> None:
        """Keep the bytes under their digest, unless they are there already. Durable."""
        if self._put_again(digest):
            return
        upload = fresh_uid()
        with self._db.writing() as db:
            db.execute("INSERT INTO blob_uploads VALUES (?, ?)", (upload, _text(utc_now())))
        try:
            size = self._receive(upload, parts)
            first = self._finish(digest, upload, size, info)
        except BaseException:
            with suppress(StoreFailed):
                self._clear(upload)
            raise
        if first != upload:
            self._clear(upload)

    def _put_again(self, digest: str) -> bool:
        if self.find(digest) is None:
            return False
        with self._db.writing() as db:
            query = "UPDATE blobs SET put_at = ? WHERE digest = ? RETURNING 1"
            return db.execute(query, (_text(utc_now()), digest)).get is not None

    def _receive(self, upload: str, parts: Iterable[bytes]) -> int:
        """Short transactions, so that others get their turn."""
        size = 0
        for part, data in enumerate(parts):
            size += len(data)
            with self._db.writing() as db:
                # Gone if somebody took this upload for dead.
                db.execute(
                    "INSERT INTO blob_parts SELECT upload, ?, ? FROM blob_uploads WHERE upload = ?",
                    (part, data, upload),
                )
        return size

    def _finish(self, digest: str, upload: str, size: int, info: bytes) -> str:
        """Make it a blob, if it is the first; the upload that has the blob's parts."""
        with self._db.writing() as db:
            if db.execute("SELECT 1 FROM blob_uploads WHERE upload = ?", (upload,)).get is None:
                raise swept_away(digest, str(self._db.path))
            first = str(db.execute(_FINISH, (digest, info.decode(), upload, size, _text(utc_now()))).get)
            if first == upload:
                db.execute("DELETE FROM blob_uploads WHERE upload = ?", (upload,))
            return first

    def find(self, digest: str) -> FoundBlob | None:
        """The blob; its parts are fetched one at a time."""
        with self._db.reading() as db:
            query = "SELECT CAST(info AS BLOB), upload, size FROM blobs WHERE digest = ?"
            row: Any = db.execute(query, (digest,)).fetchone()
        return FoundBlob(row[0], self._parts(row[1]), row[2]) if row else None

    def _parts(self, upload: str) -> Iterator[bytes]:
        part = 0
        query = "SELECT data FROM blob_parts WHERE upload = ? AND part = ?"
        while True:
            with self._db.reading() as db:
                row = db.execute(query, (upload, part)).fetchone()
            if row is None:
                return
            yield row[0]
            part += 1

    def list_rows(self, after: str | None, limit: int) -> Sequence[BlobRow]:
        """In the order of their digests."""
        query = """
            SELECT digest, size, put_at, CAST(info AS BLOB) FROM blobs
            WHERE digest > ? ORDER BY digest LIMIT ?
        """
        with self._db.reading() as db:
            rows: Any = db.execute(query, (after or "", limit)).fetchall()
        return [BlobRow(digest, size, datetime.fromisoformat(at), info) for digest, size, at, info in rows]

    def remove(self, digest: str, put_before: datetime) -> bool:
        """First it is no blob any more; then its parts go, like those of an upload that died."""
        with self._db.writing() as db:
            upload = db.execute(
                "DELETE FROM blobs WHERE digest = ? AND put_at < ? RETURNING upload",
                (digest, _text(put_before)),
            ).get
            if upload is None:
                return False
            long_ago = datetime.min.replace(tzinfo=UTC)
            db.execute("INSERT INTO blob_uploads VALUES (?, ?)", (upload, _text(long_ago)))
        self._clear(str(upload))
        return True

    def sweep(self, begun_before: datetime) -> int:
        """Remove the parts of uploads that began before then and never ended."""
        with self._db.reading() as db:
            query = "SELECT upload FROM blob_uploads WHERE begun_at < ?"
            uploads: Any = db.execute(query, (_text(begun_before),)).fetchall()
        for (upload,) in uploads:
            self._clear(upload)
        return len(uploads)

    def _clear(self, upload: str) -> None:
        """Remove the parts of an upload that is no blob, a few at a time."""
        some = f"""
            DELETE FROM blob_parts WHERE upload = ?1 AND part IN (
                SELECT part FROM blob_parts
                WHERE upload = ?1 AND EXISTS (SELECT 1 FROM blob_uploads WHERE upload = ?1)
                LIMIT {_REMOVED_AT_ONCE}
            )
        """
        removed = _REMOVED_AT_ONCE
        while removed == _REMOVED_AT_ONCE:
            with self._db.writing() as db:
                db.execute(some, (upload,))
                removed = db.changes()
                if removed < _REMOVED_AT_ONCE:
                    db.execute("DELETE FROM blob_uploads WHERE upload = ?", (upload,))


def _text(at: datetime) -> str:
    """Of one length, so that texts compare as times do."""
    return at.astimezone(UTC).isoformat(timespec="microseconds")
