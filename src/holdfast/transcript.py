"""The transcript: a fold over the lines of the journal that speak."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import TypeAlias, overload

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from .entries import (
    KIND_OF,
    ApprovalRefused,
    CallRef,
    CheckpointTaken,
    Entry,
    InboxTaken,
    MessageAdded,
    ModelReplied,
    ModelRequested,
    ResultContent,
    SessionForked,
    Span,
    ToolCompleted,
    ToolFailed,
    ToolInDoubt,
    ToolRefused,
    ToolSettled,
    TranscriptCompacted,
)
from .messages import (
    OWN,
    AnyMessage,
    CallPart,
    ForeignMessage,
    Json,
    Message,
    Part,
    ResultPart,
    Role,
    Text,
    ToolResult,
    decode_message,
)
from .validity import Pairing


class Item(Struct):
    """A place in the transcript: the entry that put it there, and what it says, decoded when read.

    The results of a reply share one item: `results` by the position of their call.
    """

    seq: int
    at: datetime
    role: Role
    parts: tuple[Part, ...]
    content: Raw | AnyMessage | None
    format: str = OWN
    results: dict[int, ToolResult] | None = None
    inbox: int | None = None

    def read(self) -> AnyMessage:
        """The message, with the journal's id and time where it has none of its own."""
        if isinstance(self.content, Message | ForeignMessage):
            return self.content
        id = f"m{self.seq}"
        message: AnyMessage
        if self.results is not None:
            blocks = tuple(self.results[index] for index in sorted(self.results))
            # Not kept: another result may still join.
            return Message(role="tool", blocks=blocks, id=f"{id}-results", at=self.at)
        if self.content is None:
            message = Message(role=self.role, blocks=(Text("[erased]"),), id=id, at=self.at, metadata=_ERASED)
        elif self.format == OWN:
            message = decode_message(self.content)
            if message.id is None or message.at is None:
                message = replace(message, id=message.id or id, at=message.at or self.at)
        else:
            message = ForeignMessage(
                format=self.format,
                data=msgspec.json.decode(self.content),
                role=self.role,
                parts=self.parts,
                id=id,
                at=self.at,
            )
        self.content = message
        return message


_ERASED: dict[str, Json] = {"erased": True}


class Messages(Sequence[AnyMessage]):
    """The messages, oldest first; a view that follows the session."""

    def __init__(self, items: Sequence[Item]) -> None:
        self._items = items

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[AnyMessage]:
        return (item.read() for item in self._items)

    @overload
    def __getitem__(self, index: int) -> AnyMessage: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[AnyMessage]: ...
    def __getitem__(self, index: int | slice) -> AnyMessage | Sequence[AnyMessage]:
        if isinstance(index, slice):
            return [item.read() for item in self._items[index]]
        return self._items[index].read()

    def __repr__(self) -> str:
        return f"<{len(self)} messages>"


class _Result(Struct, frozen=True):
    """A result for one call of a reply."""

    call: CallRef
    result: ToolResult
    at: datetime


class _Taken(Struct, frozen=True):
    """Inbox item `number` was taken in."""

    number: int


class _Compacted(Struct, frozen=True):
    """A span was replaced by a summary."""

    span: Span
    summary: Item


_REQUEST, _STEP_END, _FORK = "request", "step end", "fork"
_Event: TypeAlias = Item | _Result | _Taken | _Compacted | str

SPEAKING = frozenset(
    KIND_OF[body]
    for body in (
        MessageAdded,
        ModelRequested,
        ModelReplied,
        ToolCompleted,
        ToolFailed,
        ToolRefused,
        ToolInDoubt,
        ToolSettled,
        ApprovalRefused,
        CheckpointTaken,
        InboxTaken,
        TranscriptCompacted,
        SessionForked,
    )
)
"""Kinds that the transcript needs to see. All others can be skipped when only it is wanted."""


