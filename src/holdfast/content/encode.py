"""The stored form of messages, results of tools and values: JSON, and the blobs that it refers to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from ..core.entries import ResultContent
from ..limits import RESULT_HEAD_CHARS, RESULT_TAIL_CHARS
from ..messages import (
    AnyMessage,
    Block,
    ForeignMessage,
    Json,
    Media,
    Message,
    Text,
    ToolResult,
    encode_message,
    encode_plain,
)
from .extract import Piece, Swap, put_back
from .lazy import BlobForeign, BlobMedia, BlobReader, BlobResult, read_content, read_parts
from .references import MARK, Reference

_encode = msgspec.json.Encoder().encode


class Packed(NamedTuple):
    """A content as it is stored, and the blobs that must be written before it."""

    content: bytes
    pieces: tuple[Piece, ...] = ()


class Sizes(Struct, frozen=True, kw_only=True):
    """When content becomes a blob: binary content from `inline_bytes` on, the text of a tool's result above
    `result_chars`; None: never."""

    inline_bytes: int | None
    result_chars: int | None


def pack_light(message: AnyMessage, sizes: Sizes) -> bytes | None:
    """The content of a message that needs no blob, or None: then use `pack_message`."""
    plain = encode_plain(message)
    if plain is not None and MARK not in plain:
        return plain
    if isinstance(message, BlobForeign) or (
        isinstance(message, Message) and any(_is_heavy(block, sizes) for block in message.blocks)
    ):
        return None
    content = encode_message(message)
    is_text = isinstance(message, Message) and all(block.__class__ is Text for block in message.blocks)
    return content if is_light(content, sizes) or (is_text and MARK not in content) else None


def is_light(content: bytes, sizes: Sizes) -> bool:
    """Whether a content is too short to need a blob, and has nothing that must be escaped."""
    return MARK not in content and (sizes.inline_bytes is None or len(content) < sizes.inline_bytes)


def _is_heavy(block: Block, sizes: Sizes) -> bool:
    if isinstance(block, BlobMedia | BlobResult):
        return True
    if isinstance(block, Media):
        least = sizes.inline_bytes
        return least is not None and block.data is not None and len(block.data) >= least
    if isinstance(block, ToolResult) and not isinstance(block.content, str):
        return any(_is_heavy(part, sizes) for part in block.content)
    return False


def pack_message(message: AnyMessage, sizes: Sizes) -> Packed:
    """The message as it is stored. Blocks, if parts of it are already in blobs: they are read."""
    swap = Swap(sizes.inline_bytes)
    if isinstance(message, ForeignMessage):
        encoded = encode_message(message)  # Raises if it could not be restored exactly.
        data = msgspec.json.decode(encoded) if isinstance(message.data, Raw) else message.data
        return Packed(_encode(swap.message(data)), tuple(swap.pieces.values()))
    blocks, references = _lighten(message.blocks, swap)
    data = msgspec.json.decode(encode_message(replace(message, blocks=tuple(blocks))))
    stored = {key: swap.text(item) for key, item in data.items() if key != "blocks"}
    stored["blocks"] = [
        _pack_block(block, reference, swap)
        for block, reference in zip(data["blocks"], references, strict=True)
    ]
    return Packed(_encode({key: stored[key] for key in data}), tuple(swap.pieces.values()))


def _lighten(blocks: Sequence[Any], swap: Swap) -> tuple[list[Any], list[Any]]:
    """The blocks without their large bytes, and the references that replace them."""
    pairs = [_lighten_block(block, swap) for block in blocks]
    return [one for one, _ in pairs], [reference for _, reference in pairs]


def _lighten_block(block: Block, swap: Swap) -> tuple[Block, Any]:
    if isinstance(block, BlobMedia) and swap.is_on:
        blobs, digest = block.blobs, block.reference.digest
        piece = Piece(digest, lambda: blobs.stream(digest), block.media_type, block.name)
        empty = Media(media_type=block.media_type, url=block.url, name=block.name, metadata=block.metadata)
        return empty, str(Reference(swap.keep(piece)))
    if isinstance(block, Media):
        data = block.data
        plain = Media(
            media_type=block.media_type, data=data, url=block.url, name=block.name, metadata=block.metadata
        )
        if data is None or not swap.is_large(len(data)):
            return plain, None
        digest = swap.take(data, block.media_type, block.name)
        return replace(plain, data=None), str(Reference(digest))
    if isinstance(block, ToolResult):
        fields = {name: getattr(block, name) for name in ToolResult.__struct_fields__}
        if isinstance(block.content, str):
            return ToolResult(**fields), None
        parts, references = _lighten(block.content, swap)
        return ToolResult(**{**fields, "content": tuple(parts)}), references
    return block, None


def _pack_block(block: dict[str, Json], reference: Any, swap: Swap) -> dict[str, Json]:
    stored = {key: swap.text(item) for key, item in block.items() if key not in ("content", "value")}
    if isinstance(reference, str):
        stored["data"] = reference
        return stored
    if "value" in block:
        is_result = block.get("kind") == "tool_result"
        stored["value"] = swap.result(block["value"]) if is_result else swap.text(block["value"])
    if "content" in block:
        content = block["content"]
        stored["content"] = swap.text(content)
        if reference is not None:
            stored["content"] = [
                _pack_block(part, one, swap) for part, one in zip(content, reference, strict=True)
            ]
    return {key: stored[key] for key in block}


def pack_value(content: bytes, sizes: Sizes) -> Packed:
    """User state as it is stored; `content` is the result of `Values.encode`."""
    swap = Swap(sizes.inline_bytes)
    return Packed(_encode(swap.message(msgspec.json.decode(content))), tuple(swap.pieces.values()))


# -- results of tools -----------------------------------------------------------------------------------


class Given(Struct, frozen=True, kw_only=True):
    """What a tool gave: the text for the model, the same as data, and blocks if there is more than text.

    `unkept`: the tool ran, and what it returned has no JSON form; `text` is an error that says so.
    """

    text: str = ""
    value: Json = None
    parts: tuple[Text | Media, ...] = ()
    unkept: bool = False


class PackedResult(NamedTuple):
    """A result as it is stored, the text for the model, and the blobs that must be written before it."""

    content: bytes
    shown: str
    pieces: tuple[Piece, ...] = ()


def read_given(content: Raw, blobs: BlobReader, *, whole: bool = False) -> Given:
    """What a tool gave, from its stored form; with `whole`, the whole of a shortened text. Blocks."""
    said = read_content(content)
    text = said.text
    if whole and said.full:
        text = put_back(said.full, blobs.read)
    value, parts = put_back(said.value, blobs.read), read_parts(said.parts, blobs)
    return Given(text=text, value=value, parts=parts, unkept=said.unkept)


def encode_content(text: str, value: Json = None, *, unkept: bool = False) -> bytes:
    """The content of an entry that answers a call, without blobs."""
    content = _encode(ResultContent(text=text, value=value, unkept=unkept))
    if MARK not in content:
        return content
    return pack_result(Given(text=text, value=value, unkept=unkept), ALL_INLINE).content


def pack_light_result(given: Given, sizes: Sizes) -> PackedResult | None:
    """A result that needs no blob, or None: then use `pack_result`."""
    if given.parts or (sizes.result_chars is not None and len(given.text) > sizes.result_chars):
        return None
    content = _encode(ResultContent(text=given.text, value=given.value, unkept=given.unkept))
    return PackedResult(content, given.text) if is_light(content, sizes) else None


ALL_INLINE = Sizes(inline_bytes=None, result_chars=None)


def pack_result(given: Given, sizes: Sizes, *, homeless: bool = False) -> PackedResult:
    """The result as it is stored. A long text is kept in a blob; its beginning and end stay inline.

    `homeless`: blobs cannot be stored; the value stays inline, and of a long text only the value is whole.
    """
    swap = Swap(None) if homeless else Swap(sizes.inline_bytes, sizes.result_chars)
    shown, value, full, chars = given.text, given.value, "", 0
    longest = len(shown) if sizes.result_chars is None else sizes.result_chars
    is_long = len(shown) > longest
    if is_long and homeless:
        shown, value = make_preview(given.text, longest, None), swap.result(value)
    elif is_long:
        data, chars = given.text.encode(), len(given.text)
        digest = swap.take(data, "text/plain; charset=utf-8")
        full, shown = str(Reference(digest, "text")), make_preview(given.text, longest, digest)
        if isinstance(value, str) and value == given.text:
            value = full
        elif not isinstance(value, str) and value is not None and _encode(value) == data:
            value = str(Reference(digest, "json"))
        else:
            value = swap.result(value)
    else:
        value = swap.result(value)
    blocks, references = _lighten(given.parts, swap)
    parts = [
        _pack_block(msgspec.to_builtins(block), reference, swap)
        for block, reference in zip(blocks, references, strict=True)
    ]
    content = ResultContent(
        text=swap.text(shown), value=value, parts=parts, full=full, chars=chars, unkept=given.unkept
    )
    return PackedResult(_encode(content), shown, tuple(swap.pieces.values()))


def make_preview(text: str, longest: int, digest: str | None) -> str:
    """The beginning and the end of a text, and how to read the rest, if it is kept."""
    tail_chars = min(RESULT_TAIL_CHARS, longest // 4)
    head, tail = text[: min(RESULT_HEAD_CHARS, longest // 2)], text[len(text) - tail_chars :]
    left_out = len(text) - len(head) - len(tail)
    kept = "" if digest is None else f" Blob {digest[:16]} has all of it: read_result shows more"
    return f"{head}\n[… {left_out:,} of {len(text):,} characters are left out here.{kept} …]\n{tail}"
