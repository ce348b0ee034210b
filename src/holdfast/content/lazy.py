"""Messages whose large content is in blobs, which are read on first access.

`Media`, `ToolResult` and `ForeignMessage` look the same whether their bytes are in the journal or in blobs.
The subclasses here stand for those in blobs: everything else of a message can be read, compared and counted
without reading a blob.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, Protocol, TypeVar

import msgspec
from msgspec import Raw

from ..core.entries import ResultContent
from ..errors import Corrupt, LostBlob, NotFound
from ..messages import (
    AnyMessage,
    Block,
    ForeignMessage,
    Json,
    Media,
    Message,
    Text,
    ToolResult,
    decode_message,
)
from .extract import put_back, unmark
from .references import MARK, SCHEME, Reference, digest_of, find_digests, parse_reference, unescape

T = TypeVar("T")
_encode = msgspec.json.Encoder().encode


class Shared:
    """The bytes of a blob, in memory once for all readers."""

    __slots__ = ("__weakref__", "data")

    def __init__(self, data: bytes) -> None:
        self.data = data


class BlobSource(Protocol):
    """Reads the blobs of a store."""

    def read(self, digest: str) -> Shared:
        """The bytes, verified. `NotFound` if they are missing, `Corrupt` if they are damaged. Blocks."""

    def stream(self, digest: str) -> Iterator[bytes]:
        """The same in parts, never all in memory."""

    async def link(self, digest: str) -> str | None:
        """A URL at which a model's provider can read the bytes, if there is one."""


class BlobReader:
    """Reads the blobs that one entry (or one user value) refers to; its errors name that entry."""

    __slots__ = ("entry", "session", "source", "where")

    def __init__(
        self, session: str, source: BlobSource | None, *, entry: int | None = None, where: str = ""
    ) -> None:
        self.session, self.source, self.entry, self.where = session, source, entry, where

    def at(self, entry: int) -> BlobReader:
        """A reader for another entry of the same session."""
        return BlobReader(self.session, self.source, entry=entry)

    def read(self, digest: str) -> bytes:
        """The bytes of a blob, or `LostBlob`. Blocks."""
        return self.share(digest).data

    def share(self, digest: str) -> Shared:
        """The same, for a caller that keeps them."""
        with self._reading(digest) as source:
            return source.read(digest)

    def stream(self, digest: str) -> Iterator[bytes]:
        """The same in parts."""
        with self._reading(digest) as source:
            yield from source.stream(digest)

    @contextmanager
    def _reading(self, digest: str) -> Iterator[BlobSource]:
        try:
            if self.source is None:
                raise NotFound("the journal was read without its store")
            yield self.source
        except (NotFound, Corrupt) as error:
            raise LostBlob(self.session, digest, str(error), entry=self.entry, where=self.where) from error


NO_BLOBS: Final = BlobReader("?", None)
"""For reading a content without its blobs."""


class _LazyValue:
    """A value that is read on first access and then kept. It stands in the `__dict__` of a struct."""

    def __init__(self, blobs: BlobReader, get: Callable[[], Any]) -> None:
        self.blobs, self._get = blobs, get
        self.is_read = False
        self.lost: LostBlob | None = None
        self._found: Any = None

    def read(self) -> Any:
        if not self.is_read:
            try:
                self._found = self._get()
            except LostBlob as error:
                self.lost = error
                raise
            self.is_read, self.lost = True, None
        return self._found


class BlobMedia(
    Media, frozen=True, kw_only=True, tag_field="kind", tag="media", omit_defaults=True, gc=True, dict=True
):
    """A `Media` whose bytes are in a blob. As JSON it has the reference in place of the bytes."""

    @property  # type: ignore[misc]
    def data(self) -> bytes | None:
        """The bytes. The first access reads them, and blocks; `LostBlob` if they are missing or damaged."""
        found: Shared = lazy_value(self).read()
        return found.data

    @property
    def reference(self) -> Reference:
        """The blob."""
        found = parse_reference(stored(self))
        assert found is not None
        return found

    @property
    def blobs(self) -> BlobReader:
        """Reads the blob; errors name the entry that refers to it."""
        return lazy_value(self).blobs

    @property
    def lost(self) -> LostBlob | None:
        """Why the last attempt to read the bytes failed, if it did."""
        return lazy_value(self).lost

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Media):
            return NotImplemented
        return _media_identity(self) == _media_identity(other)


