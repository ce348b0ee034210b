"""The store's own home: blobs beside the journals, by the same driver."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from ..drivers.contract import Driver
from ..limits import BLOB_PART_BYTES
from .chunking import checked_in, checked_out, even_parts
from .home import BlobContext, ListedBlob, StoredBlob
from .metadata import check_digest, decode_context, encode_context


class DriverHome:
    """The blobs of a driver. It belongs to that driver's store, and is closed with it."""

    name = "the store's own home"

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    def put(self, digest: str, parts: Iterable[bytes], context: BlobContext, *, owner: str) -> None:
        arriving = checked_in(check_digest(digest), even_parts(parts, BLOB_PART_BYTES))
        self._driver.put_blob(digest, arriving, encode_context(context))

    def find(self, digest: str) -> StoredBlob | None:
        found = self._driver.find_blob(check_digest(digest))
        if found is None:
            return None
        context = decode_context(found.info, digest, self.name)
        return StoredBlob(context, found.size, checked_out(digest, found.parts, self.name))

    def list_blobs(self, after: str | None, limit: int) -> Sequence[ListedBlob]:
        return [
            ListedBlob(row.digest, row.size, row.put_at, decode_context(row.info, row.digest, self.name))
            for row in self._driver.list_blobs(after, limit)
        ]

    def remove(self, digest: str, *, put_before: datetime) -> bool:
        return self._driver.remove_blob(check_digest(digest), put_before)

    def sweep(self, *, begun_before: datetime) -> int:
        return self._driver.sweep_uploads(begun_before)

    def find_owner(self) -> str | None:
        return self._driver.store_id()

    def find_key(self, digest: str) -> str | None:
        return None

    def sign(self, digest: str, *, valid_s: float) -> str | None:
        return None

    def close(self) -> None:
        pass  # The driver is closed by whoever opened it.
