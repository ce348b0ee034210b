"""A copy that is killed leaves the beginnings of replicas, and the next one goes on."""

from __future__ import annotations

import random
from pathlib import Path

import anyio
import pytest

from holdfast import open_store
from holdfast.drivers.contract import HeadFilter
from holdfast.session.replica import find_replica
from tests.crash import faults
from tests.crash.fork_server import Line, Warm
from tests.internals import engine_of
from tests.stores import copy_store, on_every_driver, open_driver, remove_store, share

from .random_stores import Contents, contents_of, fill

STEPS = 30


async def copy(source: str, target: str) -> None:
    """All of one store into another, from where an earlier copy has ended."""
    async with open_store(open_driver(source)) as store, open_store(open_driver(target)) as other:
        await store.copy(other)
        assert [head.session async for head in other.sessions() if not head.replica] == []


def copy_or_die(line: Line, source: str, target: str, number: int, when: faults.When) -> list[str]:
    """Copy, or die at a change of the disk; the kinds of the changes."""
    disk = faults.install()
    if number:
        disk.kill_at(number, when)
    anyio.run(copy, source, target)
    return [event.kind for event in disk.events]


async def make(url: str, seed: int) -> Contents:
    """A store to copy from; what is in it."""
    async with open_store(open_driver(url)) as store:
        await fill(store, seed, STEPS)
        return contents_of(store)


async def look(url: str) -> Contents:
    """What is in a store, none of which can be driven."""
    async with open_store(open_driver(url)) as store:
        driver = engine_of(store).driver
        for tip in driver.list_tips(HeadFilter(), None, 10_000):
            assert tip.head is None or find_replica(driver, tip.session, tip.head.uid) is not None
        return contents_of(store)


async def go_on(source: str, target: str) -> Contents:
    """Look at what a copy that died has left, and finish it."""
    await look(target)
    await copy(source, target)
    return await look(target)


def differences(found: Contents, expected: Contents) -> list[str]:
    """Where two stores differ. A keyframe is a cache, and may be lost with a kill."""
    parts = [part for part in found._fields[1:] if getattr(found, part) != getattr(expected, part)]
    for name in found.sessions.keys() | expected.sessions.keys():
        one, other = found.sessions.get(name), expected.sessions.get(name)
        if one is None or other is None:
            parts.append(name)
        else:
            one = one._replace(keyframe=one.keyframe or other.keyframe)
            parts += [f"{name}: {part}" for part, a, b in zip(one._fields, one, other, strict=True) if a != b]
    return parts


class Trials:
    """Copies of one store, each killed once and then finished by another process."""

    def __init__(self, warm: Warm, scheme: str, folder: Path, seed: int) -> None:
        self._warm, self._scheme, self._folder = warm, scheme, folder
        self.source = f"sqlite:{folder}/source"
        self.expected = anyio.run(make, self.source, seed)
        self.killed = 0
        empty = folder / "empty"
        empty.mkdir()
        open_driver(f"{scheme}:{empty}/store").close()
        self.changes = self._copy("counted", 0, "before")
        assert self.changes is not None

    def _copy(self, name: str, number: int, when: faults.When) -> list[str] | None:
        copy_store(self._folder / "empty", self._folder / name)
        target = f"{self._scheme}:{self._folder}/{name}/store"
        with self._warm.child(copy_or_die, self.source, target, number, when) as child:
            outcome = child.outcome()
        assert outcome is None or isinstance(outcome, list), repr(outcome)
        return outcome

    def run(self, number: int, when: faults.When) -> None:
        """Kill a copy at a change of the disk."""
        name = f"trial-{number}-{when}"
        self.killed += self._copy(name, number, when) is None
        target = f"{self._scheme}:{self._folder}/{name}/store"
        found = anyio.run(go_on, self.source, target)
        assert differences(found, self.expected) == [], (number, when)
        remove_store(self._folder / name)


@on_every_driver
def test_a_copy_that_is_killed_at_a_write_is_finished_by_the_next(
    loaded_warm: Warm, scheme: str, quick_path: Path, seed: int
) -> None:
    """At some of its writes, others each time: the result is the same as without a kill."""
    trials = Trials(loaded_warm, scheme, quick_path, seed)
    choose = random.Random(seed)
    assert trials.changes is not None
    for number in sorted(choose.sample(range(1, len(trials.changes) + 1), 8)):
        trials.run(number, choose.choice(["before", "half"]))
    assert trials.killed > 4


@pytest.mark.long
@pytest.mark.timeout(3000)
def test_a_copy_that_is_killed_at_every_write_is_finished_by_the_next(
    loaded_warm: Warm, scheme: str, quick_path: Path, seed: int
) -> None:
    """At each of them."""
    trials = Trials(loaded_warm, scheme, quick_path, seed)
    assert trials.changes is not None
    deaths = share(scheme, range(1, len(trials.changes) + 1))
    for number in deaths:
        trials.run(number, "before" if number % 2 else "half")
    assert trials.killed > 0.8 * len(deaths)
