"""A store is given to the middleware as a URL, a path, or open, with or without an event loop."""

from __future__ import annotations

from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.tools import tool as langchain_tool
from langgraph.checkpoint.memory import InMemorySaver

from holdfast.adapters.langgraph import HoldfastMiddleware
from tests.agent.test_given_stores import expect_as_it_was, list_sessions, open_of

from .agents import GO, WAYS, ScriptedChat, Way, drive, list_effects, results


@pytest.mark.parametrize("way", WAYS)
async def test_the_middleware_takes_it(given: Any, way: Way) -> None:
    """The ledger is in that store, whichever way the agent is called; the same call is made once."""
    paid: list[str] = []

    @langchain_tool
    def pay(order: str) -> str:
        """Pay."""
        paid.append(order)
        return f"paid {order}"

    async with expect_as_it_was(given):
        for _ in range(2):
            agent = create_agent(
                ScriptedChat(script=[[("pay", {"order": "a"})], "ok"]),
                [pay],
                middleware=[HoldfastMiddleware(given, effects={"pay": "mutate"})],
                checkpointer=InMemorySaver(),
            )
            (told,) = results(await drive(agent, GO, way=way))
            assert "paid a" in told
    assert paid == ["a"]
    assert len(await list_sessions(given)) == 1
    async with open_of(given) as store:
        assert [row.tool for row in await list_effects(store)] == ["pay"]
