"""A person says what became of a call in doubt, while somebody else holds the session, or is about to die."""

from __future__ import annotations

import os
import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.stores import share

from ..crash.fork_server import Warm, poll
from .answering_person import answer
from .boundaries import Point
from .effect_log import World
from .verdict_processes import count, say, step

VERDICTS = {"shaky_send": "landed", "lost_send": "not_landed"}
"""A tool that fails after it was done, one that fails before, and what a person who looks will say."""


class Stage:
    """A holder that waits at a gate in the middle of its step, and a person."""

    def __init__(self, warm: Warm, scheme: str, folder: Path) -> None:
        self._warm, self._folder, self._where = warm, folder, (str(folder), scheme)
        self.world = World(folder / "world")

    def hold(self, *tools: str, target: Point | None = None) -> Any:
        """A holder, for the length of the block."""
        return self._warm.child(step, *self._where, tools, target)

    def say(self, verdict: str, result: str | None = None) -> str:
        """The person's word; what was made of it."""
        return str(self._warm.call(say, *self._where, verdict, result))

    def open(self, gate: str) -> None:
        """Let whoever waits at this gate pass."""
        (self._folder / gate).touch()

    def go_on(self, *tools: str) -> dict[str, Any]:
        """Another one takes the session and goes on with the step."""
        end = self._warm.call(step, *self._where, tools, None)
        assert isinstance(end, dict)
        return end

    def answer(self) -> None:
        """The person looks at the world, and says what became of everything."""
        self._warm.call(answer, *self._where, "")

    def counts(self) -> dict[str, int]:
        """What the journal says about verdicts."""
        return dict(self._warm.call(count, *self._where))

    def landed(self, tool: str) -> int:
        """How often it happened in the world."""
        return sum(deed.tool == tool for deed in self.world.deeds("landed"))


@pytest.fixture
def stage(warm: Warm, scheme: str, quick_path: Path) -> Stage:
    return Stage(warm, scheme, quick_path)


def expect_once(stage: Stage, tool: str, end: dict[str, Any]) -> None:
    """The step is finished, the effect happened once, and the verdict was taken in once."""
    assert end["done"], end
    assert not end["problems"], end
    assert not any(result["is_error"] for result in end["results"]), end
    assert stage.landed(tool) == 1, stage.world.deeds()
    assert stage.counts() == {"taken": 1, "late": 0, "by a person": 1, "by verify": 0}


@pytest.mark.parametrize("tool", VERDICTS)
def test_a_holder_in_the_middle_of_a_step_takes_a_verdict_in(stage: Stage, tool: str) -> None:
    """The person's process only posts it: the holder takes it in with its next barrier, and goes on as it
    says. What landed is not done again; what did not is."""
    with stage.hold(tool, "gate") as holder:
        assert holder.hear() == "gate"
        assert stage.say(VERDICTS[tool], _result(tool)) == "posted"
        stage.open("gate")
        end = holder.result()
    expect_once(stage, tool, end)


def test_a_holder_is_told_that_a_call_is_given_up(stage: Stage) -> None:
    """It is not run again, and the model is told so: the step can be finished all the same."""
    with stage.hold("lost_send", "gate") as holder:
        assert holder.hear() == "gate"
        assert stage.say("gave_up") == "posted"
        stage.open("gate")
        end = holder.result()
    assert end["done"], end
    assert [result["is_error"] for result in end["results"]] == [True, False], end
    assert "given up by ann" in end["results"][0]["text"], end
    assert stage.landed("lost_send") == 0


@pytest.mark.parametrize("tool", VERDICTS)
def test_a_verdict_outlives_the_holder_that_was_to_take_it_in(stage: Stage, tool: str) -> None:
    """Posted while the holder was at work, and killed before it could: the next one takes it in."""
    with stage.hold(tool, "gate") as holder:
        assert holder.hear() == "gate"
        assert stage.say(VERDICTS[tool], _result(tool)) == "posted"
        holder.kill()
        holder.wait()
    stage.open("gate")
    assert not stage.go_on(tool, "gate")["done"], "the gate was killed, too: nobody knows about it"
    assert stage.landed(tool) == 1
    stage.answer()
    end = stage.go_on(tool, "gate")
    assert end["done"], end
    assert stage.landed(tool) == stage.landed("gate") == 1


@pytest.mark.parametrize("tool", VERDICTS)
def test_a_verdict_about_a_dead_holders_call_counts_at_once(stage: Stage, tool: str) -> None:
    """Nobody holds the session: it is settled when `resolve` returns, and the next one goes on."""
    assert not stage.go_on(tool, "charge")["done"]
    assert stage.say(VERDICTS[tool], _result(tool)) == "settled"
    expect_once(stage, tool, stage.go_on(tool, "charge"))


