"""A real graph is killed at every kind of moment, and goes on in a new process."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from ..crash.fork_server import Warm
from .killed_graphs import ASKED_AGAIN, KILLS, play

EFFECTS = ("pay a", "post a", "refund a")
REPLIES = ("model 0", "model 1", "model 2")


@pytest.mark.parametrize("kill", KILLS)
def test_a_graph_that_is_killed_ends_as_if_nothing_had_happened(
    warm: Warm, quick_path: Path, scheme: str, kill: str
) -> None:
    """Every effect once, every reply that was recorded asked for once, and the same said in the end."""
    calm, trial = quick_path / "calm", quick_path / "trial"
    calm.mkdir()
    trial.mkdir()
    expected = warm.call(play, str(calm), scheme)
    assert Counter(expected["world"]) == Counter([*EFFECTS, *REPLIES])
    with warm.child(play, str(trial), scheme, kill) as child:
        assert child.outcome() is None, "it was not killed"
    found = warm.call(play, str(trial), scheme)
    assert found["said"] == expected["said"]
    happened = Counter(found["world"])
    assert {one: happened[one] for one in EFFECTS} == dict.fromkeys(EFFECTS, 1)
    asked = {one: happened[one] for one in REPLIES}
    assert asked == {**dict.fromkeys(REPLIES, 1), **({"model 1": 2} if kill == ASKED_AGAIN else {})}


@pytest.mark.parametrize("kill", ["in a tool, after its effect", "in a batch, one done and one under way"])
def test_tools_that_are_declared_by_globs_act_once_as_well(
    warm: Warm, quick_path: Path, scheme: str, kill: str
) -> None:
    """`durable_tools(tools, effects={"pa*": …})`: the hooks of the globs are asked."""
    trial = quick_path / "trial"
    trial.mkdir()
    with warm.child(play, str(trial), scheme, kill, globs=True) as child:
        assert child.outcome() is None, "it was not killed"
    happened = Counter(warm.call(play, str(trial), scheme, globs=True)["world"])
    assert happened == Counter([*EFFECTS, *REPLIES])


def test_killed_again_and_again_it_still_ends(warm: Warm, quick_path: Path, scheme: str) -> None:
    """Each process gets as far as the next kind of kill, in any order."""
    trial = quick_path / "trial"
    trial.mkdir()
    for kill in (*KILLS, *reversed(KILLS)):
        with warm.child(play, str(trial), scheme, kill) as child:
            child.outcome()
    happened = Counter(warm.call(play, str(trial), scheme)["world"])
    assert {one: happened[one] for one in EFFECTS} == dict.fromkeys(EFFECTS, 1)
