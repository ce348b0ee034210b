"""A process that dies at its n-th write or sync, for every n, loses nothing that it acknowledged.

The workload uses every operation. A child is killed before its n-th change on the disk, or after half of it;
others look at what it left, go on with the work, and look again.
"""

import os
import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.stores import copy_store, on_every_driver, open_driver, remove_store, share

from . import faults
from .acknowledged import Acks, read_acks
from .check import find_damage, find_leftovers, find_problems
from .fork_server import Line, Warm
from .workload import STAGES, Life

WHENS: Sequence[faults.When] = ("before", "half")


class Death(NamedTuple):
    """At which change on the disk a child dies, counted from 1, and how much of it is done."""

    number: int
    when: faults.When


class Part(NamedTuple):
    """A part of the workload: up to the end of stage `until`, beginning with a copy of `start`."""

    start: Path
    until: int
    changes: Sequence[faults.Kind]

    def __repr__(self) -> str:
        return f"up to stage {self.until}, {len(self.changes)} changes"


# -- in children --------------------------------------------------------------------------------------


def live(
    line: Line, url: str, acks: str, until: int, number: int = 0, when: faults.When = "before"
) -> list[faults.Kind]:
    """Work, or die the death that was chosen; the changes on the disk."""
    disk = faults.install()
    if number:
        disk.kill_at(number, when)
    Life(url, Acks(Path(acks))).run(until)
    return [event.kind for event in disk.events]


def look_and_go_on(line: Line, url: str, acks: str, until: int) -> list[str]:
    """What is wrong before anybody goes on, and after that."""
    problems = [f"at first: {why}" for why in _look(url, acks)]
    Life(url, Acks(Path(acks))).run(until)
    problems += [f"in the end: {why}" for why in _look(url, acks)]
    if until == STAGES:
        problems += find_leftovers(url)
    return problems + find_damage(url)


def _look(url: str, acks: str) -> list[str]:
    driver = open_driver(url)
    try:
        return find_problems(driver, read_acks(Path(acks)))
    finally:
        driver.close()


# -- campaigns ----------------------------------------------------------------------------------------


class Campaign:
    """Many deaths on one driver, as many at once as there are processors."""

    def __init__(self, warm: Warm, scheme: str, folder: Path) -> None:
        self._warm, self._scheme, self._folder = warm, scheme, folder
        self.killed = 0

    def split(self, *ends: int) -> list[Part]:
        """The workload in parts, each counted."""
        parts: list[Part] = []
        start = self._folder / "0"
        start.mkdir()
        for until in ends:
            end = self._folder / f"end-{until}"
            copy_store(start, end)
            changes = tuple(self._warm.call(live, *self._names(end), until))
            parts.append(Part(start, until, changes))
            start = end
        return parts

    def run(self, trials: Sequence[tuple[Part, Sequence[Death]]]) -> None:
        """Try them all; fails with the first that loses something."""
        with ThreadPoolExecutor(os.cpu_count()) as lanes:
            tried = [lanes.submit(self._try, number, *trial) for number, trial in enumerate(trials)]
            try:
                self.killed += sum(one.result() for one in tried)
            finally:
                lanes.shutdown(cancel_futures=True)

    def _names(self, folder: Path) -> tuple[str, str]:
        return f"{self._scheme}:{folder}/store", str(folder / "acks")

    def _try(self, number: int, part: Part, deaths: Sequence[Death]) -> int:
        folder = self._folder / f"trial-{number}"
        copy_store(part.start, folder)
        names = self._names(folder)
        died = 0
        for death in deaths:
            with self._warm.child(live, *names, part.until, *death) as child:
                outcome = child.outcome()
                assert outcome is None or isinstance(outcome, list), f"{part}, {deaths}: {outcome!r}"
                died += outcome is None
        with self._warm.child(look_and_go_on, *names, part.until) as child:
            problems = child.outcome()
            assert not problems, f"{part}, {deaths}: {problems!r}"
            assert isinstance(problems, list), "the child was killed by somebody else"
        remove_store(folder)
        return died


def _every_death(part: Part) -> list[Death]:
    return [Death(number, "before") for number in range(1, len(part.changes) + 1)]


def _half_deaths(part: Part) -> list[Death]:
    """Only a write can be cut in two; everything else is done or not."""
    return [Death(number, "half") for number, kind in enumerate(part.changes, start=1) if kind == "write"]


def _two_deaths(choose: random.Random, part: Part) -> tuple[Part, Sequence[Death]]:
    """The second one comes early: while somebody finds out what the first one left."""
    first = Death(choose.randint(1, len(part.changes)), choose.choice(WHENS))
    return part, [first, Death(choose.randint(1, 60), choose.choice(WHENS))]


def _every_so_often(choose: random.Random, deaths: Sequence[Death], times: int) -> Sequence[Death]:
    stride = len(deaths) // times
    return deaths[choose.randrange(stride) :: stride]


@pytest.fixture
def campaign(warm: Warm, scheme: str, quick_path: Path) -> Campaign:
    return Campaign(warm, scheme, quick_path)


@on_every_driver
def test_a_kill_at_a_write_loses_nothing(campaign: Campaign, seed: int) -> None:
    """At some of the writes, others each time: what was acknowledged is there, whole, and the work is
    finished by whoever comes next."""
    choose = random.Random(seed)
    (whole,) = campaign.split(STAGES)
    deaths = [
        *_every_so_often(choose, _every_death(whole), 12),
        *_every_so_often(choose, _half_deaths(whole), 8),
    ]
    campaign.run([(whole, [death]) for death in deaths])
    print(f"{campaign.killed} kills in {len(whole.changes)} changes")
    assert campaign.killed > 0.8 * len(deaths)


def test_a_kill_during_the_recovery_loses_nothing(campaign: Campaign, seed: int) -> None:
    """Who comes after a killed process and is killed as well leaves nothing worse behind."""
    choose = random.Random(seed)
    (whole,) = campaign.split(STAGES)
    campaign.run([_two_deaths(choose, whole) for _ in range(12)])
    print(f"{campaign.killed} kills, two in a row, in {len(whole.changes)} changes")
    assert campaign.killed > 12


@pytest.mark.long
@pytest.mark.timeout(3000)
def test_a_kill_at_every_write_loses_nothing(campaign: Campaign, scheme: str, seed: int) -> None:
    """At every single one, stage by stage; and in the middle of every second write."""
    choose = random.Random(seed)
    parts = campaign.split(*range(1, STAGES + 1))
    deaths = {
        part: share(scheme, [*_every_death(part), *_half_deaths(part)[choose.randrange(2) :: 2]])
        for part in parts
    }
    campaign.run([(part, [death]) for part in parts for death in deaths[part]])
    print(f"{campaign.killed} kills at {sum(len(part.changes) for part in parts)} changes")
    assert campaign.killed > 0.9 * sum(map(len, deaths.values()))


@pytest.mark.long
@pytest.mark.timeout(3000)
def test_many_kills_during_recoveries_lose_nothing(campaign: Campaign, scheme: str, seed: int) -> None:
    """Two in a row, many times, in every stage."""
    choose = random.Random(seed)
    parts = campaign.split(*range(1, STAGES + 1))
    trials = share(scheme, [_two_deaths(choose, part) for part in parts for _ in range(15)])
    campaign.run(trials)
    print(f"{campaign.killed} kills, two in a row")
    assert campaign.killed > len(trials)
