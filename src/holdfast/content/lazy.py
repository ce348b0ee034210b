"""Messages whose large content is in blobs: it is read when somebody looks at it, once.

`Media`, `ToolResult` and `ForeignMessage` look the same whether their bytes came with the journal or are kept
elsewhere. The classes here stand in for them while the bytes are elsewhere: everything else of a message can
be seen, compared and counted without reading a single blob.
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
    """The bytes of a blob, in memory once for all who look at them."""

    __slots__ = ("__weakref__", "data")

    def __init__(self, data: bytes) -> None:
        self.data = data


class BlobSource(Protocol):
    """Where blobs are read from."""

    def read(self, digest: str) -> Shared:
        """The bytes, checked. `NotFound` if they are not there, `Corrupt` if they are others. Blocks."""

    def stream(self, digest: str) -> Iterator[bytes]:
        """The same in parts, never all in memory."""

    async def link(self, digest: str) -> str | None:
        """A URL at which a model's provider can read the bytes, if there is one."""


class Place:
    """Where something was said: an entry of a session, or a key of the user's; and where its blobs are."""

    __slots__ = ("entry", "session", "source", "where")

    def __init__(
        self, session: str, source: BlobSource | None, *, entry: int | None = None, where: str = ""
    ) -> None:
        self.session, self.source, self.entry, self.where = session, source, entry, where

    def at(self, entry: int) -> Place:
        """An entry of the same session."""
        return Place(self.session, self.source, entry=entry)

    def read(self, digest: str) -> bytes:
        """The bytes of a blob that is referred to here, or `LostBlob`. Blocks."""
        return self.share(digest).data

    def share(self, digest: str) -> Shared:
        """The same, for who keeps them."""
        with self._naming(digest) as source:
            return source.read(digest)

    def stream(self, digest: str) -> Iterator[bytes]:
        """The same in parts."""
        with self._naming(digest) as source:
            yield from source.stream(digest)

    @contextmanager
    def _naming(self, digest: str) -> Iterator[BlobSource]:
        try:
            if self.source is None:
                raise NotFound("the journal was read without its store")
            yield self.source
        except (NotFound, Corrupt) as error:
            raise LostBlob(self.session, digest, str(error), entry=self.entry, where=self.where) from error


NOWHERE: Final = Place("?", None)
"""For a look at what an entry says, blobs aside."""


class _Late:
    """What is read when it is asked for, and what was found out then. Kept in the `__dict__` of a struct."""

    def __init__(self, place: Place, get: Callable[[Place], Any]) -> None:
        self.place, self._get = place, get
        self.is_read = False
        self.lost: LostBlob | None = None
        self._found: Any = None

    def read(self) -> Any:
        if not self.is_read:
            try:
                self._found = self._get(self.place)
            except LostBlob as error:
                self.lost = error
                raise
            self.is_read, self.lost = True, None
        return self._found


class BlobMedia(
    Media, frozen=True, kw_only=True, tag_field="kind", tag="media", omit_defaults=True, gc=True, dict=True
):
    """A `Media` whose bytes are in a blob. As JSON it has the reference in their place."""

    @property  # type: ignore[misc]
    def data(self) -> bytes | None:
        """The bytes. The first look reads them, and blocks; `LostBlob` if they are missing or damaged."""
        found: Shared = late(self).read()
        return found.data

    @property
    def reference(self) -> Reference:
        """The blob."""
        found = parse_reference(stored(self))
        assert found is not None
        return found

    @property
    def place(self) -> Place:
        """Who refers to it, and where it is read from."""
        return late(self).place

    @property
    def lost(self) -> LostBlob | None:
        """Why the bytes cannot be had, once somebody tried in vain."""
        return late(self).lost

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Media):
            return NotImplemented
        return _sketch(self) == _sketch(other)


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
        """The value. The first look reads it, and blocks; `LostBlob` if it is missing or damaged."""
        return late(self).read()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ToolResult):
            return NotImplemented
        return _facts(self) == _facts(other) and _same(self, other)


