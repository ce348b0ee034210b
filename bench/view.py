"""The figures of a run, as questions ask for them: medians and spreads by subject."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median
from typing import Final

from bench.figures import Growth, Results, Spread, Stop, exponent
from bench.subjects.catalogue import SUBJECTS, Subject

_INSTEAD: Final = {"FileStepStore": "HoldfastStepStore"}
"""Whom to compare with, where ours has no store of that kind."""


class View:
    """Looks figures up. None wherever nothing was measured."""

    def __init__(self, results: Results) -> None:
        self.results = results

    # -- growth ----------------------------------------------------------------------------------------

    def subjects(self, group: str) -> list[Subject]:
        """Those of the group that took a step."""
        measured = {one.subject for one in self.results.growth}
        return [one for one in SUBJECTS if one.group == group and one.name in measured]

    def growth(self, subject: str) -> Growth | None:
        """Its session."""
        return next((one for one in self.results.growth if one.subject == subject), None)

    def marks(self, subject: str) -> list[int]:
        """What it reached."""
        growth = self.growth(subject)
        return [mark.steps for mark in growth.marks] if growth else []

    def group_marks(self, group: str) -> list[int]:
        """What any subject of the group reached."""
        return sorted({steps for one in self.subjects(group) for steps in self.marks(one.name)})

    def at(self, subject: str, steps: int, figure: str) -> Spread | None:
        """A figure of a session of so many steps: one of `Mark`, or `step_ms`, of all rounds until then."""
        found = self._at(subject, steps, figure)
        return Spread.of(found) if found else None

    def _at(self, subject: str, steps: int, figure: str) -> list[float]:
        growth = self.growth(subject)
        mark = next((one for one in growth.marks if one.steps == steps), None) if growth else None
        if growth is None or mark is None:
            return []
        if figure == "step_ms":
            return growth.rounds_ms[: steps // growth.round_steps]
        found: list[float] | float = getattr(mark, figure)
        return found if isinstance(found, list) else [found]

    def stop(self, subject: str) -> Stop | None:
        """Why it went no further."""
        growth = self.growth(subject)
        return growth.stop if growth else None

    def exponent(self, subject: str, figure: str) -> float | None:
        """By which power of the steps a figure grows."""
        points = [(steps, self.at(subject, steps, figure)) for steps in self.marks(subject)]
        return exponent([(steps, found.median) for steps, found in points if found is not None])

    def ratio(
        self, subject: str, other: str, figure: str, steps: int | None = None, *, of: str | None = None
    ) -> Spread | None:
        """A figure of the subject / the same, or another one, of the other, turn by turn.

        At so many steps, or at the most that both reached.
        """
        at = self.common(subject, other) if steps is None else steps
        return compare(self._at(subject, at, figure), self._at(other, at, of or figure))

    def common(self, subject: str, other: str) -> int:
        """The most steps that both reached; 0 if none."""
        return max(set(self.marks(subject)) & set(self.marks(other)), default=0)

    def tenths(self, subject: str, steps: int) -> list[float]:
        """A step in each tenth of a session of so many steps: medians of its rounds."""
        rounds = self._at(subject, steps, "step_ms")
        share = len(rounds) // 10
        return [median(rounds[at * share : (at + 1) * share]) for at in range(10)] if share else []

    def drift(self, subject: str, floor: str, steps: int) -> float | None:
        """A step in the last tenth / one in the first, each measured in those of the floor beside it."""
        mine, theirs = (self._at(name, steps, "step_ms") for name in (subject, floor))
        share = min(len(mine), len(theirs)) // 10
        first, last = compare(mine[:share], theirs[:share]), compare(mine[-share:], theirs[-share:])
        return last.median / first.median if share and first and last else None

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
        found = self._rates(subject, sessions, processes)
        return Spread.of(found) if found else None

    def _rates(self, subject: str, sessions: int, processes: int = 1) -> list[float]:
        wanted = (subject, sessions, processes)
        found = (
            one for one in self.results.throughput if (one.subject, one.sessions, one.processes) == wanted
        )
        return next((one.rates for one in found), [])

    def rate_ratio(self, subject: str, other: str, sessions: int) -> Spread | None:
        """Steps a second of the subject / those of the other, turn by turn."""
        return compare(self._rates(subject, sessions), self._rates(other, sessions))

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
        found = self._starts(what)
        return Spread.of(found) if found else None

    def _starts(self, what: str) -> list[float]:
        return next((one.wall_ms for one in self.results.startup if one.what == what), [])

    def start_ratio(self, what: str, other: str) -> Spread | None:
        """How many times as long one takes to start as another, turn by turn."""
        return compare(self._starts(what), self._starts(other))

    def dispatch(self, what: str, figure: str = "passed_us") -> Spread | None:
        """Microseconds."""
        found = self._calls(what, figure)
        return Spread.of(found) if found else None

    def _calls(self, what: str, figure: str) -> list[float]:
        return [getattr(one, figure) for one in self.results.dispatch.get(what, ())]

    def dispatch_ratio(self, what: str, other: str) -> Spread | None:
        """The time of one call / that of another, turn by turn."""
        return compare(self._calls(what, "passed_us"), self._calls(other, "passed_us"))

    def dispatch_beyond(self, what: str, other: str, figure: str) -> Spread | None:
        """What one call takes more than another, turn by turn."""
        both = zip(self._calls(what, figure), self._calls(other, figure), strict=False)
        found = [mine - theirs for mine, theirs in both]
        return Spread.of(found) if found else None

    def request(self, what: str) -> Spread | None:
        """Microseconds that a request to an MCP server takes."""
        found = self.results.proxy.get(what)
        return Spread.of(found) if found else None

    def request_beyond(self, what: str, other: str) -> Spread | None:
        """What one request takes more than another, turn by turn."""
        both = zip(self.results.proxy.get(what, ()), self.results.proxy.get(other, ()), strict=False)
        found = [mine - theirs for mine, theirs in both]
        return Spread.of(found) if found else None

    def waits(self, store: str, what: str) -> list[float]:
        """Milliseconds that work waited."""
        found = [one.waits_ms for one in self.results.fleet if one.store == store]
        return [
            wait for one in found for name, waits in one.items() if name.startswith(what) for wait in waits
        ]


def compare(mine: Sequence[float], theirs: Sequence[float]) -> Spread | None:
    """Figures of the same rounds, as ratios; as many as both have."""
    found = [one / other for one, other in zip(mine, theirs, strict=False) if other]
    return Spread.of(found) if found else None


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
