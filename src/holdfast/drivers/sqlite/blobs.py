"""Blobs: rows of parts under the id of their upload, and one row that makes them a blob."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

from ...blobs.home import ListedBlob, upload_swept
from ...blobs.metadata import decode_context
from ...blobs.uploads import UploadedBlobs, UploadRow
from ...errors import Corrupt
from ...system.clock import utc_now
from .connections import SqliteConnections, repeated

_REMOVED_AT_ONCE: Final = 16
"""Parts that one transaction removes: like those that bring them, it must be short."""

_FINISH: Final = """
    INSERT INTO blobs (digest, info, upload, size, put_at) VALUES (?, ?, ?, ?, ?)
    ON CONFLICT (digest) DO UPDATE SET put_at = excluded.put_at
    RETURNING upload
"""


class SqliteBlobs(UploadedBlobs):
    """The blobs of one store. Transactions are short, so that other writers get their turn."""

    def __init__(self, db: SqliteConnections, store_id: str) -> None:
        super().__init__(store_id)
        self._db = db

    @repeated
    def _put_again(self, digest: str) -> bool:
        if self._find_row(digest) is None:
            return False
        with self._db.writing() as db:
            query = "UPDATE blobs SET put_at = ? WHERE digest = ? RETURNING 1"
            return db.execute(query, (_text(utc_now()), digest)).get is not None

    @repeated
    def _begin(self, upload: str) -> None:
        with self._db.writing() as db:
            db.execute("INSERT OR IGNORE INTO blob_uploads VALUES (?, ?)", (upload, _text(utc_now())))

    @repeated
    def _add_part(self, upload: str, number: int, data: bytes) -> None:
        with self._db.writing() as db:
            db.execute(
                "INSERT OR IGNORE INTO blob_parts SELECT upload, ?, ? FROM blob_uploads WHERE upload = ?",
                (number, data, upload),
            )

    @repeated
    def _finish(self, digest: str, upload: str, size: int, info: bytes) -> str:
        with self._db.writing() as db:
            if db.execute("SELECT 1 FROM blob_uploads WHERE upload = ?", (upload,)).get is None:
                if db.execute("SELECT upload FROM blobs WHERE digest = ?", (digest,)).get == upload:
                    return upload  # A repeated call: the first one had landed.
                raise upload_swept(digest, str(self._db.path))
            first = str(db.execute(_FINISH, (digest, info.decode(), upload, size, _text(utc_now()))).get)
            if first == upload:
                db.execute("DELETE FROM blob_uploads WHERE upload = ?", (upload,))
            return first

    @repeated
    def _find_row(self, digest: str) -> UploadRow | None:
        with self._db.reading() as db:
            query = "SELECT CAST(info AS BLOB), upload, size FROM blobs WHERE digest = ?"
            row: Any = db.execute(query, (digest,)).fetchone()
        if row and not isinstance(row[2], int):
            raise self._corrupt(digest, "its size is no number")
        return UploadRow(*row) if row else None

    @repeated
    def _find_part(self, upload: str, number: int) -> bytes | None:
        query = "SELECT data FROM blob_parts WHERE upload = ? AND part = ?"
        with self._db.reading() as db:
            row: Any = db.execute(query, (upload, number)).fetchone()
        if row and not isinstance(row[0], bytes):
            raise self._corrupt(upload, f"part {number} holds no bytes")
        return row[0] if row else None

    def _corrupt(self, blob: str, why: str) -> Corrupt:
        return Corrupt(f"{self._db.path}, blob {blob}", why)

    @repeated
    def list_blobs(self, after: str | None, limit: int) -> Sequence[ListedBlob]:
        query = """
            SELECT digest, size, put_at, CAST(info AS BLOB) FROM blobs
            WHERE digest > ? ORDER BY digest LIMIT ?
        """
        with self._db.reading() as db:
            rows: Any = db.execute(query, (after or "", limit)).fetchall()
        return [self._listed(*row) for row in rows]

    def _listed(self, digest: str, size: int, at: str, info: bytes) -> ListedBlob:
        try:
            put_at = datetime.fromisoformat(at)
            if put_at.tzinfo is None or not isinstance(size, int):
                raise ValueError("a time without a zone, or a size that is no number")
        except (TypeError, ValueError) as error:
            raise self._corrupt(digest, f"its row makes no sense ({error})") from error
        return ListedBlob(digest, size, put_at, decode_context(info, digest, self.name))

    @repeated
    def _unmake(self, digest: str, put_before: datetime) -> str | None:
        with self._db.writing() as db:
            upload: Any = db.execute(
                "DELETE FROM blobs WHERE digest = ? AND put_at < ? RETURNING upload",
                (digest, _text(put_before)),
            ).get
            if upload is None:
                return None
            long_ago = datetime.min.replace(tzinfo=UTC)
            db.execute("INSERT INTO blob_uploads VALUES (?, ?)", (upload, _text(long_ago)))
        return str(upload)

    @repeated
    def _list_uploads(self, begun_before: datetime) -> Sequence[str]:
        with self._db.reading() as db:
            query = "SELECT upload FROM blob_uploads WHERE begun_at < ?"
            rows: Any = db.execute(query, (_text(begun_before),)).fetchall()
        return [upload for (upload,) in rows]

    @repeated
    def _clear(self, upload: str) -> None:
        """Remove a few parts at a time."""
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
    """Text of one length, so that texts compare as times do."""
    return at.astimezone(UTC).isoformat(timespec="microseconds")
