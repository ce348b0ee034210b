"""Operations that happen once ever, over all sessions and processes of a store."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.stores import on_every_driver, share

from ..crash.fork_server import Warm
from .answering_person import answer
from .boundaries import Point
from .effect_log import World
from .matrix_tools import IDEMPOTENT
from .racing_processes import delete, race, want, want_and_stop

TOOLS = ("welcome", "greet", "grant", "flaky_global")


# -- races --------------------------------------------------------------------------------------------


def _race(warm: Warm, scheme: str, folder: Path, races: int) -> None:
    where = str(folder), scheme
    with warm.child(race, *where, "a") as first, warm.child(race, *where, "b") as second:
        both = first, second
        for number in range(races):
            for racer in both:
                racer.say(str(number))
            assert [racer.hear() for racer in both] == ["ready", "ready"]
            for racer in both:
                racer.say(TOOLS[number % len(TOOLS)])
            results = [racer.hear() for racer in both]
            assert [one["status"] for one in results] == ["completed"] * 2, results
            assert results[0]["value"] == results[1]["value"], results
            assert [one["replay_of"] for one in results].count(None) == 1, results
        for racer in both:
            racer.say(None)
        for racer in both:
            racer.result()
    landed = [deed.arg for deed in World(folder / "world").deeds("landed")]
    assert sorted(landed) == sorted(map(str, range(races))), landed
    won = [deed.session[0] for deed in World(folder / "world").deeds("landed")]
    print(f"{scheme}: {races} races, of which the first process won {won.count('a')}")


@on_every_driver
def test_two_processes_race_and_one_executes(warm: Warm, scheme: str, quick_path: Path) -> None:
    """Both want it at the same moment, each in a session of its own: one does it, the other waits for the
    outcome and gets it."""
    _race(warm, scheme, quick_path, 20)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_two_processes_race_often_and_one_executes(warm: Warm, scheme: str, quick_path: Path) -> None:
    """The same, 200 times."""
    _race(warm, scheme, quick_path, 200)


# -- the winner dies ----------------------------------------------------------------------------------


class Deaths:
    """A process is stopped on its way, another one comes to want the same, the first is killed."""

    def __init__(self, warm: Warm, scheme: str, folder: Path) -> None:
        self._warm, self._scheme, self._folder = warm, scheme, folder
        self.outcomes: list[str] = []

    def rehearse(self, tool: str) -> list[Point]:
        """The boundaries on the way."""
        where = self._place(f"{tool} in rehearsal")
        points = self._warm.call(want_and_stop, *where, tool, None, int(signal.SIGSTOP))
        return [Point(*point) for point in points]

    def run(self, trials: Sequence[tuple[str, Point]]) -> None:
        """All of them, side by side."""
        with ThreadPoolExecutor(os.cpu_count()) as lanes:
            for trial in [lanes.submit(self._try, tool, point) for tool, point in trials]:
                self.outcomes.append(trial.result())

    def _place(self, name: str) -> tuple[str, str]:
        folder = self._folder / name
        folder.mkdir()
        return str(folder), self._scheme

    def _try(self, tool: str, point: Point) -> str:
        where = self._place(f"{tool}, {point.label} {point.number}")
        world = World(Path(where[0]) / "world")
        what = f"{where[1]}, {tool}, stopped at {point}"
        with self._warm.child(want_and_stop, *where, tool, point, int(signal.SIGSTOP)) as winner:
            winner.wait_stopped()
            with self._warm.child(want, *where, tool, "t", watch=True) as other:
                other.hear()
                winner.kill()
                first = other.result()
        before = world.deeds("landed")
        # Whoever was killed is gone on with, by others and by a person who looks at the world.
        while (ours := self._warm.call(want, *where, tool, "s"))["status"] == "in_doubt":
            self._warm.call(answer, *where, "")
        theirs = self._warm.call(want, *where, tool, "t")
        deeds = world.deeds("landed")
        assert len({deed.key for deed in deeds}) == 1, f"{what}: {deeds}"
        assert len(deeds) == 1 or tool in IDEMPOTENT, f"{what}: {deeds}"
        assert ours["status"] == theirs["status"] == "completed", f"{what}: {ours} {theirs}"
        if first["status"] != "completed":
            assert first["status"] == "in_doubt", f"{what}: {first}"
            assert not [deed for deed in before if deed.session == "t"], f"{what}: {before}"
        return str(first["status"])


@pytest.fixture
def deaths(warm: Warm, scheme: str, quick_path: Path) -> Deaths:
    return Deaths(warm, scheme, quick_path)


def _trials(deaths: Deaths, *tools: str) -> list[tuple[str, Point]]:
    return [(tool, point) for tool in tools for point in deaths.rehearse(tool)]


def test_nobody_repeats_blindly_what_a_dead_winner_began(deaths: Deaths, seed: int) -> None:
    """At some of the boundaries: who waits for somebody who dies takes over what was not begun, and is told
    that nobody knows if it was."""
    trials = random.Random(seed).sample(_trials(deaths, "welcome", "greet"), 12)
    deaths.run(trials)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_nobody_repeats_blindly_what_any_dead_winner_began(deaths: Deaths, scheme: str) -> None:
    """At every boundary, for every kind of tool."""
    every = _trials(deaths, *TOOLS)
    trials = share(scheme, every)
    deaths.run(trials)
    print(f"{scheme}: {len(trials)} deaths; the other one was told {dict(_count(deaths.outcomes))}")
    # Among a few that chance has chosen, nobody may be in doubt.
    assert len(trials) < len(every) or {"completed", "in_doubt"} == set(deaths.outcomes)


def _count(outcomes: list[str]) -> list[tuple[str, int]]:
    return [(outcome, outcomes.count(outcome)) for outcome in sorted(set(outcomes))]


def test_a_claim_without_an_intent_is_taken_over(warm: Warm, scheme: str, quick_path: Path) -> None:
    """Killed between the claim and the intent: surely nothing happened, and the next one does it."""
    where = str(quick_path), scheme
    _kill(warm, where, "greet", Point("after claim", 1))
    assert warm.call(want, *where, "greet", "t")["status"] == "completed"
    assert [deed.session for deed in World(quick_path / "world").deeds("landed")] == ["t"]
    # Its own session gets what the other one did.
    ours = warm.call(want, *where, "greet", "s")
    assert (ours["status"], ours["replay_of"]) == ("completed", "c")
    assert len(World(quick_path / "world").deeds("landed")) == 1


def test_a_claim_outlives_the_session_that_has_it(warm: Warm, scheme: str, quick_path: Path) -> None:
    """Killed between the outcome and the claim's own record of it, and deleted then: nobody does it again."""
    where = str(quick_path), scheme
    _kill(warm, where, "greet", Point("before claim", 2))
    warm.call(delete, *where, "s")
    theirs = warm.call(want, *where, "greet", "t")
    assert len(World(quick_path / "world").deeds("landed")) == 1, theirs


def test_after_a_definite_failure_others_get_another_key(warm: Warm, scheme: str, quick_path: Path) -> None:
    """A service may remember that it refused a key. Also if the one who failed was killed before it gave the
    claim back."""
    where = str(quick_path), scheme
    _kill(warm, where, "picky", Point("before claim", 2))
    assert warm.call(want, *where, "picky", "t")["status"] == "completed"
    tried = World(quick_path / "world").deeds()
    assert [deed.session for deed in tried] == ["s", "t"]
    assert tried[0].key != tried[1].key


def _kill(warm: Warm, where: tuple[str, str], tool: str, point: Point) -> None:
    with warm.child(want_and_stop, *where, tool, point, int(signal.SIGKILL)) as child:
        outcome: Any = child.outcome()
        assert outcome is None, f"it was not killed at {point}: {outcome}"
