"""What is done to a subject, and what came of it."""

from __future__ import annotations

import itertools
import signal
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.crash.fork_server import Child, Failure, Warm
from tests.crash.power_cut import pull_the_plug

from .stage import ASKED, EFFECTS, SCRIPT, TOOLS, play, read_world
from .subjects import Subject

LIMIT_S: Final = 45.0
"""For one process. Most take a second; the longest wait is for a lease of two seconds."""
_TAKE_OVER_S: Final = 30.0
_PATIENCE_S: Final = 5.0
"""For a second process that waits for the first: after that, the first goes on."""
_CUT_AFTER_S: Final = 1.0
_AT_WORK: Final = "before charge"
"""Where a second process meets the first: it is in an effect, which has not landed yet."""
_ASLEEP: Final = "reply 1"
"""Where the first falls asleep: nothing is under way in the world, and the model is asked what to do next."""


class Cell(NamedTuple):
    """What came of a scenario, in a few words; `right`: nothing happened twice, and nothing was lost."""

    text: str
    right: bool


class Trial:
    """A subject, its warm parent, and a fresh place for each scenario."""

    def __init__(self, subject: Subject, folder: Path, server: str) -> None:
        self.subject, self.folder, self._server = subject, folder, server
        folder.mkdir(mode=0o755)
        self._warm = Warm(folder, imports=[subject.place])
        self._numbers = itertools.count()

    def close(self) -> None:
        """End what is still running."""
        self._warm.close()

    def begin(self) -> Place:
        """A place in which nothing has happened."""
        number = next(self._numbers)
        folder = self.folder / f"{number}"
        folder.mkdir()
        database = ""
        if self.subject.on_server:
            from .server import make_database

            database = make_database(self._server, f"{self.subject.key}-{number}")
        return Place(self._warm, self.subject, folder, database)


class Place:
    """Where one scenario is played."""

    def __init__(self, warm: Warm, subject: Subject, folder: Path, database: str) -> None:
        self._warm, self._subject, self.folder, self._database = warm, subject, folder, database

    @contextmanager
    def someone(self, **orders: Any) -> Iterator[Child]:
        """A process that begins, or goes on."""
        orders = {"variant": self._subject.variant, "database": self._database, **orders}
        with self._warm.child(play, self._subject.place, str(self.folder), **orders) as child:
            yield child

    def world(self) -> Counter[str]:
        """What has happened."""
        return read_world(self.folder)


def kill(trial: Trial, point: str) -> Cell:
    """Killed at a point, resumed in another process."""
    place = trial.begin()
    with place.someone(dies=point) as child:
        assert child.outcome(LIMIT_S) is None, f"{trial.subject.name} was not killed at {point!r}"
    with place.someone() as child:
        outcome = child.outcome(LIMIT_S)
    # A reply that was cut off before anybody could record it has to be asked for again.
    return judge(place.world(), outcome, unavoidable=point.startswith("reply"))


def meet(trial: Trial) -> Cell:
    """A second process resumes what a first one is still doing."""
    place = trial.begin()
    with place.someone(waits=_AT_WORK) as first:
        first.hear(LIMIT_S)
        with place.someone() as second:
            second.has_ended(_PATIENCE_S)
            first.say("go on")
            return _judge_both(place.world, first, second, "first", "second")


def sleep(trial: Trial) -> Cell:
    """The first one is stopped, a second takes over and finishes, and the first wakes up."""
    place = trial.begin()
    with place.someone(waits=_ASLEEP) as zombie:
        zombie.hear(LIMIT_S)
        zombie.kill(signal.SIGSTOP)
        zombie.wait_stopped()
        with place.someone(wait_s=_TAKE_OVER_S) as taker:
            assert taker.has_ended(LIMIT_S), f"{trial.subject.name} did not take over within {LIMIT_S} s"
            zombie.say("go on")
            zombie.kill(signal.SIGCONT)
            return _judge_both(place.world, zombie, taker, "zombie", "taker")


def cut(trial: Trial, *, cuts: int) -> Cell:
    """The power fails while it takes steps; raises `Unavailable` where that cannot be done."""
    if trial.subject.variant:  # Of the row above: another way to resume from the same records.
        return Cell("as above", right=True)
    place = trial.begin().folder
    place.chmod(0o755)
    worker = "bench.killed.power"
    found = pull_the_plug(worker, [trial.subject.key], place, trials=cuts, seconds=_CUT_AFTER_S)
    acknowledged = sum(one["acknowledged"] + 1 for one in found)
    if any(one["lost"] is None for one in found):
        return Cell(f"unreadable, {acknowledged} steps", right=False)
    lost = sum(one["lost"] for one in found)
    return Cell(f"{lost} of {acknowledged} steps lost" if lost else f"none of {acknowledged} lost", lost == 0)


SCENARIOS: Final[dict[str, Callable[[Trial], Cell]]] = {
    "killed in the effect, before it lands": lambda trial: kill(trial, "before charge"),
    "after the effect, before its record": lambda trial: kill(trial, "after charge"),
    "in a batch, one done, one under way": lambda trial: kill(trial, "before ship"),
    "before a reply is recorded": lambda trial: kill(trial, "reply 1"),
    "after a reply is recorded": lambda trial: kill(trial, "before look"),
    "two processes at once": meet,
    "zombie wakes up": sleep,
}
POWER_CUT: Final = "power cut"


def judge(world: Counter[str], outcome: Any, *, unavoidable: bool) -> Cell:
    """After a kill and a resume."""
    wrong = _wrong_effects(world)
    if outcome == ASKED:
        return Cell("; ".join([ASKED, *(one for one in wrong if not one.endswith("never"))]), right=True)
    if isinstance(outcome, Failure):
        wrong.append(f"stuck: {outcome.kind}")
    elif lost := _lost_results(world):
        wrong.append(f"result of {', '.join(lost)} lost")
    replies = sum(world[f"reply {turn}"] for turn in range(len(SCRIPT)))
    again = sum(max(0, world[f"reply {turn}"] - 1) for turn in range(len(SCRIPT))) - unavoidable
    if again > 0 and replies:
        wrong.append(f"{again} {'reply' if again == 1 else 'replies'} lost")
    return Cell("; ".join(wrong) or "once", right=not wrong)


def _judge_both(world: Callable[[], Counter[str]], first: Child, second: Child, one: str, other: str) -> Cell:
    """After two of them had the same session."""
    outcomes = {who: child.outcome(LIMIT_S) for who, child in ((one, first), (other, second))}
    refused = [f"{who} refused: {what.kind}" for who, what in outcomes.items() if isinstance(what, Failure)]
    wrong = _wrong_effects(world())
    return Cell("; ".join([*(refused or ["both ended"]), *(wrong or ["once"])]), right=not wrong)


def _wrong_effects(world: Counter[str]) -> list[str]:
    """Those that did not happen exactly once, grouped by how often they did."""
    times: dict[int, list[str]] = defaultdict(list)
    for effect in EFFECTS:
        if world[effect] != 1:
            times[world[effect]].append(effect)
    words = {0: "never", 2: "twice"}
    return [f"{', '.join(found)} {words.get(count, f'{count} times')}" for count, found in times.items()]


def _lost_results(world: Counter[str]) -> list[str]:
    """The tools that ran, and of whose result the model was not told in the end."""
    seen = {tool for line in world if line.startswith("saw ") for tool in line.split()[1:]}
    return [tool for tool in TOOLS if tool not in seen and (world[tool] or tool not in EFFECTS)]
