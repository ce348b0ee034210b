"""A recorded session of holdfast's own agent, replayed: unchanged, and with one line changed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

import holdfast
from holdfast.tools import Policy, deny
from tests.replay.clerks import fail, kinds, look_up, pay, recorded, replay_with

pytestmark = pytest.mark.anyio


async def test_unchanged_code_shows_no_difference() -> None:
    """Nothing is run for it, and no model is asked."""
    async with recorded() as store:
        replay = await replay_with(store)
        assert (replay.differences, replay.changes, replay.stopped) == ((), (), "")
        assert (replay.turns, replay.given, replay.replies) == (2, 6, 6)


@holdfast.tool(name="pay", side_effects="mutate", scope="session")
async def pay_for(order: str, cents: int, currency: str) -> str:
    """Pay."""
    raise AssertionError


@holdfast.tool(name="pay", side_effects="mutate", scope="session")
async def pay_in(order: str, cents: int, currency: str = "EUR") -> str:
    """Pay."""
    raise AssertionError


@holdfast.tool(name="pay", side_effects="mutate", scope="call")
async def pay_each_time(order: str, cents: int) -> str:
    """Pay."""
    raise AssertionError


@holdfast.tool(name="pay", side_effects="mutate", scope="session", needs_approval=True)
async def pay_if_agreed(order: str, cents: int) -> str:
    """Pay."""
    raise AssertionError


@holdfast.tool(name="transfer", side_effects="mutate", scope="session")
async def transfer(order: str, cents: int) -> str:
    """Pay."""
    raise AssertionError


@dataclass
class Answer:
    paid: int


CHANGES: dict[str, tuple[dict[str, Any], list[tuple[Any, ...]], bool]] = {
    "prompt": ({"instructions": "Be brief."}, [], False),
    "tool renamed": (
        {"tools": (look_up, transfer, fail)},
        [("refused", "name", "pay", 2), ("refused", "name", "pay", 3)],
        False,
    ),
    "tool removed": (
        {"tools": (pay, fail)},
        [("refused", "name", "look_up", 1), ("refused", "name", "look_up", 5)],
        False,
    ),
    "argument required": (
        {"tools": (look_up, pay_for, fail)},
        [("refused", "arguments", "pay", 2), ("refused", "arguments", "pay", 3)],
        False,
    ),
    "argument added": ({"tools": (look_up, pay_in, fail)}, [("arguments", "", "pay", 2)], False),
    "scope": ({"tools": (look_up, pay_each_time, fail)}, [("new", "", "pay", 3)], True),
    "approval": (
        {"tools": (look_up, pay_if_agreed, fail)},
        [("approval", "", "pay", 2), ("approval", "", "pay", 3)],
        False,
    ),
    "policy": (
        {"policy": Policy(deny("pay"))},
        [("refused", "policy", "pay", 2), ("refused", "policy", "pay", 3)],
        False,
    ),
    "budget": ({"budget": holdfast.Budget(steps=2)}, [("budget", "", "", 0), ("gone", "", "pay", 3)], True),
    "steps": (
        {"max_steps": 1},
        [("steps", "", "", 0), ("gone", "", "pay", 2), ("gone", "", "fail", 2), ("gone", "", "pay", 3)],
        True,
    ),
    "output type": ({"output_type": Answer}, [("output", "", "", 0)], True),
}


@pytest.mark.parametrize("name", CHANGES)
async def test_one_changed_line_shows_exactly_that(name: str) -> None:
    """The first difference and the others; no tool is run for it."""
    changes, expected, stops = CHANGES[name]
    async with recorded() as store:
        replay = await replay_with(store, **changes)
        assert kinds(replay) == expected, str(replay)
        assert bool(replay.stopped) == stops, str(replay)
