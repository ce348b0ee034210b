"""Two processes that make one run at the same time: no effect happens twice, and one of them is told."""

from __future__ import annotations

import signal
from contextlib import ExitStack
from pathlib import Path

import pytest

from ..crash.fork_server import Warm
from ..matrix.effect_log import World
from .racing_runs import make_run, race, sleep_through_lease, take_over

on_databases = pytest.mark.parametrize("scheme", ["sqlite", "postgresql"], indirect=True)
ROUNDS = 10


def landed(folder: Path) -> list[str]:
    """What happened in the world."""
    return sorted(f"{deed.tool} {deed.arg}" for deed in World(folder / "world").deeds("landed"))


@on_databases
@pytest.mark.parametrize("streamed", [False, True], ids=["at once", "streamed"])
def test_a_run_that_another_process_is_making_is_refused(
    warm: Warm, quick_path: Path, scheme: str, streamed: bool
) -> None:
    """While the first one is in an effect, the second is told which session is held. The first goes on."""
    place = quick_path / "place"
    place.mkdir()
    with warm.child(make_run, str(place), scheme, "charge", "gate", streamed=streamed) as first:
        assert first.hear() == "gate"
        second = warm.call(make_run, str(place), scheme, "charge", "gate", streamed=streamed)
        assert second["refused"] == "LeaseHeld"
        assert "order-7" in second["why"]
        (place / "gate").touch()
        assert first.result()["output"] == "All is done."
    assert landed(place) == ["charge 1", "gate 1"]


@on_databases
def test_with_a_key_the_one_that_comes_later_is_given_the_outcome(
    warm: Warm, quick_path: Path, scheme: str
) -> None:
    """Without asking a model, and without a tool."""
    place = quick_path / "place"
    place.mkdir()
    given = str(place), scheme, "charge", "bill"
    first = warm.call(make_run, *given, run_key="k")
    asked = (place / "asked").read_text()
    second = warm.call(make_run, *given, run_key="k")
    assert second == first
    assert (place / "asked").read_text() == asked
    assert landed(place) == ["bill 1", "charge 1"]


@on_databases
@pytest.mark.parametrize(
    "asleep", [("clerk 1: after it was asked", 1), ("charge: after", 1)], ids=["in a request", "in an effect"]
)
def test_a_process_that_slept_through_its_lease_is_told(
    warm: Warm, quick_path: Path, scheme: str, asleep: tuple[str, int]
) -> None:
    """Another one has made the run to its end meanwhile. What the first was about to do, it does not."""
    place = quick_path / "place"
    place.mkdir()
    with warm.child(sleep_through_lease, str(place), scheme, asleep) as zombie:
        zombie.wait_stopped()
        taken = warm.call(take_over, str(place), scheme)
        assert taken["output"] == "All is done."
        zombie.kill(signal.SIGCONT)
        told = zombie.result()
    assert told["refused"] == "Fenced"
    assert landed(place) == ["bill 1", "charge 1"]


@on_databases
def test_processes_that_begin_at_once_do_everything_once(warm: Warm, quick_path: Path, scheme: str) -> None:
    """One makes the run. Another one is refused, or is given its outcome."""
    place = quick_path / "place"
    place.mkdir()
    with ExitStack() as stack:
        racers = [stack.enter_context(warm.child(race, str(place), scheme)) for _ in range(2)]
        for one in racers:
            assert one.hear() == "ready"
        for number in range(ROUNDS):
            for one in racers:
                one.say(f"run-{number}")
            found = [one.hear() for one in racers]
            assert {"output": "All is done."} in found
            assert all(one in ({"output": "All is done."}, {"refused": "LeaseHeld"}) for one in found)
    assert landed(place) == sorted(["send 1", "charge 1"] * ROUNDS)
