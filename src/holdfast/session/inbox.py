"""Inbox items: how they are encoded, and which entries take them in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import msgspec

from ..content.encode import encode_content
from ..core.effects import Effect
from ..core.entries import (
    ApprovalGiven,
    ApprovalRefused,
    Body,
    InboxApproval,
    InboxItem,
    InboxMessage,
    InboxTaken,
    InboxVerdict,
    MessageAdded,
    ToolSettled,
)
from ..core.session_state import SessionState
from ..drivers.contract import InboxRow
from ..engine.engine import Engine
from ..errors import BadInput, Corrupt, NewerFormat
from ..limits import LINE_BYTES_MAX
from ..messages import AnyMessage, shape_of

_decoder: msgspec.json.Decoder[InboxItem] = msgspec.json.Decoder(InboxItem)


def encode_item(item: InboxItem) -> bytes:
    """Encode an item for the inbox. Reject one that a holder could not decode: it would block the inbox."""
    try:
        data = msgspec.json.encode(item)
        _decoder.decode(data)
    except (TypeError, UnicodeEncodeError, OverflowError, RecursionError, msgspec.DecodeError) as error:
        raise BadInput(f"this cannot be sent to a session: {error}") from error
    if len(data) > LINE_BYTES_MAX:
        raise BadInput(f"an item of {len(data):,} bytes is over the limit of {LINE_BYTES_MAX:,}")
    return data


def message_item(message: AnyMessage, content: bytes, *, key: str | None, agent: str | None = None) -> bytes:
    """Encode the item that submits a message; `content` is the message as it is stored."""
    shape = shape_of(message)
    item = InboxMessage(
        message=msgspec.Raw(content),
        role=shape.role,
        parts=shape.parts,
        format=message.format,
        key=key,
        agent=agent,
    )
    return encode_item(item)


async def message_entry(
    engine: Engine, message: AnyMessage, *, key: str | None = None
) -> tuple[Body, bytes | None]:
    """Make the entry that adds a message, and its content. Its blobs are durable on return."""
    content = await engine.pack_message(message)
    shape = shape_of(message)
    return MessageAdded(role=shape.role, parts=shape.parts, format=message.format, key=key), content


Opened: TypeAlias = tuple[Sequence[Body], bytes | None]


def find_answer(row: InboxRow) -> InboxApproval | InboxVerdict | None:
    """The answer of a person that an item of the inbox is; None if it is something else."""
    try:
        item = _decoder.decode(row.item)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return item if isinstance(item, InboxApproval | InboxVerdict) else None


def find_verdict(row: InboxRow, state: SessionState) -> tuple[Effect, InboxVerdict] | None:
    """Find the effect that a verdict of the inbox is about; None if the item is no verdict, or a late one."""
    if b'"verdict"' not in row.item:
        return None
    item = _decode(row, state)
    effect = state.facts.effects.rows.get(item.issued) if isinstance(item, InboxVerdict) else None
    if effect is None or not isinstance(item, InboxVerdict) or _is_late(effect, item):
        return None
    return effect, item


def _is_late(row: Effect | None, item: InboxVerdict) -> bool:
    """True if the outcome of the effect is already known. A verdict can still replace a `gave_up`."""
    return row is None or row.status not in ("in_doubt", "gave_up") or row.status == item.verdict


def open_item(row: InboxRow, state: SessionState) -> Opened:
    """Make the entries that take the item in, and the content of the last of them.

    The text of a message goes into an entry `message.added`, where it can be erased. A message whose key was
    submitted before is only noted as taken.
    """
    item = _decode(row, state)
    if isinstance(item, InboxMessage):
        return _open_message(row.number, item, state)
    if isinstance(item, InboxVerdict):
        return _open_verdict(row.number, item, state)
    if isinstance(item, InboxApproval):
        return _open_approval(row.number, item, state)
    return (InboxTaken(number=row.number, item=item),), None


def _decode(row: InboxRow, state: SessionState) -> InboxItem:
    try:
        return _decoder.decode(row.item)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        session = state.facts.head.session
        if _has_unknown_kind(row.item):
            raise NewerFormat(
                f"session {session!r}: inbox item {row.number} is of a kind that this version "
                f"does not know ({error}); upgrade holdfast"
            ) from error
        raise Corrupt(
            f"session {session!r}, inbox item {row.number}", f"it cannot be read ({error})"
        ) from error


class _Kind(msgspec.Struct):
    kind: str


_decode_kind = msgspec.json.Decoder(_Kind).decode
_KINDS = {"message", "cancel", "verdict", "approval"}


def _has_unknown_kind(item: bytes) -> bool:
    try:
        return _decode_kind(item).kind not in _KINDS
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False


def open_late_verdict(number: int, row: Effect, item: InboxVerdict, owner: str) -> Sequence[Body]:
    """Make the entries that take in a verdict on an effect that another session knew to have happened."""
    bare = msgspec.structs.replace(item, content=None, value=None)
    landed = ToolSettled(call=row.call, issued=row.issued, verdict="landed", by=f"session {owner}", told=True)
    return InboxTaken(number=number, item=bare, late=True), landed


def _open_message(number: int, item: InboxMessage, state: SessionState) -> Opened:
    if not isinstance(item.message, msgspec.Raw):
        session = state.facts.head.session
        raise Corrupt(f"session {session!r}, inbox item {number}", "it is a message without words")
    taken = InboxTaken(number=number, item=msgspec.structs.replace(item, message=msgspec.UNSET))
    if item.key is not None and item.key in state.facts.keys:
        return (taken,), None
    added = MessageAdded(role=item.role, parts=item.parts, format=item.format, inbox=number)
    # Without line breaks, which the item may have.
    return (taken, added), msgspec.json.format(bytes(item.message), indent=-1)


def _open_verdict(number: int, item: InboxVerdict, state: SessionState) -> Opened:
    """The result that a person gives with `landed` becomes the result of the call."""
    row = state.facts.effects.rows.get(item.issued)
    if row is None or _is_late(row, item):
        return (InboxTaken(number=number, item=item, late=True),), None
    settled = ToolSettled(
        call=row.call,
        issued=row.issued,
        verdict=item.verdict,
        by=item.by,
        note=item.note,
        told=item.verdict != "not_landed",
    )
    text = item.content or ""
    if item.verdict == "gave_up":
        text = (
            f"{row.tool}: given up by {item.by}. {item.note or 'It is not known whether it happened.'} "
            "It is not run again."
        )
    content = encode_content(text, item.value, unkept=item.unkept)
    # The result is in the content of `tool.settled` alone, where it can be erased.
    bare = msgspec.structs.replace(item, content=None, value=None)
    return (InboxTaken(number=number, item=bare), settled), content if settled.told else None


def _open_approval(number: int, item: InboxApproval, state: SessionState) -> Opened:
    question = state.facts.effects.questions.get(item.asked)
    if question is None:
        return (InboxTaken(number=number, item=item, late=True),), None
    taken = InboxTaken(number=number, item=item)
    if item.approved:
        given = ApprovalGiven(
            call=question.call, asked=item.asked, by=item.by, args=item.args, note=item.note
        )
        return (taken, given), None
    text = f"{question.tool}: refused by {item.by}. {item.note}".strip()
    refused = ApprovalRefused(call=question.call, asked=item.asked, by=item.by)
    return (taken, refused), encode_content(text)
