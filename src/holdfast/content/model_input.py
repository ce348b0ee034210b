"""Messages for a model: with their bytes read, or with links in the place of bytes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import anyio.to_thread
from msgspec.structs import replace

from ..errors import LostBlob
from ..messages import AnyMessage, Block, ForeignMessage, Json, Media, Message, Text, ToolResult
from .extract import put_back
from .lazy import BlobForeign, BlobMedia, iter_lazy, late, stored
from .references import parse_reference


async def read_all(messages: Iterable[AnyMessage]) -> None:
    """Read what a model is shown of these messages, in threads. What is lost is marked as `lost`."""
    for one in iter_lazy(messages):
        if isinstance(one, BlobMedia | BlobForeign) and not late(one).is_read:
            try:
                await anyio.to_thread.run_sync(late(one).read, abandon_on_cancel=True)
            except LostBlob:
                continue


def without_lost(message: AnyMessage) -> AnyMessage:
    """The message with a word in the place of media that cannot be read, so that a model can go on."""
    return _map_media(message, _say_lost)


def _say_lost(media: Media) -> Media | Text:
    if not isinstance(media, BlobMedia) or media.lost is None:
        return media
    return Text(f"[{media.media_type} is missing: blob {media.reference.digest}]")


async def with_urls(messages: Iterable[AnyMessage]) -> list[AnyMessage]:
    """The messages with links in the place of bytes that are in blobs, where their home has links.

    In messages of other formats, where they take them: in the place of `data:` URLs, and in Anthropic's
    sources.
    """
    return [await _link(message) for message in messages]


async def _link(message: AnyMessage) -> AnyMessage:
    if isinstance(message, BlobForeign):
        return await _link_foreign(message)
    links: dict[str, str] = {}
    for one in iter_lazy([message]):
        if isinstance(one, BlobMedia):
            url = await _find_link(one.reference.digest, one)
            if url is not None:
                links[one.reference.digest] = url
    if not links:
        return message

    def link(media: Media) -> Media:
        url = links.get(media.reference.digest) if isinstance(media, BlobMedia) else None
        if url is None:
            return media
        return Media(media_type=media.media_type, url=url, name=media.name, metadata=media.metadata)

    return _map_media(message, link)


async def _find_link(digest: str, one: BlobMedia | BlobForeign) -> str | None:
    source = late(one).place.source
    return None if source is None else await source.link(digest)


async def _link_foreign(message: BlobForeign) -> AnyMessage:
    data = await _link_json(stored(message), message)
    found = await anyio.to_thread.run_sync(put_back, data, late(message).place.read, abandon_on_cancel=True)
    fields = {name: getattr(message, name) for name in message.__struct_fields__ if name != "data"}
    return ForeignMessage(**fields, data=found)


async def _link_json(value: Json, message: BlobForeign) -> Json:
    if isinstance(value, list):
        return [await _link_json(item, message) for item in value]
    if isinstance(value, dict):
        if value.get("type") == "base64" and isinstance(value.get("data"), str):
            url = await _link_text(value["data"], message, anywhere=True)
            if url != value["data"]:
                return {"type": "url", "url": url}
        return {key: await _link_json(item, message) for key, item in value.items()}
    return await _link_text(value, message) if isinstance(value, str) else value


async def _link_text(text: str, message: BlobForeign, *, anywhere: bool = False) -> str:
    reference = parse_reference(text)
    if reference is None or not (anywhere or reference.prefix.startswith("data:")):
        return text
    return await _find_link(reference.digest, message) or text


def _map_media(message: AnyMessage, change: Any) -> AnyMessage:
    """The message with every media changed; itself if nothing is."""
    if not isinstance(message, Message):
        return message
    blocks = tuple(_map_block(block, change) for block in message.blocks)
    return message if all(map(_is, blocks, message.blocks)) else replace(message, blocks=blocks)


def _map_block(block: Block, change: Any) -> Any:
    if isinstance(block, Media):
        return change(block)
    if isinstance(block, ToolResult) and not isinstance(block.content, str):
        parts: Sequence[Any] = tuple(_map_block(part, change) for part in block.content)
        if not all(map(_is, parts, block.content)):
            fields = {name: getattr(block, name) for name in block.__struct_fields__ if name != "content"}
            return ToolResult(**{**fields, "value": None, "content": parts})
    return block


def _is(one: object, other: object) -> bool:
    return one is other
