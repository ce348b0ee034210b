"""`SessionState`: the state of a session, computed from its journal alone.

`apply` is the only place where state is derived. It is synchronous and uses no clock, no randomness and no
I/O, so the same journal gives the same state everywhere. Every decision is a function of that state.

The state apart from message bodies is one plain struct, `Facts`. A keyframe is that struct as JSON, with the
spans of the journal that hold the messages of the transcript.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, Final, TypeVar, overload

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from ..content.extract import put_back
from ..content.lazy import BlobReader, BlobSource, has_marks
from ..errors import Corrupt, NotFound
from ..ids import SessionId
from ..limits import HISTORY_MESSAGES, TITLE_CHARS
from ..messages import AnyMessage, CallPart, Json, gives_output
from .budget import BudgetState, Reservation
from .call_pairing import Problem
from .codec import Sealed, seal
from .effects import LEDGER, Effect, Repeats
from .entries import Body, Entry, SessionRewound, SessionStatus, Span, UnknownBody
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
from .transcript import Transcript
from .transcript_items import Item, Messages
from .values import BadValue, Values, convert

FOLD_VERSION: Final = 6
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


class Keyframe(Struct, frozen=True, kw_only=True):
    """A stored fold. Valid only if `seq` and `sum` match the journal and `fold` is `FOLD_VERSION`."""

    fold: int
    seq: int
    sum: str
    digest: str
    spans: tuple[Span, ...]
    facts: Raw


_EPOCH = datetime.fromtimestamp(0, UTC)
_decode_facts = msgspec.json.Decoder(Facts).decode
_decode_keyframe = msgspec.json.Decoder(Keyframe).decode


T = TypeVar("T")


class SessionState:
    """The fold over a journal, up to some entry."""

    decoder = Values()
    """Decodes user state; a store replaces it by one with the application's codecs."""

    def __init__(self, session: SessionId, blobs: BlobSource | None = None) -> None:
        head = Head(
            session=session, uid="", seq=0, sum="", status="active", created_at=_EPOCH, updated_at=_EPOCH
        )
        self.facts = Facts(head=head)
        self._begin(BlobReader(session, blobs))
        self.keyframe_seq = 0
        """The `seq` of the last keyframe."""

    def _begin(self, blobs: BlobReader) -> None:
        self._blobs = blobs
        self.transcript_fold = Transcript(blobs)
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
    ) -> Sealed:
        """Seal the next entry, and fold it. `kind` is for bodies of adapters."""
        head = self.facts.head
        sealed = seal(body, head.seq + 1, at, run, head.step + 1, head.sum, content, kind=kind)
        self.apply(sealed.entry, sealed.sum)
        return sealed

    def apply(self, entry: Entry, sum: str) -> None:
        """Fold the next entry. `sum` is that of its line."""
        facts = self.facts
        head = facts.head
        if entry.seq != head.seq + 1 and head.seq:
            raise ValueError(f"expected entry {head.seq + 1}, found entry {entry.seq}")
        run = entry.run
        if run is not None and run == facts.last_run:
            facts.seconds += max(0.0, (entry.at - head.updated_at).total_seconds())
        facts.last_run = run
        head.seq, head.sum, head.updated_at = entry.seq, sum, entry.at
        body = entry.body
        cls = body.__class__
        if isinstance(body, SessionRewound):
            self._rewind(entry, body)
            return
        transcript = self.transcript_fold
        queued = len(transcript.queued)
        item = transcript.apply(entry)
        if item is not None:
            self._message(item)
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
        head.messages = len(transcript.items)
        if cls not in BOOKKEEPING or len(transcript.queued) < queued:
            facts.changed = True

    def _skip(self, entry: Entry) -> None:
        """An entry of a newer version. If it must be understood, the session can only be read."""
        self.facts.skipped = True
        if entry.must and self.facts.unknown is None:
            self.facts.unknown = entry.kind, entry.seq

    def _message(self, item: Item) -> None:
        facts, head = self.facts, self.facts.head
        if item.role == "user":
            if not head.title and item.content is not None:
                with suppress(
                    Corrupt
                ):  # Reading the message raises; the rest of the state does not depend on it.
                    head.title = " ".join(item.read().text.split())[:TITLE_CHARS]
            head.status, head.reason = "active", ""
            facts.cancel = None
            # After a new message of the user, a repeated call is no loop.
            facts.effects.repeats = Repeats()
        for part in item.parts:
            if isinstance(part, CallPart) and not gives_output(part, item.format):
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
        facts.values, facts.plan, facts.summary = dict(body.state), body.plan, body.summary
        facts.base, facts.changed = body.version, False
        facts.head.status, facts.head.reason = "active", ""
        facts.counters.per_tool_in_step = {}
        facts.effects.rewind(body.seq)
        facts.head.waiting = len(facts.effects.questions)

    # -- queries ------------------------------------------------------------------------

    @property
    def seq(self) -> int:
        """The `seq` of the last entry that was folded."""
        return self.facts.head.seq

    @property
    def transcript(self) -> Messages:
        """The messages, oldest first."""
        return self.transcript_fold.messages

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

    def keyframe(self) -> bytes | None:
        """The fold as bytes, or None if an entry was skipped that a newer version would fold."""
        if self.facts.skipped or not self.transcript_fold.complete:
            return None
        facts = msgspec.json.encode(self.facts)
        return msgspec.json.encode(
            Keyframe(
                fold=FOLD_VERSION,
                seq=self.seq,
                sum=self.facts.head.sum,
                digest=sha256(facts).hexdigest(),
                spans=tuple(self.transcript_fold.spans),
                facts=Raw(facts),
            )
        )

    @classmethod
    def from_keyframe(cls, frame: Keyframe, blobs: BlobSource | None = None) -> SessionState | None:
        """The state without its transcript (call `load_transcript` next); None if this code cannot use the
        keyframe."""
        state = cls.__new__(cls)
        try:
            facts = state.facts = _decode_facts(frame.facts)
            _check_spans(frame.spans, frame.seq)
        except (msgspec.DecodeError, ValueError, RecursionError):
            return None
        head = facts.head
        if (head.seq, head.sum) != (frame.seq, frame.sum) or not facts.is_sound():
            return None
        state._begin(BlobReader(state.facts.head.session, blobs))
        state.keyframe_seq = frame.seq
        return state

    def load_transcript(self, spans: Iterable[Span], pages: Iterable[Sequence[bytes]], where: str) -> None:
        """Fold the messages and results in the lines of these spans, which come in pages."""
        self.transcript_fold.load(spans, pages, where)


def _check_spans(spans: Iterable[Span], last: int) -> None:
    """Raise `ValueError` unless the spans are in order, disjoint, and end by `last`."""
    before = 0
    for span in spans:
        if not before < span.first <= span.last <= last:
            raise ValueError(f"{list(span)} is no span of the entries before it")
        before = span.last


def read_keyframe(data: bytes | None) -> Keyframe | None:
    """A keyframe that this code can use, or None."""
    if not data:
        return None
    try:
        frame = _decode_keyframe(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if frame.fold != FOLD_VERSION or sha256(frame.facts).hexdigest() != frame.digest:
        return None
    return frame
