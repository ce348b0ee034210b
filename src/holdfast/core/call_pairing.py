"""Would a provider accept this transcript?

Every tool call must have exactly one result, after it and before the conversation goes on. Calls and results
are paired within the reply that asked, because providers use call ids again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from ..messages import AnyMessage, CallPart, Part, ResultPart, shape_of

ProblemKind: TypeAlias = Literal["missing", "orphan", "duplicate", "out_of_order"]


class Problem(Struct, frozen=True, kw_only=True):
    """Why a provider would refuse the transcript: which call, where, and what is wrong."""

    kind: ProblemKind
    call_id: str
    name: str = ""
    message: int
    """The place of the message in the transcript, from 0."""

    def __str__(self) -> str:
        call = f"call {self.call_id!r}" + (f" of {self.name}" if self.name else "")
        what = {
            "missing": "has no result",
            "orphan": "was never made, but has a result",
            "duplicate": "has a second result",
            "out_of_order": "has its result in the wrong place",
        }[self.kind]
        return f"{call} {what} (message {self.message})"


class _Open(Struct):
    """A call of the last reply that had calls."""

    id: str
    name: str
    message: int
    answered: bool = False


class Pairing:
    """Pairs calls with results, message by message."""

    def __init__(self) -> None:
        self.open: list[_Open] = []
        self.problems: list[Problem] = []
        self._seen: set[str] = set()
        self._count = 0

    def add(self, parts: Sequence[Part]) -> None:
        """The next message of the transcript."""
        place = self._count
        self._count += 1
        if not parts:
            if self.open:
                self._abandon()
            return
        fresh = False
        for part in parts:
            if isinstance(part, ResultPart):
                self.answer(part.call_id, place)
                continue
            if not fresh:
                # A new reply: what the one before left unanswered stays unanswered.
                self._abandon()
                fresh = True
            self._call(part, place)

    def _call(self, part: CallPart, place: int) -> None:
        early = next((p for p in self.problems if p.kind == "orphan" and p.call_id == part.id), None)
        if early is not None:
            self.problems[self.problems.index(early)] = replace(early, kind="out_of_order", name=part.name)
        self._seen.add(part.id)
        self.open.append(_Open(part.id, part.name, place, answered=early is not None))

    def answer(self, call_id: str, place: int) -> None:
        """A result, in the message at `place`."""
        answered = False
        for call in self.open:
            if call.id == call_id:
                if not call.answered:
                    call.answered = True
                    return
                answered = True
        if answered:
            self.problems.append(Problem(kind="duplicate", call_id=call_id, message=place))
            return
        missing = next((p for p in self.problems if p.kind == "missing" and p.call_id == call_id), None)
        if missing is not None:
            late = replace(missing, kind="out_of_order", message=place)
            self.problems[self.problems.index(missing)] = late
        elif call_id in self._seen:
            self.problems.append(Problem(kind="duplicate", call_id=call_id, message=place))
        else:
            self.problems.append(Problem(kind="orphan", call_id=call_id, message=place))

    def _abandon(self) -> None:
        for call in self.open:
            if not call.answered:
                self.problems.append(_missing(call))
        self.open = []

    def all_problems(self) -> tuple[Problem, ...]:
        """What is wrong if the transcript ends here."""
        return (*self.problems, *(_missing(call) for call in self.open if not call.answered))


def _missing(call: _Open) -> Problem:
    return Problem(kind="missing", call_id=call.id, name=call.name, message=call.message)


def find_problems(messages: Iterable[AnyMessage]) -> tuple[Problem, ...]:
    """Why a provider would refuse these messages; empty if it would not."""
    pairing = Pairing()
    for message in messages:
        pairing.add(shape_of(message).parts)
    return pairing.all_problems()
