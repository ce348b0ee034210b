"""What a tool of an MCP server answered, as what a tool of ours returns."""

from __future__ import annotations

import base64
import binascii
import json
import re
from typing import Any, Final

import mcp_types as types

from ...messages import Json, Media, Text
from ...tools.outcome import sniff

_MEDIA_TYPE: Final = re.compile(r"[\w.+-]{1,60}/[\w.+-]{1,60}")

Part = Text | Media


def as_value(result: types.CallToolResult) -> Json:
    """Data where the tool gave data, text where it gave text, and a list of blocks where it gave media."""
    parts = [part for block in result.content for part in _as_parts(block)]
    text = "\n".join(part.text for part in parts if isinstance(part, Text))
    data = result.structured_content
    if any(isinstance(part, Media) for part in parts):
        return parts
    return text if data is None else _unwrap(data, text)


def as_error_text(result: types.CallToolResult) -> str:
    """What an answer that is an error says."""
    parts = [part for block in result.content for part in _as_parts(block)]
    text = "\n".join(part.text for part in parts if isinstance(part, Text)).strip()
    return text or "it gave no reason"


def _unwrap(data: Any, text: str) -> Json:
    """The data, or what libraries have wrapped in it: a result that is no object, which is the text, too."""
    if not (isinstance(data, dict) and list(data) == ["result"]):
        return data
    inner = data["result"]
    if inner == text:
        return inner
    try:
        return inner if json.loads(text) == inner else data
    except (ValueError, RecursionError):
        return data


def _as_parts(block: types.ContentBlock) -> list[Part]:
    match block:
        case types.TextContent():
            return [Text(block.text)]
        case types.ImageContent() | types.AudioContent():
            return [_as_media(block.data, block.mime_type, None)]
        case types.ResourceLink():
            kind = f", {block.mime_type}" if block.mime_type else ""
            return [Text(f"[resource {block.name}: {block.uri}{kind}]")]
        case types.EmbeddedResource(resource=types.TextResourceContents() as resource):
            return [Text(f"[resource {resource.uri}]\n{resource.text}")]
        case types.EmbeddedResource(resource=types.BlobResourceContents() as resource):
            return [_as_media(resource.blob, resource.mime_type, str(resource.uri))]
        case _:
            return [Text(f"[{type(block).__name__}]")]


def _as_media(data: str, media_type: str | None, name: str | None) -> Part:
    try:
        found = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return Text(f"[{name or 'a file'}: its content cannot be decoded]")
    known = media_type if media_type is not None and _MEDIA_TYPE.fullmatch(media_type) else sniff(found[:16])
    return Media(media_type=known, data=found, name=name)
