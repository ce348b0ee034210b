"""The blobs that contents refer to: there before the entry that refers to them, read when they are looked at.

A blob that is put counts as new for a collection, so it stays until the entry is committed. That a
process has just put the same bytes is remembered for a while, much shorter than any grace of a collection.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar
from weakref import WeakValueDictionary

from ..blobs.home import BlobContext, BlobHome, StoredBlob
from ..blobs.metadata import encode_context
from ..blobs.public_urls import PublicUrls, find_url, has_urls
from ..content.encode import Given, Packed, PackedResult, Sizes, pack_message, pack_result, pack_value
from ..content.extract import Piece
from ..content.lazy import Shared
from ..errors import BadInput, NotFound, StoreFailed
from ..limits import BLOB_KNOWN_S
from ..messages import AnyMessage
from ..system import threads
from ..system.clock import boot_s

log = logging.getLogger("holdfast")
T = TypeVar("T", Packed, PackedResult)


class BlobCache:
    """The blobs of an open store. Blocking, and called from several threads at once."""

    def __init__(self, home: BlobHome, urls: PublicUrls, store_id: Callable[[], str], sizes: Sizes) -> None:
        self.home, self.sizes, self._urls, self._store_id = home, sizes, urls, store_id
        self._known: dict[str, float] = {}
        """When each blob was last put by this process."""
        self._read: WeakValueDictionary[str, Shared] = WeakValueDictionary()
        self._lock = threads.Lock()
        self._under_way: dict[str, threads.Lock] = {}
        self._is_ours = False

    # -- writing ------------------------------------------------------------------------------------

    def pack_message(self, message: AnyMessage) -> bytes:
        """The message as it is stored, its blobs durable."""
        return self._put_all(pack_message(message, self.sizes)).content

    def pack_value(self, content: bytes) -> bytes:
        """User state as it is stored, its blobs durable."""
        return self._put_all(pack_value(content, self.sizes)).content

    def pack_result(self, given: Given) -> PackedResult:
        """A tool's result as it is stored, its blobs durable.

        What was done is done, and must be on record: if the blobs cannot be kept, everything stays inline.
        """
        try:
            return self._put_all(pack_result(given, self.sizes))
        except StoreFailed as error:
            log.warning("the result of a tool stays in the journal, for lack of a place for blobs: %s", error)
            return pack_result(given, self.sizes, homeless=True)

    def _put_all(self, packed: T) -> T:
        self.keep(packed.pieces)
        return packed

    def keep(self, pieces: Iterable[Piece]) -> None:
        """Keep what was taken out of a content. Durable on return."""
        for piece in pieces:
            self.put(piece.digest, piece.parts, _context(piece))

    def put(self, digest: str, parts: Callable[[], Iterable[bytes]], context: BlobContext) -> None:
        """Keep a blob, unless this process has just done so. Durable on return."""
        with self._alone_at(digest):
            now = boot_s()
            if now - self._known.get(digest, -BLOB_KNOWN_S) < BLOB_KNOWN_S:
                return
            self.home.put(digest, parts(), context, owner=self._store_id())
            self.check_owner()
            # When it began, not when it ended: a redundant upload is harmless, a missing one is not.
            self._remember(digest, now)

    def check_owner(self) -> None:
        """Refuse a home that another store collects in: it would take ours for orphans."""
        if not self._is_ours:
            owner = self.home.find_owner()
            if owner not in (None, self._store_id()):
                raise BadInput(
                    f"{self.home.name} is the home of another store's blobs (store {owner}); give this one a "
                    "directory or a prefix of its own"
                )
            self._is_ours = owner is not None

    def _remember(self, digest: str, now: float) -> None:
        with self._lock:
            self._known = {one: at for one, at in self._known.items() if now - at < BLOB_KNOWN_S}
            self._known[digest] = now

    def forget(self, digest: str) -> None:
        """It was removed: the next caller that needs it puts it again."""
        with self._lock:
            self._known.pop(digest, None)

    @contextmanager
    def _alone_at(self, digest: str) -> Iterator[None]:
        """A caller that needs the same bytes at the same time waits, and finds them there."""
        with self._lock:
            lock = self._under_way.setdefault(digest, threads.Lock())
        try:
            with lock:
                yield
        finally:
            with self._lock:
                self._under_way.pop(digest, None)

    # -- reading ------------------------------------------------------------------------------------

    def read(self, digest: str) -> Shared:
        """The bytes, checked; the same object for all who look at them at the same time."""
        with self._lock:
            known = self._read.get(digest)
        if known is not None:
            return known
        data = Shared(b"".join(self.stream(digest)))
        with self._lock:
            return self._read.setdefault(digest, data)

    def stream(self, digest: str) -> Iterator[bytes]:
        """The bytes in parts; `Corrupt` in place of an end if they are others by now."""
        return self.get(digest).parts

    def get(self, digest: str) -> StoredBlob:
        """The blob, or `NotFound`."""
        found = self.home.find(digest)
        if found is None:
            raise NotFound(f"there is no blob {digest} in {self.home.name}")
        return found

    def check_links(self) -> None:
        """Refuse a home whose blobs can have no URLs."""
        if not has_urls(self._urls, self.home):
            raise BadInput(
                f"blobs in {self.home.name} have no URLs: open the store with blob_urls=… (a function, or "
                "the address of a directory that a server publishes), or with its blobs in an object store"
            )

    async def link(self, digest: str) -> str | None:
        """A URL for it, where the home has such."""
        return await find_url(self._urls, self.home, digest)


def _context(piece: Piece) -> BlobContext:
    """What is known of a piece, as far as a home can hold it: it came from a message of any origin."""
    context = BlobContext(media_type=piece.media_type, file_name=piece.name or None)
    if not piece.media_type:
        context = BlobContext(file_name=piece.name or None)
    try:
        encode_context(context)
    except BadInput:
        return BlobContext()
    return context
