"""The transcript: a fold over the entries that hold messages and results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta
from typing import Any, TypeAlias

from msgspec import UNSET, Raw, Struct, UnsetType

from ..content.lazy import NO_BLOBS, BlobReader, has_marks
from ..errors import Corrupt
from ..messages import (
    OWN,
    CallPart,
    Message,
    ResultPart,
    ToolCall,
    ToolResult,
    calls_of,
)
from .call_pairing import Pairing, ReplyCalls
from .codec import Page, read_body
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
from .pages import FactsDecoder, check_presence, decode_said
from .transcript_items import NO_CONTENTS, Contents, Item, Messages, ResultItem


class _InboxNumber(Struct, frozen=True, gc=False):
    """Inbox item `number` was taken."""

    number: int


class _Compacted(Struct, frozen=True):
    """A span was replaced by a summary."""

    span: Span
    summary: Item


_REQUEST, _STEP_END, _FORK = "request", "step end", "fork"
_Event: TypeAlias = Item | ResultItem | _InboxNumber | _Compacted | str


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

    def extend_by(self, span: Span) -> None:
        """Add entries that come after all others."""
        if span.first <= span.last:
            self.extend_to(span.first)
            self._last = span.last

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

    def __init__(self, blobs: BlobReader = NO_BLOBS, contents: Contents = NO_CONTENTS) -> None:
        """`contents` is where contents are read that are not in memory."""
        self._blobs, self.contents = blobs, contents
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
    def is_empty(self) -> bool:
        """Whether no entry that was folded here says anything of a transcript, as in journals of adapters."""
        return all(event is _FORK for event in self._events.values())

    @property
    def messages(self) -> Messages:
        """The messages, oldest first."""
        return Messages(self.items)

    def apply(self, entry: Entry) -> None:
        """Fold the next entry."""
        seq = entry.seq
        self._live.extend_to(seq)
        self._seen.extend_to(seq)
        cls = entry.body.__class__
        reader = _find_reader(cls)
        if reader is None:
            return
        if cls is CheckpointTaken and not (self.in_step or self.queued):
            self._events[seq] = _STEP_END  # The most frequent one, and it changes nothing.
            return
        content: Raw | UnsetType | None = UNSET
        if not entry.unread:
            # Copied out of the buffer it was read with, which would otherwise stay in memory.
            content = None if entry.content is None else entry.content.copy()
        self._take(seq, reader(seq, entry.at, entry.body, content, self._blobs))

    def skip(self, span: Span) -> None:
        """Note entries that are of no kind that it needs."""
        self._live.extend_by(span)
        self._seen.extend_by(span)

    def _take(self, seq: int, event: _Event | None) -> None:
        if event is None:
            return
        self._events[seq] = event
        if event.__class__ is Item:
            if event.content is UNSET:
                self._note_unread(seq, event)
            if event.inbox is None and not self.queued:
                self._add(event)
                return
        elif event.__class__ is ResultItem and event.content is UNSET:
            self._note_unread(seq, event)
        elif event.__class__ is _Compacted and event.summary.content is UNSET:
            self._note_unread(seq, event.summary)
        self._play(event)

    def _note_unread(self, seq: int, item: Item | ResultItem) -> None:
        item.contents = contents = self.contents
        contents.live, contents.unread_to = self._live, seq
        if item.__class__ is Item and item.format != OWN:
            contents.has_foreign = True

    def find_last_reply(self) -> tuple[Item, dict[int, ToolResult]] | None:
        """The last message with calls, and the results they have, by the position of the call. Contents that
        are not in memory are read: blocks then."""
        place = self._find_last_place()
        return None if place is None else (self.items[place], self._results_of(place))

    def _find_last_place(self) -> int | None:
        for place in range(len(self.items) - 1, -1, -1):
            item = self.items[place]
            if item.seq in self._replies and item.results is None:
                return place
        return None

    def lacks_result(self, call: CallRef) -> bool:
        """Whether the call is one of the last reply with calls, and has no result."""
        place = self._find_last_place()
        if place is None or self.items[place].seq != call.reply:
            return False
        return call.index in self._calls_of(place).list_unanswered()

    def _results_of(self, place: int) -> dict[int, ToolResult]:
        """Results from the ledger, or added as messages after the reply: matched by id, in order."""
        reply = self.items[place]
        held = self._results.get(reply.seq)
        answered = (held.results if held is not None else None) or {}
        found = {index: result.read() for index, result in answered.items()}
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
        """The calls of the last reply that have no result. If there are some, reads the reply."""
        place = self._find_last_place()
        if place is None or not (missing := self._calls_of(place).list_unanswered()):
            return []
        reply = self.items[place]
        # An erased reply has calls by its parts, and none that can be read.
        return [
            (CallRef(id=call.id, reply=reply.seq, index=index), call)
            for index, call in enumerate(calls_of(reply.read()))
            if index in missing
        ]

    def find_unanswered(self) -> Item | None:
        """The last reply with calls, if some have no result and no other reply has followed: they are made
        next."""
        place = self._find_last_place()
        if place is None or any(item.role == "assistant" for item in self.items[place + 1 :]):
            return None
        return self.items[place] if self._calls_of(place).list_unanswered() else None

    def load(self, spans: Iterable[Span], pages: Iterable[Page], where: str) -> None:
        """Start with the chunks of these spans; entries without a message or result are not decoded."""
        self._live, self._seen = Spans(spans), Spans(spans)
        wanted = list(self._live)
        for page in pages:
            chunks = _SPEAKING.decode_facts(page, where)
            said: list[Any] = [None] * len(chunks)
            if page.said is not None:
                # References to blobs are read on first access.
                own = b'"format":' not in page.facts and not has_marks(page.said)
                said = decode_said(page, chunks, where, own)
            last = chunks[-1].seq + len(chunks[-1].entries) - 1
            # The first and the last chunk of a span may hold entries beside it.
            whole = any(span.first <= chunks[0].seq and last <= span.last for span in wanted)
            for chunk, elements in zip(chunks, said, strict=True):
                if elements is None and page.said is not None:
                    check_presence(elements, chunk, where)
                try:
                    self._load_chunk(chunk, elements, page.said is None, None if whole else wanted)
                except (LookupError, OverflowError) as error:
                    raise Corrupt(where, f"not a chunk of a journal ({error})", seq=chunk.seq) from error
            if page.said is not None:
                self.contents.note_read(Span(chunks[0].seq, last))

    def _load_chunk(
        self, chunk: Any, elements: list[Any] | None, unread: bool, wanted: list[Span] | None
    ) -> None:
        """Fold what the transcript needs of a chunk: of these spans, or all of it. Done for every chunk of a
        long session, so no entries are made for it."""
        seq, at, us, blobs = chunk.seq, chunk.at, chunk.us, self._blobs
        unread = unread and bool(chunk.said)
        for offset, one in enumerate(chunk.entries):
            body = one.body
            cls = body.__class__
            place = seq + offset
            if wanted is not None and not any(span.first <= place <= span.last for span in wanted):
                continue
            if cls is CheckpointTaken and not (self.in_step or self.queued):
                self._events[place] = _STEP_END  # The most frequent one, and it changes nothing.
                continue
            reader = _find_reader(cls)
            if reader is None:
                reader, body = _find_stored_reader(one)
                if reader is None:
                    continue
            content: Any = UNSET if unread else None
            if elements is not None and (element := elements[offset]).__class__ is tuple:
                content = element[1]
                if content.__class__ is Raw:
                    content = content.copy()
            made = at + timedelta(microseconds=us[offset]) if us and us[offset] else at
            self._take(place, reader(place, made, body, content, blobs))

    def learn(self, other: Transcript) -> None:
        """Take over the events of another transcript, so that a rewind to it needs no reading."""
        self._events.update(other._events)
        self._seen = self._seen.joined_with(other._seen)

    def rewind(self, spans: Iterable[Span]) -> None:
        """Replay the events of these spans."""
        self._live = self.contents.live = Spans(spans)
        self._reset()
        if not all(self._seen.covers(span) for span in self.spans):
            self.complete = False
        for event in self._iter_live():
            self._play(event)

    def _iter_live(self) -> Iterator[_Event]:
        """The events of the current history."""
        for span in self.spans:
            for seq in range(span.first, span.last + 1):
                event = self._events.get(seq)
                if event is not None:
                    yield event

    def ends_exactly(self, count: int, whole: Iterable[Span]) -> bool:
        """Whether its last `count` messages are those of the transcript of the spans `whole`, of which only
        the end was folded here.

        They are if all of them came after the end of a step whose calls had their results: at that point, no
        message waits for the end of a step.
        """
        first, earlier = self.spans[0].first if self.spans else 1, Spans(whole)
        end = Transcript()
        settled: int | None = None
        for event in self._iter_live():
            if settled is not None and isinstance(event, ResultItem):
                reply = event.call.reply or first
                if reply < first and earlier.covers(Span(reply, reply)):
                    return False  # It belongs to a reply that was not folded.
            end._play(event)
            is_end = event is _STEP_END and any(item.role != "tool" for item in end.items)
            if settled is None and is_end and not end._is_amid_step():
                settled = len(end.items)
        return settled is not None and len(end.items) - settled >= count

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
        elif isinstance(event, ResultItem):
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
        if self.in_step:
            return True
        for place in range(len(self.items) - 1, -1, -1):
            reply = self.items[place]
            if reply.role != "tool":
                return reply.seq in self._replies and bool(self._calls_of(place).list_unanswered())
        return False

    def _calls_of(self, place: int) -> ReplyCalls:
        """The calls of a reply with what answers them, by the shapes of the messages after it alone."""
        reply = self.items[place]
        held = self._results.get(reply.seq)
        calls = ReplyCalls(reply.parts, answered=(held.results if held is not None else None) or {})
        for item in self.items[place + 1 :]:
            if item.results is None:
                for part in item.parts:
                    if isinstance(part, ResultPart):
                        calls.answer(part.call_id)
        return calls

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

    def _add_result(self, event: ResultItem) -> None:
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
        item.results[call.index] = event
        item.parts = tuple(ResultPart(item.results[index].call.id) for index in sorted(item.results))
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


def _read_message_added(seq: int, at: datetime, body: MessageAdded, content: Any, blobs: BlobReader) -> Item:
    return Item(seq, at, body.role, body.parts, content, body.format, None, body.inbox, blobs)


def _read_model_replied(seq: int, at: datetime, body: ModelReplied, content: Any, blobs: BlobReader) -> Item:
    return Item(seq, at, body.role, body.parts, content, body.format, None, None, blobs)


def _read_result(
    seq: int,
    at: datetime,
    body: ToolCompleted | ToolRan | ToolFailed | ToolRefused | ApprovalRefused | ToolInDoubt | ToolSettled,
    content: Any,
    blobs: BlobReader,
) -> ResultItem | None:
    if body.call.reply is None:
        return None  # A call without a reply is only in the ledger.
    if isinstance(body, ToolInDoubt | ToolSettled) and not body.told:
        return None
    if isinstance(body, ToolFailed) and not body.final:
        return None
    landed = isinstance(body, ToolSettled) and body.verdict == "landed"
    is_error = not (landed or isinstance(body, ToolCompleted | ToolRan))
    replay_of = body.replay_of if isinstance(body, ToolCompleted) else None
    return ResultItem(seq, at, body.call, content, is_error, replay_of, blobs)


def _read_compacted(
    seq: int, at: datetime, body: TranscriptCompacted, content: Any, blobs: BlobReader
) -> _Compacted:
    # At the position of the last message that it replaces, so that items stay in the order of entries.
    summary = Item(body.span.last, at, "user", (), content, blobs=blobs, entry=seq)
    return _Compacted(body.span, summary)


_RESULTS = (ToolCompleted, ToolRan, ToolFailed, ToolRefused, ApprovalRefused, ToolInDoubt, ToolSettled)
_READERS: dict[type, Callable[[int, datetime, Any, Any, BlobReader], _Event | None]] = {
    MessageAdded: _read_message_added,
    ModelReplied: _read_model_replied,
    ModelRequested: lambda seq, at, body, content, blobs: _REQUEST,
    CheckpointTaken: lambda seq, at, body, content, blobs: _STEP_END,
    SessionForked: lambda seq, at, body, content, blobs: _FORK,
    **dict.fromkeys(_RESULTS, _read_result),
    InboxTaken: lambda seq, at, body, content, blobs: _InboxNumber(body.number),
    TranscriptCompacted: _read_compacted,
}
_find_reader = _READERS.get


def _find_stored_reader(one: Any) -> tuple[Callable[..., _Event | None] | None, Any]:
    """The reader and the body of an entry in a chunk that has kinds of a newer version."""
    kind = getattr(one, "kind", None)
    if kind is None:
        return None, None
    body = read_body(kind, one.body)
    return _find_reader(body.__class__), body


NEEDED: frozenset[type] = frozenset(_READERS)
"""Bodies of the entries that the transcript is folded from."""
PLAIN: frozenset[type] = frozenset({MessageAdded, ModelReplied, ModelRequested, CheckpointTaken, *_RESULTS})
"""… that change no more of the state than the number of messages."""
_SPEAKING = FactsDecoder({KIND_OF[body]: body for body in _READERS})
"""Decodes what the transcript needs. Bodies of other kinds are not decoded when only it is loaded."""
