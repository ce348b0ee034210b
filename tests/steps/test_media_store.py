"""Their protocol of media stores, on our blobs."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic_ai.messages import BinaryImage, ModelMessage, ModelRequest, UserPromptPart
from pydantic_ai_harness.media import MediaContext, MediaStore, media_uri_for
from pydantic_ai_harness.step_persistence import SqliteStepStore

import holdfast
from holdfast.adapters.pydantic_ai.media_store import HoldfastMediaStore
from tests.steps.example_histories import Url, snapshot

PICTURE = b"\x89PNG" + bytes(range(256)) * 400


async def test_bytes_come_back_with_their_metadata(store_url: Url) -> None:
    """In this process and in the next; equal bytes are stored once, and the first description wins."""
    context = MediaContext(media_type="image/png", filename="cat.png", metadata={"by": "ann"})
    async with holdfast.open_store(store_url) as store:
        media = HoldfastMediaStore(store)
        assert isinstance(media, MediaStore)
        uri = await media.put(PICTURE, context=context)
        assert uri == media_uri_for(PICTURE)
        assert await media.put(PICTURE) == uri
    async with holdfast.open_store(store_url) as store:
        media = HoldfastMediaStore(store)
        assert await media.exists(uri)
        assert await media.get(uri) == PICTURE
        assert await media.get_metadata(uri) == {"by": "ann"}
        async with store.open_blob(uri) as blob:
            assert (blob.blob.media_type, blob.blob.name) == ("image/png", "cat.png")


async def test_what_was_never_stored_is_not_found(store_url: Url) -> None:
    """In their words."""
    uri = media_uri_for(b"nothing")
    async with holdfast.open_store(store_url) as store:
        media = HoldfastMediaStore(store)
        assert not await media.exists(uri)
        assert await media.public_url(uri) is None
        with pytest.raises(FileNotFoundError):
            await media.get(uri)
        with pytest.raises(FileNotFoundError):
            await media.get_metadata(uri)
        with pytest.raises(ValueError, match="nonsense"):
            await media.get("nonsense")


async def test_a_public_url_is_the_stores(store_url: Url, tmp_path: Path) -> None:
    """What `blob_urls` says."""
    base = "https://cdn.example.org"
    async with holdfast.open_store(store_url, blobs=f"dir:{tmp_path}/blobs", blob_urls=base) as store:
        media = HoldfastMediaStore(store)
        url = await media.public_url(await media.put(PICTURE))
        assert url is not None
        assert url.startswith(base)


async def test_a_step_store_of_theirs_keeps_media_in_ours(store_url: Url, tmp_path: Path) -> None:
    """Large content is swapped for its URI, and put back."""
    told: list[ModelMessage] = [
        ModelRequest(parts=[UserPromptPart(content=[BinaryImage(data=PICTURE, media_type="image/png")])])
    ]
    async with holdfast.open_store(store_url) as store:
        media = HoldfastMediaStore(store)
        steps = SqliteStepStore(database=tmp_path / "steps.db", media_store=media)
        await steps.save_snapshot(snapshot("r1", told))
        assert await media.exists(media_uri_for(PICTURE))
        found = await steps.latest_snapshot(run_id="r1")
        assert found is not None
        assert found.messages == told