class BlobForeign(ForeignMessage, frozen=True, kw_only=True, gc=True, dict=True):
    """A `ForeignMessage` of which large content is in blobs."""

    @property  # type: ignore[misc]
    def data(self) -> Json:
        """The message as it was given. The first look reads its blobs, and blocks; `LostBlob` if one is
        missing or damaged."""
        return late(self).read()

    @property
    def stored(self) -> Json:
        """The message with references in the place of bytes."""
        return unmark(stored(self))

    @property
    def text(self) -> str:
        """The beginning of its text, where that is in a usual place."""
        plain = ForeignMessage(format=self.format, data=self.stored, role=self.role)
        return plain.text

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ForeignMessage):
            return NotImplemented
        return _facts(self) == _facts(other) and _same(self, other)


Lazy = BlobMedia | BlobResult | BlobForeign
_SLOT: Final[dict[type, str]] = {BlobMedia: "data", BlobResult: "value", BlobForeign: "data"}
_SLOTS: Final[dict[type, Any]] = {
    BlobMedia: Media.__dict__["data"],
    BlobResult: ToolResult.__dict__["value"],
    BlobForeign: ForeignMessage.__dict__["data"],
}


def stored(one: Lazy) -> Json:
    """What stands in the journal in the place of what is read late."""
    return _SLOTS[type(one)].__get__(one)


def late(one: Lazy) -> _Late:
    """What is known of its blobs."""
    found: _Late | None = one.__dict__.get("late")
    if found is None:
        raise TypeError(f"a {type(one).__name__} was copied without its store: copy the whole message")
    return found


def _facts(one: ToolResult | ForeignMessage) -> list[Json]:
    """Everything but what may be in a blob."""
    lazy = _SLOT.get(type(one), "value" if isinstance(one, ToolResult) else "data")
    return [getattr(one, name) for name in one.__struct_fields__ if name != lazy]


def _same(one: BlobResult | BlobForeign, other: ToolResult | ForeignMessage) -> bool:
    """Whether the rest is the same, too, without reading if that can be told from the references."""
    if isinstance(other, Lazy) and stored(one) == stored(other):
        return True
    name = _SLOT[type(one)]
    return bool(getattr(one, name) == getattr(other, name))


def _sketch(media: Media) -> tuple[Json, ...]:
    if isinstance(media, BlobMedia):
        digest: str | None = media.reference.digest
    else:
        digest = None if media.data is None else digest_of(media.data)
    return media.media_type, digest, media.url, media.name, media.metadata


def _awaken(one: T, place: Place, get: Callable[[Place], Any]) -> T:
    one.__dict__["late"] = _Late(place, get)
    return one


# -- from what is stored -------------------------------------------------------------------------------


def has_marks(content: Raw | bytes) -> bool:
    """Whether there are references in it, or what looks like one."""
    return MARK in bytes(content)


def blob_media(media: Media, reference: Reference, place: Place) -> BlobMedia:
    """The same media with its bytes in a blob."""
    made = BlobMedia(
        media_type=media.media_type,
        data=str(reference),  # type: ignore[arg-type]
        url=media.url,
        name=media.name,
        metadata=media.metadata,
    )
    return _awaken(made, place, lambda place: place.share(reference.digest))


def read_own(content: Raw, place: Place) -> Message:
    """A message of ours, with large content left where it is."""
    data = msgspec.json.decode(content)
    wraps = [_open_block(block, place) for block in data["blocks"]]
    blocks, data["blocks"] = data["blocks"], []
    message = decode_message(_encode(unmark(data)))
    data["blocks"] = blocks
    made = decode_message(_encode({"role": message.role, "blocks": blocks}))
    return msgspec.structs.replace(
        message, blocks=tuple(wrap(block) for wrap, block in zip(wraps, made.blocks, strict=True))
    )