class Transcript:
    """Folds speaking entries into messages, and knows which spans of the journal are alive."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.complete = True
        """False when an entry of the spans was never seen here: fold the whole journal instead."""
        self._seen: list[Span] = []
        self._events: dict[int, _Event] = {}
        """What each speaking entry said, also of the spans that were left behind."""
        self._reset()

    def _reset(self) -> None:
        self.items: list[Item] = []
        self.pairing = Pairing()
        self.in_step = False
        """Between a model request and the checkpoint that ends the step."""
        self.queued: list[Item] = []
        """Messages from the inbox that wait for the end of the step."""
        self._taken = 0
        self._accept: int | None = None
        self._replies: set[int] = set()
        self._results: dict[int, Item] = {}
        """For each reply with calls, the item that holds their results."""

    @property
    def messages(self) -> Messages:
        """The messages, oldest first."""
        return Messages(self.items)

    def apply(self, entry: Entry) -> Item | None:
        """Fold the next entry; the item that it holds, if it is a message."""
        seq = entry.seq
        _extend(self.spans, seq)
        _extend(self._seen, seq)
        event = _event_of(entry)
        if event is None:
            return None
        self._events[seq] = event
        self._play(event)
        return event if event.__class__ is Item else None

    def load(self, spans: Iterable[Span], entries: Iterable[Entry]) -> None:
        """Begin with the speaking entries of these spans."""
        self.spans, self._seen = list(spans), list(spans)
        for entry in entries:
            event = _event_of(entry)
            if event is not None:
                self._events[entry.seq] = event
                self._play(event)

    def rewind(self, spans: Iterable[Span]) -> None:
        """Become what these spans say."""
        self.spans = list(spans)
        self._reset()
        for span in self.spans:
            if not any(seen.first <= span.first and span.last <= seen.last for seen in self._seen):
                self.complete = False
            for seq in range(span.first, span.last + 1):
                event = self._events.get(seq)
                if event is not None:
                    self._play(event)

    def _play(self, event: _Event) -> None:
        if event.__class__ is Item:
            self._add_or_queue(event)
        elif isinstance(event, _Result):
            self._add_result(event)
        elif event is _REQUEST:
            self.in_step = True
        elif event is _STEP_END:
            self.in_step = False
            for item in self.queued:
                self._add(item)
            self.queued.clear()
        elif event is _FORK:
            self._taken = 0  # A fork has an inbox of its own.
        elif isinstance(event, _Taken):
            self._accept = event.number if event.number > self._taken else None
            self._taken = max(self._taken, event.number)
        elif isinstance(event, _Compacted):
            self._compact(event)

    def _add_or_queue(self, item: Item) -> None:
        if item.inbox is None:
            self._add(item)
        elif item.inbox == self._accept:
            self._accept = None
            if self.in_step:
                self.queued.append(item)
            else:
                self._add(item)

    def _add(self, item: Item) -> None:
        self.items.append(item)
        self.pairing.add(item.parts)
        if item.parts and any(part.__class__ is CallPart for part in item.parts):
            self._replies.add(item.seq)

    def _add_result(self, event: _Result) -> None:
        call = event.call
        if call.reply not in self._replies:
            return  # A bare dispatch lives in the ledger alone.
        item = self._results.get(call.reply)
        if item is None:
            item = Item(call.reply, event.at, "tool", (), None, results={})
            self._results[call.reply] = item
            self.items.append(item)
            self.pairing.add((ResultPart(call.id),))
        elif item.results is not None and call.index not in item.results:
            self.pairing.answer(call.id, len(self.items) - 1)
        assert item.results is not None
        item.results[call.index] = event.result
        item.parts = tuple(ResultPart(item.results[index].call_id) for index in sorted(item.results))

    def _compact(self, event: _Compacted) -> None:
        span = event.span
        inside = [i for i, item in enumerate(self.items) if span.first <= item.seq <= span.last]
        if inside:
            self.items[inside[0] : inside[-1] + 1] = [event.summary]
            self.pairing = Pairing()
            for item in self.items:
                self.pairing.add(item.parts)


def _extend(spans: list[Span], seq: int) -> None:
    if spans and spans[-1].last == seq - 1:
        spans[-1] = Span(spans[-1].first, seq)
    else:
        spans.append(Span(seq, seq))


def _event_of(entry: Entry) -> _Event | None:
    """What the entry says, or None if it does not speak."""
    match entry.body:
        case MessageAdded() as body:
            return Item(
                entry.seq, entry.at, body.role, body.parts, entry.content, body.format, None, body.inbox
            )
        case ModelReplied() as body:
            return Item(entry.seq, entry.at, body.role, body.parts, entry.content, body.format)
        case CheckpointTaken():
            return _STEP_END
        case ModelRequested():
            return _REQUEST
        case SessionForked():
            return _FORK
        case ToolCompleted() as body:
            return _result(entry, body.call, False, body.replay_of)
        case ToolFailed(final=True) | ToolRefused() | ApprovalRefused() | ToolInDoubt(told=True) as body:
            return _result(entry, body.call, True)
        case ToolSettled(told=True) as body:
            return _result(entry, body.call, body.verdict != "landed")
        case InboxTaken() as body:
            return _Taken(body.number)
        case TranscriptCompacted() as body:
            return _Compacted(body.span, Item(entry.seq, entry.at, "user", (), entry.content))
        case _:
            return None


def _result(entry: Entry, call: CallRef, is_error: bool, replay_of: int | None = None) -> _Result:
    said = ResultContent(text="[erased]") if entry.content is None else _decode_result(entry.content)
    result = ToolResult(
        call_id=call.id,
        content=said.text,
        is_error=is_error,
        value=said.value,
        replay_of=None if replay_of is None else str(replay_of),
    )
    return _Result(call, result, entry.at)


_decode_result = msgspec.json.Decoder(ResultContent).decode
