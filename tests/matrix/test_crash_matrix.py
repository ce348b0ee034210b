"""The crash matrix: every kind of tool, killed at every boundary, on every driver that outlives its process.

What is asserted, from the world's log: a completed effect happened exactly once, a landed one with a verify
hook as well; an idempotent one at least once, with the same key each time; one with neither never twice, and
while nobody knows it is reported as in doubt. In the end the step is finished, and a provider would accept
the transcript.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from ..crash.warm import Warm
from .campaign import Campaign, Death, spread
from .scenarios import SCENARIOS

ALONE = [name for name in SCENARIOS if name.endswith(" alone")]
TOGETHER = [name for name in SCENARIOS if name not in ALONE]
PAIRS_EACH = 6
"""How many boundaries of each recovery a second kill falls on, where not all."""


@pytest.fixture
def campaign(warm: Warm, scheme: str, quick_path: Path) -> Campaign:
    return Campaign(warm, scheme, quick_path)


def _expect_none(campaign: Campaign) -> None:
    print(campaign)
    assert not campaign.problems, "\n".join([f"{len(campaign.problems)} problems", *campaign.problems[:10]])


def _rehearse(campaign: Campaign, names: list[str]) -> list[Death]:
    return [death for name in names for death in campaign.rehearse(name)]


def test_a_kill_at_a_boundary_loses_nothing_and_repeats_nothing(campaign: Campaign, seed: int) -> None:
    """At some boundaries of every scenario, others each time; and again at one of the recovery's."""
    choose = random.Random(seed)
    chosen = [death for name in SCENARIOS for death in choose.sample(campaign.rehearse(name), 2)]
    campaign.run(chosen, again=lambda recovery: [choose.choice(recovery)] if recovery else [])
    _expect_none(campaign)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_kill_at_every_boundary_loses_nothing_and_repeats_nothing(campaign: Campaign) -> None:
    """At every single one, of every scenario; and again at some of each recovery's."""
    campaign.run(_rehearse(campaign, TOGETHER), again=lambda recovery: spread(PAIRS_EACH, recovery))
    _expect_none(campaign)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_two_kills_in_a_row_at_any_two_boundaries_lose_nothing_and_repeat_nothing(campaign: Campaign) -> None:
    """One call alone, of every kind: at every boundary, and again at every boundary of the recovery."""
    campaign.run(_rehearse(campaign, ALONE), again=lambda recovery: recovery)
    _expect_none(campaign)
