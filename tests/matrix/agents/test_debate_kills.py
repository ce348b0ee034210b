"""A moderated debate with a step back, killed at every boundary: it ends like an undisturbed one, and its log
says what happened."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from ...crash.fork_server import Warm
from ..kill_campaign import Campaign
from .debate import DEBATE, live


@pytest.fixture
def campaign(warm: Warm, scheme: str, quick_path: Path) -> Campaign:
    return Campaign(warm, scheme, quick_path, live)


def test_a_debate_that_is_killed_ends_like_an_undisturbed_one(campaign: Campaign, seed: int) -> None:
    """At some boundaries, others each time; the step back itself among them."""
    deaths = campaign.rehearse(DEBATE, all=True)
    back = [death for death in deaths if "session.rewound" in death.point.label]
    assert back
    campaign.run([*back, *random.Random(seed).sample(deaths, 8)], again=lambda death, recovery: [])
    campaign.expect_none()


@pytest.mark.long
@pytest.mark.timeout(3000)
def test_a_debate_killed_at_every_boundary_ends_like_an_undisturbed_one(campaign: Campaign) -> None:
    """At every single one."""
    campaign.run(campaign.rehearse(DEBATE), again=lambda death, recovery: [])
    campaign.expect_none()
    assert campaign.kills > 0.9 * campaign.boundaries
