"""Blobs of a driver with tables: parts under the name of their upload, and one row that makes them a blob.

An upload is known before its first part is there, and until it is a blob: whatever dies on the way leaves
something for `sweep` to find. Each step is durable before the next one begins.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime

from ..errors import StoreFailed
from ..ids import fresh_uid
from ..limits import BLOB_PART_BYTES
from .chunking import even_parts


class UploadedBlobs(ABC):
    """What `put_blob`, `remove_blob` and `sweep_uploads` do, and in which order."""

    def put(self, digest: str, parts: Iterable[bytes], info: bytes) -> None:
        """Keep the bytes under their digest, unless they are there already. Durable."""
        if self._put_again(digest):
            return
        upload = fresh_uid()
        self._begin(upload)
        try:
            size = self._receive(upload, parts)
            first = self._finish(digest, upload, size, info)
        except BaseException:
            with suppress(StoreFailed):
                self._clear(upload)
            raise
        if first != upload:
            self._clear(upload)

    def _receive(self, upload: str, parts: Iterable[bytes]) -> int:
        """Each part by itself: nobody waits for a large blob to arrive."""
        size = 0
        for number, data in enumerate(even_parts(parts, BLOB_PART_BYTES)):
            self._add_part(upload, number, data)
            size += len(data)
        return size

    def remove(self, digest: str, put_before: datetime) -> bool:
        """First it is no blob any more; then its parts go, like those of an upload that died."""
        upload = self._unmake(digest, put_before)
        if upload is None:
            return False
        self._clear(upload)
        return True

    def sweep(self, begun_before: datetime) -> int:
        """Remove the parts of uploads that began before then and never ended."""
        uploads = self._list_uploads(begun_before)
        for upload in uploads:
            self._clear(upload)
        return len(uploads)

    def _parts(self, upload: str) -> Iterator[bytes]:
        """Fetched one at a time."""
        for number in itertools.count():
            data = self._find_part(upload, number)
            if data is None:
                return
            yield data

    @abstractmethod
    def _put_again(self, digest: str) -> bool:
        """Whether the blob is there; then it counts as put now."""

    @abstractmethod
    def _begin(self, upload: str) -> None:
        """Note that the upload is under way, and since when."""

    @abstractmethod
    def _add_part(self, upload: str, number: int, data: bytes) -> None:
        """Write the part, unless somebody took this upload for dead."""

    @abstractmethod
    def _finish(self, digest: str, upload: str, size: int, info: bytes) -> str:
        """Make it a blob, if it is the first, else count that one as put now; the upload that has the
        blob's parts. At once: `swept_away`, and no blob, if somebody took this upload for dead."""

    @abstractmethod
    def _unmake(self, digest: str, put_before: datetime) -> str | None:
        """Make the blob an upload that died long ago, at once, if it was last put before then; which one."""

    @abstractmethod
    def _list_uploads(self, begun_before: datetime) -> Sequence[str]:
        """Those that began before then and never ended."""

    @abstractmethod
    def _find_part(self, upload: str, number: int) -> bytes | None:
        """One part, if there are so many."""

    @abstractmethod
    def _clear(self, upload: str) -> None:
        """Remove the parts, then the upload, unless it is a blob."""
