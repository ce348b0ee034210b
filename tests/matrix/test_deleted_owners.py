"""Operations that happen once ever, whose session is killed in the middle of it and deleted then."""

from __future__ import annotations

import os
import random
import re
import signal
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.stores import share

from ..crash.fork_server import Warm
from .boundaries import Point
from .effect_log import World
from .matrix_tools import IDEMPOTENT
from .racing_processes import count_intents, delete, tell, want, want_and_stop

TOOLS = ("welcome", "greet", "grant", "flaky_global")
DELETING = (
    None,
    Point("before claim", 1),
    Point("after claim", 1),
    Point("before claim", 2),
    Point("after claim", 2),
    Point("before delete", 1),
    Point("after delete", 1),
)
"""Where whoever deletes the session is killed, too."""


class Trial(NamedTuple):
    """What is wanted, where the one who wants it dies, and where the one who deletes its session does."""

    tool: str
    point: Point
    deleting: Point | None


class Deletions:
    """A process is killed on its way, its session deleted, and another session comes to want the same."""

    def __init__(self, warm: Warm, scheme: str, folder: Path) -> None:
        self._warm, self._scheme, self._folder = warm, scheme, folder
        self.outcomes: Counter[str] = Counter()

    def rehearse(self, tool: str) -> list[Point]:
        """The boundaries on the way."""
        where = self._place(f"{tool} in rehearsal")
        points = self._warm.call(want_and_stop, *where, tool, None, int(signal.SIGKILL))
        return [Point(*point) for point in points]

    def run(self, trials: Sequence[Trial]) -> None:
        """All of them, side by side."""
        with ThreadPoolExecutor(os.cpu_count()) as lanes:
            numbered = enumerate(trials)
            for trial in [lanes.submit(self._try, number, trial) for number, trial in numbered]:
                self.outcomes[trial.result()] += 1

    def _place(self, name: str) -> tuple[str, str]:
        folder = self._folder / name
        folder.mkdir()
        return str(folder), self._scheme

    def _try(self, number: int, trial: Trial) -> str:
        where, tool = self._place(str(number)), trial.tool
        world = World(Path(where[0]) / "world")
        with self._warm.child(want_and_stop, *where, tool, trial.point, int(signal.SIGKILL)) as child:
            child.outcome()
        begun = self._warm.call(count_intents, *where, "s")
        if trial.deleting is not None:
            with self._warm.child(delete, *where, "s", trial.deleting) as child:
                child.outcome()
        self._warm.call(delete, *where, "s")
        found = first = self._warm.call(want, *where, tool, "t")
        if first["status"] == "in_doubt":
            assert begun, f"{trial}: blocked, although nothing was begun: {first}"
            self._tell(where, world, first["content"])
            found = self._warm.call(want, *where, tool, "t")
        deeds = world.deeds("landed")
        assert found["status"] == "completed", f"{trial}: {found}"
        assert len({deed.key for deed in deeds}) == 1, f"{trial}: {deeds}"
        assert len(deeds) == 1 or tool in IDEMPOTENT, f"{trial}: {deeds}"
        return str(first["status"])

    def _tell(self, where: tuple[str, str], world: World, content: str) -> None:
        """A person does what the result says: looks for the key, and says what was found."""
        key, *operations = re.findall(r"[0-9a-f]{64}", content)
        (operation,) = set(operations)
        deed = world.find(key)
        assert self._warm.call(tell, *where, operation, deed and deed.result) == "settled"


@pytest.fixture
def deletions(warm: Warm, scheme: str, quick_path: Path) -> Deletions:
    return Deletions(warm, scheme, quick_path)


def _trials(deletions: Deletions, *tools: str) -> list[Trial]:
    return [
        Trial(tool, point, deleting)
        for tool in tools
        for point in deletions.rehearse(tool)
        for deleting in DELETING
    ]


def test_a_deleted_session_blocks_only_what_it_may_have_done(deletions: Deletions, seed: int) -> None:
    """Killed at some boundary and deleted, with one more kill on the way: what was not begun is done by the
    next one, what was done is given again, and for the rest a person is told what to say where."""
    deletions.run(random.Random(seed).sample(_trials(deletions, "welcome", "greet"), 12))


@pytest.mark.long
@pytest.mark.timeout(3000)
def test_a_deleted_session_blocks_only_what_it_may_have_done_wherever_it_was_killed(
    deletions: Deletions, scheme: str
) -> None:
    """At every boundary, for every kind of tool."""
    every = _trials(deletions, *TOOLS)
    trials = share(scheme, every)
    deletions.run(trials)
    print(f"{scheme}: {len(trials)} deletions; the other one was told {dict(deletions.outcomes)}")
    # Among a few that chance has chosen, nobody may be in doubt.
    assert len(trials) < len(every) or {"completed", "in_doubt"} == set(deletions.outcomes)
