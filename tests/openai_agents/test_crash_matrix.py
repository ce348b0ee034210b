"""Durable runs of the SDK, killed at every boundary on the way: parallel tools, an agent as a tool,
a handoff, an approval, streamed and not.

Every effect happens once. What no tool can find out is in doubt, and a person is asked. A reply that is on
record is not asked for again. The final items, and what models were given, are those of an undisturbed run.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.stores import every_nth, share

from ..crash.fork_server import Warm
from ..matrix.boundaries import Point
from ..matrix.kill_campaign import Campaign, Death
from .matrix_runs import SCENARIOS, answer, live


@pytest.fixture
def campaign(warm: Warm, scheme: str, quick_path: Path) -> Campaign:
    return Campaign(warm, scheme, quick_path, live, answer)


on_databases = pytest.mark.parametrize("scheme", ["sqlite", "postgresql"], indirect=True)


def _once_more(seed: int, death: Death, recovery: Sequence[Point], often: float) -> Sequence[Point]:
    """A boundary of the recovery, or none; the same for the same seed."""
    choose = random.Random(f"{seed} {death.scenario} {death.point}")
    return [choose.choice(recovery)] if recovery and choose.random() < often else []


@on_databases
def test_a_run_that_is_killed_ends_as_if_nothing_had_happened(
    campaign: Campaign, scheme: str, seed: int
) -> None:
    """At some boundary of every scenario (of one, on a server), another each time; and half of them again on
    the way of the recovery."""
    choose = random.Random(seed)
    names = share(scheme, list(SCENARIOS), len(SCENARIOS))
    chosen = [choose.choice(campaign.rehearse(name)) for name in names]
    campaign.run(chosen, again=lambda death, recovery: _once_more(seed, death, recovery, 0.5))
    campaign.expect_none()
    assert campaign.kills


@pytest.mark.long
@pytest.mark.timeout(12000)
@on_databases
def test_a_run_that_is_killed_anywhere_ends_as_if_nothing_had_happened(campaign: Campaign, seed: int) -> None:
    """At every fourth boundary of every scenario, other ones each time (at all with
    `HOLDFAST_KILL_EVERYWHERE=1`); and once in a while again on the way of the recovery."""
    chosen = every_nth([death for name in SCENARIOS for death in campaign.rehearse(name)], 4)
    campaign.run(chosen, again=lambda death, recovery: _once_more(seed, death, recovery, 0.1))
    campaign.expect_none()
    assert campaign.kills >= 0.9 * len(chosen)
