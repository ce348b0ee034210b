"""Runs of the OpenAI Agents SDK, replayed: unchanged code differs in nothing, one line in just that."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from agents import (
    Agent,
    GuardrailFunctionOutput,
    OutputGuardrailTripwireTriggered,
    function_tool,
    handoff,
    output_guardrail,
)
from pydantic import BaseModel

import holdfast
from holdfast.adapters.openai_agents import DurableRunner, HoldfastSession, RunWaits, effects, in_replay
from holdfast.cli import main
from holdfast.errors import BadInput
from holdfast.replay import SessionReplay, read_recording, replay_all, replay_session
from holdfast.tools import Policy, deny
from tests.openai_agents.runs import answering, call, count_turns, say

pytestmark = pytest.mark.anyio
DONE: list[str] = []
"""What tools have done, and models were asked."""


@pytest.fixture
def anyio_backend() -> str:
    """The SDK knows asyncio only."""
    return "asyncio"


@effects(side_effects="read")
@function_tool
def look_up(order: str) -> str:
    """Find an order."""
    DONE.append(f"look up {order}")
    if order == "gone":
        raise ValueError("there is no such order")
    return f"order {order}"


@effects(side_effects="mutate")
@function_tool
def pay(order: str, cents: int) -> str:
    """Pay."""
    DONE.append(f"pay {order}")
    return f"paid {cents} for {order}"


def make(name: str = "clerk", *steps: Any, tools: Any = None, **options: Any) -> Agent[Any]:
    """An agent whose model says this, one step after another."""
    script = steps or (
        [call("look_up", "t0-a", order="42"), call("look_up", "t0-b", order="gone")],
        [call("pay", "t1-a", order="42", cents=5), call("pay", "t1-b", order="1")],
        say("Paid."),
    )

    def reply(items: list[dict[str, Any]]) -> Any:
        DONE.append("asked")
        return script[count_turns(items)]

    given = [look_up, pay] if tools is None else tools
    return Agent(name=name, model=answering(reply), tools=given, instructions="Be quick.", **options)


Course = Callable[[Any], Awaitable[Any]]


async def plain(store: Any) -> Any:
    """Parallel calls, a failure that the model is told of, wrong arguments."""
    result = await DurableRunner.run(make(), "Pay", session=HoldfastSession("s", store))
    assert result.final_output == "Paid."
    return make()


async def streamed(store: Any) -> Any:
    """The same, streamed."""
    result = DurableRunner.run_streamed(make(), "Pay", session=HoldfastSession("s", store))
    async for _ in result.stream_events():
        pass
    return make()


async def two_turns(store: Any) -> Any:
    """In one session."""

    def reply(items: list[dict[str, Any]]) -> Any:
        DONE.append("asked")
        asked = [one for one in items if one.get("role") == "user"]
        if count_turns(items):
            return say(f"Done {len(asked)}.")
        return [call("pay", f"t0-{len(asked)}", order="1", cents=len(asked))]

    agent: Agent[Any] = Agent(name="clerk", model=answering(reply), tools=[pay])
    for asked in ("Pay one", "And again"):
        await DurableRunner.run(agent, asked, session=HoldfastSession("s", store))
    return agent


class Order(BaseModel):
    """An output."""

    order: str


async def structured(store: Any) -> Any:
    """An output with a schema."""
    agent = make("clerk", [call("look_up", "t0-a", order="42")], say('{"order": "42"}'), output_type=Order)
    result = await DurableRunner.run(agent, "Which?", session=HoldfastSession("s", store))
    assert result.final_output == Order(order="42")
    return agent


async def handed_over(store: Any) -> Any:
    """To another agent, whose model goes on."""
    paying = [call("pay", "t1-a", order="2", cents=5)]
    second = make("second", say("Not reached."), paying, say("Done."))
    first = make("clerk", [call("transfer_to_second", "t0-a")], handoffs=[handoff(second)])
    await DurableRunner.run(first, "Pay", session=HoldfastSession("s", store))
    return first


async def delegated(store: Any) -> Any:
    """To an agent in a tool, which is not driven."""
    inner = make("inner", [call("pay", "t0-i", order="3", cents=5)], say("Inner."))
    agent = make(
        "clerk",
        [call("ask_inner", "t0-a", input="pay")],
        say("Done."),
        tools=[inner.as_tool("ask_inner", "Ask it.")],
    )
    await DurableRunner.run(agent, "Pay", session=HoldfastSession("s", store))
    return agent


def make_asking() -> Agent[Any]:
    @effects(side_effects="mutate")
    @function_tool(name_override="pay", needs_approval=True)
    def asking(order: str, cents: int) -> str:
        """Pay, if a person agrees."""
        DONE.append("pay")
        return f"paid {cents}"

    return make("clerk", [call("pay", "t0-a", order="42", cents=5)], say("Done."), tools=[asking])


async def approved(store: Any) -> Any:
    """By a person, from another process."""
    paused = await DurableRunner.run(make_asking(), "Pay", session=HoldfastSession("s", store))
    assert paused.interruptions
    (asked,) = (await store.load("s")).facts.effects.questions.values()
    await store.approve("s", asked.call.id, by="ann")
    result = await DurableRunner.run(make_asking(), "Pay", session=HoldfastSession("s", store))
    assert result.final_output == "Done."
    return make_asking()


async def refused(store: Any) -> Any:
    """By a person."""
    await DurableRunner.run(make_asking(), "Pay", session=HoldfastSession("s", store))
    (asked,) = (await store.load("s")).facts.effects.questions.values()
    await store.refuse("s", asked.call.id, by="ann", reason="no")
    await DurableRunner.run(make_asking(), "Pay", session=HoldfastSession("s", store))
    return make_asking()


async def in_doubt(store: Any) -> Any:
    """Cut off in an effect; a person says what became of it."""
    agent = make("clerk", [call("pay", "t0-a", order="42", cents=5)], say("Done."))

    @effects(side_effects="mutate")
    @function_tool(name_override="pay")
    async def hangs(order: str, cents: int) -> str:
        """Pay."""
        scope.cancel()
        await anyio.sleep_forever()
        return ""

    with anyio.CancelScope() as scope:
        broken = make("clerk", [call("pay", "t0-a", order="42", cents=5)], tools=[hangs])
        quick = DurableRunner.with_options(grace_s=0.0)
        await quick.run(broken, "Pay", session=HoldfastSession("s", store))
    with pytest.raises(RunWaits) as waits:
        await DurableRunner.run(agent, "Pay", session=HoldfastSession("s", store))
    await store.resolve("s", waits.value.waiting[0].call, "landed", by="ann", result="paid by hand")
    await DurableRunner.run(agent, "Pay", session=HoldfastSession("s", store))
    return agent


async def named(store: Any) -> Any:
    """A run without a session, by its key."""
    runner = DurableRunner.with_options(store=store)
    await runner.run(make(), "Pay", run_key="s")
    return in_replay(make(), runner=runner)


async def too_many_turns(store: Any) -> Any:
    """The run ends because of them."""
    agent = make("clerk", *([call("look_up", f"t{place}-a", order=str(place))] for place in range(5)))
    with pytest.raises(Exception, match="Max turns"):
        await DurableRunner.run(agent, "Look", session=HoldfastSession("s", store), max_turns=3)
    return in_replay(agent, max_turns=3)


COURSES = (
    *(plain, streamed, two_turns, structured, handed_over, delegated),
    *(approved, refused, in_doubt, named, too_many_turns),
)


@pytest.mark.parametrize("course", COURSES, ids=lambda one: one.__name__)
async def test_with_unchanged_code_nothing_differs(course: Course, tmp_path: Path) -> None:
    """No tool is run, no model asked, and nothing written."""
    async with holdfast.open_store(f"sqlite:{tmp_path / 's.db'}") as store:
        agent = await course(store)
        (name,) = [head.session async for head in store.sessions() if head.parent is None]
        before = await read_recording(store, name)
        DONE.clear()
        replay = await replay_session(store, name, agent)
        assert not replay.differs, str(replay)
        assert not replay.stopped
        assert replay.given == replay.replies == len(before.replies)
        assert DONE == []
        assert await read_recording(store, name) == before


async def test_a_run_whose_items_were_replaced_is_refused() -> None:
    """A guardrail took the output back."""

    @output_guardrail
    async def never(ctx: Any, agent: Any, output: Any) -> GuardrailFunctionOutput:
        return GuardrailFunctionOutput(output_info=None, tripwire_triggered=True)

    async with holdfast.open_store("memory:") as store:
        agent = make(output_guardrails=[never])
        with pytest.raises(OutputGuardrailTripwireTriggered):
            await DurableRunner.run(agent, "Pay", session=HoldfastSession("s", store))
        with pytest.raises(BadInput, match="which reply made which call"):
            await replay_session(store, "s", agent)
        plain = HoldfastSession("plain", store)
        await plain.add_items([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}])
        with pytest.raises(BadInput, match="DurableRunner has not run it"):
            await replay_session(store, "plain", agent)


async def changed(store: Any, agent: Any) -> SessionReplay:
    """The replay of the plain course with a changed agent."""
    DONE.clear()
    replay = await replay_session(store, "s", agent)
    assert DONE == []
    return replay


async def test_one_changed_line_is_exactly_that_difference() -> None:
    """A policy, a schema, an approval, a tool that is gone."""

    @effects(side_effects="mutate")
    @function_tool(name_override="pay")
    def pay_with_reason(order: str, cents: int, reason: str) -> str:
        """Pay."""
        raise AssertionError

    @effects(side_effects="mutate")
    @function_tool(name_override="pay", needs_approval=True)
    def pay_if_agreed(order: str, cents: int) -> str:
        """Pay."""
        raise AssertionError

    async with holdfast.open_store("memory:") as store:
        await plain(store)
        rule = deny("pay", why="No.")
        strict = DurableRunner.with_options(policy=Policy(rule))
        replay = await changed(store, in_replay(make(), runner=strict))
        assert ("refused", "policy", "pay") in {(one.kind, one.gate, one.tool) for one in replay.differences}
        assert {one.tool for one in replay.differences} == {"pay"}
        replay = await changed(store, make(tools=[look_up, pay_if_agreed]))
        assert {(one.kind, one.tool) for one in replay.differences} == {("approval", "pay")}
        replay = await changed(store, make(tools=[look_up, pay_with_reason]))
        assert {one.tool for one in replay.differences} == {"pay"}, str(replay)
        replay = await changed(store, make(tools=[look_up]))
        assert replay.differs


async def test_all_sessions_of_an_agent_are_replayed() -> None:
    """Those of other frameworks are left out with the reason."""
    async with holdfast.open_store("memory:") as store:
        await plain(store)
        async with store.session("own") as session:
            await session.add("Hello")
            async with session.run(agent="clerk"):
                pass
        found = {str(name): result async for name, result in replay_all(store, make())}
        assert isinstance(found["s"], SessionReplay)
        assert isinstance(found["own"], BadInput)


AGENT = '''
from agents import Agent, function_tool
from agents.testing import ModelStep, ScriptedModel, assistant_message, function_call

from holdfast.adapters.openai_agents import effects


@effects(side_effects="mutate")
@function_tool
def pay(order: str, cents: int) -> str:
    """Pay."""
    with open("done.txt", "a") as file:
        file.write("paid")
    return f"paid {cents} for {order}"


paying = function_call("pay", {"order": "42", "cents": 5}, call_id="call_0AbCdEfGhIjKlMnOpQrStUv")
steps = [
    ModelStep(output=[paying]),
    ModelStep(output=[assistant_message("It's paid.", item_id="msg_0AbCdEfGhIjKlMnOpQrStUvWx")]),
]
desk = Agent(name="desk", model=ScriptedModel(steps), tools=[pay])
'''
RUN = """
from holdfast.adapters.openai_agents import DurableRunner, HoldfastSession

