"""Processes that record steps and are killed: what was acknowledged is there, and nothing is torn."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai_harness.step_persistence import StepPersistence, continue_run
from pydantic_ai_harness.step_persistence.recovery import inspect_recovery

from tests.crash.fork_server import Line, Warm
from tests.steps.example_histories import effect, event, history, opened, run, snapshot
from tests.steps.test_step_persistence import make
from tests.stores import open_driver

MESSAGES: list[ModelMessage] = history(500)


def write(line: Line, url: str, name: str) -> None:
    """Record steps for ever, and say how far it is."""

    async def main() -> None:
        async with opened(open_driver(url)) as steps:
            await steps.register_run(run(name, conversation_id="c1"))
            for step in range(500):
                await steps.record_tool_effect(effect(name, f"call_{step}"))
                await steps.append_event(event(name, "tool_call_started", step_index=step))
                await steps.save_snapshot(snapshot(name, MESSAGES[: 2 * step + 1]))
                line.say(step)

    anyio.run(main)


@pytest.mark.parametrize("kills", [3])
def test_what_was_acknowledged_survives_a_kill(
    kills: int, warm: Warm, scheme: str, quick_path: Path, seed: int
) -> None:
    """Each process goes on in the same conversation, where the one before it was killed."""
    url = f"{scheme}:{quick_path}/store"
    for kill in range(kills):
        name, last = f"r{kill}", (seed + 7 * kill) % 20
        with warm.child(write, url, name) as child:
            while child.hear() < last:
                pass
            child.kill()
            child.wait()
        anyio.run(_check, url, name, last)


async def _check(url: str, name: str, last: int) -> None:
    async with opened(open_driver(url)) as steps:
        assert await steps.get_run(run_id=name) is not None
        assert len(await steps.list_events(run_id=name)) > last
        assert len(await steps.list_unresolved_tool_effects(run_id=name)) > last
        found = await steps.list_snapshots(run_id=name)
        assert len(found) > last
        for step, one in enumerate(found):
            assert one.messages == MESSAGES[: 2 * step + 1]


def run_agent(line: Line, url: str) -> None:
    """An agent that is killed in its second tool."""

    async def main() -> None:
        async with opened(open_driver(url)) as steps:
            agent = make(steps, run_id="r1")

            @agent.tool_plain
            def look() -> str:
                return "it is there"

            @agent.tool_plain
            async def post() -> str:
                line.say("posting")
                await anyio.sleep_forever()
                return ""

            await agent.run("Go", conversation_id="c1")

    anyio.run(main)


def test_an_agent_killed_in_a_tool_leaves_its_trail(warm: Warm, scheme: str, quick_path: Path) -> None:
    """What was in flight is unresolved, and the step before it can be gone on from."""
    url = f"{scheme}:{quick_path}/store"
    with warm.child(run_agent, url) as child:
        assert child.hear() == "posting"
        child.kill()
        child.wait()

    async def main() -> None:
        async with opened(open_driver(url)) as steps:
            assert [(one.kind, one.tool_name) for one in await steps.list_events(run_id="r1")] == [
                ("run_started", None),
                ("model_request_started", None),
                ("model_request_completed", None),
                ("tool_call_started", "look"),
                ("tool_call_completed", "look"),
                ("model_request_started", None),
                ("model_request_completed", None),
                ("tool_call_started", "post"),
            ]
            found = await inspect_recovery(store=steps, run_id="r1")
            assert [one.tool_name for one in found.unresolved] == ["post"]
            assert found.completed_tools == ("look",)
            assert found.settled is not None
            agent = make(steps, run_id="r2")

            @agent.tool_plain
            def look() -> str:
                raise AssertionError("it was done before")

            result = await agent.run(message_history=found.settled.messages, conversation_id="c1")
            assert result.output == "3 messages"
            assert [one.run_id for one in await steps.list_runs(conversation_id="c1")] == ["r1", "r2"]

    anyio.run(main)


def run_agent_once(line: Line, url: str, where: str) -> None:
    """An agent that is killed in its first request, or in the first tools."""

    async def main() -> None:
        async with opened(open_driver(url)) as steps:

            async def stay() -> None:
                line.say(where)
                await anyio.sleep_forever()

            async def reply(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
                if where == "request":
                    await stay()
                calls = [
                    ToolCallPart(tool_name=name, args={}, tool_call_id=f"c-{name}") for name in ("a", "b")
                ]
                return ModelResponse(parts=calls)

            persistence = StepPersistence(store=steps, run_id="r1")
            agent = Agent(FunctionModel(reply), capabilities=[persistence])
            entered: list[str] = []

            async def enter(name: str) -> None:
                entered.append(name)
                if len(entered) == 2:
                    await stay()
                await anyio.sleep_forever()

            @agent.tool_plain
            async def a() -> None:
                await enter("a")

            @agent.tool_plain
            async def b() -> None:
                await enter("b")

            await agent.run("Go", conversation_id="c1")

    anyio.run(main)


@pytest.mark.parametrize("where", ["request", "tools"])
def test_what_had_begun_when_the_process_was_killed_is_on_record(
    where: str, warm: Warm, scheme: str, quick_path: Path
) -> None:
    """A request and a tool are on record before they begin, and there is nothing to go on from by mistake."""
    url = f"{scheme}:{quick_path}/store"
    with warm.child(run_agent_once, url, where) as child:
        assert child.hear() == where
        child.kill()
        child.wait()

    async def main() -> None:
        async with opened(open_driver(url)) as steps:
            trail = [(one.kind, one.tool_call_id) for one in await steps.list_events(run_id="r1")]
            assert trail[:2] == [("run_started", None), ("model_request_started", None)]
            begun = ["c-a", "c-b"] if where == "tools" else []
            assert sorted(call or "" for kind, call in trail if kind == "tool_call_started") == begun
            assert not [
                kind for kind, _ in trail if kind.startswith("tool_call") and kind != "tool_call_started"
            ]
            unresolved = await steps.list_unresolved_tool_effects(run_id="r1")
            assert sorted(one.tool_call_id for one in unresolved) == begun
            assert await steps.latest_snapshot(run_id="r1") is None
            assert await steps.latest_snapshot(run_id="r1", include_interrupted=True) is None
            with pytest.raises(LookupError):
                await continue_run(steps, run_id="r1")

    anyio.run(main)
