"""Blobs: two files each. The second one, `<digest>.info`, says that the first is whole."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from ...limits import BLOB_PART_BYTES
from .files import find_bytes, make_directory, move, put, translated, written
from .layout import plain_name
from .locks import held


class Blobs:
    """The blobs of one store."""

    def __init__(self, path: Path, scratch: Path, lock: Path) -> None:
        self._path, self._scratch, self._lock = path, scratch, lock

    def put(self, digest: str, parts: Iterable[bytes], info: bytes) -> None:
        """Keep the bytes under their digest, unless they are there already. Durable."""
        data, description = self._files(digest)
        with translated(data):
            if description.exists():
                return
            make_directory(data.parent)
        # The lock is not held while the bytes arrive, which may take long.
        with written(self._scratch, parts) as temporary, translated(data), held(self._lock):
            if not description.exists():
                move(temporary, data)
                put(description, [info], self._scratch)

    def find(self, digest: str) -> tuple[bytes, Iterator[bytes]] | None:
        """What `put` was given."""
        data, description = self._files(digest)
        info = find_bytes(description)
        return (info, _parts(data)) if info is not None else None

    def _files(self, digest: str) -> tuple[Path, Path]:
        folder = self._path / plain_name(digest)[:2]
        return folder / digest, folder / f"{digest}.info"


def _parts(path: Path) -> Iterator[bytes]:
    with translated(path), open(path, "rb", buffering=0) as file:
        while part := file.read(BLOB_PART_BYTES):
            yield part
