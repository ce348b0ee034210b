"""What becomes of an inbox item when the holder takes it in."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ..entries import Body, InboxItem, InboxMessage, InboxTaken, MessageAdded
from ..errors import NewerFormat
from ..fold import SessionState
from ..messages import AnyMessage, encode_message, shape_of
from ..store.driver import InboxRow

_decoder: msgspec.json.Decoder[InboxItem] = msgspec.json.Decoder(InboxItem)


def message_item(message: AnyMessage, *, key: str | None) -> bytes:
    """The item that submits a message."""
    shape = shape_of(message)
    item = InboxMessage(
        message=msgspec.Raw(encode_message(message)),
        role=shape.role,
        parts=shape.parts,
        format=message.format,
        key=key,
    )
    return msgspec.json.encode(item)


def open_item(row: InboxRow, state: SessionState) -> tuple[Sequence[Body], bytes | None]:
    """The entries that take the item in, and the content of the last of them.

    A message's words go into a `message.added` of its own, where they can be erased. One that was submitted
    before under the same key is noted, and nothing more.
    """
    try:
        item = _decoder.decode(row.item)
    except msgspec.DecodeError as error:
        raise NewerFormat(
            f"session {state.facts.head.session!r}: inbox item {row.number} is of a kind that this version "
            f"does not know ({error}); upgrade holdfast"
        ) from error
    if not isinstance(item, InboxMessage):
        return (InboxTaken(number=row.number, item=item),), None
    assert isinstance(item.message, msgspec.Raw), item
    taken = InboxTaken(number=row.number, item=msgspec.structs.replace(item, message=msgspec.UNSET))
    if item.key is not None and item.key in state.facts.submitted:
        return (taken,), None
    added = MessageAdded(role=item.role, parts=item.parts, format=item.format, inbox=row.number)
    return (taken, added), bytes(item.message)
