"""What can be done with the blobs of a store."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial

from ..blobs.blob import Blob, BlobData, Collected, OpenBlob, as_media, list_blob, open_blob, put_blob
from ..blobs.home import BlobContext
from ..content.references import get_digest
from ..engine.engine import Engine
from ..limits import BLOB_GRACE_S, PAGE_ROWS
from ..messages import Media
from .blob_gc import References, collect


class Shelf(ABC):
    """The blobs of a store."""

    @property
    @abstractmethod
    def _engine(self) -> Engine: ...

    async def put_blob(
        self,
        data: BlobData,
        *,
        media_type: str = "application/octet-stream",
        name: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> Blob:
        """Keep bytes, a file or a stream under their digest. Durable on return.

        Equal bytes are stored once, and the first description wins. A blob that nobody refers to is collected
        some day: show it in a message, as `store.media(blob)`.
        """
        context = BlobContext(media_type=media_type, file_name=name, metadata=dict(metadata or {}))
        return await put_blob(self._engine, data, context)

    def media(self, blob: Blob) -> Media:
        """A block for a message that shows the blob, without reading it."""
        return as_media(blob, self._engine.blobs)

    @asynccontextmanager
    async def open_blob(self, reference: str) -> AsyncIterator[OpenBlob]:
        """Read a blob, in parts or as a whole: `async with store.open_blob(reference) as blob`.

        `reference` is `media+sha256://<hex>` or the digest alone. `NotFound` if it is not there, `Corrupt` at
        the end if its bytes are others by now.
        """
        yield await open_blob(self._engine, reference)

    async def find_blob_url(self, reference: str) -> str | None:
        """A URL at which the world can read the blob; None if it is not there, or there is none for it.

        What `blob_urls` says, or a signed URL where the home is an object store.
        """
        return await self._engine.blobs.link(get_digest(reference))

    async def read_blob(self, reference: str) -> AsyncIterator[bytes]:
        """The bytes of a blob, in parts."""
        async with self.open_blob(reference) as blob:
            async for part in blob:
                yield part

    async def blobs(self, *, sessions: bool = False) -> AsyncIterator[Blob]:
        """All blobs in the order of their digests; with `sessions`, who refers to each: every journal of the
        store is read for that."""
        referring = (await self._engine.call_home(References(self._engine).find)).of if sessions else {}
        after: str | None = None
        while True:
            page = await self._engine.call_home(self._engine.home.list_blobs, after, PAGE_ROWS)
            for one in page:
                after = one.digest
                yield list_blob(one, referring.get(one.digest, ()))
            if len(page) < PAGE_ROWS:
                return

    async def collect_blobs(
        self, *, grace_s: float = BLOB_GRACE_S, dry_run: bool = True, alone: bool = False
    ) -> Collected:
        """Find blobs that no session, version, fork or inbox refers to; with `dry_run=False`, remove them.

        What was put within the last `grace_s` stays. A grace below half an hour is for a store that nobody
        else has open, which `alone` says. A line that cannot be read stops it, and so does a home that is
        another store's.
        """
        return await self._engine.call_home(
            partial(collect, self._engine, grace_s=grace_s, dry_run=dry_run, alone=alone)
        )