def test_a_second_verdict_is_too_late(stage: Stage) -> None:
    """The first one counts. Another, even to the contrary, is recorded and changes nothing."""
    with stage.hold("shaky_send", "gate") as holder:
        assert holder.hear() == "gate"
        assert stage.say("landed", "shaky_send 1") == "posted"
        assert stage.say("not_landed") == "posted"
        stage.open("gate")
        end = holder.result()
    assert end["done"], end
    assert stage.landed("shaky_send") == 1
    assert stage.say("not_landed") == "late"
    assert stage.counts() == {"taken": 1, "late": 2, "by a person": 1, "by verify": 0}
    assert stage.go_on("shaky_send", "gate")["done"]
    assert stage.landed("shaky_send") == 1


def test_a_person_is_believed_who_speaks_while_verify_is_asked(stage: Stage) -> None:
    """The hook looked before, and answers after: "not landed". By then the person's "landed" was taken in,
    with the barrier of another call. It is not done again."""
    with stage.hold("doubted", "gate") as holder:
        assert {holder.hear(), holder.hear()} == {"verify", "gate"}
        assert stage.say("landed", "doubted 1") == "posted"
        stage.open("gate")
        poll(lambda: stage.counts()["by a person"] == 1, "the verdict to be taken in")
        stage.open("verify")
        end = holder.result()
    assert end["done"], end
    assert stage.landed("doubted") == 1
    assert stage.counts()["by a person"] == 1


# -- the holder dies after the verdict was posted -----------------------------------------------------


class Deaths:
    """Holders that die at each boundary after the verdict was posted."""

    def __init__(self, warm: Warm, scheme: str, folder: Path) -> None:
        self._warm, self._scheme, self._folder = warm, scheme, folder

    def rehearse(self, tool: str) -> list[Point]:
        """The boundaries after the gate was opened."""
        stage = self._stage(f"{tool} in rehearsal")
        with stage.hold(tool, "gate") as holder:
            assert holder.hear() == "gate"
            stage.say(VERDICTS[tool], _result(tool))
            stage.open("gate")
            points = [Point(*point) for point in holder.result()["points"]]
        return points[points.index(Point("gate: open", 1)) :]

    def run(self, tool: str, points: list[Point]) -> None:
        """Die at each of them."""
        with ThreadPoolExecutor(os.cpu_count()) as lanes:
            for trial in [lanes.submit(self._try, tool, point) for point in points]:
                trial.result()

    def _stage(self, name: str) -> Stage:
        folder = self._folder / name
        folder.mkdir()
        return Stage(self._warm, self._scheme, folder)

    def _try(self, tool: str, point: Point) -> None:
        stage = self._stage(f"{tool}, {point.label} {point.number}")
        with stage.hold(tool, "gate", target=point) as holder:
            assert holder.hear() == "gate"
            assert stage.say(VERDICTS[tool], _result(tool)) == "posted"
            stage.open("gate")
            assert holder.outcome() is None, f"it was not killed at {point}"
        end = stage.go_on(tool, "gate")
        if not end["done"]:
            # It was killed inside the gate or inside the call, and neither can tell.
            stage.answer()
            end = stage.go_on(tool, "gate")
        assert end["done"], f"{tool}, {point}: {end}"
        assert not end["problems"], f"{tool}, {point}: {end}"
        assert stage.landed(tool) == stage.landed("gate") == 1, f"{tool}, {point}: {stage.world.deeds()}"
        assert stage.counts()["late"] == 0, f"{tool}, {point}: {stage.counts()}"


@pytest.fixture
def deaths(warm: Warm, scheme: str, quick_path: Path) -> Deaths:
    return Deaths(warm, scheme, quick_path)


@pytest.mark.parametrize("tool", VERDICTS)
def test_a_verdict_is_taken_in_once_wherever_the_holder_dies(deaths: Deaths, tool: str, seed: int) -> None:
    """At some boundaries from the posting on: before it is taken in, while it is, and while the step is
    finished. Whoever comes next finds it in the inbox or in the journal, and never twice."""
    points = deaths.rehearse(tool)
    deaths.run(tool, random.Random(seed).sample(points, 5))


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("tool", VERDICTS)
def test_a_verdict_is_taken_in_once_wherever_any_holder_dies(deaths: Deaths, tool: str, scheme: str) -> None:
    """At every boundary from the posting on."""
    points = list(share(scheme, deaths.rehearse(tool)))
    deaths.run(tool, points)
    print(f"{scheme}, {tool}: {len(points)} deaths after a verdict")


def _result(tool: str) -> str | None:
    return f"{tool} 1" if VERDICTS[tool] == "landed" else None
