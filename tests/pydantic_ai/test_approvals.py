"""Calls that wait for a person: asked by pydantic-ai's own means or by ours, answered by either."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, NamedTuple

import pytest
from pydantic_ai import (
    Agent,
    AgentRunResult,
    ApprovalRequired,
    CallDeferred,
    DeferredToolRequests,
    DeferredToolResults,
    RunContext,
)
from pydantic_ai.tools import ToolApproved, ToolDenied

import holdfast
from holdfast.adapters.pydantic_ai import Durable, RunWaits, effects
from holdfast.drivers.memory import MemoryDriver

from .scripted_runs import SESSION, Script, call, look, results

MUTATES = effects(side_effects={"mutate"})
ASKS = effects(side_effects={"mutate"}, needs_approval=lambda cents: cents > 100)


def make_agent(log: list[int], *, how: str, script: Script, output: Any = str) -> Agent[Any, Any]:
    agent = script.agent(output_type=output)
    metadata = ASKS if how == "declared" else MUTATES

    @agent.tool_plain(metadata=metadata, requires_approval=how == "required")
    async def charge(cents: int) -> str:
        log.append(cents)
        return f"charged {cents}"

    @agent.tool(metadata=MUTATES)
    async def raising(ctx: RunContext[Any], cents: int) -> str:
        if not ctx.tool_call_approved:
            raise ApprovalRequired(metadata={"reason": "it is a lot"})
        log.append(cents)
        return f"charged {cents}"

    return agent


EVERY = pytest.mark.parametrize("how", ["required", "declared", "raised"])


def make_script(how: str) -> Script:
    name = "raising" if how == "raised" else "charge"
    return Script([call(name, cents=500)], "done")


class Waiting(NamedTuple):
    """A run that waits for a person, and how to run it again."""

    store: holdfast.Store
    call: str
    again: Callable[[], Awaitable[AgentRunResult[Any]]]


@asynccontextmanager
async def waiting(how: str, log: list[int]) -> AsyncIterator[Waiting]:
    """It was asked to charge 500."""
    async with holdfast.open_store("memory:") as store:
        agent = make_agent(log, how=how, script=make_script(how))
        run = partial(agent.run, "a", capabilities=[Durable(store, session=SESSION)])
        with pytest.raises(RunWaits) as waits:
            await run()
        yield Waiting(store, waits.value.waiting[0].call, run)


@EVERY
async def test_approval_comes_from_another_process(how: str) -> None:
    url, script = MemoryDriver(), make_script(how)
    log: list[int] = []
    async with holdfast.open_store(url) as store:
        agent = make_agent(log, how=how, script=script)
        with pytest.raises(RunWaits, match="needs approval") as waits:
            await agent.run("a", capabilities=[Durable(store, session=SESSION)])
        (one,) = waits.value.waiting
        assert (one.kind, one.args) == ("approval", {"cents": 500})
        assert (await look(store)).facts.head.status == "waiting"
    assert log == []
    async with holdfast.open_store(url) as store:
        await store.approve(SESSION, one.call, by="ann")
    async with holdfast.open_store(url) as store:
        agent = make_agent(log, how=how, script=script)
        result = await agent.run("a", capabilities=[Durable(store, session=SESSION)])
        assert results(result.all_messages()) == ["charged 500"]
        assert (await look(store)).continuable
    assert (log, script.asked) == ([500], [0, 1])


@EVERY
async def test_approval_may_correct_the_arguments(how: str) -> None:
    log: list[int] = []
    async with waiting(how, log) as run:
        (asked,) = (await run.store.load(SESSION)).facts.effects.questions.values()
        assert "cents" in asked.schema["properties"], "by which a correction can be checked"
        await run.store.approve(SESSION, run.call, by="ann", args={"cents": 50})
        result = await run.again()
        assert results(result.all_messages()) == ["charged 50"]
    assert log == [50]


@EVERY
async def test_a_refusal_is_told_to_the_model(how: str) -> None:
    log: list[int] = []
    async with waiting(how, log) as run:
        await run.store.refuse(SESSION, run.call, by="ann", reason="too much")
        result = await run.again()
        (said,) = results(result.all_messages())
        assert "too much" in said
        assert (await look(run.store)).facts.head.status == "completed"
    assert log == []


@EVERY
@pytest.mark.parametrize("verdict", ["approved", "denied"])
async def test_deferred_results_of_pydantic_ai_answer_the_question(how: str, verdict: str) -> None:
    log: list[int] = []
    script = make_script(how)
    async with holdfast.open_store("memory:") as store:
        durable = Durable(store, session=SESSION)
        agent = make_agent(log, how=how, script=script, output=[str, DeferredToolRequests])
        first = await agent.run("a", capabilities=[durable])
        assert isinstance(first.output, DeferredToolRequests)
        (asked,) = first.output.approvals
        state = await look(store)
        assert (state.facts.head.status, state.facts.head.waiting) == ("waiting", 1)
        answer: Any = ToolApproved() if verdict == "approved" else ToolDenied("no")
        second = await agent.run(
            message_history=first.all_messages(),
            deferred_tool_results=DeferredToolResults(approvals={asked.tool_call_id: answer}),
            capabilities=[durable],
        )
        assert second.output == "done"
        state = await look(store)
        assert (state.facts.head.status, state.facts.head.waiting) == ("completed", 0)
        assert state.continuable
        assert len(state.transcript) == 4
    assert log == ([500] if verdict == "approved" else [])


async def test_the_same_run_again_goes_on_after_deferred_requests() -> None:
    """The caller that got them may also have a person answer in the session."""
    log: list[int] = []
    script = Script([call("charge", cents=500), call("charge", "c1", cents=5)], "done")
    async with holdfast.open_store("memory:") as store:
        durable = Durable(store, session=SESSION)
        agent = make_agent(log, how="declared", script=script, output=[str, DeferredToolRequests])
        first = await agent.run("a", capabilities=[durable])
        assert isinstance(first.output, DeferredToolRequests)
        assert log == [5]
        (one,) = (await look(store)).facts.effects.questions.values()
        await store.approve(SESSION, one.call.id, by="ann")
        second = await agent.run("a", capabilities=[durable])
        assert sorted(results(second.all_messages())) == ["charged 5", "charged 500"]
        assert (await look(store)).continuable
    assert (log, script.asked) == ([5, 500], [0, 1])


async def test_calls_that_others_carry_out_end_the_run_until_they_have() -> None:
    script = Script([call("outside")], "done")
    agent = script.agent(output_type=[str, DeferredToolRequests])

    @agent.tool_plain(metadata=MUTATES)
    async def outside() -> str:
        raise CallDeferred

    async with holdfast.open_store("memory:") as store:
        durable = Durable(store, session=SESSION)
        first = await agent.run("a", capabilities=[durable])
        assert isinstance(first.output, DeferredToolRequests)
        assert (await look(store)).facts.head.status == "waiting"
        second = await agent.run(
            message_history=first.all_messages(),
            deferred_tool_results=DeferredToolResults(calls={first.output.calls[0].tool_call_id: "did it"}),
            capabilities=[durable],
        )
        assert (second.output, results(second.all_messages())) == ("done", ["did it"])
        state = await look(store)
        assert state.continuable
        assert not state.in_doubt
