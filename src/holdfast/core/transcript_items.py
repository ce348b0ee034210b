"""What stands in the transcript, place by place, and the messages that it holds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import overload

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import force_setattr, replace

from ..content.lazy import NOWHERE, Place, has_marks, read_foreign, read_own
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
    """A place in the transcript: the entry that put it there, and what it says, decoded by when it is read.

    The results of a reply share one item: `results` by the position of their call.
    """

    seq: int
    at: datetime
    role: Role
    parts: tuple[Part, ...]
    content: Raw | AnyMessage | None
    """As it is stored, as it was decoded with its line, or as it was read: then it has an id and a time."""
    format: str = OWN
    results: dict[int, ToolResult] | None = None
    inbox: int | None = None
    place: Place = NOWHERE
    stored: Raw | None = None
    """What stands in the journal, if reading it made something else of it."""

    def encode(self) -> bytes:
        """The message as it is stored."""
        if self.stored is not None:
            return bytes(self.stored)
        if isinstance(self.content, Message | ForeignMessage):
            return encode_message(self.content)
        return b"" if self.content is None else bytes(self.content)

    def read(self) -> AnyMessage:
        """The message, with the journal's id and time where it has none of its own."""
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
            where = f"session {self.place.session!r}"
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
        # It was made for this item and nobody else has it: filling it in beats copying it.
        if message.id is None:
            force_setattr(message, "id", f"m{self.seq}")
        if message.at is None:
            force_setattr(message, "at", self.at)
        return message

    def _read_own(self, content: Raw) -> Message:
        if not has_marks(content):
            return decode_message(content)
        self.stored = content
        return read_own(content, self.place.at(self.seq))

    def _read_foreign(self, content: Raw, id: str) -> ForeignMessage:
        message = ForeignMessage(
            format=self.format, data=None, role=self.role, parts=self.parts, id=id, at=self.at
        )
        if not has_marks(content):
            return replace(message, data=msgspec.json.decode(content))
        self.stored = content
        return read_foreign(content, message, self.place.at(self.seq))


_ERASED: dict[str, Json] = {"erased": True}
_decode_all = msgspec.json.Decoder(list[Message]).decode


def _read_ahead(items: Sequence[Item]) -> None:
    """Decode the messages of all of these at once, if they are plain ones of ours.

    What cannot be decoded so is left to `Item.read`, which knows what to do about it.
    """
    # Each content is looked at once: another thread may be reading it.
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
        """Itself, once all media in it are in memory: so that nobody blocks who looks at them."""
        await read_all(self)
        return self

    async def with_urls(self) -> list[AnyMessage]:
        """The messages with links in the place of bytes, for models that take them.

        Only bytes in blobs have links, and only where their home gives some; the rest stays as it is.
        """
        return await with_urls(self)
