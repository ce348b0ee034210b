"""`StepPersistence` in real agents, with our store under it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from pydantic_ai import Agent, RunContext
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai_harness.step_persistence import (
    StepPersistence,
    annotate_tool_effect,
    continue_run,
    fork_run,
)
from pydantic_ai_harness.step_persistence.recovery import inspect_recovery

import holdfast
from holdfast.adapters.pydantic_ai.step_store import HoldfastStepStore
from holdfast.drivers.contract import Driver


@pytest.fixture
async def steps(store_url: str | Driver) -> AsyncIterator[HoldfastStepStore]:
    """A step store on each kind of store."""
    async with holdfast.open_store(store_url) as store:
        yield HoldfastStepStore(store)


def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Calls every tool once, then says how many messages it saw."""
    called = {part.tool_name for one in messages for part in one.parts if isinstance(part, ToolCallPart)}
    left = [tool.name for tool in info.function_tools if tool.name not in called]
    if left:
        return ModelResponse(parts=[ToolCallPart(tool_name=left[0], args={}, tool_call_id=f"c-{left[0]}")])
    return ModelResponse(parts=[TextPart(content=f"{len(messages)} messages")])


def make(steps: HoldfastStepStore, **options: Any) -> Agent[None, str]:
    """An agent whose steps are kept."""
    return Agent(FunctionModel(answer), capabilities=[StepPersistence(store=steps, **options)])


async def test_a_run_is_recorded_and_can_be_continued(steps: HoldfastStepStore) -> None:
    """With every message as it was; a fork is the same history for another run."""
    agent = make(steps)

    @agent.tool_plain
    def look() -> str:
        return "it is there"

    result = await agent.run("Go", conversation_id="c1")
    (record,) = await steps.list_runs()
    assert record.conversation_id == "c1"
    kinds = [one.kind for one in await steps.list_events(run_id=record.run_id)]
    assert kinds[0] == "run_started"
    assert kinds[-1] == "run_completed"
    assert "tool_call_completed" in kinds
    history = await continue_run(steps, run_id=record.run_id)
    assert history == result.all_messages() == await fork_run(steps, run_id=record.run_id)
    again = await agent.run("And now?", message_history=history, conversation_id="c1")
    assert again.output == "5 messages"
    assert len(await steps.list_runs(conversation_id="c1")) == 2


async def test_a_run_that_failed_says_what_is_known(steps: HoldfastStepStore) -> None:
    """Which tools ended and which did not, the newest history and the newest that is settled."""
    agent = make(steps)

    @agent.tool
    async def charge(ctx: RunContext[None]) -> str:
        await annotate_tool_effect(steps, ctx, idempotency_key="key-1", effect_summary="charging")
        return "charged"

    @agent.tool_plain
    def post() -> str:
        raise OSError("the line went dead")

    with pytest.raises(OSError, match="the line went dead"):
        await agent.run("Go")
    (record,) = await steps.list_runs()
    found = await inspect_recovery(store=steps, run_id=record.run_id)
    assert (found.completed_tools, found.failed_tools) == (("charge",), ("post",))
    assert found.unresolved == ()
    assert found.settled is not None
    assert found.latest is not None
    assert (found.settled.state, found.latest.state) == ("complete", "interrupted")
    assert len(found.latest.messages) > len(found.settled.messages)
    noted = await steps.get_tool_effect(run_id=record.run_id, tool_call_id="c-charge")
    assert noted is not None
    assert (noted.status, noted.idempotency_key, noted.effect_summary) == ("completed", "key-1", "charging")


async def test_a_run_id_is_used_once(steps: HoldfastStepStore) -> None:
    """Their capability says so first."""
    agent = make(steps, run_id="mine")
    await agent.run("Go")
    with pytest.raises(ValueError, match="already in the store"):
        await agent.run("Go again")
    assert [one.run_id for one in await steps.list_runs()] == ["mine"]


async def test_an_agent_inside_a_tool_has_its_parent(steps: HoldfastStepStore) -> None:
    """Found by itself."""
    helper = make(steps, run_id="helper")
    boss = make(steps, run_id="boss")

    @boss.tool_plain
    async def ask() -> str:
        return (await helper.run("Help")).output

    await boss.run("Go")
    assert [one.run_id for one in await steps.list_runs(parent_run_id="boss")] == ["helper"]


async def test_the_frontier_is_captured_before_tools_run(steps: HoldfastStepStore) -> None:
    """Histories with open calls are interrupted ones."""
    agent = make(steps, run_id="r1", capture_frontier=True)

    @agent.tool_plain
    async def look() -> str:
        newest = await steps.latest_snapshot(run_id="r1", include_interrupted=True)
        assert newest is not None
        return newest.state

    result = await agent.run("Go")
    assert any("interrupted" in str(one) for one in result.all_messages())
    assert await continue_run(steps, run_id="r1") == result.all_messages()
