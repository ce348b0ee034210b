"""Names for the moments at which a process is killed.

`after refund#1:issued` names what is on record or done, not how many commits came before: so a name means the
same whatever the timing. Calls are numbered in the order in which the model asked for them. Operations are
numbered as they come where one task makes them, and by what they do where several tasks or threads may make
them at the same time: so parallel ones do not change places.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from ..core.entries import KINDS
from .boundaries import Line

_CALLS: Final = {
    "tool.issued": "issued",
    "tool.completed": "completed",
    "tool.ran": "completed",
    "tool.failed": "failed",
    "tool.refused": "refused",
    "tool.in_doubt": "in doubt",
    "tool.settled": "settled",
    "tool.discarded": "discarded",
    "approval.asked": "asked",
    "approval.given": "approved",
    "approval.refused": "not approved",
}
_ENDS: Final = ("tool.completed", "tool.failed", "tool.settled", "tool.discarded")
_OTHERS: Final = {
    "model.replied": "reply",
    "checkpoint.taken": "checkpoint",
    "message.added": "message",
    "run.started": "run started",
    "run.completed": "run completed",
    "run.failed": "run failed",
    "run.cancelled": "run cancelled",
    "run.paused": "run paused",
    "delegate.started": "delegate started",
    "delegate.ended": "delegate ended",
    "session.opened": "session",
    "session.rewound": "rewind",
    "transcript.compacted": "compaction",
}
"""Other entries only inform: when they are committed is a matter of timing, and the kill before the next one
stands for them."""
_SERIAL: Final = ("reply", "checkpoint")
_RANKS: Final = {"issued": 0, "completed": 2, "failed": 2, "settled": 2, "discarded": 2}
_PHASES: Final = ("before", "during", "after")
_SERIAL_OPERATIONS: Final = ("model request", "put")
"""Operations of frameworks that never come at the same time."""
END: Final = "end"
"""The operation that stands for the end of the scenario."""

OperationKey: TypeAlias = tuple[str, str, int]
"""An operation, its detail, and how often it was done in this process."""

MANY: Final = -1
"""The strand of what a worker thread does, or one of several tasks: others may do theirs at the same time."""


class Call(NamedTuple):
    """A call whose intent is on record."""

    label: str
    tool: str
    id: str
    session: str
    effects: tuple[str, ...]


class BoundaryEvent(NamedTuple):
    """What a process was about to do, or had done. Several events can be one moment."""

    phase: str
    label: str
    key: OperationKey | None
    """Of an operation of the world; None for an entry."""
    lines: tuple[Line, ...]
    open: tuple[Call, ...]
    """The calls that are under way."""
    strand: int | None = None
    """What made the operation: a task, by its number, 0 for code without a task, or `MANY`."""
    by_framework: bool = False
    """Whether it says where a framework stands, and changes nothing in the world."""


class Numbers:
    """The numbers of operations: those of the undisturbed run, and of what else one case has seen."""

    def __init__(self, known: Numbers | None = None) -> None:
        self._number: dict[OperationKey, int] = {} if known is None else dict(known._number)
        self._used: Counter[str] = Counter() if known is None else Counter(known._used)

    def name(self, event: BoundaryEvent) -> str:
        """The whole name of the boundary. An operation that is not known gets the next number."""
        key = event.key
        if key is None or key[0] == END:
            return f"{event.phase} {event.label}"
        if key not in self._number:
            self._used[key[0]] += 1
            self._number[key] = self._used[key[0]]
        return f"{event.phase} {key[0]}#{self._number[key]}"


class Settlement(NamedTuple):
    """How a call in doubt was settled."""

    tool: str
    verdict: str
    by: str


class Namer:
    """Follows one case through its processes, and names what they tell."""

    def __init__(self, numbers: Numbers) -> None:
        self._numbers = numbers
        self._calls: dict[tuple[str, int, int], str] = {}
        self._ids: dict[tuple[str, str], str] = {}
        self._counts: Counter[str] = Counter()
        self._others: dict[tuple[str, int], str] = {}
        self._effects: dict[str, tuple[str, ...]] = {}
        self._durable: dict[tuple[str, int], Call] = {}
        self._told: dict[tuple[str, int], Call] = {}
        self._labels: dict[tuple[str, int], str] = {}
        self._done: Counter[tuple[str, str, str]] = Counter()
        self._doubts: dict[str, int] = {}
        self.settled: list[Settlement] = []
        self.has_entries = False

    def begin_process(self) -> None:
        """Another process goes on."""
        self._done.clear()

    @property
    def open(self) -> tuple[Call, ...]:
        """The calls with an intent on record and no outcome."""
        return tuple(self._durable.values())

    @property
    def in_doubt(self) -> tuple[Call, ...]:
        """The calls that a person must answer for, in sessions that count them as in doubt."""
        # With intents whose commit may have landed although the process was killed during it.
        known = self._told | self._durable
        return tuple(call for call in known.values() if self._doubts.get(call.session))

    def count_doubts(self, doubts: Mapping[str, int]) -> None:
        """How many effects are in doubt in sessions that were just committed."""
        self._doubts.update(doubts)

    def name(self, event: BoundaryEvent) -> str:
        """The whole name of the boundary."""
        return self._numbers.name(event)

    def operation(
        self,
        phase: str,
        operation: str,
        detail: str,
        lines: Sequence[Line],
        strand: int | None,
        *,
        by_framework: bool = False,
        nth: int | None = None,
    ) -> BoundaryEvent:
        """An operation of the world, or of a framework. `nth`: how often it was done, if that is known."""
        self._done[phase, operation, detail] += 1
        key = (operation, detail, nth or self._done[phase, operation, detail])
        return BoundaryEvent(phase, operation, key, tuple(lines), self.open, strand, by_framework)

    def entries(
        self, phase: str, entries: Sequence[tuple[str, int, str, Mapping[str, Any]]], lines: Sequence[Line]
    ) -> list[BoundaryEvent]:
        """The entries of a commit that a boundary is named by."""
        self.has_entries = True
        events: list[BoundaryEvent] = []
        for session, seq, kind, body in entries:
            if kind == "model.replied":
                self._number_calls(session, seq, body)
            label = self._label(session, seq, kind, body)
            if kind == "tool.issued":
                self._follow_intent(phase, session, seq, body)
            elif phase == "after" and kind in _ENDS:
                self._follow_end((session, body.get("issued") or 0), kind, body)
            if label is not None:
                events.append(BoundaryEvent(phase, label, None, tuple(lines), self.open))
        return events

    def _number_calls(self, session: str, seq: int, body: Mapping[str, Any]) -> None:
        asked = [part for part in body.get("parts", ()) if part[0] == "call"]
        for index, (_, _, name, *_) in enumerate(asked):
            if (session, seq, index) not in self._calls:
                self._calls[session, seq, index] = self._next(name)

    def _next(self, name: str) -> str:
        self._counts[name] += 1
        return f"{name}#{self._counts[name]}"

    def _label(self, session: str, seq: int, kind: str, body: Mapping[str, Any]) -> str | None:
        if (session, seq) in self._others:
            return self._others[session, seq]
        if kind in _CALLS:
            label = f"{self._call(session, body)}:{_CALLS[kind]}"
            if kind == "tool.issued":
                attempt = body.get("attempt", 1)
                label += f" again ({attempt})" if attempt > 1 else ""
        elif kind in _OTHERS:
            label = self._next(_OTHERS[kind])
        elif kind not in KINDS:
            label = self._next(kind)  # An adapter's own.
        else:
            return None
        self._others[session, seq] = label
        return label

    def _call(self, session: str, body: Mapping[str, Any]) -> str:
        call = body.get("call", {})
        reply = call.get("reply", call.get("of"))
        if reply is not None and (known := self._calls.get((session, reply, call.get("index", 0)))):
            return known
        if (known := self._labels.get((session, body.get("issued") or 0))) is not None:
            return known
        key = (session, str(call.get("id")))
        if key not in self._ids or "tool" in body:
            tool = body.get("tool", "call")
            if key not in self._ids or not self._ids[key].startswith(f"{tool}#"):
                self._ids[key] = self._next(tool)
        return self._ids[key]

    def _follow_intent(self, phase: str, session: str, seq: int, body: Mapping[str, Any]) -> None:
        label = self._call(session, body)
        call = Call(
            label, body["tool"], str(body["call"]["id"]), session, tuple(body.get("side_effects", ()))
        )
        self._labels[session, seq] = label
        self._told[session, seq] = call
        if phase == "after":
            self._durable[session, seq] = call

    def _follow_end(self, issued: tuple[str, int], kind: str, body: Mapping[str, Any]) -> None:
        self._durable.pop(issued, None)
        call = self._told.pop(issued, None)
        if call is not None and kind == "tool.settled":
            self.settled.append(Settlement(call.tool, body["verdict"], body["by"]))


# -- the order of boundaries ---------------------------------------------------------------------------


def order(numbers: Numbers, events: Sequence[BoundaryEvent]) -> list[str]:
    """The names of all boundaries of an undisturbed run, each once, in an order that timing does not change.

    They stand as they came, but where operations or calls may have run in parallel: there by what they are.
    The operations are numbered in this order.
    """
    phases: dict[str, dict[str, None]] = {}
    for part in _parts(events):
        if _is_parallel(part):
            part = sorted(part, key=_place)
        for event in part:
            phase, _, label = numbers.name(event).partition(" ")
            phases.setdefault(label, {})[phase] = None
    # After each other, also where one commit holds several: what shares a commit is a matter of timing.
    return [f"{phase} {label}" for label, found in phases.items() for phase in found]


def _parts(events: Sequence[BoundaryEvent]) -> Iterator[list[BoundaryEvent]]:
    """Between replies and checkpoints, which never come at the same time."""
    part: list[BoundaryEvent] = []
    for event in events:
        if event.label.startswith(_SERIAL) if event.key is None else event.label in _SERIAL_OPERATIONS:
            yield part
            yield [event]
            part = []
        else:
            part.append(event)
    yield part


def _is_parallel(part: Sequence[BoundaryEvent]) -> bool:
    """Whether timing may decide on the order."""
    strands = {event.strand for event in part if event.strand is not None and event.label != END}
    return MANY in strands or len(strands) > 1 or any(len(event.open) > 1 for event in part)


def _place(event: BoundaryEvent) -> tuple[Any, ...]:
    if event.key is not None:
        operation, detail, number = event.key
        rank = 4 if operation == END else 1
        return (rank, _natural(operation), _natural(detail), number, _PHASES.index(event.phase))
    label, _, end = event.label.partition(":")
    rank = _RANKS.get(end.partition(" ")[0], 3)
    return (rank, _natural(label), (), 0, _PHASES.index(event.phase))


def _natural(text: str) -> tuple[tuple[int, str], ...]:
    """The text as a key to sort by, with 9 before 10."""
    return tuple((int(one), "") if one.isdecimal() else (-1, one) for one in re.split(r"(\d+)", text))
