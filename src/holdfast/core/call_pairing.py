"""Tool calls and their results: which call has none, and whether a provider would accept the transcript.

Every tool call must have exactly one result, after it and before the conversation goes on. Calls and results
are paired within the reply that asked, because providers reuse call ids.
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


class ReplyCalls:
    """The calls of one reply, and which of them have a result. Results name a call by its id.

    An id may occur twice in a reply: the first result with it belongs to the first call, and so on.
    """

    __slots__ = ("answered", "calls")

    def __init__(self, parts: Iterable[Part], answered: Iterable[int] = ()) -> None:
        self.calls = [part for part in parts if isinstance(part, CallPart)]
        self.answered = set(answered)
        """Positions of the calls that have a result."""

    def answer(self, call_id: str) -> int | None:
        """Find the first call with this id that has no result, and count it as answered; its position."""
        for index, call in enumerate(self.calls):
            if call.id == call_id and index not in self.answered:
                self.answered.add(index)
                return index
        return None

    def list_unanswered(self) -> list[int]:
        """Positions of the calls that have no result."""
        return [index for index in range(len(self.calls)) if index not in self.answered]


class Pairing:
    """Pairs calls with results, message by message."""

    def __init__(self) -> None:
        self._open = ReplyCalls(())
        """The last reply with calls, while the conversation has not gone on without their results."""
        self._open_message = 0
        self._problems: list[Problem] = []
        self._seen: set[str] = set()
        self._count = 0

    def add(self, parts: Sequence[Part]) -> None:
        """Add the next message of the transcript."""
        place = self._count
        self._count += 1
        if not parts:
            if self._open.calls:
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
                self._open_message = place
                fresh = True
            self._call(part)

    def _call(self, part: CallPart) -> None:
        early = next((p for p in self._problems if p.kind == "orphan" and p.call_id == part.id), None)
        if early is not None:
            self._problems[self._problems.index(early)] = replace(early, kind="out_of_order", name=part.name)
            self._open.answered.add(len(self._open.calls))
        self._seen.add(part.id)
        self._open.calls.append(part)

    def answer(self, call_id: str, place: int) -> None:
        """Add a result, in the message at `place`."""
        if self._open.answer(call_id) is not None:
            return
        missing = next((p for p in self._problems if p.kind == "missing" and p.call_id == call_id), None)
        if any(call.id == call_id for call in self._open.calls):
            self._problems.append(Problem(kind="duplicate", call_id=call_id, message=place))
        elif missing is not None:
            late = replace(missing, kind="out_of_order", message=place)
            self._problems[self._problems.index(missing)] = late
        else:
            kind: ProblemKind = "duplicate" if call_id in self._seen else "orphan"
            self._problems.append(Problem(kind=kind, call_id=call_id, message=place))

    def _abandon(self) -> None:
        self._problems += self._list_missing()
        self._open = ReplyCalls(())

    def _list_missing(self) -> list[Problem]:
        calls, message = self._open.calls, self._open_message
        return [
            Problem(kind="missing", call_id=calls[index].id, name=calls[index].name, message=message)
            for index in self._open.list_unanswered()
        ]

    def all_problems(self) -> tuple[Problem, ...]:
        """What is wrong if the transcript ends here."""
        return (*self._problems, *self._list_missing())


def find_problems(messages: Iterable[AnyMessage]) -> tuple[Problem, ...]:
    """Why a provider would refuse these messages; empty if it would not."""
    pairing = Pairing()
    for message in messages:
        pairing.add(shape_of(message).parts)
    return pairing.all_problems()
