"""Input items of the SDK as messages of a session, and back again.

The items of one reply are one message, and so are the outputs of its calls: then each call has its result in
the message after it, also if a reply makes several calls at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import Raw

from ...content.encode import Packed, Sizes, is_light
from ...content.extract import Swap, put_back
from ...content.lazy import BlobReader, has_marks
from ...core.transcript_items import Item as TranscriptItem
from ...errors import BadInput, BadMessage
from ...messages import (
    OPENAI_AGENTS,
    OWN,
    ForeignMessage,
    Json,
    Message,
    Text,
    decode_message,
    encode_message,
    foreign,
    role_of_item,
)

InputItem: TypeAlias = dict[str, Any]
"""An input item, as it was given (`TResponseInputItem`)."""

_encode = msgspec.json.Encoder().encode
_CALL_OF: Final = {"tool_search_output": "tool_search_call"}


def group(items: Sequence[InputItem]) -> list[list[InputItem]]:
    """The items of each message: those of a reply together, and the outputs of its calls."""
    groups: list[list[InputItem]] = []
    last = None
    for item in items:
        if not isinstance(item, dict):
            raise BadMessage(f"an item of a session is a dict, not {type(item).__name__}")
        role = role_of_item(item)
        if role == last and role in ("assistant", "tool"):
            groups[-1].append(item)
        else:
            groups.append([item])
        last = role
    return groups


def as_message(items: Sequence[InputItem]) -> ForeignMessage:
    """The items of one message."""
    return foreign({"items": list(items)}, OPENAI_AGENTS)


def pack_light(message: ForeignMessage, sizes: Sizes) -> Packed | None:
    """The message as it is stored, if nothing in it needs a blob; else None: then use `pack`."""
    content = encode_message(message)
    least = [size for size in (sizes.inline_bytes, sizes.result_chars) if size is not None]
    light = Sizes(inline_bytes=min(least, default=None), result_chars=None)
    return Packed(content) if is_light(content, light) else None


def pack(message: ForeignMessage, sizes: Sizes) -> Packed:
    """The message as it is stored: media, and long texts in outputs of tools, are in blobs."""
    swap = Swap(sizes.inline_bytes, sizes.result_chars)
    items = [_pack_item(item, swap) for item in message.data["items"]]
    return Packed(_encode({"items": items}), tuple(swap.pieces.values()))


def _pack_item(item: InputItem, swap: Swap) -> InputItem:
    return {
        key: swap.result(value) if key == "output" else swap.message(value, item, key)
        for key, value in item.items()
    }


class StoredMessage(msgspec.Struct, frozen=True):
    """A message of the transcript: the entry that recorded it, and its content as it is stored."""

    seq: int
    format: str
    content: bytes

    @classmethod
    def of(cls, item: TranscriptItem) -> StoredMessage | None:
        """None if what it said was erased. Its content must be in memory."""
        if item.results is not None:
            raise BadInput(_NOT_OURS.format(item.blobs.session, "the results of another agent's tools"))
        content = item.encode()
        return None if content is None else cls(item.seq, item.format, content)

    @property
    def has_blobs(self) -> bool:
        """Whether a part of it may be in blobs."""
        return has_marks(self.content)

    def read(self, blobs: BlobReader) -> list[InputItem]:
        """The items, as they were given. With blobs, it blocks."""
        if self.format == OPENAI_AGENTS:
            data: Json = msgspec.json.decode(self.content)
            if self.has_blobs:
                data = put_back(data, blobs.at(self.seq).read)
            items: list[InputItem] = data["items"]
            return items
        if self.format == OWN and not self.has_blobs:
            message = decode_message(Raw(self.content))
            if all(isinstance(block, Text) for block in message.blocks):
                return [_as_item(message)]
        what = "messages with more than text" if self.format == OWN else f"{self.format} messages"
        raise BadInput(_NOT_OURS.format(blobs.session, what))


_NOT_OURS: Final = "session {!r} holds {}, which the SDK cannot be given: its agents need another session"


def _as_item(message: Message) -> InputItem:
    """A text that was added or submitted by other means of holdfast."""
    return {"role": message.role, "content": message.text}


def drop_orphan_outputs(items: Iterable[InputItem]) -> list[InputItem]:
    """The items without outputs whose call is not before them: a model's provider refuses the whole input."""
    kept: list[InputItem] = []
    called: set[tuple[str, str]] = set()
    for item in items:
        kind, call = item.get("type"), item.get("call_id")
        if isinstance(kind, str) and isinstance(call, str):
            asked = _call_kind(kind)
            if asked is None:
                called.add((kind, call))
            elif (asked, call) not in called:
                continue
        kept.append(item)
    return kept


def _call_kind(kind: str) -> str | None:
    """The type of the call that an output of this type answers; None if it is no output."""
    if kind in _CALL_OF:
        return _CALL_OF[kind]
    return kind.removesuffix("_output") if kind.endswith("_output") else None


def unanswered_input(items: Sequence[InputItem]) -> list[InputItem]:
    """What was said after the last reply. Calls at the end that have no output are no reply: the SDK drops
    them."""
    end = len(items)
    while end and _is_begun(items[end - 1]):
        end -= 1
    first = end
    while first and role_of_item(items[first - 1]) in ("user", "system"):
        first -= 1
    return list(items[first:end])


def _is_begun(item: InputItem) -> bool:
    is_call = role_of_item(item) == "assistant" and isinstance(item.get("call_id"), str)
    return is_call or item.get("type") == "reasoning"
