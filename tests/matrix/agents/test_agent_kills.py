"""A whole agent run, killed at every boundary: ten steps, parallel tools of every kind, delegates side by
side and below each other.

What is asserted, once others have finished it: every effect happened as often as intended; the transcripts of
all sessions, plan, state and output are those of an undisturbed run, ids and times aside; no reply was asked
for that was on record; the budget exceeds that of an undisturbed run by what was reserved for the requests in
flight at the kills, and nothing else is held; no run is left open.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

from ...crash.fork_server import Warm
from ..boundaries import Point
from ..kill_campaign import Campaign, Death
from .agent_processes import DEADLY_DELEGATE, TEN_STEPS, live
from .matrix_agents import DEADLY

PHASES: Final = (
    "before commit", "after commit", "flushed", "model: before it is asked", "model: asked",
    "record tool.issued", "record tool.completed", "record checkpoint.taken",
    "record delegate.started", "record delegate.ended", ": before", ": after",
)  # fmt: skip
"""What is being done, as the labels of boundaries have it."""


@pytest.fixture
def campaign(warm: Warm, scheme: str, quick_path: Path) -> Campaign:
    return Campaign(warm, scheme, quick_path, live)


def _some(seed: int, death: Death, recovery: Sequence[Point], often: float) -> Sequence[Point]:
    choose = random.Random(f"{seed} {death.point}")
    return [choose.choice(recovery)] if recovery and choose.random() < often else []


def test_an_agent_killed_in_any_phase_ends_as_if_nothing_had_happened(campaign: Campaign, seed: int) -> None:
    """At some boundary of every phase, another each time; now and then again in the recovery."""
    choose = random.Random(seed)
    deaths = campaign.rehearse(TEN_STEPS, all=True)
    chosen = [choose.choice([one for one in deaths if phase in one.point.label]) for phase in PHASES]
    campaign.run(chosen, again=lambda death, recovery: _some(seed, death, recovery, 0.4))
    campaign.expect_none()
    assert campaign.kills > 0.5 * len(PHASES)


@pytest.mark.long
@pytest.mark.timeout(3000)
def test_an_agent_killed_at_every_boundary_ends_as_if_nothing_had_happened(
    campaign: Campaign, seed: int
) -> None:
    """At every single one; and once in a while again on the way of the recovery."""
    deaths = campaign.rehearse(TEN_STEPS)
    campaign.run(deaths, again=lambda death, recovery: _some(seed, death, recovery, 0.2))
    campaign.expect_none()
    assert campaign.kills > 0.9 * campaign.boundaries


def test_a_delegate_that_dies_too_often_is_given_up_and_holds_nothing(
    warm: Warm, scheme: str, quick_path: Path
) -> None:
    """Its parent is told, and goes on; what it spent is settled, and its run has an end."""
    for target in (*[Point("model: asked to look out", 1)] * 3, None):
        with warm.child(live, str(quick_path), scheme, DEADLY_DELEGATE, target) as child:
            report = child.outcome()
    assert isinstance(report, dict), report
    assert not report["problems"], report["problems"]
    end = report["end"]
    assert (end[DEADLY]["status"], end["look out"]["status"]) == ("completed", "failed")
    assert "was running each of the 3 times" in str(end[DEADLY]["transcript"])
