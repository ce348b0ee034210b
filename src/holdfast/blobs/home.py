"""The contract of a home of blobs: large bytes under their SHA-256, for many processes at once.

Every driver has a home of its own, and a store can be given another one. A home is blocking, and called from
several threads at once. A digest is 64 lower-case hexadecimal digits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple, NoReturn, Protocol

from msgspec import Struct

from ..errors import NotFound, OpenedToRead, StoreFailed


class NoHome(NotFound):
    """There is no home of blobs where one was named."""


class BlobContext(Struct, frozen=True, kw_only=True):
    """What is known of a blob beside its bytes. Every home gives it back as it was."""

    media_type: str = "application/octet-stream"
    file_name: str | None = None
    metadata: Mapping[str, str] = {}


class StoredBlob(NamedTuple):
    """A blob that was found. `parts` can be read once, by one thread; reading fetches them."""

    context: BlobContext
    size: int
    parts: Iterator[bytes]


class ListedBlob(NamedTuple):
    """A blob in a list. `put_at` is when it was put last, in UTC, by the clock of its writer or server."""

    digest: str
    size: int
    put_at: datetime
    context: BlobContext


class BlobHome(Protocol):
    """One place for blobs.

    Atomicity: a blob is there whole or not at all. Looking and changing are one step in each method.
    Durability: what a method has written when it returns survives `kill -9` and a power cut.
    Errors: foreign exceptions are translated. `StoreFailed` when the disk or server fails (what was being
    written may or may not be there; putting it again is safe), `Corrupt` when stored bytes are damaged,
    `BadInput` for what no home can hold. Errors of the caller's own `parts` are passed on.
    """

    @property
    def name(self) -> str:
        """The home's name in messages: a URL without secrets."""

    def put(self, digest: str, parts: Iterable[bytes], context: BlobContext, *, owner: str) -> None:
        """Keep the bytes under their digest, whole or not at all. Durable on return.

        Equal digests are stored once and the first context wins: if the blob is there, `parts` are left
        unread, and it counts as put now, so that `remove` spares it. `BadInput` if the bytes have another
        digest, or if the home cannot hold the context; then nothing was stored.

        Parts may have any size. They are stored as they come, never all in memory where the backend allows
        it, and no other caller waits for them to arrive: a database takes each part in a transaction of its
        own. An upload that died leaves something that `sweep` finds, and no blob.

        `owner` is the id of the store that refers to the blob. The first put of all records it as the home's.
        """

    def find(self, digest: str) -> StoredBlob | None:
        """The blob, or None. Reading its parts to the end checks them: `Corrupt` names digest and home."""

    def list_blobs(self, after: str | None, limit: int) -> Sequence[ListedBlob]:
        """Up to `limit` blobs in the order of their digests, beginning after `after`.

        Fewer than `limit` means that these were the last.
        """

    def remove(self, digest: str, *, put_before: datetime) -> bool:
        """Remove the blob, unless it was put at `put_before` or later; whether this call removed it.

        Looking and removing are one step: a `put` of these bytes that returns meanwhile either makes the
        answer False or has stored them anew. A reader in the middle of the blob may find it cut short.
        """

    def sweep(self, *, begun_before: datetime) -> int:
        """Remove what uploads left behind that began before then and never ended; how many they were."""

    def find_owner(self) -> str | None:
        """The id of the store that this home belongs to; None as long as nothing was put."""

    def find_key(self, digest: str) -> str | None:
        """Where the blob lies below the home's root, as a path; None if it is not there, or has no path."""

    def sign(self, digest: str, *, valid_s: float) -> str | None:
        """A URL at which the blob can be read for so long without credentials; None if it is not there, or
        the home has no such URLs."""

    def close(self) -> None:
        """Let go of files and connections. Safe to call twice."""


class StoreHome:
    """Base of the home that a driver offers: its owner is the driver's store, and the driver closes it.

    Its blobs have neither paths nor URLs.
    """

    name = "the store's own home"

    def __init__(self, store_id: str) -> None:
        self._store_id = store_id

    def find_owner(self) -> str | None:
        return self._store_id

    def find_key(self, digest: str) -> str | None:
        return None

    def sign(self, digest: str, *, valid_s: float) -> str | None:
        return None

    def close(self) -> None:
        pass  # The driver has the files and connections.


class ReadOnlyHome:
    """Hands on what reads blobs, and refuses what writes."""

    def __init__(self, home: BlobHome) -> None:
        self.home = home

    @property
    def name(self) -> str:
        return self.home.name

    def find(self, digest: str) -> StoredBlob | None:
        return self.home.find(digest)

    def list_blobs(self, after: str | None, limit: int) -> Sequence[ListedBlob]:
        return self.home.list_blobs(after, limit)

    def find_owner(self) -> str | None:
        return self.home.find_owner()

    def find_key(self, digest: str) -> str | None:
        return self.home.find_key(digest)

    def sign(self, digest: str, *, valid_s: float) -> str | None:
        return self.home.sign(digest, valid_s=valid_s)

    def put(self, digest: str, parts: Iterable[bytes], context: BlobContext, *, owner: str) -> None:
        refuse_to_write()

    def remove(self, digest: str, *, put_before: datetime) -> bool:
        refuse_to_write()

    def sweep(self, *, begun_before: datetime) -> int:
        refuse_to_write()

    def close(self) -> None:
        self.home.close()


def refuse_to_write() -> NoReturn:
    """Raise `OpenedToRead`."""
    raise OpenedToRead("the store was opened with read_only=True: nothing is written to it")


def upload_swept(digest: str, where: str) -> StoreFailed:
    """The error of a `put` whose upload was removed by `sweep` while it was under way."""
    return StoreFailed(
        f"{where}: blob {digest} took so long to arrive that it was swept away as an upload that had died; "
        "put it again, and collect blobs with a longer grace period"
    )