class BlobResult(
    ToolResult,
    frozen=True,
    kw_only=True,
    tag_field="kind",
    tag="tool_result",
    omit_defaults=True,
    gc=True,
    dict=True,
):
    """A `ToolResult` whose `value` is in blobs, as a whole or in part. As JSON it has references there."""

    @property  # type: ignore[misc]
    def value(self) -> Json:
        """The value. The first access reads it, and blocks; `LostBlob` if it is missing or damaged."""
        return lazy_value(self).read()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ToolResult):
            return NotImplemented
        return _inline_fields(self) == _inline_fields(other) and _same_content(self, other)


class BlobForeign(ForeignMessage, frozen=True, kw_only=True, gc=True, dict=True):
    """A `ForeignMessage` whose large content is in blobs."""

    @property  # type: ignore[misc]
    def data(self) -> Json:
        """The message as it was given. The first access reads its blobs, and blocks; `LostBlob` if one is
        missing or damaged."""
        return lazy_value(self).read()

    @property
    def stored(self) -> Json:
        """The message with references in place of bytes."""
        return unmark(stored(self))

    @property
    def text(self) -> str:
        """The beginning of its text, if the format keeps it in a usual field."""
        plain = ForeignMessage(format=self.format, data=self.stored, role=self.role)
        return plain.text

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ForeignMessage):
            return NotImplemented
        return _inline_fields(self) == _inline_fields(other) and _same_content(self, other)


Lazy = BlobMedia | BlobResult | BlobForeign
_SLOT: Final[dict[type, str]] = {BlobMedia: "data", BlobResult: "value", BlobForeign: "data"}
_SLOTS: Final[dict[type, Any]] = {
    BlobMedia: Media.__dict__["data"],
    BlobResult: ToolResult.__dict__["value"],
    BlobForeign: ForeignMessage.__dict__["data"],
}


def stored(one: Lazy) -> Json:
    """What the journal has in place of the content in blobs."""
    return _SLOTS[type(one)].__get__(one)


def lazy_value(one: Lazy) -> _LazyValue:
    """The value in blobs, read or not."""
    found: _LazyValue | None = one.__dict__.get("lazy_value")
    if found is None:
        raise TypeError(f"a {type(one).__name__} was copied without its store: copy the whole message")
    return found


def _inline_fields(one: ToolResult | ForeignMessage) -> list[Json]:
    """Everything but what may be in a blob."""
    lazy = _SLOT.get(type(one), "value" if isinstance(one, ToolResult) else "data")
    return [getattr(one, name) for name in one.__struct_fields__ if name != lazy]


def _same_content(one: BlobResult | BlobForeign, other: ToolResult | ForeignMessage) -> bool:
    """Whether the rest is equal, too. Nothing is read if the references are equal."""
    if isinstance(other, Lazy) and stored(one) == stored(other):
        return True
    name = _SLOT[type(one)]
    return bool(getattr(one, name) == getattr(other, name))


def _media_identity(media: Media) -> tuple[Json, ...]:
    if isinstance(media, BlobMedia):
        digest: str | None = media.reference.digest
    else:
        digest = None if media.data is None else digest_of(media.data)
    return media.media_type, digest, media.url, media.name, media.metadata


def _attach(one: T, blobs: BlobReader, get: Callable[[], Any]) -> T:
    one.__dict__["lazy_value"] = _LazyValue(blobs, get)
    return one


# -- from what is stored -------------------------------------------------------------------------------


def has_marks(content: Raw | bytes) -> bool:
    """Whether the content has references, or strings that look like one."""
    return MARK in bytes(content)


def blob_media(media: Media, reference: Reference, blobs: BlobReader) -> BlobMedia:
    """The same media with its bytes in a blob."""
    made = BlobMedia(
        media_type=media.media_type,
        data=str(reference),  # type: ignore[arg-type]
        url=media.url,
        name=media.name,
        metadata=media.metadata,
    )
    return _attach(made, blobs, lambda: blobs.share(reference.digest))


def read_own(content: Raw, blobs: BlobReader) -> Message:
    """A message of ours, with large content left in its blobs."""
    data = msgspec.json.decode(content)
    wraps = [_open_block(block, blobs) for block in data["blocks"]]
    blocks, data["blocks"] = data["blocks"], []
    message = decode_message(_encode(unmark(data)))
    data["blocks"] = blocks
    made = decode_message(_encode({"role": message.role, "blocks": blocks}))
    return msgspec.structs.replace(
        message, blocks=tuple(wrap(block) for wrap, block in zip(wraps, made.blocks, strict=True))
    )


