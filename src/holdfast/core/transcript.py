"""The transcript: a fold over the lines of the journal that speak."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Raw, Struct

from ..content.lazy import (
    NOWHERE,
    Place,
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
from .spans import Spans
from .transcript_items import Item, Messages


class _Result(Struct, frozen=True, gc=False):
    """A result for one call of a reply."""

    call: CallRef
    result: ToolResult
    at: datetime


class _Taken(Struct, frozen=True, gc=False):
    """Inbox item `number` was taken in."""

    number: int


class _Compacted(Struct, frozen=True):
    """A span was replaced by a summary."""

    span: Span
    summary: Item


_REQUEST, _STEP_END, _FORK = "request", "step end", "fork"
_Event: TypeAlias = Item | _Result | _Taken | _Compacted | str


class Transcript:
    """Folds speaking entries into messages, and knows which spans of the journal are alive."""

    def __init__(self, place: Place = NOWHERE) -> None:
        self._place = place
        self._live, self._seen = Spans(), Spans()
        """The entries of this line of history, and all that were ever folded here."""
        self.complete = True
        """False when an entry of the spans was never seen here: fold the whole journal instead."""
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
    def spans(self) -> tuple[Span, ...]:
        """The parts of the journal that this line of history is made of."""
        return tuple(self._live)

    @property
    def messages(self) -> Messages:
        """The messages, oldest first."""
        return Messages(self.items)

    def apply(self, entry: Entry) -> Item | None:
        """Fold the next entry; the item that it holds, if it is a message."""
        seq = entry.seq
        self._live.extend_to(seq)
        self._seen.extend_to(seq)
        event = _event_of(entry, self._place)
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
        """Begin with the lines of these spans; those that do not speak are not even decoded."""
        self._live, self._seen = Spans(spans), Spans(spans)
        place, events, play = self._place, self._events, self._play
        for page in pages:
            for line in _OPENER.open(page, where):
                event = _event_of(line, place)
                if event is not None:
                    events[line.seq] = event
                    play(event)

    def learn(self, other: Transcript) -> None:
        """Remember what the other one has read, so that going back to it misses nothing."""
        self._events.update(other._events)
        self._seen = self._seen.joined_with(other._seen)

    def rewind(self, spans: Iterable[Span]) -> None:
        """Become what these spans say."""
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
        elif isinstance(event, _Taken):
            self._accept = event.number if event.number > self._taken else None
            self._taken = max(self._taken, event.number)
        elif isinstance(event, _Compacted):
            self._compact(event)
        if self.queued and not self._is_amid_step():
            for item in self.queued:
                self._add(item)
            self.queued.clear()

    def _is_amid_step(self) -> bool:
        """Whether a message would come between a call and its result. Who checkpoints ends no call."""
        last = next((item for item in reversed(self.items) if item.role != "tool"), None)
        found = self.find_last_reply()
        if self.in_step or found is None or found[0] is not last:
            return self.in_step
        return bool(ReplyCalls(found[0].parts, answered=found[1]).list_unanswered())

    def _take_in(self, item: Item) -> None:
        """A message from the inbox, unless it was taken in before."""
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
            return  # That reply was left behind, or compacted away.
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
            self._pair_again()  # It joins a message that others came after.

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
                # A result that comes now has no call to join, or begins a message of its own.
                if item.results is None:
                    self._replies.discard(item.seq)
                else:
                    self._results.pop(item.seq, None)
            self.items[gone] = [event.summary]
            self._pair_again()


def _event_of(entry: Opened, place: Place) -> _Event | None:
    """What the entry says, or None if it does not speak."""
    body = entry.body
    reader = _find_reader(body.__class__)
    return None if reader is None else reader(entry, body, place)


def _own(content: Raw | Message | None) -> Raw | Message | None:
    """Apart from the lines that were read with it, which would stay in memory as long."""
    return content.copy() if isinstance(content, Raw) else content


def _added(entry: Opened, body: MessageAdded, place: Place) -> Item:
    content = _own(entry.content)
    return Item(entry.seq, entry.at, body.role, body.parts, content, body.format, None, body.inbox, place)


def _replied(entry: Opened, body: ModelReplied, place: Place) -> Item:
    content = _own(entry.content)
    return Item(entry.seq, entry.at, body.role, body.parts, content, body.format, None, None, place)


def _completed(entry: Opened, body: ToolCompleted, place: Place) -> _Result | None:
    return _result(entry, body.call, False, place, body.replay_of)


def _ran(entry: Opened, body: ToolRan, place: Place) -> _Result | None:
    return _result(entry, body.call, False, place)


def _refused(entry: Opened, body: ToolRefused | ApprovalRefused, place: Place) -> _Result | None:
    return _result(entry, body.call, True, place)


def _failed(entry: Opened, body: ToolFailed, place: Place) -> _Result | None:
    return _result(entry, body.call, True, place) if body.final else None


def _doubted(entry: Opened, body: ToolInDoubt, place: Place) -> _Result | None:
    return _result(entry, body.call, True, place) if body.told else None


def _settled(entry: Opened, body: ToolSettled, place: Place) -> _Result | None:
    return _result(entry, body.call, body.verdict != "landed", place) if body.told else None


def _compacted(entry: Opened, body: TranscriptCompacted, place: Place) -> _Compacted:
    # In the place of the last message that it replaces: items stay in the order of their entries.
    summary = Item(body.span.last, entry.at, "user", (), _own(entry.content), place=place)
    return _Compacted(body.span, summary)


_READERS: dict[type, Callable[[Opened, Any, Place], _Event | None]] = {
    MessageAdded: _added,
    ModelReplied: _replied,
    ModelRequested: lambda entry, body, place: _REQUEST,
    CheckpointTaken: lambda entry, body, place: _STEP_END,
    SessionForked: lambda entry, body, place: _FORK,
    ToolCompleted: _completed,
    ToolRan: _ran,
    ToolFailed: _failed,
    ToolRefused: _refused,
    ApprovalRefused: _refused,
    ToolInDoubt: _doubted,
    ToolSettled: _settled,
    InboxTaken: lambda entry, body, place: _Taken(body.number),
    TranscriptCompacted: _compacted,
}
_SPEAKING = {KIND_OF[body]: body for body in _READERS}
"""Kinds that the transcript needs to see. The bodies of all others are not decoded when only it is wanted."""


def _in_our_format(body: type[Body]) -> Any:
    """The same body, of nothing but a message of ours."""
    return msgspec.defstruct(
        body.__name__, [("format", Literal["holdfast"], OWN)], bases=(body,), frozen=True
    )


# To skip a message takes as long as to decode it. So those of ours are decoded together with their lines,
# unless there are references in one: what they stand for is read when somebody looks at it.
_OURS = {KIND_OF[body]: _in_our_format(body) for body in (MessageAdded, ModelReplied)}
_READERS.update({_OURS["message.added"]: _added, _OURS["model.replied"]: _replied})
_OPENER = Opener(
    _SPEAKING,
    msgspec.json.Decoder(line_type(_SPEAKING)),
    eager=msgspec.json.Decoder(line_type({**_SPEAKING, **_OURS}, dict.fromkeys(_OURS, Message))),
    may_be_eager=lambda joined: not has_marks(joined),
)
_find_reader = _READERS.get


def _result(
    entry: Opened, call: CallRef, is_error: bool, place: Place, replay_of: str | None = None
) -> _Result | None:
    if call.reply is None:
        return None  # A bare dispatch lives in the ledger alone.
    content = _own(entry.content)
    assert not isinstance(content, Message)
    said = read_content(content)
    here = place.at(entry.seq)
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
