"""Forks of sessions in doubt: origin and fork are settled by processes of their own, which race, and die."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.stores import on_every_driver, share

from ..crash.fork_server import Warm
from .boundaries import Point
from .effect_log import World
from .racing_processes import leave_forks, race_to_settle, settle, settle_and_die


def _leave(warm: Warm, scheme: str, folder: Path, count: int) -> None:
    with warm.child(leave_forks, str(folder), scheme, count) as child:
        outcome = child.outcome()
        assert outcome is None, f"it was not killed: {outcome}"
    assert World(folder / "world").deeds("landed") == []


def _race(warm: Warm, scheme: str, folder: Path, races: int) -> None:
    _leave(warm, scheme, folder, races)
    where = str(folder), scheme
    with warm.child(race_to_settle, *where, "s") as origin, warm.child(race_to_settle, *where, "f") as fork:
        both = origin, fork
        for number in range(races):
            for racer in both:
                racer.say(str(number))
            assert [racer.hear() for racer in both] == ["ready", "ready"]
            for racer in both:
                racer.say("go")
            results = [racer.hear() for racer in both]
            assert [one["status"] for one in results] == ["completed"] * 2, results
            assert results[0]["value"] == results[1]["value"], results
        for racer in both:
            racer.say(None)
        for racer in both:
            racer.result()
    landed = [deed.arg for deed in World(folder / "world").deeds("landed")]
    assert sorted(landed) == sorted(map(str, range(races))), landed


@on_every_driver
def test_origin_and_fork_race_to_settle_and_one_runs_it(warm: Warm, scheme: str, quick_path: Path) -> None:
    """Both are told truthfully that nothing landed: one pays, the other waits for it and gets the result."""
    _race(warm, scheme, quick_path, 4)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_origin_and_fork_race_often_and_one_runs_it(warm: Warm, scheme: str, quick_path: Path) -> None:
    """The same, 100 times."""
    _race(warm, scheme, quick_path, 100)


class Deaths:
    """One of two sessions that share a payment is killed while it settles it, and then both go on."""

    def __init__(self, warm: Warm, scheme: str, folder: Path) -> None:
        self._warm, self._scheme, self._folder = warm, scheme, folder

    def rehearse(self, dies: str) -> list[Point]:
        """The boundaries on the way."""
        place = self._begin(f"rehearsal of {dies}")
        points = self._warm.call(settle_and_die, str(place), self._scheme, dies, None)
        return [Point(*point) for point in points]

    def run(self, trials: Sequence[tuple[str, Point]]) -> None:
        """All of them, side by side."""
        with ThreadPoolExecutor(os.cpu_count()) as lanes:
            for trial in [lanes.submit(self._try, dies, point) for dies, point in trials]:
                trial.result()

    def _begin(self, name: str) -> Path:
        folder = self._folder / name
        folder.mkdir()
        _leave(self._warm, self._scheme, folder, 1)
        return folder

    def _try(self, dies: str, point: Point) -> None:
        folder = self._begin(f"{dies}, {point.label} {point.number}")
        where, what = (str(folder), self._scheme), f"{self._scheme}, {dies} killed at {point}"
        with self._warm.child(settle_and_die, *where, dies, point) as child:
            child.outcome()
        other = "f-0" if dies == "s-0" else "s-0"
        results = [self._warm.call(settle, *where, one) for one in (other, dies)]
        deeds = World(folder / "world").deeds("landed")
        assert len(deeds) == 1, f"{what}: {deeds}"
        assert [one["status"] for one in results] == ["completed"] * 2, f"{what}: {results}"
        assert {one["value"] for one in results} == {"pay 0"}, f"{what}: {results}"


@pytest.fixture
def deaths(warm: Warm, scheme: str, quick_path: Path) -> Deaths:
    return Deaths(warm, scheme, quick_path)


def _trials(deaths: Deaths) -> list[tuple[str, Point]]:
    return [(dies, point) for dies in ("s-0", "f-0") for point in deaths.rehearse(dies)]


def test_who_settles_what_forks_share_may_die_and_another_takes_over(deaths: Deaths, seed: int) -> None:
    """At some of the boundaries between the claim and the record: it is paid once, and both get to know."""
    deaths.run(random.Random(seed).sample(_trials(deaths), 6))


@pytest.mark.long
@pytest.mark.timeout(300)
def test_who_settles_what_forks_share_may_die_anywhere(deaths: Deaths, scheme: str) -> None:
    """At every boundary."""
    deaths.run(share(scheme, _trials(deaths), 4))