def _open_block(block: dict[str, Json], blobs: BlobReader) -> Callable[[Block], Block]:
    """Take references out of a block's JSON, in place; the function that puts them into the decoded block."""
    kind = block.get("kind")
    if kind == "media":
        return _open_media(block, blobs)
    if kind != "tool_result":
        _unmark_in_place(block)
        return _as_it_is
    value = block.pop("value", None)
    content = block.pop("content", "")
    parts = [] if isinstance(content, str) else [_open_part(part, blobs) for part in content]
    _unmark_in_place(block)
    block["content"] = unmark(content) if isinstance(content, str) else content

    def wrap(made: Block) -> Block:
        assert isinstance(made, ToolResult)
        shown = made.content
        if not isinstance(shown, str):
            shown = tuple(put(part) for put, part in zip(parts, shown, strict=True))
        return lazy_result(msgspec.structs.replace(made, content=shown), value, blobs)

    return wrap


def _open_part(part: dict[str, Json], blobs: BlobReader) -> Callable[[Any], Any]:
    return _open_media(part, blobs) if part.get("kind") == "media" else _open_block(part, blobs)


def _open_media(block: dict[str, Json], blobs: BlobReader) -> Callable[[Any], Any]:
    data = block.pop("data", None)
    _unmark_in_place(block)
    if not isinstance(data, str):
        return _as_it_is
    if not data.startswith(SCHEME):
        block["data"] = data
        return _as_it_is
    reference = parse_reference(data)
    assert reference is not None, data
    return lambda media: blob_media(media, reference, blobs)


def _as_it_is(block: Any) -> Any:
    return block


def _unmark_in_place(block: dict[str, Json]) -> None:
    for key, item in block.items():
        block[key] = unmark(item)


def lazy_result(result: ToolResult, value: Json, blobs: BlobReader) -> ToolResult:
    """The result with this stored value."""
    if not find_digests(_encode(value)):
        return msgspec.structs.replace(result, value=unmark(value))
    fields = {name: getattr(result, name) for name in result.__struct_fields__}
    made = BlobResult(**{**fields, "value": value})
    return _attach(made, blobs, lambda: put_back(value, blobs.read))


def read_foreign(content: Raw, message: ForeignMessage, blobs: BlobReader) -> ForeignMessage:
    """A foreign message, with large content left in its blobs."""
    data = msgspec.json.decode(content)
    fields = {name: getattr(message, name) for name in message.__struct_fields__}
    if not find_digests(bytes(content)):
        return ForeignMessage(**{**fields, "data": unmark(data)})
    made = BlobForeign(**{**fields, "data": data})
    return _attach(made, blobs, lambda: put_back(data, blobs.read))


_decode_content = msgspec.json.Decoder(ResultContent).decode
_ERASED: Final = ResultContent(text="[erased]")


def read_content(content: Raw | bytes | None) -> ResultContent:
    """The result of a call: its text as it was, `value` and `parts` as they are stored."""
    if content is None:
        return _ERASED
    said = _decode_content(content)
    return msgspec.structs.replace(said, text=unescape(said.text)) if said.text.startswith(SCHEME) else said


def read_parts(parts: Sequence[dict[str, Json]], blobs: BlobReader) -> tuple[Text | Media, ...]:
    """The parts of a tool's result, with large content left in its blobs."""
    wraps = [_open_part(part, blobs) for part in parts]
    made = decode_message(_encode({"role": "tool", "blocks": list(parts)}))
    return tuple(put(block) for put, block in zip(wraps, made.blocks, strict=True))


def peek(content: Raw) -> Message:
    """A message of ours, without access to its blobs."""
    return read_own(content, NO_BLOBS) if has_marks(content) else decode_message(content)


def peek_at(message: ForeignMessage) -> Json:
    """A foreign message with references in place of content in blobs."""
    return message.stored if isinstance(message, BlobForeign) else message.data


def as_plain(block: T) -> T | Media:
    """The block with its bytes in memory. Blocks, if they must be read from a blob."""
    if not isinstance(block, BlobMedia):
        return block
    return Media(
        media_type=block.media_type, data=block.data, url=block.url, name=block.name, metadata=block.metadata
    )


# -- the lazy parts of messages ---------------------------------------------------------------------------


def iter_lazy(messages: Iterable[AnyMessage]) -> Iterator[Lazy]:
    """The parts of these messages that are in blobs, read or not."""
    for message in messages:
        if isinstance(message, BlobForeign):
            yield message
        elif isinstance(message, Message):
            yield from _iter_blocks(message.blocks)


def _iter_blocks(blocks: Iterable[Block]) -> Iterator[Lazy]:
    for block in blocks:
        if isinstance(block, BlobMedia | BlobResult):
            yield block
        if isinstance(block, ToolResult) and not isinstance(block.content, str):
            yield from _iter_blocks(block.content)
