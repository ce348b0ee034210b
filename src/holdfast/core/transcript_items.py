"""The items of a transcript, and the messages in them, which are decoded on first access."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import overload

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import force_setattr, replace

from ..content.lazy import NO_BLOBS, BlobReader, has_marks, read_foreign, read_own
from ..content.model_input import read_all, with_urls
from ..errors import Corrupt
from ..limits import READ_AHEAD
from ..messages import (
    OWN,
    AnyMessage,
    ForeignMessage,
    Json,
    Message,
    Part,
    Role,
    Text,
    ToolResult,
    decode_message,
    encode_message,
)


class Item(Struct, gc=False):
    """One message of the transcript: the entry that recorded it, and its content, decoded when it is read.

    The results of a reply share one item: `results`, by the position of their call.
    """

    seq: int
    at: datetime
    role: Role
    parts: tuple[Part, ...]
    content: Raw | AnyMessage | None
    """As it is stored, as it was decoded with its line, or as it was read: then with an id and a time."""
    format: str = OWN
    results: dict[int, ToolResult] | None = None
    inbox: int | None = None
    blobs: BlobReader = NO_BLOBS
    stored: Raw | None = None
    """The bytes in the journal, if reading them replaced `content`."""

    def encode(self) -> bytes:
        """The message as it is stored."""
        if self.stored is not None:
            return bytes(self.stored)
        if isinstance(self.content, Message | ForeignMessage):
            return encode_message(self.content)
        return b"" if self.content is None else bytes(self.content)

    def read(self) -> AnyMessage:
        """The message, with the id and time of its entry if it has none of its own."""
        content = self.content
        if isinstance(content, Message):
            return content if content.id and content.at else self._named(content)
        if isinstance(content, ForeignMessage):
            return content
        id = f"m{self.seq}"
        if self.results is not None:
            blocks = tuple(self.results[index] for index in sorted(self.results))
            # Not kept: another result may still join.
            return Message(role="tool", blocks=blocks, id=f"{id}-results", at=self.at)
        try:
            message = self._decode(content, id)
        except (msgspec.MsgspecError, LookupError, RecursionError, TypeError, ValueError) as error:
            where = f"session {self.blobs.session!r}"
            raise Corrupt(where, f"its content is no message ({error})", seq=self.seq) from error
        self.content = message
        return message

    def _decode(self, content: Raw | None, id: str) -> AnyMessage:
        if content is None:
            return Message(role=self.role, blocks=(Text("[erased]"),), id=id, at=self.at, metadata=_ERASED)
        if self.format == OWN:
            return self._named(self._read_own(content))
        return self._read_foreign(content, id)

    def _named(self, message: Message) -> Message:
        # It was made for this item and is not shared, so it can be changed in place.
        if message.id is None:
            force_setattr(message, "id", f"m{self.seq}")
        if message.at is None:
            force_setattr(message, "at", self.at)
        return message

    def _read_own(self, content: Raw) -> Message:
        if not has_marks(content):
            return decode_message(content)
        self.stored = content
        return read_own(content, self.blobs.at(self.seq))

    def _read_foreign(self, content: Raw, id: str) -> ForeignMessage:
        message = ForeignMessage(
            format=self.format, data=None, role=self.role, parts=self.parts, id=id, at=self.at
        )
        if not has_marks(content):
            return replace(message, data=msgspec.json.decode(content))
        self.stored = content
        return read_foreign(content, message, self.blobs.at(self.seq))


_ERASED: dict[str, Json] = {"erased": True}
_decode_all = msgspec.json.Decoder(list[Message]).decode


def _read_ahead(items: Sequence[Item]) -> None:
    """Decode the messages of all these items at once, if they are of our format and have no blobs.

    Others are left to `Item.read`.
    """
    # Each content is read once: another thread may replace it meanwhile.
    waiting = [
        (item, content) for item in items if isinstance(content := item.content, Raw) and item.format == OWN
    ]
    data = b"[%b]" % b",".join([content for _, content in waiting])
    if has_marks(data):
        return
    try:
        messages = _decode_all(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return
    for (item, _), message in zip(waiting, messages, strict=True):
        item.content = message


class Messages(Sequence[AnyMessage]):
    """The messages, oldest first; a view that follows the session."""

    def __init__(self, items: Sequence[Item]) -> None:
        self._items = items

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[AnyMessage]:
        ahead = 0
        for place, item in enumerate(self._items):
            if place >= ahead and item.content.__class__ is Raw:
                ahead = place + READ_AHEAD
                _read_ahead(self._items[place:ahead])
            yield item.read()

    @overload
    def __getitem__(self, index: int) -> AnyMessage: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[AnyMessage]: ...
    def __getitem__(self, index: int | slice) -> AnyMessage | Sequence[AnyMessage]:
        if isinstance(index, slice):
            return list(Messages(self._items[index]))
        return self._items[index].read()

    def __repr__(self) -> str:
        return f"<{len(self)} messages>"

    async def read(self) -> Messages:
        """Read all media into memory, so that later access does not block; returns itself."""
        await read_all(self)
        return self

    async def with_urls(self) -> list[AnyMessage]:
        """The messages with links in place of bytes, for models that accept them.

        Only bytes in blobs have links, and only if the home of the blobs offers them; the rest is unchanged.
        """
        return await with_urls(self)
