"""`SessionState`: the state of a session, computed from its journal alone.

`apply` is the only place where state is derived. It is synchronous and uses no clock, no randomness and no
I/O, so the same journal gives the same state everywhere. Every decision is a function of that state.

The state apart from message bodies is one plain struct, `Facts`. A keyframe is that struct as JSON, with the
spans of the journal that hold the messages of the transcript.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, Final, TypeAlias, TypeVar, overload

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType
from msgspec.structs import replace

from ..content.extract import put_back
from ..content.lazy import BlobReader, BlobSource, has_marks, read_content
from ..errors import Corrupt, NotFound
from ..ids import SessionId
from ..limits import HISTORY_MESSAGES, TITLE_CHARS
from ..messages import AnyMessage, CallPart, Json, gives_output
from ..system import threads
from .budget import BudgetState, Reservation
from .call_pairing import Problem
from .codec import NewEntry, encode_entry
from .effects import LEDGER, Effect, Repeats
from .entries import (
    ApprovalRefused,
    Body,
    Entry,
    MessageAdded,
    ModelReplied,
    SessionForked,
    SessionRewound,
    SessionStatus,
    Span,
    ToolCompleted,
    ToolFailed,
    ToolRan,
    UnknownBody,
)
from .fold import (
    BOOKKEEPING,
    HANDLERS,
    THREAD,
    Checkpoint,
    Facts,
    ThreadPlace,
    ToolCounters,
    cast_of,
    count_call,
)
from .head import Head
from .plan import Plan
from .transcript import NEEDED, PLAIN, Transcript
from .transcript_items import NO_CONTENTS, Contents, Item, Messages
from .values import BadValue, Values, convert

FOLD_VERSION: Final = 10
"""Increased whenever a change gives another state for the same journal: older keyframes are then ignored."""


class Overview(Struct, frozen=True, kw_only=True):
    """A summary of a session that is cheap to read: its status without its whole transcript.

    `iteration`: the number of ended iterations, which is the number (`iter` in the experiment log) of the
    current one. It counts the iterations of a thread, and the steps of any other session. `tool_calls` leaves
    out the call with which a model gives its typed output.
    """

    iteration: int
    stop: bool
    history: tuple[AnyMessage, ...]
    summary: str
    tool_calls: ToolCounters
    config: Json


class AdapterFold(Struct, frozen=True, kw_only=True):
    """The fold of an adapter. Another adapter, or another version of its fold, ignores it."""

    name: str
    version: int
    data: Raw


class Keyframe(Struct, frozen=True, kw_only=True):
    """A stored fold. Valid only if `seq` and `sum` match the journal and `fold` is `FOLD_VERSION`.

    `sum` is that of the chunk that ends with entry `seq`: it is known when that chunk is committed. `adapter`
    is what an adapter folded of its own entries.
    """

    fold: int
    seq: int
    sum: str = ""
    digest: str
    spans: tuple[Span, ...]
    queued: bool = False
    """Whether messages wait for the end of a step."""
    facts: Raw
    adapter: AdapterFold | UnsetType = UNSET

    def encode(self, sum: str) -> bytes:
        """As it is stored."""
        return msgspec.json.encode(replace(self, sum=sum))


_RESULTS = frozenset({ToolCompleted, ToolRan, ToolFailed})
_EPOCH = datetime.fromtimestamp(0, UTC)
_decode_facts = msgspec.json.Decoder(Facts).decode
_decode_keyframe = msgspec.json.Decoder(Keyframe).decode


T = TypeVar("T")
LoadTranscript: TypeAlias = Callable[[Sequence[Span], bool], Transcript]
"""Folds the messages and results in these spans of a journal, with or without their contents."""

_TURNS = NEEDED | {SessionRewound}


class SessionState:
    """The fold over a journal, up to some entry."""

    decoder = Values()
    """Decodes user state; a store replaces it by one with the application's codecs."""

    def __init__(
        self, session: SessionId, blobs: BlobSource | None = None, contents: Contents = NO_CONTENTS
    ) -> None:
        """`contents` is where the contents of entries are read that were folded without them."""
        head = Head(
            session=session, uid="", seq=0, sum="", status="active", created_at=_EPOCH, updated_at=_EPOCH
        )
        self.facts = Facts(head=head)
        self._begin(BlobReader(session, blobs), contents)
        self.keyframe_seq = 0
        """The `seq` of the last keyframe."""

    def _begin(self, blobs: BlobReader, contents: Contents) -> None:
        self._blobs = blobs
        self._transcript = Transcript(blobs, contents)
        self._postponed: list[Entry] | None = None
        """After a keyframe, until the transcript is looked at: entries that it will be folded with, besides
        those in the spans of the keyframe."""
        self._is_reading = False
        self._load: LoadTranscript | None = None
        self._spans: tuple[Span, ...] = ()
        self._spans_to = 0
        self._lock = threads.Lock()
        self._read: dict[str, tuple[Raw, Raw]] = {}
        """Values with content in blobs: as they are stored, and with the content read."""

    def append(
        self,
        body: Body,
        at: datetime,
        run: str | None = None,
        content: bytes | None = None,
        *,
        kind: str | None = None,
    ) -> NewEntry:
        """Make the next entry, and fold it. `kind` is for bodies of adapters."""
        head = self.facts.head
        cls = body.__class__
        if content is not None:
            # What the fold needs of a content: it is not there when the journal is read.
            if cls is MessageAdded:
                if not head.title:
                    body = self._with_title(body, content)
            elif cls in _RESULTS:
                body = replace(body, digest=sha256(content).hexdigest()[:16])
            elif cls is ApprovalRefused:
                body = replace(body, answer=read_content(Raw(content)).text)
        new = encode_entry(body, head.seq + 1, at, run, head.step + 1, content, kind=kind)
        self.apply(new.entry)
        return new

    def _with_title(self, body: Body, content: bytes) -> Body:
        assert isinstance(body, MessageAdded)
        if body.role != "user":
            return body
        head = self.facts.head
        item = Item(head.seq + 1, head.updated_at, body.role, body.parts, Raw(content), body.format)
        item.blobs = self._blobs
        with suppress(Corrupt):  # Reading the message raises; the rest of the state does not depend on it.
            return replace(body, title=" ".join(item.read().text.split())[:TITLE_CHARS])
        return body

    def apply(self, entry: Entry) -> None:
        """Fold the next entry."""
        body = entry.body
        cls = body.__class__
        if self._postponed is not None and cls in _TURNS and not self._may_postpone(entry):
            self._build_transcript(said=False)
        facts = self.facts
        head = facts.head
        if entry.seq != head.seq + 1 and head.seq:
            raise ValueError(f"expected entry {head.seq + 1}, found entry {entry.seq}")
        run = entry.run
        if run is not None and run == facts.last_run:
            facts.seconds += max(0.0, (entry.at - head.updated_at).total_seconds())
        facts.last_run = run
        head.seq, head.updated_at = entry.seq, entry.at
        if isinstance(body, SessionRewound):
            self._rewind(entry, body)
            return
        transcript = self._transcript
        queued = len(transcript.queued)
        if self._postponed is None:
            transcript.apply(entry)
        elif cls in NEEDED:
            self._postponed.append(entry)
        if cls is MessageAdded or cls is ModelReplied:
            self._message(body)
        # A message is the most frequent one, and there is nothing else to it without a key.
        if not isinstance(body, MessageAdded) or body.key is not None:
            handler = HANDLERS.get(cls)
            if handler is not None:
                handler(facts, entry, body)
            elif cls is UnknownBody:
                self._skip(entry)
            # `session.forked` has replaced the head.
            head = facts.head
            if cls in LEDGER:
                effects = facts.effects
                effects.apply(entry, head.lease.holder if head.lease else None)
                head.in_doubt = effects.count_open()
                head.waiting = len(effects.questions)
        if self._postponed is None:
            head.messages = len(transcript.items)
        if cls not in BOOKKEEPING or len(transcript.queued) < queued:
            facts.changed = True

    def _may_postpone(self, entry: Entry) -> bool:
        """Whether the rest of the state can be folded now, and the transcript later."""
        body = entry.body
        if isinstance(body, SessionForked):
            return True
        is_plain = body.__class__ in PLAIN and not (isinstance(body, MessageAdded) and body.inbox is not None)
        return self._is_reading and is_plain

    def _skip(self, entry: Entry) -> None:
        """An entry of a newer version. If it must be understood, the session can only be read."""
        self.facts.skipped = True
        if entry.must and self.facts.unknown is None:
            self.facts.unknown = entry.kind, entry.seq

    def _message(self, body: Any) -> None:
        """A message was added, or a model replied."""
        facts, head = self.facts, self.facts.head
        if body.role == "user":
            head.title = head.title or getattr(body, "title", "")
            head.status, head.reason = "active", ""
            facts.cancel = None
            # After a new message of the user, a repeated call is no loop.
            facts.effects.repeats = Repeats()
        for part in body.parts:
            if isinstance(part, CallPart) and not gives_output(part, body.format):
                count_call(facts, part.name)

    def _rewind(self, entry: Entry, body: SessionRewound) -> None:
        facts = self.facts
        target = facts.checkpoints.get(body.version)
        taken_at = target.seq if target is not None else 0 if body.version == 0 else None
        if taken_at != body.seq:
            raise ValueError(f"version {body.version} at entry {body.seq} was never taken")
        _check_spans(body.transcript, body.seq)
        self.transcript_fold.rewind(body.transcript)
        facts.head.messages = len(self.transcript_fold.items)
        facts.values = {key: value.copy() for key, value in body.state.items()}
        facts.base, facts.changed = body.version, False
        facts.head.status, facts.head.reason = "active", ""
        facts.head.rewound_to = body.version
        facts.counters.per_tool_in_step = {}
        facts.effects.rewind(body.seq)
        facts.head.waiting = len(facts.effects.questions)

    # -- the transcript ---------------------------------------------------------------------------------

    def end_reading(self, messages: int | None) -> None:
        """The journal was read to its end, where the session has so many messages (None: not known)."""
        self._is_reading = False
        if self._postponed is not None:
            if messages is None:
                self._build_transcript(said=False)
            else:
                self.facts.head.messages = messages

    @property
    def is_complete(self) -> bool:
        """False if a rewind goes back to messages that were not folded here: fold the whole journal then."""
        return self._postponed is not None or self._transcript.complete

    @property
    def transcript_fold(self) -> Transcript:
        """The fold over messages and results. After a keyframe, the first look reads what it consists of,
        contents aside: blocks then."""
        if self._postponed is not None:
            self._build_transcript(said=False)
        return self._transcript

    def _build_transcript(self, *, said: bool) -> None:
        with self._lock:
            if self._postponed is None:
                return  # Another thread was faster.
            assert self._load is not None
            transcript = self._load(self._spans, said)
            after = self._spans_to
            for entry in self._postponed:
                transcript.skip(Span(after + 1, entry.seq - 1))
                transcript.apply(entry)
                after = entry.seq
            transcript.skip(Span(after + 1, self.seq))
            self._transcript, self._postponed = transcript, None
            self.facts.head.messages = len(transcript.items)

    @property
    def is_folded(self) -> bool:
        """False if the messages are not known yet: the first look reads which ones there are."""
        return self._postponed is None

    @property
    def is_in_memory(self) -> bool:
        """False if looking at the transcript reads from the store."""
        return self.is_folded and not self._transcript.contents.are_missing

    def read_transcript(self) -> None:
        """Read everything that the transcript consists of and that is not in memory. Blocks."""
        if self._postponed is not None:
            self._build_transcript(said=True)
        self._transcript.contents.fetch()

    def list_items_in_memory(self) -> list[Item]:
        """The messages, contents aside, without reading anything; none if they were not looked at yet."""
        return [] if self._postponed is not None else list(self._transcript.items)

    def _repr_html_(self) -> str:
        """The state in a notebook."""
        from ..drawing.card import draw_state_card

        return draw_state_card(self)

    # -- queries ------------------------------------------------------------------------

    @property
    def seq(self) -> int:
        """The `seq` of the last entry that was folded."""
        return self.facts.head.seq

    @property
    def transcript(self) -> Messages:
        """The messages, oldest first."""
        if self._postponed is not None:
            self._build_transcript(said=True)
        return self._transcript.messages

    @property
    def plan(self) -> Plan | None:
        """The plan, if there is one."""
        return self.facts.plan

    @property
    def summary(self) -> str:
        """The running summary."""
        return self.facts.summary

    @property
    def status(self) -> SessionStatus:
        """The status, by the last run or as it was set."""
        return self.facts.head.status

    @property
    def labels(self) -> Mapping[str, str]:
        """The labels of the session."""
        return dict(self.facts.head.labels)

    @property
    def keys(self) -> Sequence[str]:
        """The keys of user state."""
        return tuple(self.facts.values)

    @overload
    def get(self, key: str) -> Any: ...
    @overload
    def get(self, key: str, type: type[T]) -> T: ...
    def get(self, key: str, type: type[T] | None = None) -> Any:
        """The value under a key, converted to `type` if one is given; `NotFound` if there is none."""
        raw = self.facts.values.get(key)
        if raw is None:
            keys = ", ".join(sorted(self.facts.values)) or "none"
            raise NotFound(f"session {self.facts.head.session!r} has no state under {key!r}; it has: {keys}")
        if has_marks(raw):
            raw = self._read_value(key, raw)
        try:
            value = self.decoder.decode(raw)
        except BadValue as error:
            where = f"session {self.facts.head.session!r}, state {key!r}"
            raise Corrupt(where, f"it is no value ({error})") from error
        return value if type is None else convert(value, type)

    def _read_value(self, key: str, stored: Raw) -> Raw:
        before = self._read.get(key)
        if before is not None and before[0] == stored:
            return before[1]
        blobs = BlobReader(self._blobs.session, self._blobs.source, where=f"state {key!r}")
        found = Raw(msgspec.json.encode(put_back(msgspec.json.decode(stored), blobs.read)))
        self._read[key] = (stored, found)
        return found

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Why a provider would refuse the transcript as it stands; empty if it would not."""
        return self.transcript_fold.pairing.all_problems()

    @property
    def continuable(self) -> bool:
        """Whether a provider would accept the transcript as it stands."""
        return not self.problems

    @property
    def version(self) -> int:
        """The version that the state was built on; 0 before the first checkpoint."""
        return self.facts.base

    @property
    def in_doubt(self) -> list[Effect]:
        """Calls that were issued and whose outcome is not known."""
        return self.facts.effects.in_doubt

    @property
    def budget(self) -> BudgetState:
        """The caps, and what was spent; what is reserved for delegates counts as spent."""
        settled = self.settled_budget
        held = [one for one in self.facts.delegates.values() if one.held is not None]
        return replace(
            settled,
            steps=settled.steps + sum(one.held_steps for one in held),
            reserved=sum((one.held for one in held if one.held is not None), settled.reserved),
        )

    @property
    def settled_budget(self) -> BudgetState:
        """The same without what is reserved for delegates: as it was when the calls of the step were made."""
        facts = self.facts
        return BudgetState(
            caps=facts.budget,
            usd=facts.head.usd,
            tokens=facts.head.usage.tokens,
            steps=facts.head.step + sum(one.steps for one in facts.delegates.values()),
            seconds=facts.seconds,
            reserved=sum(facts.requests.values(), Reservation()),
        )

    @property
    def checkpoints(self) -> list[Checkpoint]:
        """The versions that are offered, oldest first."""
        facts = self.facts
        return [one for version, one in facts.checkpoints.items() if version not in facts.dropped]

    def get_checkpoint(self, version: int) -> Checkpoint:
        """The checkpoint with this version, or `NotFound`."""
        facts = self.facts
        found = facts.checkpoints.get(version)
        if found is None or version in facts.dropped:
            offered = [one.version for one in self.checkpoints]
            some = f"{offered[0]} to {offered[-1]}" if len(offered) > 8 else offered or "none"
            gone = "was dropped" if found else "does not exist"
            raise NotFound(f"session {facts.head.session!r}: version {version} {gone}; there are {some}")
        return found

    def path(self) -> list[Checkpoint]:
        """The versions that led to this state, oldest first, without those left behind by a rewind."""
        found: list[Checkpoint] = []
        version = self.facts.base
        while version in self.facts.checkpoints:
            one = self.facts.checkpoints[version]
            if version not in self.facts.dropped:
                found.append(one)
            if one.base >= version:
                where = f"session {self.facts.head.session!r}"
                raise Corrupt(
                    where, f"version {version} is built on version {one.base}, which is no earlier one"
                )
            version = one.base
        return found[::-1]

    def overview(self) -> Overview:
        """A summary of the session."""
        facts = self.facts
        config = next((run.config for run in reversed(facts.runs.values()) if run.config is not None), None)
        return Overview(
            iteration=self._count_iterations(),
            stop=facts.cancel is not None or facts.head.status != "active",
            history=tuple(self.transcript[-HISTORY_MESSAGES:]),
            summary=facts.summary,
            tool_calls=copy.deepcopy(facts.counters),
            config=config,
        )

    def _count_iterations(self) -> int:
        facts = self.facts
        outer = (
            run
            for run in reversed(facts.runs.values())
            if run.parent is None or run.parent.run not in facts.runs
        )
        last = next(outer, None)
        # A fork has no run yet. An agent that ran alone after a thread counts steps.
        if THREAD in facts.values and (last is None or cast_of(last.config)):
            return self.get(THREAD, ThreadPlace).iteration
        return facts.head.step

    # -- keyframes ----------------------------------------------------------------------------------

    def keyframe(self, adapter: Callable[[], AdapterFold] | None = None) -> Keyframe | None:
        """The fold written down, with that of an adapter, or None if an entry was skipped that a newer
        version would fold."""
        transcript = self.transcript_fold
        if self.facts.skipped or not transcript.complete:
            return None
        facts, more = Raw(msgspec.json.encode(self.facts)), UNSET if adapter is None else adapter()
        return Keyframe(
            fold=FOLD_VERSION,
            seq=self.seq,
            digest=_digest(facts, more),
            # Journals of adapters have no rewinds: without messages, there is nothing to read again.
            spans=() if adapter is not None and transcript.is_empty else transcript.spans,
            queued=bool(transcript.queued),
            facts=facts,
            adapter=more,
        )

    def take_due_keyframe(self, entries_min: int, growth: float) -> Keyframe | None:
        """A keyframe, if the tail has grown to so many entries, and to this share of what lies before it: so
        all keyframes together cost a constant per entry."""
        before = self.keyframe_seq
        tail = self.seq - before
        if tail < entries_min or tail < growth * before:
            return None
        self.keyframe_seq = self.seq
        return self.keyframe()

    @classmethod
    def from_keyframe(
        cls, frame: Keyframe, load: LoadTranscript, blobs: BlobSource | None = None
    ) -> SessionState | None:
        """The state of a keyframe, or None if this code cannot use it. `apply` what came after it, and call
        `end_reading`. `load` reads the messages in spans of the journal, when they are looked at."""
        state = cls.__new__(cls)
        try:
            facts = state.facts = _decode_facts(frame.facts)
            _check_spans(frame.spans, frame.seq)
        except (msgspec.DecodeError, ValueError, RecursionError):
            return None
        if facts.head.seq != frame.seq or not facts.is_sound():
            return None
        facts.head.sum = frame.sum
        state._begin(BlobReader(state.facts.head.session, blobs), NO_CONTENTS)
        state.keyframe_seq = frame.seq
        state._postponed, state._is_reading = [], not frame.queued
        state._load, state._spans, state._spans_to = load, frame.spans, frame.seq
        return state


def _check_spans(spans: Iterable[Span], last: int) -> None:
    """Raise `ValueError` unless the spans are in order, disjoint, and end by `last`."""
    before = 0
    for span in spans:
        if not before < span.first <= span.last <= last:
            raise ValueError(f"{list(span)} is no span of the entries before it")
        before = span.last


def _digest(facts: Raw, adapter: AdapterFold | UnsetType) -> str:
    digest = sha256(facts)
    if isinstance(adapter, AdapterFold):
        digest.update(adapter.data)
    return digest.hexdigest()


def read_keyframe(data: bytes | None) -> Keyframe | None:
    """A keyframe that this code can use, or None."""
    if not data:
        return None
    try:
        frame = _decode_keyframe(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if frame.fold != FOLD_VERSION or _digest(frame.facts, frame.adapter) != frame.digest:
        return None
    return frame