DurableRunner.run_sync(desk, "Pay", session=HoldfastSession("order-42", "sqlite:s.db"))
"""


def test_the_command_line_replays_and_writes_a_test(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The test is green, does nothing, and fails once the agent is another one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOLDFAST_STORE", "sqlite:s.db")
    monkeypatch.setenv("OPENAI_AGENTS_DISABLE_TRACING", "1")
    agent = tmp_path / "openai_desk.py"
    agent.write_text(AGENT + RUN)
    subprocess.run([sys.executable, str(agent)], check=True)
    agent.write_text(AGENT)
    assert (tmp_path / "done.txt").read_text() == "paid"

    assert main(["replay", "order-42", "openai_desk.py"]) == 0
    assert "no difference, 2 of 2 replies" in capsys.readouterr().out
    assert main(["replay", "--all", "openai_desk.py", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["session"] for one in found["replays"]] == ["order-42"]
    options = ["--form", "pytest", "--agent", "openai_desk.py", "--output", "test_42.py"]
    assert main(["export", "order-42", *options]) == 0

    def test() -> int:
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_42.py"]
        return subprocess.run(command, env={**os.environ, "HOLDFAST_STORE": ""}, check=False).returncode

    assert test() == 0
    agent.write_text(AGENT.replace("cents: int)", "cents: bool)"))
    assert test() == 1
    assert (tmp_path / "done.txt").read_text() == "paid"
