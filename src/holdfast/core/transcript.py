"""The transcript: a fold over the entries that hold messages and results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Raw, Struct

from ..content.lazy import (
    NO_BLOBS,
    BlobReader,
    has_marks,
    lazy_result,
    read_content,
    read_parts,
)
from ..messages import (
    OWN,
    CallPart,
    Message,
    ResultPart,
    ToolCall,
    ToolResult,
    calls_of,
)
from .batch_decode import Opened, Opener, line_type
from .call_pairing import Pairing, ReplyCalls
from .entries import (
    KIND_OF,
    ApprovalRefused,
    Body,
    CallRef,
    CheckpointTaken,
    Entry,
    InboxTaken,
    MessageAdded,
    ModelReplied,
    ModelRequested,
    SessionForked,
    Span,
    ToolCompleted,
    ToolFailed,
    ToolInDoubt,
    ToolRan,
    ToolRefused,
    ToolSettled,
    TranscriptCompacted,
)
from .transcript_items import Item, Messages


class _Result(Struct, frozen=True, gc=False):
    """A result for one call of a reply."""

    call: CallRef
    result: ToolResult
    at: datetime


class _InboxNumber(Struct, frozen=True, gc=False):
    """Inbox item `number` was taken."""

    number: int


class _Compacted(Struct, frozen=True):
    """A span was replaced by a summary."""

    span: Span
    summary: Item


_REQUEST, _STEP_END, _FORK = "request", "step end", "fork"
_Event: TypeAlias = Item | _Result | _InboxNumber | _Compacted | str


class Spans:
    """A set of entries, as spans of the journal. It grows at its end."""

    __slots__ = ("_closed", "_first", "_last")

    def __init__(self, spans: Iterable[Span] = ()) -> None:
        self._closed = list(spans)
        self._first, self._last = self._closed.pop() if self._closed else (1, 0)

    def extend_to(self, seq: int) -> None:
        """Add an entry that comes after all others."""
        if seq != self._last + 1:
            self._closed = list(self)
            self._first = seq
        self._last = seq

    def __iter__(self) -> Iterator[Span]:
        yield from self._closed
        if self._first <= self._last:
            yield Span(self._first, self._last)

    def covers(self, span: Span) -> bool:
        """Whether all entries of the span are in the set."""
        return any(seen.first <= span.first and span.last <= seen.last for seen in self)

    def joined_with(self, other: Spans) -> Spans:
        """The entries of both sets."""
        joined: list[Span] = []
        for span in sorted([*self, *other]):
            if joined and span.first <= joined[-1].last + 1:
                span = Span(joined[-1].first, max(joined.pop().last, span.last))
            joined.append(span)
        return Spans(joined)


class Transcript:
    """Folds entries into messages, and tracks which spans of the journal the current history consists of."""

    def __init__(self, blobs: BlobReader = NO_BLOBS) -> None:
        self._blobs = blobs
        self._live, self._seen = Spans(), Spans()
        """The entries of the current history, and all entries that were folded here."""
        self.complete = True
        """False if an entry of the spans was not folded here: then the whole journal must be folded."""
        self._events: dict[int, _Event] = {}
        """The event of each entry, also of spans that a rewind left behind."""
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
    def spans(self) -> tuple[Span, ...]:
        """The parts of the journal that the current history is made of."""
        return tuple(self._live)

    @property
    def messages(self) -> Messages:
        """The messages, oldest first."""
        return Messages(self.items)

    def apply(self, entry: Entry) -> Item | None:
        """Fold the next entry; its item, if it is a message."""
        seq = entry.seq
        self._live.extend_to(seq)
        self._seen.extend_to(seq)
        event = _event_of(entry, self._blobs)
        if event is None:
            return None
        self._events[seq] = event
        self._play(event)
        return event if event.__class__ is Item else None

    def find_last_reply(self) -> tuple[Item, dict[int, ToolResult]] | None:
        """The last message with calls, and the results they have, by the position of the call."""
        for place in range(len(self.items) - 1, -1, -1):
            item = self.items[place]
            if item.seq in self._replies and item.results is None:
                return item, self._results_of(place)
        return None

    def _results_of(self, place: int) -> dict[int, ToolResult]:
        """Results from the ledger, or added as messages after the reply: matched by id, in order."""
        reply = self.items[place]
        held = self._results.get(reply.seq)
        found = dict(held.results or {}) if held is not None else {}
        calls = ReplyCalls(reply.parts, answered=found)
        for item in self.items[place + 1 :]:
            if item.results is not None:
                continue
            message = item.read()
            blocks = message.blocks if isinstance(message, Message) else ()
            said = {block.call_id: block for block in blocks if isinstance(block, ToolResult)}
            for part in item.parts:
                if isinstance(part, ResultPart) and (index := calls.answer(part.call_id)) is not None:
                    found[index] = said.get(part.call_id) or ToolResult(call_id=part.call_id)
        return found

    def list_unanswered(self) -> list[tuple[CallRef, ToolCall]]:
        """The calls of the last reply that have no result."""
        last = self.find_last_reply()
        if last is None:
            return []
        reply, results = last
        # An erased reply has calls by its parts, and none that can be read.
        return [
            (CallRef(id=call.id, reply=reply.seq, index=index), call)
            for index, call in enumerate(calls_of(reply.read()))
            if index not in results
        ]

    def load(self, spans: Iterable[Span], pages: Iterable[Sequence[bytes]], where: str) -> None:
        """Start with the lines of these spans; entries without a message or result are not decoded."""
        self._live, self._seen = Spans(spans), Spans(spans)
        blobs, events, play = self._blobs, self._events, self._play
        for page in pages:
            for line in _OPENER.open(page, where):
                event = _event_of(line, blobs)
                if event is not None:
                    events[line.seq] = event
                    play(event)

    def learn(self, other: Transcript) -> None:
        """Take over the events of another transcript, so that a rewind to it needs no reading."""
        self._events.update(other._events)
        self._seen = self._seen.joined_with(other._seen)

    def rewind(self, spans: Iterable[Span]) -> None:
        """Replay the events of these spans."""
        self._live = Spans(spans)
        self._reset()
        for span in self.spans:
            if not self._seen.covers(span):
                self.complete = False
            for seq in range(span.first, span.last + 1):
                event = self._events.get(seq)
                if event is not None:
                    self._play(event)

    def _play(self, event: _Event) -> None:
        if event.__class__ is Item:
            if event.inbox is None:
                self._add(event)
            else:
                self._take_in(event)
        elif event is _STEP_END:
            self.in_step = False
        elif event is _REQUEST:
            self.in_step = True
        elif isinstance(event, _Result):
            self._add_result(event)
        elif event is _FORK:
            self._taken = 0  # A fork has an inbox of its own.
        elif isinstance(event, _InboxNumber):
            self._accept = event.number if event.number > self._taken else None
            self._taken = max(self._taken, event.number)
        elif isinstance(event, _Compacted):
            self._compact(event)
        if self.queued and not self._is_amid_step():
            for item in self.queued:
                self._add(item)
            self.queued.clear()

    def _is_amid_step(self) -> bool:
        """Whether a message would come between a call and its result. A checkpoint does not end a call."""
        last = next((item for item in reversed(self.items) if item.role != "tool"), None)
        found = self.find_last_reply()
        if self.in_step or found is None or found[0] is not last:
            return self.in_step
        return bool(ReplyCalls(found[0].parts, answered=found[1]).list_unanswered())

    def _take_in(self, item: Item) -> None:
        """Add a message from the inbox, unless it was taken before."""
        if item.inbox == self._accept:
            self._accept = None
            if self._is_amid_step():
                self.queued.append(item)
            else:
                self._add(item)

    def _add(self, item: Item) -> None:
        self.items.append(item)
        parts = item.parts
        self.pairing.add(parts)
        if parts and any(part.__class__ is CallPart for part in parts):
            self._replies.add(item.seq)

    def _add_result(self, event: _Result) -> None:
        call = event.call
        if call.reply not in self._replies:
            return  # A rewind or a compaction removed that reply.
        item = self._results.get(call.reply)
        if item is None:
            item = Item(call.reply, event.at, "tool", (), None, results={})
            self._results[call.reply] = item
            self.items.append(item)
            self.pairing.add((ResultPart(call.id),))
            fresh = False
        else:
            fresh = item.results is not None and call.index not in item.results
        assert item.results is not None
        item.results[call.index] = event.result
        item.parts = tuple(ResultPart(item.results[index].call_id) for index in sorted(item.results))
        if fresh and self.items[-1] is item:
            self.pairing.answer(call.id, len(self.items) - 1)
        elif fresh:
            self._pair_again()  # It joins an earlier message.

    def _pair_again(self) -> None:
        self.pairing = Pairing()
        for item in self.items:
            self.pairing.add(item.parts)

    def _compact(self, event: _Compacted) -> None:
        span = event.span
        inside = [i for i, item in enumerate(self.items) if span.first <= item.seq <= span.last]
        if inside:
            gone = slice(inside[0], inside[-1] + 1)
            for item in self.items[gone]:
                # A later result then has no call, or starts a message of its own.
                if item.results is None:
                    self._replies.discard(item.seq)
                else:
                    self._results.pop(item.seq, None)
            self.items[gone] = [event.summary]
            self._pair_again()


def _event_of(entry: Opened, blobs: BlobReader) -> _Event | None:
    """The event of an entry, or None if the transcript does not need it."""
    body = entry.body
    reader = _find_reader(body.__class__)
    return None if reader is None else reader(entry, body, blobs)


def _own(content: Raw | Message | None) -> Raw | Message | None:
    """Copy it out of the buffer it was read with, which would otherwise stay in memory."""
    return content.copy() if isinstance(content, Raw) else content


def _read_message_added(entry: Opened, body: MessageAdded, blobs: BlobReader) -> Item:
    content = _own(entry.content)
    return Item(entry.seq, entry.at, body.role, body.parts, content, body.format, None, body.inbox, blobs)


def _read_model_replied(entry: Opened, body: ModelReplied, blobs: BlobReader) -> Item:
    content = _own(entry.content)
    return Item(entry.seq, entry.at, body.role, body.parts, content, body.format, None, None, blobs)


def _read_tool_completed(entry: Opened, body: ToolCompleted, blobs: BlobReader) -> _Result | None:
    return _read_result(entry, body.call, False, blobs, body.replay_of)


def _read_tool_ran(entry: Opened, body: ToolRan, blobs: BlobReader) -> _Result | None:
    return _read_result(entry, body.call, False, blobs)


def _read_refused(entry: Opened, body: ToolRefused | ApprovalRefused, blobs: BlobReader) -> _Result | None:
    return _read_result(entry, body.call, True, blobs)


def _read_tool_failed(entry: Opened, body: ToolFailed, blobs: BlobReader) -> _Result | None:
    return _read_result(entry, body.call, True, blobs) if body.final else None


def _read_tool_in_doubt(entry: Opened, body: ToolInDoubt, blobs: BlobReader) -> _Result | None:
    return _read_result(entry, body.call, True, blobs) if body.told else None


def _read_tool_settled(entry: Opened, body: ToolSettled, blobs: BlobReader) -> _Result | None:
    return _read_result(entry, body.call, body.verdict != "landed", blobs) if body.told else None


def _read_compacted(entry: Opened, body: TranscriptCompacted, blobs: BlobReader) -> _Compacted:
    # At the position of the last message that it replaces, so that items stay in the order of entries.
    summary = Item(body.span.last, entry.at, "user", (), _own(entry.content), blobs=blobs)
    return _Compacted(body.span, summary)


_READERS: dict[type, Callable[[Opened, Any, BlobReader], _Event | None]] = {
    MessageAdded: _read_message_added,
    ModelReplied: _read_model_replied,
    ModelRequested: lambda entry, body, blobs: _REQUEST,
    CheckpointTaken: lambda entry, body, blobs: _STEP_END,
    SessionForked: lambda entry, body, blobs: _FORK,
    ToolCompleted: _read_tool_completed,
    ToolRan: _read_tool_ran,
    ToolFailed: _read_tool_failed,
    ToolRefused: _read_refused,
    ApprovalRefused: _read_refused,
    ToolInDoubt: _read_tool_in_doubt,
    ToolSettled: _read_tool_settled,
    InboxTaken: lambda entry, body, blobs: _InboxNumber(body.number),
    TranscriptCompacted: _read_compacted,
}
_SPEAKING = {KIND_OF[body]: body for body in _READERS}
"""Kinds that the transcript needs. Bodies of other kinds are not decoded when only it is loaded."""


def _in_our_format(body: type[Body]) -> Any:
    """The same body, restricted to messages of our format."""
    return msgspec.defstruct(
        body.__name__, [("format", Literal["holdfast"], OWN)], bases=(body,), frozen=True
    )


# Skipping a message takes as long as decoding it. So messages of our format are decoded together with their
# lines, unless one has references: blobs are read on first access.
_OURS = {KIND_OF[body]: _in_our_format(body) for body in (MessageAdded, ModelReplied)}
_READERS.update({_OURS["message.added"]: _read_message_added, _OURS["model.replied"]: _read_model_replied})
_OPENER = Opener(
    _SPEAKING,
    msgspec.json.Decoder(line_type(_SPEAKING)),
    eager=msgspec.json.Decoder(line_type({**_SPEAKING, **_OURS}, dict.fromkeys(_OURS, Message))),
    may_be_eager=lambda joined: not has_marks(joined),
)
_find_reader = _READERS.get


def _read_result(
    entry: Opened, call: CallRef, is_error: bool, blobs: BlobReader, replay_of: str | None = None
) -> _Result | None:
    if call.reply is None:
        return None  # A call without a reply is only in the ledger.
    content = _own(entry.content)
    assert not isinstance(content, Message)
    said = read_content(content)
    here = blobs.at(entry.seq)
    result = ToolResult(
        call_id=call.id,
        content=read_parts(said.parts, here) if said.parts else said.text,
        is_error=is_error,
        value=said.value,
        replay_of=replay_of,
        metadata={"full": said.full, "chars": said.chars} if said.full else {},
    )
    if content is not None and has_marks(content):
        result = lazy_result(result, said.value, here)
    return _Result(call, result, entry.at)
