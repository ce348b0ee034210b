"""What the makers of every provider's messages share."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from typing import TypeVar

import msgspec

from ..errors import BadInput
from ..messages import Block, Json, Media, Message, Text, ToolCall, ToolResult

T = TypeVar("T")


def split_results(message: Message) -> tuple[list[ToolResult], list[Block]]:
    """The results in a message, which providers want first, and everything else."""
    results = [block for block in message.blocks if isinstance(block, ToolResult)]
    return results, [block for block in message.blocks if not isinstance(block, ToolResult)]


def shown_parts(result: ToolResult) -> tuple[Text | Media, ...]:
    """What a result shows, as blocks."""
    return (Text(result.content),) if isinstance(result.content, str) else result.content


def arguments_text(call: ToolCall) -> str:
    """The arguments of a call as JSON text; as it came, if the model wrote something else."""
    return call.args if isinstance(call.args, str) else msgspec.json.encode(call.args).decode()


def data_url(media: Media) -> str:
    """The media as a `data:` URL, or its link."""
    if media.data is not None:
        return f"data:{media.media_type};base64,{base64_of(media.data)}"
    if media.url is None:
        raise BadInput(f"a Media block ({media.media_type}) without data and without a URL")
    return media.url


def base64_of(data: bytes) -> str:
    """Bytes as base64 text."""
    return base64.b64encode(data).decode()


def alone(parts: list[Json]) -> Json:
    """The content of a message: text alone as a string."""
    only = parts[0] if len(parts) == 1 else None
    if only is not None and only.get("type") in ("text", "input_text") and only.keys() == {"type", "text"}:
        return only["text"]
    return parts


def present(parts: Iterable[T | None]) -> list[T]:
    """The parts that there are."""
    return [part for part in parts if part is not None]


def refuse_media(media: Media, client: str) -> BadInput:
    """The error for media that a provider does not take."""
    how = "bytes" if media.data is not None else "a link"
    return BadInput(f"{client} takes no {media.media_type} as {how}")
