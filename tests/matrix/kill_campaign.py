"""Many deaths: a scenario is rehearsed to learn its boundaries, then killed at each of them and finished by
others, who may be killed as well."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from tests.stores import copy_store, remove_store, share

from ..crash.fork_server import Warm
from . import scenarios
from .answering_person import answer
from .boundaries import Point

TRIAL_S = 180.0
"""Beyond this a child hangs. On a quiet machine, none takes as much as a fiftieth of it."""

_PHASES_MAX = 8
"""A scenario asks a person once or twice."""


class Phase(NamedTuple):
    """A child's part of a rehearsal: what it did, from where, and the boundaries on its way."""

    who: Callable[..., Any]
    start: Path
    points: list[Point]


class Death(NamedTuple):
    """Where the first child of a trial dies."""

    scenario: str
    phase: Phase
    point: Point


Again: TypeAlias = Callable[[Death, Sequence[Point]], Sequence[Point]]
"""Chooses where a recovery from this death dies, of the boundaries on its way."""


class Campaign:
    """Trials on one driver, as many at once as there are processors. `live` is what a child does in them,
    and `answer` what the next one does, the person who is asked."""

    def __init__(
        self,
        warm: Warm,
        scheme: str,
        folder: Path,
        live: Callable[..., Any] = scenarios.live,
        answer: Callable[..., Any] = answer,
    ) -> None:
        self._warm, self._scheme, self._folder = warm, scheme, folder
        self._live, self._answer = live, answer
        self._ends: dict[str, dict[str, Any]] = {}
        """By scenario: what an undisturbed life comes to."""
        self._count = 0
        self._lock = threading.Lock()
        self.problems: list[str] = []
        self.scenarios = 0
        self.boundaries = 0
        self.kills = 0
        self.pairs = 0
        self.children = 0

    def rehearse(self, scenario: str, *, all: bool = False) -> list[Death]:
        """Play it undisturbed; every death that can be died on the way. On a server some of them, unless all
        are wanted."""
        folder = self._new_folder()
        phases: list[Any] = []
        for who in self._turns():
            start = folder.with_name(f"{folder.name}-{len(phases)}")
            copy_store(folder, start)
            outcome = self._play(folder, scenario, who, None)
            assert isinstance(outcome, dict), f"{scenario} in rehearsal: {outcome!r}"
            assert not outcome["problems"], f"{scenario} in rehearsal: {outcome['problems']}"
            phases.append(Phase(who, start, [Point(*point) for point in outcome["points"]]))
            if outcome["state"] == "done":
                self._ends[scenario] = outcome["end"]
                break
        every = [Death(scenario, phase, point) for phase in phases for point in phase.points]
        deaths = every if all else list(share(self._scheme, every))
        self.scenarios += 1
        self.boundaries += len(deaths)
        return deaths

    def run(self, deaths: Iterable[Death], *, again: Again) -> None:
        """Die each of the deaths and finish the work, then do so again and die once more on the way, wherever
        `again` says. All problems are gathered."""
        with ThreadPoolExecutor(os.cpu_count()) as lanes:
            for trial in [lanes.submit(self._try, death, again) for death in deaths]:
                trial.result()

    def wear_out(self, scenario: str, kills: int, choose: Callable[[], Point]) -> int:
        """One run, killed that often in a row, then finished; how many boundaries were left to the last."""
        death, folder = self.rehearse(scenario, all=True)[0], self._new_folder()
        points: list[Point] = []
        while self.kills < kills:
            points.append(choose())
            if self._die(folder, death, self._live, points[-1]):
                continue
            assert not self.problems, self.problems
            assert len(points) < 2 * kills, f"it is done after {self.kills} kills"
            self._play(folder, scenario, self._answer, None)
        return len(self._finish(folder, death, points))

    def _try(self, death: Death, again: Again) -> None:
        folder = self._new_folder()
        left = folder.with_name(f"{folder.name}-left")
        copy_store(death.phase.start, folder)
        if not self._die(folder, death, death.phase.who, death.point):
            return
        copy_store(folder, left)
        recovery = self._finish(folder, death, [death.point])
        for point in again(death, recovery):
            # In the same place: the store remembers where the lock of the dead is.
            remove_store(folder)
            copy_store(left, folder)
            if self._die(folder, death, self._live, point):
                with self._lock:
                    self.pairs += 1
                self._finish(folder, death, [death.point, point])
        remove_store(folder)
        remove_store(left)

    def _die(self, folder: Path, death: Death, who: Callable[..., Any], point: Point) -> bool:
        outcome = self._play(folder, death.scenario, who, point)
        if outcome is None:
            with self._lock:
                self.kills += 1
            return True
        # Two threads may pass their boundaries in another order: then it lived to the end.
        if not isinstance(outcome, dict) or outcome["problems"]:
            self._blame(death, [point], outcome)
        return False

    def _finish(self, folder: Path, death: Death, points: list[Point]) -> list[Point]:
        """Others go on until it is done; the boundaries of the first of them."""
        first: list[Point] | None = None
        for who in self._turns():
            outcome = self._play(folder, death.scenario, who, None)
            if not isinstance(outcome, dict) or outcome["problems"]:
                self._blame(death, points, outcome)
                return first or []
            first = first or [Point(*point) for point in outcome["points"]]
            if outcome["state"] == "done":
                self._compare(death, points, outcome["end"])
                return first
        self._blame(death, points, "it is never done")
        return first or []

    def _compare(self, death: Death, points: list[Point], end: dict[str, Any]) -> None:
        if wrong := list(_differences("", end, self._ends[death.scenario])):
            self._blame(death, points, {"problems": wrong})

    def _blame(self, death: Death, points: list[Point], outcome: object) -> None:
        why = "\n    ".join(map(str, outcome["problems"])) if isinstance(outcome, dict) else repr(outcome)
        where = ", then ".join(f"{point.label!r} ({point.number})" for point in points)
        with self._lock:
            self.problems.append(f"{self._scheme}, {death.scenario}, killed at {where}:\n    {why}")

    def _play(self, folder: Path, scenario: str, who: Callable[..., Any], target: Point | None) -> object:
        with self._lock:
            self.children += 1
        with self._warm.child(who, str(folder), self._scheme, scenario, target) as child:
            try:
                return child.outcome(TRIAL_S)
            except AssertionError as silence:
                return repr(silence)

    def _turns(self) -> Iterable[Callable[..., Any]]:
        return (who for who, _ in zip(cycle([self._live, self._answer]), range(_PHASES_MAX), strict=False))

    def _new_folder(self) -> Path:
        with self._lock:
            self._count += 1
            folder = self._folder / f"{self._scheme}-{self._count}"
        folder.mkdir()
        return folder

    def expect_none(self) -> None:
        """Nothing went wrong anywhere; says how much was tried."""
        print(self)
        assert not self.problems, "\n".join([f"{len(self.problems)} problems", *self.problems[:10]])

    def __str__(self) -> str:
        return (
            f"{self._scheme}: {self.scenarios} scenarios with {self.boundaries} boundaries, "
            f"{self.kills} kills, {self.pairs} of them the second in a row, by {self.children} processes"
        )


def _differences(where: str, found: Any, expected: Any) -> Iterator[str]:
    """Where it is not as in an undisturbed life."""
    if isinstance(found, dict) and isinstance(expected, dict):
        for key in sorted({*found, *expected}):
            yield from _differences(f"{where} / {key}", found.get(key), expected.get(key))
    elif isinstance(found, list) and isinstance(expected, list) and len(found) == len(expected):
        for place, (one, other) in enumerate(zip(found, expected, strict=True)):
            yield from _differences(f"{where} {place}", one, other)
    elif found != expected:
        yield f"{where}: {found}, undisturbed: {expected}"
