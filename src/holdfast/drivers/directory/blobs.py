"""Blobs: two files each. One has the bytes; the other, `<digest>.info`, says that they are whole, and its
time when they were put last."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple, Protocol

from ...limits import BLOB_PART_BYTES
from ...system.clock import utc_now
from ...system.file_locks import Held
from ...system.files import (
    find_bytes,
    list_names,
    make_directory,
    move,
    put,
    sync_directory,
    translated,
    written,
)
from ..contract import BlobRow, FoundBlob
from .layout import place as place_in

_INFO = ".info"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Place(NamedTuple):
    """Where the bytes of a blob lie. The time of `mark`, which may be the bytes themselves, is when it was
    taken; a place without a mark is free."""

    digest: str
    path: Path
    mark: Path

    def clear(self) -> None:
        """Remove the bytes. The mark goes last: until then it tells of what is left."""
        self.path.unlink(missing_ok=True)
        self.mark.unlink(missing_ok=True)


class Places(Protocol):
    """Which place a blob has."""

    def find(self, digest: str, info: bytes) -> Place:
        """The place of the blob with this info."""

    def take(self, place: Place, is_blob: Callable[[Place], bool]) -> None:
        """Mark the place, unless it is another blob's, and make its directory. Called by one at a time."""

    def list_taken(self) -> Iterable[Place]:
        """Every place that is not free."""


class ByDigest:
    """Bytes lie at `<2 characters>/<digest>`, where no other blob's can."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def find(self, digest: str, info: bytes) -> Place:
        path = self._root / digest[:2] / digest
        return Place(digest, path, mark=path)

    def take(self, place: Place, is_blob: Callable[[Place], bool]) -> None:
        make_directory(place.path.parent)

    def list_taken(self) -> Iterator[Place]:
        for folder in list_names(self._root):
            for name in list_names(self._root / folder) if len(folder) == 2 else ():
                if len(name) == 64:
                    yield self.find(name, b"")


class Blobs:
    """The blobs of a directory. Infos are in `path`; bytes are where `places` says."""

    def __init__(self, path: Path, scratch: Path, lock: Path, places: Places) -> None:
        self._path, self._scratch, self._lock, self._places = path, scratch, lock, places

    def put(self, digest: str, parts: Iterable[bytes], info: bytes) -> None:
        """Keep the bytes under their digest, unless they are there already. Durable."""
        description = self._description(digest)
        with translated(description), Held(self._lock):
            if self._put_again(digest, description):
                return
        # The lock is not held while the bytes arrive, which may take long.
        with written(self._scratch, parts) as temporary, translated(description), Held(self._lock):
            if not self._put_again(digest, description):
                # What was said first stays, if only the bytes are gone.
                info = find_bytes(description) or info
                place = self._places.find(digest, info)
                self._places.take(place, self._is_blob)
                move(temporary, place.path)
                make_directory(description.parent)
                put(description, [info], self._scratch)
                _note_put(description)

    def _put_again(self, digest: str, description: Path) -> bool:
        """Whether the blob is there; then it counts as put now.

        Its new time is not synced: it is for the moment until an entry refers to the blob, which the one who
        puts it will not live to write if the power fails now.
        """
        info = find_bytes(description)
        if info is None or not self._places.find(digest, info).path.exists():
            return False
        _note_put(description)
        return True

    def find(self, digest: str) -> FoundBlob | None:
        """What `put` was given."""
        info = find_bytes(self._description(digest))
        if info is None:
            return None
        data = self._places.find(digest, info).path
        return FoundBlob(info, _parts(data), _size(data))

    def list_rows(self, after: str | None, limit: int) -> Sequence[BlobRow]:
        """In the order of their digests."""
        rows: list[BlobRow] = []
        for folder in sorted(list_names(self._path)):
            if after is not None and folder < after[:2]:
                continue
            names = [name for name in list_names(self._path / folder) if name.endswith(_INFO)]
            for digest in sorted(name.removesuffix(_INFO) for name in names):
                if len(rows) >= limit:
                    return rows
                if after is None or digest > after:
                    rows += self._rows(digest)
        return rows

    def _rows(self, digest: str) -> list[BlobRow]:
        """One row, or none if the blob was removed meanwhile."""
        description = self._description(digest)
        info = find_bytes(description)
        with suppress(FileNotFoundError):
            if info is not None:
                size = _size(self._places.find(digest, info).path)
                return [BlobRow(digest, size, _changed_at(description), info)]
        return []

    def remove(self, digest: str, put_before: datetime) -> bool:
        """First the info, without which there is no blob. Durable."""
        description = self._description(digest)
        with Held(self._lock):
            info = find_bytes(description)
            if info is None or _changed_at(description) >= put_before:
                return False
            description.unlink()
            sync_directory(description.parent)
            self._places.find(digest, info).clear()
            return True

    def sweep(self, begun_before: datetime) -> int:
        """Remove bytes without an info: somebody died between the two."""
        swept = 0
        for place in self._places.list_taken():
            if self._is_blob(place):
                continue
            with Held(self._lock), suppress(FileNotFoundError):
                if not self._is_blob(place) and _changed_at(place.mark) < begun_before:
                    place.clear()
                    swept += 1
        return swept

    def _is_blob(self, place: Place) -> bool:
        info = find_bytes(self._description(place.digest))
        return info is not None and self._places.find(place.digest, info) == place

    def _description(self, digest: str) -> Path:
        return place_in(self._path / digest[:2], digest, _INFO)


def _note_put(description: Path) -> None:
    """By our clock: the file system's may be some milliseconds behind it."""
    now_ns = (utc_now() - _EPOCH) // timedelta(microseconds=1) * 1000
    os.utime(description, ns=(now_ns, now_ns))


def _changed_at(path: Path) -> datetime:
    return _EPOCH + timedelta(microseconds=path.stat().st_mtime_ns // 1000)


def _size(path: Path) -> int:
    with suppress(FileNotFoundError):
        return path.stat().st_size
    return 0


def _parts(path: Path) -> Iterator[bytes]:
    with translated(path), open(path, "rb", buffering=0) as file:
        while part := file.read(BLOB_PART_BYTES):
            yield part
