"""A holder that sleeps through its lease in the middle of an effect, and the one that takes its place.

What is promised: from the moment its lease is taken the sleeper writes nothing and begins no effect. What can
still happen: at most the one effect whose body it was in when it fell asleep may land late. A service that
refuses an older fence, or a verify hook that makes the key void, rules that out, too; a hook that only looks
rules out whatever takes no longer than the tool's `timeout_s`.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.stores import POSTGRES

from ..crash.fork_server import Warm
from .boundaries import Point
from .effect_log import Deed, World
from .fenced_processes import hold, read, succeed
from .matrix_tools import TOOLS

BEFORE_BODY = Point("flushed", 2)
"""The first barrier was the reply's; the second one is the intent's."""


class Case(NamedTuple):
    """What became of one zombie."""

    scheme: str
    tool: str
    zombie_pid: int
    zombie_said: list[str]
    taker: dict[str, Any]
    """What the taker had found out before the zombie woke up."""
    end: dict[str, Any]
    """… and in the end."""
    late: list[dict[str, Any]]
    """What was written to the journal after the zombie woke up."""
    world: World

    @property
    def landed(self) -> list[Deed]:
        """What happened in the world."""
        return self.world.deeds("landed")

    @property
    def by_zombie(self) -> list[Deed]:
        return [deed for deed in self.landed if deed.pid == self.zombie_pid]


class Graveyard:
    """Zombies on every driver."""

    def __init__(self, warm: Warm, folder: Path) -> None:
        self._warm, self._folder = warm, folder

    def raise_all(
        self, *tools: str, stop: Callable[[str], Point], heartbeat_first: bool = False
    ) -> list[Case]:
        """One zombie per tool and driver, side by side: they mostly wait."""
        schemes = ("dir", "sqlite", *(["postgresql"] if POSTGRES in os.environ else []))
        kinds = [(scheme, tool) for scheme in schemes for tool in tools]
        with ThreadPoolExecutor(len(kinds)) as lanes:
            cases = [
                lanes.submit(self._raise, scheme, tool, stop(tool), heartbeat_first) for scheme, tool in kinds
            ]
            return [case.result() for case in cases]

    def _raise(self, scheme: str, tool: str, stop: Point, heartbeat_first: bool) -> Case:
        folder = self._folder / f"{scheme}, {stop.label}, {tool}"
        folder.mkdir()
        where = str(folder), scheme
        with self._warm.child(hold, *where, tool, stop, heartbeat_first) as zombie:
            zombie.wait_stopped()
            with self._warm.child(succeed, *where, tool) as taker:
                found = taker.hear()
                before = self._warm.call(read, *where)
                zombie.kill(signal.SIGCONT)
                said = zombie.result()
                pid = zombie.pid
                # Who was in the body knows how it ended, and has said so before it was gone.
                taker.say(stop != BEFORE_BODY)
                end = taker.result()
            late = self._warm.call(read, *where)[len(before) :]
        case = Case(scheme, tool, pid, said, found, end, late, World(folder / "world"))
        self._expect_silence(case, before)
        return case

    def _expect_silence(self, case: Case, before: list[dict[str, Any]]) -> None:
        """Holds for every zombie: it is told so whatever it tries, writes nothing and begins no more."""
        assert case.zombie_said == ["Fenced"] * 3, case
        own = {line["run"] for line in before if line["seq"] < case.taker["fence"]} - {None}
        assert not [line for line in case.late if line["run"] in own], case
        taken = [line for line in [*before, *case.late] if line["kind"] == "lease.taken"]
        assert len(taken) == 2, case
        assert not case.end["problems"], case
        assert {deed.tool for deed in case.by_zombie} <= {case.tool}, case
        assert len(case.by_zombie) <= 1, case


@pytest.fixture
def graveyard(warm: Warm, quick_path: Path) -> Graveyard:
    return Graveyard(warm, quick_path)


@pytest.mark.parametrize("heartbeat_first", [False, True])
def test_a_zombie_that_had_not_entered_the_body_does_not_enter_it(
    graveyard: Graveyard, heartbeat_first: bool
) -> None:
    """Stopped between the durable intent and the body: its lease is checked before the body, also if its
    heartbeat was renewed before that. The effect happens once where the tool can find out, and otherwise not
    at all, which is reported."""
    tools = ("guarded", "careless", "voiding", "send")
    for case in graveyard.raise_all(*tools, stop=lambda tool: BEFORE_BODY, heartbeat_first=heartbeat_first):
        assert not case.by_zombie, case
        if case.tool == "send":
            assert not case.landed, case
            assert not case.end["done"], case
            assert len(case.end["doubts"]) == 1, case
        else:
            assert len(case.landed) == 1, case
            assert case.end["done"], case


def test_not_landed_is_believed_only_when_the_old_body_is_over(graveyard: Graveyard) -> None:
    """Nobody can know whether a stopped process is dead. So the taker waits for the tool's `timeout_s` before
    it believes that nothing happened, unless the hook made the key void."""
    for case in graveyard.raise_all("guarded", "careless", "voiding", stop=_before):
        limit_s = TOOLS[case.tool].timeout_s
        assert limit_s is not None
        waited = case.taker["settled_s"] >= limit_s
        assert waited == (case.tool != "voiding"), case
        assert case.taker["done"], case


def test_a_late_effect_is_refused_by_a_service_that_knows_fences_or_void_keys(graveyard: Graveyard) -> None:
    """Stopped inside the body, before the world: the taker does it, the zombie's own comes too late."""
    for case in graveyard.raise_all("guarded", "voiding", stop=_before):
        assert len(case.landed) == 1, case
        assert not case.by_zombie, case
        assert [deed.pid for deed in case.world.deeds("refused")] == [case.zombie_pid], case


def test_a_late_effect_can_land_where_nobody_refuses_it(graveyard: Graveyard) -> None:
    """This is what can still happen: a body that was stopped for longer than its `timeout_s` goes on and
    lands a second time, with the same key, in a service that looks at neither fence nor key. Nothing else."""
    for case in graveyard.raise_all("careless", stop=_before):
        assert [deed.pid == case.zombie_pid for deed in case.landed] == [False, True], case
        assert len({deed.key for deed in case.landed}) == 1, case


def test_an_effect_that_had_landed_happens_once(graveyard: Graveyard) -> None:
    """Stopped after the world and before the outcome: the taker finds it at once, and the zombie's own word
    comes too late to change anything."""
    for case in graveyard.raise_all("guarded", "careless", "voiding", stop=_after):
        assert case.landed == case.by_zombie, case
        assert len(case.landed) == 1, case
        assert case.taker["done"], case


def test_a_holder_that_is_out_tells_what_it_still_learns(graveyard: Graveyard) -> None:
    """Without a verify hook the taker leaves the call in doubt and does not run it. The zombie, once awake,
    posts how it ended, and whoever holds the session takes it in."""
    for stop in (_before, _after):
        for case in graveyard.raise_all("send", stop=stop):
            assert not case.taker["done"], case
            assert case.landed == case.by_zombie, case
            assert len(case.landed) == 1, case
            assert case.end["done"], case
            assert not case.end["doubts"], case
            assert "tool.settled" in {line["kind"] for line in case.late}, case


def _before(tool: str) -> Point:
    return Point(f"{tool}: before", 1)


def _after(tool: str) -> Point:
    return Point(f"{tool}: after", 1)
