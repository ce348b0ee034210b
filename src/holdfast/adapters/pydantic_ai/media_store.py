"""`HoldfastMediaStore`: pydantic-ai-harness's `MediaStore`, on the blobs of a store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ...errors import MissingExtra, NotFound
from ...store.opening import AnyStore, KeptStore

try:
    from pydantic_ai_harness.media import MediaContext
except ImportError as missing:
    raise MissingExtra("HoldfastMediaStore (pydantic-ai-harness 0.62)", "pydantic-ai-harness") from missing

_NOTHING: Final = MediaContext()


class HoldfastMediaStore:
    """Bytes under their digest, `media+sha256://<hex>`, in the home of the store's blobs.

    Equal bytes are stored once, and the first description wins. `public_url` is what the store's `blob_urls`
    says, or a signed URL where the home is an object store.

    `store` is an open store, or the URL or `Path` of one that is opened when first needed, and closed by
    `aclose` or at the end of `async with`.
    """

    def __init__(self, store: AnyStore) -> None:
        self._store = KeptStore(store)

    async def __aenter__(self) -> HoldfastMediaStore:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the store if it was opened here; one that was given stays open."""
        await self._store.aclose()

    async def put(self, data: bytes, *, context: MediaContext = _NOTHING) -> str:
        """Keep the bytes; their URI. Durable on return."""
        store = await self._store.get()
        blob = await store.put_blob(
            bytes(data),
            media_type=context.media_type or "application/octet-stream",
            name=context.filename,
            metadata=context.metadata,
        )
        return blob.reference

    async def get(self, uri: str, *, context: MediaContext = _NOTHING) -> bytes:
        """The bytes, checked; `FileNotFoundError` if they were never stored."""
        try:
            async with (await self._store.get()).open_blob(uri) as blob:
                return await blob.read()
        except NotFound as missing:
            raise FileNotFoundError(str(missing)) from missing

    async def exists(self, uri: str, *, context: MediaContext = _NOTHING) -> bool:
        """Whether the bytes are there."""
        try:
            async with (await self._store.get()).open_blob(uri):
                return True
        except NotFound:
            return False

    async def public_url(self, uri: str, *, context: MediaContext = _NOTHING) -> str | None:
        """Where the world can read them; None if nowhere."""
        return await (await self._store.get()).find_blob_url(uri)

    async def get_metadata(self, uri: str, *, context: MediaContext = _NOTHING) -> Mapping[str, str]:
        """The metadata of the first `put`; `FileNotFoundError` if there was none."""
        try:
            async with (await self._store.get()).open_blob(uri) as blob:
                return dict(blob.blob.metadata)
        except NotFound as missing:
            raise FileNotFoundError(str(missing)) from missing
