"""The crash matrix: every kind of tool, killed at every boundary, on every driver that outlives its process.

What is asserted, from the world's log: a completed effect happened exactly once, a landed one with a verify
hook as well; an idempotent one at least once, with the same key each time; one with neither never twice, and
while nobody knows it is reported as in doubt. In the end the step is finished, and a provider would accept
the transcript.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.stores import on_every_driver, share

from ..crash.fork_server import Warm
from .boundaries import Point
from .kill_campaign import Campaign, Death
from .scenarios import SCENARIOS

IN_PAIRS = ("charge alone", "send alone")
"""Killed at every boundary, and again at every boundary of every recovery: a tool that can find out, and one
that cannot."""


@pytest.fixture
def campaign(warm: Warm, scheme: str, quick_path: Path) -> Campaign:
    return Campaign(warm, scheme, quick_path)


def _some(seed: int, death: Death, recovery: Sequence[Point], often: float) -> Sequence[Point]:
    """One boundary of a recovery, or none; the same for the same seed, whichever trial comes first."""
    choose = random.Random(f"{seed} {death.scenario} {death.point}")
    return [choose.choice(recovery)] if recovery and choose.random() < often else []


@on_every_driver
def test_a_kill_at_a_boundary_loses_nothing_and_repeats_nothing(
    campaign: Campaign, scheme: str, seed: int
) -> None:
    """At some boundary of every scenario (of some, on a server), another each time; and again at one of the
    recovery's."""
    choose = random.Random(seed)
    names = share(scheme, list(SCENARIOS), 4)
    chosen = [choose.choice(campaign.rehearse(name)) for name in names]
    campaign.run(chosen, again=lambda death, recovery: _some(seed, death, recovery, 1))
    campaign.expect_none()
    assert campaign.kills > len(names)


@pytest.mark.long
@pytest.mark.timeout(3000)
def test_a_kill_at_every_boundary_loses_nothing_and_repeats_nothing(campaign: Campaign, seed: int) -> None:
    """At every single one of every scenario; and once in a while again on the way of the recovery."""
    chosen = [death for name in SCENARIOS for death in campaign.rehearse(name)]
    campaign.run(chosen, again=lambda death, recovery: _some(seed, death, recovery, 0.2))
    campaign.expect_none()
    assert campaign.kills > 0.9 * campaign.boundaries


@pytest.mark.long
@pytest.mark.timeout(3000)
def test_two_kills_in_a_row_at_any_two_boundaries_lose_nothing_and_repeat_nothing(campaign: Campaign) -> None:
    """One call alone: at every boundary, and again at every boundary of what it takes to recover."""
    chosen = [death for name in IN_PAIRS for death in campaign.rehearse(name)]
    campaign.run(chosen, again=lambda death, recovery: recovery)
    campaign.expect_none()
    assert campaign.pairs > 5 * campaign.boundaries
