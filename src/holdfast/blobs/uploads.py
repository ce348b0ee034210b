"""Blobs of a driver with tables: parts under the id of their upload, and one row that makes them a blob.

An upload is recorded before its first part, and until it is a blob: a process that dies on the way leaves
something for `sweep` to find. Each step is durable before the next one begins.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from typing import NamedTuple

from ..errors import StoreFailed
from ..ids import fresh_uid
from ..limits import BLOB_PART_BYTES
from .chunking import checked_in, checked_out, even_parts
from .home import BlobContext, ListedBlob, StoredBlob, StoreHome
from .metadata import check_digest, decode_context, encode_context


class UploadRow(NamedTuple):
    """The row that makes an upload a blob. `info` is the encoded context."""

    info: bytes
    upload: str
    size: int


class UploadedBlobs(StoreHome, ABC):
    """A driver's home in tables: the order of the steps. A subclass makes each step one transaction."""

    def put(self, digest: str, parts: Iterable[bytes], context: BlobContext, *, owner: str) -> None:
        arriving = checked_in(check_digest(digest), even_parts(parts, BLOB_PART_BYTES))
        info = encode_context(context)
        if self._put_again(digest):
            return
        upload = fresh_uid()
        self._begin(upload)
        try:
            size = self._receive(upload, arriving)
            first = self._finish(digest, upload, size, info)
        except BaseException:
            with suppress(StoreFailed):
                self._clear(upload)
            raise
        if first != upload:
            self._clear(upload)

    def _receive(self, upload: str, parts: Iterable[bytes]) -> int:
        """Write each part by itself, so that other writers do not wait for a large blob."""
        size = 0
        for number, data in enumerate(parts):
            self._add_part(upload, number, data)
            size += len(data)
        return size

    def find(self, digest: str) -> StoredBlob | None:
        row = self._find_row(check_digest(digest))
        if row is None:
            return None
        context = decode_context(row.info, digest, self.name)
        return StoredBlob(context, row.size, checked_out(digest, self._parts(row.upload), self.name))

    def _parts(self, upload: str) -> Iterator[bytes]:
        """Fetched one at a time."""
        for number in itertools.count():
            data = self._find_part(upload, number)
            if data is None:
                return
            yield data

    def remove(self, digest: str, *, put_before: datetime) -> bool:
        """First make it no blob; then remove its parts, like those of an upload that died."""
        upload = self._unmake(check_digest(digest), put_before)
        if upload is None:
            return False
        self._clear(upload)
        return True

    def sweep(self, *, begun_before: datetime) -> int:
        uploads = self._list_uploads(begun_before)
        for upload in uploads:
            self._clear(upload)
        return len(uploads)

    @abstractmethod
    def list_blobs(self, after: str | None, limit: int) -> Sequence[ListedBlob]:
        """In the order of their digests."""

    @abstractmethod
    def _put_again(self, digest: str) -> bool:
        """Whether the blob is there; then it counts as put now."""

    @abstractmethod
    def _begin(self, upload: str) -> None:
        """Record that the upload is under way, and since when."""

    @abstractmethod
    def _add_part(self, upload: str, number: int, data: bytes) -> None:
        """Write the part, unless the upload was swept."""

    @abstractmethod
    def _finish(self, digest: str, upload: str, size: int, info: bytes) -> str:
        """Make it a blob, if it is the first, else count that one as put now; the upload that has the
        blob's parts. Atomic: `upload_swept`, and no blob, if the upload was swept."""

    @abstractmethod
    def _find_row(self, digest: str) -> UploadRow | None:
        """The blob's row."""

    @abstractmethod
    def _find_part(self, upload: str, number: int) -> bytes | None:
        """One part, or None after the last."""

    @abstractmethod
    def _unmake(self, digest: str, put_before: datetime) -> str | None:
        """Make the blob an upload that died long ago, if it was last put before then; the upload. Atomic."""

    @abstractmethod
    def _list_uploads(self, begun_before: datetime) -> Sequence[str]:
        """Those that began before then and never ended."""

    @abstractmethod
    def _clear(self, upload: str) -> None:
        """Remove the parts, then the upload, unless it is a blob."""
