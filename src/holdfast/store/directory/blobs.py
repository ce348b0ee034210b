"""Blobs: two files each. The second one, `<digest>.info`, says that the first is whole, and its time when it
was put last."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from ...clock import utc_now
from ...limits import BLOB_PART_BYTES
from ..driver import BlobRow, FoundBlob
from .files import find_bytes, list_names, make_directory, move, put, sync_directory, translated, written
from .layout import plain_name
from .locks import held

_INFO = ".info"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Blobs:
    """The blobs of one store."""

    def __init__(self, path: Path, scratch: Path, lock: Path) -> None:
        self._path, self._scratch, self._lock = path, scratch, lock

    def put(self, digest: str, parts: Iterable[bytes], info: bytes) -> None:
        """Keep the bytes under their digest, unless they are there already. Durable."""
        data, description = self._files(digest)
        with translated(data), held(self._lock):
            if _put_again(data, description):
                return
        # The lock is not held while the bytes arrive, which may take long.
        with written(self._scratch, parts) as temporary, translated(data), held(self._lock):
            if not _put_again(data, description):
                make_directory(data.parent)
                move(temporary, data)
                put(description, [info], self._scratch)
                _note_put(description)

    def find(self, digest: str) -> FoundBlob | None:
        """What `put` was given."""
        data, description = self._files(digest)
        info = find_bytes(description)
        return FoundBlob(info, _parts(data), _size(data)) if info is not None else None

    def list_rows(self, after: str | None, limit: int) -> Sequence[BlobRow]:
        """In the order of their digests."""
        rows: list[BlobRow] = []
        for folder in sorted(list_names(self._path)):
            if after is not None and folder < after[:2]:
                continue
            names = (
                name.removesuffix(_INFO) for name in list_names(self._path / folder) if name.endswith(_INFO)
            )
            for digest in sorted(name for name in names if after is None or name > after):
                if len(rows) == limit:
                    return rows
                rows += self._rows(digest)
        return rows

    def _rows(self, digest: str) -> list[BlobRow]:
        """One row, or none if the blob was removed meanwhile."""
        data, description = self._files(digest)
        info = find_bytes(description)
        if info is None:
            return []
        return [BlobRow(digest, _size(data), _put_at(description), info)]

    def remove(self, digest: str, put_before: datetime) -> bool:
        """First the info, without which there is no blob. Durable."""
        data, description = self._files(digest)
        with held(self._lock):
            if not description.exists() or _put_at(description) >= put_before:
                return False
            description.unlink()
            sync_directory(description.parent)
            data.unlink(missing_ok=True)
            return True

    def sweep(self, begun_before: datetime) -> int:
        """Remove bytes without an info: somebody died between the two files."""
        swept = 0
        for folder in list_names(self._path):
            with held(self._lock):
                names = set(list_names(self._path / folder))
                for name in names:
                    path = self._path / folder / name
                    alone = not name.endswith(_INFO) and name + _INFO not in names
                    if alone and _put_at(path) < begun_before:
                        path.unlink()
                        swept += 1
        return swept

    def _files(self, digest: str) -> tuple[Path, Path]:
        folder = self._path / plain_name(digest)[:2]
        return folder / digest, folder / f"{digest}{_INFO}"


def _put_again(data: Path, description: Path) -> bool:
    """Whether the blob is there; then it counts as put now.

    Its new time is not synced: it is for the moment until an entry refers to the blob, which the one who puts
    it will not live to write if the power fails now.
    """
    if not (description.exists() and data.exists()):
        return False
    _note_put(description)
    return True


def _note_put(description: Path) -> None:
    """By our clock: the file system's may be some milliseconds behind it."""
    now_ns = (utc_now() - _EPOCH) // timedelta(microseconds=1) * 1000
    os.utime(description, ns=(now_ns, now_ns))


def _put_at(path: Path) -> datetime:
    return _EPOCH + timedelta(microseconds=path.stat().st_mtime_ns // 1000)


def _size(path: Path) -> int:
    with suppress(FileNotFoundError):
        return path.stat().st_size
    return 0


def _parts(path: Path) -> Iterator[bytes]:
    with translated(path), open(path, "rb", buffering=0) as file:
        while part := file.read(BLOB_PART_BYTES):
            yield part
