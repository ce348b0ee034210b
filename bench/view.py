"""The figures of a run, as questions ask for them: medians and spreads by subject."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from bench.figures import LongSession, Mark, Results, Spread, Stop, exponent
from bench.subjects.catalogue import SUBJECTS, Subject

_INSTEAD: Final = {"FileStepStore": "HoldfastStepStore"}
"""Whom to compare with, where ours has no store of that kind."""


class Reached(NamedTuple):
    """How far a subject grew, and why no further."""

    steps: int
    stop: Stop | None


class View:
    """Looks figures up. None wherever nothing was measured."""

    def __init__(self, results: Results) -> None:
        self.results = results

    # -- growth ----------------------------------------------------------------------------------------

    def subjects(self, group: str) -> list[Subject]:
        """Those of the group that took a step."""
        measured = {one.subject for one in self.results.growth if one.marks or one.stop}
        return [one for one in SUBJECTS if one.group == group and one.name in measured]

    def marks(self, subject: str) -> list[int]:
        """What it reached in any round."""
        grown = [one for one in self.results.growth if one.subject == subject]
        return sorted({mark.steps for one in grown for mark in one.marks})

    def all_marks(self) -> list[int]:
        """What anybody reached."""
        return sorted({mark.steps for one in self.results.growth for mark in one.marks})

    def at(self, subject: str, steps: int, figure: str) -> Spread | None:
        """A figure of a session of so many steps."""
        found = list(self._at(subject, steps))
        return Spread.of(getattr(mark, figure) for mark in found) if found else None

    def _at(self, subject: str, steps: int) -> Iterator[Mark]:
        for one in self.results.growth:
            if one.subject == subject:
                yield from (mark for mark in one.marks if mark.steps == steps)

    def reached(self, subject: str) -> Reached:
        """In the round that went furthest, which is the first."""
        first = next(one for one in self.results.growth if one.subject == subject)
        return Reached(max((mark.steps for mark in first.marks), default=0), first.stop)

    def exponent(self, subject: str, figure: str) -> float | None:
        """By which power of the steps a figure grows."""
        points = [(steps, self.at(subject, steps, figure)) for steps in self.marks(subject)]
        return exponent([(steps, found.median) for steps, found in points if found is not None])

    def ratio(self, subject: str, other: str, figure: str, steps: int | None = None) -> float | None:
        """A figure of the subject / the same of the other, at so many steps, or at the most both reached."""
        both = sorted(set(self.marks(subject)) & set(self.marks(other)))
        at = steps if steps is not None else (both[-1] if both else 0)
        mine, theirs = self.at(subject, at, figure), self.at(other, at, figure)
        return mine.median / theirs.median if mine and theirs and theirs.median else None

    def common(self, subject: str, other: str) -> int:
        """The most steps that both reached; 0 if none."""
        return max(set(self.marks(subject)) & set(self.marks(other)), default=0)

    def syncs(self, subject: str) -> float | None:
        """Per step."""
        found = next((one for one in self.results.syncs if one.subject == subject and one.steps), None)
        return found.syncs / found.steps if found else None

    def in_turns(self, subject: str, other: str) -> Spread | None:
        """A step of the subject / one of the other at the same moment."""
        found = [one.medians_ms for one in self.results.turns if {subject, other} <= one.medians_ms.keys()]
        return Spread.of(one[subject] / one[other] for one in found) if found else None

    # -- throughput ------------------------------------------------------------------------------------

    def rate(self, subject: str, sessions: int, *, processes: int = 1) -> Spread | None:
        """Steps a second."""
        found = [
            one.rate
            for one in self.results.throughput
            if (one.subject, one.sessions, one.processes) == (subject, sessions, processes)
        ]
        return Spread.of(found) if found else None

    def sessions(self) -> list[int]:
        """How many were tried at once, in one process."""
        return sorted({one.sessions for one in self.results.throughput if one.processes == 1})

    # -- the rest --------------------------------------------------------------------------------------

    def memory(self, subject: str) -> Spread | None:
        """Bytes for each open session."""
        found = [one.bytes for one in self.results.memory if one.subject == subject]
        return Spread.of(found) if found else None

    def started(self, what: str) -> Spread | None:
        """Milliseconds."""
        found = next((one for one in self.results.startup if one.what == what and one.wall_ms), None)
        return Spread.of(found.wall_ms) if found else None

    def dispatch(self, what: str) -> Spread | None:
        """Microseconds."""
        found = self.results.dispatch.get(what)
        return Spread.of(found) if found else None

    def long(self, subject: str, steps: int) -> list[LongSession]:
        """Every round of it."""
        return [one for one in self.results.long_sessions if (one.subject, one.steps) == (subject, steps)]

    def waits(self, store: str, what: str) -> list[float]:
        """Milliseconds that work waited."""
        found = [one.waits_ms for one in self.results.fleet if one.store == store]
        return [
            wait for one in found for name, waits in one.items() if name.startswith(what) for wait in waits
        ]


def counterpart(peer: Subject) -> Subject | None:
    """The one of ours that does the same in the same kind of store."""
    ours = [one for one in SUBJECTS if one.role == "holdfast" and one.group == peer.group]
    named = _INSTEAD.get(peer.name)
    return next((one for one in ours if one.store == peer.store or one.name == named), None)


def rivals() -> Iterator[tuple[Subject, Subject]]:
    """Every peer, with its counterpart."""
    for peer in SUBJECTS:
        ours = counterpart(peer)
        if peer.role == "peer" and ours is not None:
            yield peer, ours
