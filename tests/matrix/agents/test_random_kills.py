"""One agent run that is killed again and again, wherever it is."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from ...crash.fork_server import Warm
from ..boundaries import ANY, Point
from ..kill_campaign import Campaign
from .agent_processes import NO_LIMIT, live
from .matrix_agents import TASK


def _wear_out(campaign: Campaign, seed: int, *, kills: int, reach: int) -> None:
    """Each process passes at most `reach` boundaries."""
    choose = random.Random(seed)
    left = campaign.wear_out(NO_LIMIT, kills, lambda: Point(ANY, choose.randint(1, reach)))
    print(f"{campaign}; the last one passed {left} boundaries")
    assert not campaign.problems, "\n".join(campaign.problems)
    assert campaign.kills == kills


def test_an_agent_survives_kills_in_a_row(warm: Warm, quick_path: Path, seed: int) -> None:
    """With no limit on crashes, it ends as if nothing had happened."""
    _wear_out(Campaign(warm, "sqlite", quick_path, live), seed, kills=8, reach=120)


@pytest.mark.parametrize("task", ["write 1", "buy 6", TASK])
def test_an_agent_survives_any_number_of_kills_in_one_request(
    warm: Warm, quick_path: Path, task: str
) -> None:
    """Each counts as spent, and none as a step: nobody is told too early that a reply is the last one."""
    campaign = Campaign(warm, "sqlite", quick_path, live)
    campaign.wear_out(NO_LIMIT, 12, lambda: Point(f"model: asked to {task}", 1))
    campaign.expect_none()


@pytest.mark.long
@pytest.mark.timeout(3000)
def test_an_agent_survives_a_hundred_kills_in_a_row(
    warm: Warm, scheme: str, quick_path: Path, seed: int
) -> None:
    """The same."""
    _wear_out(Campaign(warm, scheme, quick_path, live), seed, kills=100, reach=24)
