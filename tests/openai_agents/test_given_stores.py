"""A store is given to a session or the runner as a URL, a path, or open, with or without an event loop."""

from __future__ import annotations

from typing import Any

import pytest
from agents import FunctionTool, function_tool

from holdfast.adapters.openai_agents import DurableRunner, HoldfastSession, effects
from tests.agent.test_given_stores import expect_as_it_was, list_sessions

from .runs import make

pytestmark = pytest.mark.anyio


def make_pay(paid: list[int]) -> FunctionTool:
    """A tool that acts."""

    @effects(side_effects="mutate")
    @function_tool
    def pay(cents: int) -> str:
        """Pay."""
        paid.append(cents)
        return f"paid {cents}"

    return pay


async def test_a_session_of_a_durable_run_takes_it(given: Any) -> None:
    """All sessions see one journal: the second run gives the outcome of the first."""
    paid: list[int] = []
    async with expect_as_it_was(given):
        for _ in range(2):
            session = HoldfastSession("ann", given)
            agent = make(make_pay(paid), cents=1)
            found = await DurableRunner.run(agent, "Pay.", session=session, run_key="k")
            assert found.final_output == "paid 1"
            await session.aclose()
    assert paid == [1]
    assert await list_sessions(given) == ["ann"]


async def test_runs_without_a_session_take_it(given: Any) -> None:
    """By the options of the runner, also where the store has an event loop of its own."""
    paid: list[int] = []
    runner = DurableRunner.with_options(store=given)
    async with expect_as_it_was(given):
        for _ in range(2):
            found = await runner.run(make(make_pay(paid), cents=1), "Pay.", run_key="k")
            assert found.final_output == "paid 1"
    assert paid == [1]
    assert await list_sessions(given) == ["run.3a.k"]
