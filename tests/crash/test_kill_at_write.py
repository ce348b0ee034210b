"""A process that dies at its n-th write or sync, for every n, loses nothing that it acknowledged.

The workload uses every operation. A child is killed before its n-th change on the disk, or after half of it;
others look at what it left, go on to the end of the work, and look again.
"""

import os
import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest

from . import faults
from .acks import Acks, read_acks
from .check import find_damage, find_leftovers, find_problems
from .warm import Line, Warm
from .workload import Life, open_driver


class Death(NamedTuple):
    """At which change on the disk a child dies, counted from 1, and how much of it is done."""

    number: int
    when: faults.When


# -- in children --------------------------------------------------------------------------------------


def live(line: Line, url: str, acks: str, number: int = 0, when: faults.When = "before") -> int:
    """Work to the end, or until the death that was chosen; the number of changes."""
    disk = faults.install()
    if number:
        disk.kill_at(number, when)
    Life(url, Acks(Path(acks))).run()
    return len(disk.events)


def look_and_finish(line: Line, url: str, acks: str) -> list[str]:
    """What is wrong before anybody goes on, and after the work was finished."""
    problems = [f"at first: {why}" for why in _look(url, acks)]
    Life(url, Acks(Path(acks))).run()
    problems += [f"in the end: {why}" for why in _look(url, acks)]
    driver = open_driver(url)
    problems += find_leftovers(driver, url)
    driver.close()
    return problems + find_damage(url)


def _look(url: str, acks: str) -> list[str]:
    driver = open_driver(url)
    try:
        return find_problems(driver, read_acks(Path(acks)))
    finally:
        driver.close()


# -- campaigns ----------------------------------------------------------------------------------------


def _count(warm: Warm, scheme: str, folder: Path) -> int:
    folder.mkdir()
    return int(warm.call(live, f"{scheme}:{folder}/store", str(folder / "acks")))


def _try(warm: Warm, scheme: str, folder: Path, deaths: Sequence[Death]) -> int:
    """Die each of these deaths in turn; how many really happened. Fails if anything is wrong afterwards."""
    folder.mkdir()
    url, acks = f"{scheme}:{folder}/store", str(folder / "acks")
    died = 0
    for death in deaths:
        with warm.child(live, url, acks, *death) as child:
            outcome = child.outcome()
            assert outcome is None or isinstance(outcome, int), f"{deaths}: {outcome!r}"
            died += outcome is None
    with warm.child(look_and_finish, url, acks) as child:
        problems = child.outcome()
        assert not problems, f"after {deaths}: {problems!r}"
        assert isinstance(problems, list), "the child was killed by somebody else"
    # Not removed after a failure: somebody will want to look.
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    folder.rmdir()
    return died


def _try_all(warm: Warm, scheme: str, folder: Path, trials: Sequence[Sequence[Death]]) -> int:
    with ThreadPoolExecutor(os.cpu_count()) as lanes:
        tried = [
            lanes.submit(_try, warm, scheme, folder / str(number), deaths)
            for number, deaths in enumerate(trials)
        ]
        try:
            return sum(one.result() for one in tried)
        finally:
            lanes.shutdown(cancel_futures=True)


def _once(numbers: Sequence[int]) -> list[list[Death]]:
    return [[Death(number, when)] for number in numbers for when in ("before", "half")]


def _twice(choose: random.Random, count: int, trials: int) -> list[list[Death]]:
    """The second death comes early: while somebody finds out what the first one left."""
    whens: Sequence[faults.When] = ("before", "half")
    return [
        [
            Death(choose.randint(1, count), choose.choice(whens)),
            Death(choose.randint(1, 60), choose.choice(whens)),
        ]
        for _ in range(trials)
    ]


def test_a_kill_at_a_write_loses_nothing(warm: Warm, scheme: str, quick_path: Path, seed: int) -> None:
    """Some of the writes, others each time: what was acknowledged is there, whole, and work goes on."""
    count = _count(warm, scheme, quick_path / "count")
    stride = count // 25
    numbers = range(random.Random(seed).randint(1, stride), count + 1, stride)
    killed = _try_all(warm, scheme, quick_path, _once(numbers))
    print(f"{killed} kills at {len(numbers)} of {count} writes")
    assert killed > len(numbers)


def test_a_kill_during_the_recovery_loses_nothing(
    warm: Warm, scheme: str, quick_path: Path, seed: int
) -> None:
    """Who comes after a killed process and is killed as well leaves nothing worse behind."""
    count = _count(warm, scheme, quick_path / "count")
    killed = _try_all(warm, scheme, quick_path, _twice(random.Random(seed), count, 15))
    print(f"{killed} kills, two in a row, within {count} writes")
    assert killed > 15


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_kill_at_every_write_loses_nothing(warm: Warm, scheme: str, quick_path: Path) -> None:
    """The same, at every single one."""
    count = _count(warm, scheme, quick_path / "count")
    killed = _try_all(warm, scheme, quick_path, _once(range(1, count + 1)))
    print(f"{killed} kills at {count} writes")
    assert killed > count


@pytest.mark.long
@pytest.mark.timeout(600)
def test_many_kills_during_recoveries_lose_nothing(
    warm: Warm, scheme: str, quick_path: Path, seed: int
) -> None:
    """The same, more often."""
    count = _count(warm, scheme, quick_path / "count")
    killed = _try_all(warm, scheme, quick_path, _twice(random.Random(seed), count, 150))
    print(f"{killed} kills, two in a row, within {count} writes")
    assert killed > 150
