"""Agents of pydantic-ai that go on with other tools than they were cut off with."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic_ai import Agent

import holdfast
from holdfast.adapters.pydantic_ai import Durable, RunWaits, effects
from holdfast.drivers.memory import MemoryDriver

from .scripted_runs import SESSION, Script, call, kill, killed

MUTATES = effects(side_effects={"mutate"})


def script() -> Script:
    return Script([call("look", "c0", n=1)], [call("look", "c1", n=2)], [call("pay", "c2", n=5)], "Paid.")


def add_first(agent: Agent[Any, Any], store: holdfast.Store, paid: list[int]) -> None:
    """The tools as they were: the second one does what it does, and its process is gone."""

    @agent.tool_plain(metadata=effects(side_effects={"read"}))
    def look(n: int) -> str:
        return f"seen {n}"

    @agent.tool_plain(metadata=MUTATES)
    def pay(n: int) -> str:
        paid.append(n)
        kill(store)
        return "unreachable"


def add_renamed(agent: Agent[Any, Any], paid: list[int]) -> None:
    """The same with other arguments."""

    @agent.tool_plain(metadata=effects(side_effects={"read"}))
    def look(number: int) -> str:
        return f"seen {number}"

    @agent.tool_plain(metadata=MUTATES)
    def pay(amount: int) -> str:
        paid.append(amount)
        return "paid again"


@pytest.mark.parametrize("change", ["removed", "renamed"])
@pytest.mark.parametrize("verdict", ["landed", "not_landed"])
async def test_a_call_on_record_counts_whatever_became_of_its_tool(change: str, verdict: Any) -> None:
    """In doubt, it waits for a person; what landed is its result. The model is never told that a call did
    nothing because its tool has other arguments by now: it would do it once more. Steps that were finished
    cost no retries."""
    driver, paid = MemoryDriver(), list[int]()

    async def begin(store: holdfast.Store) -> None:
        agent = script().agent()
        add_first(agent, store, paid)
        await agent.run("Pay 5", capabilities=[Durable(store, session=SESSION)])

    await killed(driver, begin)
    async with holdfast.open_store(driver) as store:
        model = script()
        agent = model.agent()
        if change == "renamed":
            add_renamed(agent, paid)
        with pytest.raises(RunWaits, match="pay"):
            await agent.run("Pay 5", capabilities=[Durable(store, session=SESSION)])
        assert model.asked == []
        (doubt,) = [one async for one in store.in_doubt()]
        result = {"result": "paid by hand"} if verdict == "landed" else {}
        await store.resolve(SESSION, doubt.effect.issued, verdict, by="ann", **result)
        done = await agent.run("Pay 5", capabilities=[Durable(store, session=SESSION)])
        told = [getattr(part, "content", None) for part in done.all_messages()[-2].parts]
        if verdict == "landed":
            assert told == ["paid by hand"]
        else:
            assert "no tool" in str(told) if change == "removed" else "amount" in str(told)
        assert (done.output, model.asked, paid) == ("Paid.", [3], [5])


async def test_a_call_that_was_never_begun_is_checked_as_ever() -> None:
    """Killed between the reply and its tool: a tool that is gone, or takes other arguments, is the model's
    mistake to correct."""
    driver, paid = MemoryDriver(), list[int]()

    async def begin(store: holdfast.Store) -> None:
        agent = Script([call("pay", "c0", n=5)], "Paid.").agent()
        add_first(agent, store, paid)
        async with agent.iter("Pay 5", capabilities=[Durable(store, session=SESSION)]) as run:
            async for node in run:
                if Agent.is_call_tools_node(node):
                    kill(store)

    await killed(driver, begin)
    async with holdfast.open_store(driver) as store:
        agent = Script([call("pay", "c0", n=5)], [call("pay", "c1", amount=5)], "Paid.").agent()
        add_renamed(agent, paid)
        done = await agent.run("Pay 5", capabilities=[Durable(store, session=SESSION)])
        assert (done.output, paid) == ("Paid.", [5])