def _open_block(block: dict[str, Json], place: Place) -> Callable[[Block], Block]:
    """Take references out of a block's JSON, in place; how to put them into the block that is made of it."""
    kind = block.get("kind")
    if kind == "media":
        return _open_media(block, place)
    if kind != "tool_result":
        _unmark_in_place(block)
        return _as_it_is
    value = block.pop("value", None)
    content = block.pop("content", "")
    parts = [] if isinstance(content, str) else [_open_part(part, place) for part in content]
    _unmark_in_place(block)
    block["content"] = unmark(content) if isinstance(content, str) else content

    def wrap(made: Block) -> Block:
        assert isinstance(made, ToolResult)
        shown = made.content
        if not isinstance(shown, str):
            shown = tuple(put(part) for put, part in zip(parts, shown, strict=True))
        return lazy_result(msgspec.structs.replace(made, content=shown), value, place)

    return wrap


def _open_part(part: dict[str, Json], place: Place) -> Callable[[Any], Any]:
    return _open_media(part, place) if part.get("kind") == "media" else _open_block(part, place)


def _open_media(block: dict[str, Json], place: Place) -> Callable[[Any], Any]:
    data = block.pop("data", None)
    _unmark_in_place(block)
    if not isinstance(data, str):
        return _as_it_is
    if not data.startswith(SCHEME):
        block["data"] = data
        return _as_it_is
    reference = parse_reference(data)
    assert reference is not None, data
    return lambda media: blob_media(media, reference, place)


def _as_it_is(block: Any) -> Any:
    return block


def _unmark_in_place(block: dict[str, Json]) -> None:
    for key, item in block.items():
        block[key] = unmark(item)


def lazy_result(result: ToolResult, value: Json, place: Place) -> ToolResult:
    """The result with this stored value."""
    if not find_digests(_encode(value)):
        return msgspec.structs.replace(result, value=unmark(value))
    fields = {name: getattr(result, name) for name in result.__struct_fields__}
    made = BlobResult(**{**fields, "value": value})
    return _awaken(made, place, lambda place: put_back(value, place.read))


def read_foreign(content: Raw, message: ForeignMessage, place: Place) -> ForeignMessage:
    """A foreign message, with large content left where it is."""
    data = msgspec.json.decode(content)
    fields = {name: getattr(message, name) for name in message.__struct_fields__}
    if not find_digests(bytes(content)):
        return ForeignMessage(**{**fields, "data": unmark(data)})
    made = BlobForeign(**{**fields, "data": data})
    return _awaken(made, place, lambda place: put_back(data, place.read))


_decode_content = msgspec.json.Decoder(ResultContent).decode
_ERASED: Final = ResultContent(text="[erased]")


def read_content(content: Raw | bytes | None) -> ResultContent:
    """What answers a call: its text as it was, `value` and `parts` as they are stored."""
    if content is None:
        return _ERASED
    said = _decode_content(content)
    return msgspec.structs.replace(said, text=unescape(said.text)) if said.text.startswith(SCHEME) else said


def read_parts(parts: Sequence[dict[str, Json]], place: Place) -> tuple[Text | Media, ...]:
    """The parts of a tool's result, with large content left where it is."""
    wraps = [_open_part(part, place) for part in parts]
    made = decode_message(_encode({"role": "tool", "blocks": list(parts)}))
    return tuple(put(block) for put, block in zip(wraps, made.blocks, strict=True))


def peek(content: Raw) -> Message:
    """What a message of ours says, blobs aside."""
    return read_own(content, NOWHERE) if has_marks(content) else decode_message(content)


def peek_at(message: ForeignMessage) -> Json:
    """A foreign message with references in the place of what is in blobs."""
    return message.stored if isinstance(message, BlobForeign) else message.data


def as_plain(block: T) -> T | Media:
    """A block with its bytes in it. Blocks, if they are still in a blob."""
    if not isinstance(block, BlobMedia):
        return block
    return Media(
        media_type=block.media_type, data=block.data, url=block.url, name=block.name, metadata=block.metadata
    )


# -- what of messages is lazy ---------------------------------------------------------------------------


def iter_lazy(messages: Iterable[AnyMessage]) -> Iterator[Lazy]:
    """What of these messages is in blobs, whether it was read or not."""
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
