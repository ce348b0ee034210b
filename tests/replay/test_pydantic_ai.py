"""Sessions of pydantic-ai agents, replayed: unchanged code differs in nothing, one line in just that."""

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
from pydantic import BaseModel
from pydantic_ai import Agent, CallDeferred, DeferredToolRequests, DeferredToolResults, ModelRetry, RunContext
from pydantic_ai.exceptions import ToolFailed
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

import holdfast
from holdfast.adapters.pydantic_ai import Durable, RunWaits, continue_run, effects, in_replay
from holdfast.cli import main
from holdfast.errors import BadInput
from holdfast.replay import SessionReplay, read_recording, replay_all, replay_session
from holdfast.tools import Policy, deny

pytestmark = pytest.mark.anyio
Clerk = Agent[Any, Any]
DONE: list[str] = []
"""What tools have done, and models were asked."""
Step = list[tuple[str, dict[str, Any]]] | str


def call(tool: str, **args: Any) -> tuple[str, dict[str, Any]]:
    """A call of a script."""
    return tool, args


def scripted(*steps: Step) -> FunctionModel:
    """A model that says this, one step after another."""

    def say(messages: list[Any], info: AgentInfo) -> ModelResponse:
        DONE.append("asked")
        number = sum(isinstance(one, ModelResponse) for one in messages)
        step = steps[number]
        if isinstance(step, str):
            return ModelResponse(parts=[TextPart(step)])
        return ModelResponse(
            parts=[
                ToolCallPart(tool, args, tool_call_id=f"c{place}") for place, (tool, args) in enumerate(step)
            ]
        )

    return FunctionModel(say)


@pytest.fixture
def anyio_backend() -> str:
    """pydantic-ai runs under asyncio."""
    return "asyncio"


class Order(BaseModel):
    """An output."""

    order: str
    cents: int


async def look_up(order: str) -> str:
    """Find an order."""
    DONE.append(f"look up {order}")
    if order == "gone":
        raise ModelRetry("there is no such order")
    return f"order {order}"


async def pay(order: str, cents: int) -> dict[str, Any]:
    """Pay."""
    DONE.append(f"pay {order}")
    if cents == 0:
        raise ToolFailed("nothing to pay")
    return {"order": order, "cents": cents}


SCRIPT: tuple[Step, ...] = (
    [call("look_up", order="42"), call("look_up", order="gone")],
    [
        call("pay", order="42", cents=5),
        call("pay", order="43", cents=0),
        call("nothing", a=1),
        call("pay", order="1"),
    ],
    "Paid.",
)


def make_clerk(
    store: Any,
    *script: Step,
    tools: dict[str, Any] | None = None,
    output: Any = str,
    approve: bool = False,
    **options: Any,
) -> Clerk:
    """The clerk, with changes."""
    durable = Durable(store, session="s", **options)
    made: Clerk = Agent(
        scripted(*(script or SCRIPT)),
        name="clerk",
        output_type=output,
        instructions="Be quick.",
        retries=4,
        capabilities=[durable],
    )
    given: dict[str, Any] = {"look_up": look_up, "pay": pay} if tools is None else tools
    for name, function in given.items():
        declared = effects(side_effects="read") if name == "look_up" else effects(side_effects="mutate")
        asks = approve and name == "pay"
        made.tool_plain(name=name, metadata=declared, requires_approval=asks)(function)
    return made


async def plain(store: Any) -> Callable[[], Clerk]:
    """Parallel calls, retries, failures, unknown tools, wrong arguments."""
    assert (await make_clerk(store).run("Pay")).output == "Paid."
    return lambda: make_clerk(store)


async def two_turns(store: Any) -> Callable[[], Clerk]:
    """With the history of the first one."""
    script = ([call("pay", order="1", cents=5)], "One.", [call("pay", order="2", cents=6)], "Two.")
    await make_clerk(store, *script).run("Pay one")
    continued = await continue_run(store, session="s")
    result = await make_clerk(store, *script).run("And two", message_history=continued.messages)
    assert result.output == "Two."
    return lambda: make_clerk(store, *script)


async def structured(store: Any) -> Callable[[], Clerk]:
    """An output that is checked, and refused once."""
    script = (
        [call("pay", order="42", cents=5)],
        [call("final_result", order="42")],
        [call("final_result", order="42", cents=5)],
    )
    result = await make_clerk(store, *script, output=Order).run("Pay")
    assert result.output == Order(order="42", cents=5)
    return lambda: make_clerk(store, *script, output=Order)


async def approved(store: Any) -> Callable[[], Clerk]:
    """By a person, with other arguments."""
    script = ([call("pay", order="42", cents=5)], "Paid.")
    with pytest.raises(RunWaits) as waits:
        await make_clerk(store, *script, approve=True).run("Pay")
    (one,) = waits.value.waiting
    await store.approve("s", one.call, by="ann", args={"order": "42", "cents": 7})
    await make_clerk(store, *script, approve=True).run("Pay")
    return lambda: make_clerk(store, *script, approve=True)


async def refused(store: Any) -> Callable[[], Clerk]:
    """By a person."""
    script = ([call("pay", order="42", cents=5)], "Not paid.")
    with pytest.raises(RunWaits) as waits:
        await make_clerk(store, *script, approve=True).run("Pay")
    await store.refuse("s", waits.value.waiting[0].call, by="ann", reason="no")
    await make_clerk(store, *script, approve=True).run("Pay")
    return lambda: make_clerk(store, *script, approve=True)


async def in_doubt(store: Any) -> Callable[[], Clerk]:
    """Cut off in an effect; a person says what became of it."""
    script = ([call("pay", order="42", cents=5)], "Paid.")

    async def hangs(order: str, cents: int) -> dict[str, Any]:
        scope.cancel()
        await anyio.sleep_forever()
        return {}

    with anyio.CancelScope() as scope:
        await make_clerk(store, *script, tools={"pay": hangs}, grace_s=0.0).run("Pay")
    with pytest.raises(RunWaits) as waits:
        await make_clerk(store, *script).run("Pay")
    await store.resolve("s", waits.value.waiting[0].call, "landed", by="ann", result={"receipt": 7})
    assert (await make_clerk(store, *script).run("Pay")).output == "Paid."
    return lambda: make_clerk(store, *script)


async def external(store: Any) -> Callable[[], Clerk]:
    """A call that something else answers."""
    script = ([call("ship", order="42")], "Shipped.")

    async def ship(order: str) -> str:
        raise CallDeferred

    def make() -> Clerk:
        return make_clerk(store, *script, tools={"ship": ship}, output=[str, DeferredToolRequests])

    first = await make().run("Ship")
    assert isinstance(first.output, DeferredToolRequests)
    results = DeferredToolResults(calls={"c0": "on its way"})
    done = await make().run(message_history=first.all_messages(), deferred_tool_results=results)
    assert done.output == "Shipped."
    return make


async def failing(store: Any) -> Callable[[], Clerk]:
    """A tool raises, and the run ends; the same run again gets further."""
    script = ([call("look_up", order="42")], "Found.")
    broken = True

    async def look(order: str) -> str:
        if broken:
            raise RuntimeError("no connection")
        return "found"

    def make() -> Clerk:
        return make_clerk(store, *script, tools={"look_up": look})

    with pytest.raises(RuntimeError):
        await make().run("Look")
    broken = False
    assert (await make().run("Look")).output == "Found."
    return make


async def ended_by_an_error(store: Any) -> Callable[[], Clerk]:
    """A tool raises, and nobody goes on."""
    script = ([call("look_up", order="42")], "Found.")

    async def look(order: str) -> str:
        raise RuntimeError("no connection")

    def make() -> Clerk:
        return make_clerk(store, *script, tools={"look_up": look})

    with pytest.raises(RuntimeError):
        await make().run("Look")
    return make


COURSES = (plain, two_turns, structured, approved, refused, in_doubt, external, failing, ended_by_an_error)


@pytest.mark.parametrize("course", COURSES, ids=lambda one: one.__name__)
async def test_with_unchanged_code_nothing_differs(
    course: Callable[[Any], Awaitable[Callable[[], Clerk]]], tmp_path: Path
) -> None:
    """No tool is run, no model asked, and nothing written."""
    url = f"sqlite:{tmp_path / 's.db'}"
    async with holdfast.open_store(url) as store:
        make = await course(store)
        before = await read_recording(store, "s")
        DONE.clear()
        replay = await replay_session(store, "s", make())
        assert not replay.differs, str(replay)
        assert not replay.stopped
        assert replay.given == replay.replies == len(before.replies)
        assert DONE == []
        assert await read_recording(store, "s") == before


async def changed(store: Any, clerk: Clerk) -> SessionReplay:
    """The replay of the plain course with a changed clerk."""
    DONE.clear()
    replay = await replay_session(store, "s", clerk)
    assert DONE == []
    return replay


async def test_one_changed_line_is_exactly_that_difference() -> None:
    """A policy, a schema, a default, an approval, a tool that is gone."""

    async def pay_with_reason(order: str, cents: int, reason: str) -> str:
        raise AssertionError

    async def pay_in(order: str, cents: int, currency: str = "EUR") -> str:
        raise AssertionError

    async with holdfast.open_store("memory:") as store:
        await plain(store)
        rule = deny("pay", when=lambda args: args["order"] == "42", why="No.")
        replay = await changed(store, make_clerk(store, policy=Policy(rule)))
        assert [(one.kind, one.gate, one.tool, one.args) for one in replay.differences] == [
            ("refused", "policy", "pay", {"order": "42", "cents": 5})
        ]
        replay = await changed(store, make_clerk(store, tools={"look_up": look_up, "pay": pay_with_reason}))
        assert [(one.kind, one.gate, one.args["order"]) for one in replay.differences] == [
            ("refused", "arguments", "42"),
            ("refused", "arguments", "43"),
        ]
        replay = await changed(store, make_clerk(store, tools={"look_up": look_up, "pay": pay_in}))
        assert [(one.kind, one.args["order"]) for one in replay.differences] == [
            ("arguments", "42"),
            ("arguments", "43"),
        ]
        replay = await changed(store, make_clerk(store, approve=True))
        assert {(one.kind, one.tool) for one in replay.differences} == {("approval", "pay")}
        replay = await changed(store, make_clerk(store, tools={"look_up": look_up}))
        assert {(one.kind, one.tool) for one in replay.differences} == {("refused", "pay")}


async def test_an_output_that_would_be_refused_is_shown() -> None:
    """The model would be asked again."""

    class Priced(Order):
        currency: str

    async with holdfast.open_store("memory:") as store:
        await structured(store)
        script: tuple[Step, ...] = ("never asked",)
        replay = await replay_session(store, "s", make_clerk(store, *script, output=Priced))
        assert [one.kind for one in replay.differences][-1] == "output", str(replay)


async def test_a_live_model_acts_in_the_recorded_world() -> None:
    """What it calls as on record gets that result."""
    async with holdfast.open_store("memory:") as store:
        await two_turns(store)
        script = ([call("pay", order="1", cents=5)], "One!", [call("pay", order="2", cents=7)], "Two!")
        DONE.clear()
        replay = await replay_session(store, "s", make_clerk(store, *script), live_model=True)
        assert set(DONE) == {"asked"}
        assert [(one.kind, one.turn) for one in replay.differences] == [("arguments", 2)]


async def test_all_sessions_of_an_agent_are_replayed() -> None:
    """Those of other frameworks are left out with the reason."""
    async with holdfast.open_store("memory:") as store:
        await plain(store)
        async with store.session("own") as session:
            await session.add("Hello")
            async with session.run(agent="clerk"):
                pass
        found = {str(name): result async for name, result in replay_all(store, make_clerk(store))}
        assert isinstance(found["s"], SessionReplay)
        assert isinstance(found["own"], BadInput)


async def test_what_an_agent_needs_is_said() -> None:
    """`Durable`, and the framework of the recording."""
    async with holdfast.open_store("memory:") as store:
        await plain(store)
        with pytest.raises(BadInput, match="Durable among its capabilities"):
            await replay_session(store, "s", Agent(scripted("Hello"), name="clerk"))
        own = holdfast.Agent(holdfast.agents.ScriptedModel(["Hello"]), name="clerk")
        with pytest.raises(BadInput, match="driven by pydantic-ai"):
            await replay_session(store, "s", own)


async def test_dependencies_are_given_with_in_replay() -> None:
    """For instructions that ask them."""
    async with holdfast.open_store("memory:") as store:
        seen: list[str] = []

        def make() -> Clerk:
            clerk: Agent[str, str] = Agent(
                scripted("Hello"), name="clerk", deps_type=str, capabilities=[Durable(store, session="s")]
            )

            @clerk.instructions
            def said(ctx: RunContext[str]) -> str:
                seen.append(ctx.deps.upper())
                return ctx.deps

            return clerk

        await make().run("Hi", deps="live")
        replay = await replay_session(store, "s", in_replay(make(), deps="replayed"))
        assert not replay.differs
        assert set(seen) == {"LIVE", "REPLAYED"}


AGENT = """
from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse, TextPart, ThinkingPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel

from holdfast.adapters.pydantic_ai import Durable, effects


def say(messages, info):
    if len(messages) > 1:
        return ModelResponse(parts=[TextPart("It's paid.")])
    thought = ThinkingPart("hm", signature="sk-proj-0123456789abcdefghijklmnop")
    paying = ToolCallPart("pay", {"order": "42", "cents": 5}, tool_call_id="toolu_01AbCdEfGhIjKlMnOpQrStUv")
    return ModelResponse(parts=[thought, paying], provider_response_id="resp_0123456789abcdefghijklmnop")


desk = Agent(FunctionModel(say), name="desk", capabilities=[Durable("sqlite:s.db", session="order-42")])


@desk.tool_plain(metadata=effects(side_effects="mutate"))
def pay(order: str, cents: int) -> str:
    with open("done.txt", "a") as file:
        file.write("paid")
    return f"paid {cents} for {order}"


def loop(turn):
    raise AssertionError
"""


def test_the_command_line_replays_and_writes_a_test(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The test is green, does nothing, and fails once the agent is another one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOLDFAST_STORE", "sqlite:s.db")
    agent = tmp_path / "desk_agent.py"
    agent.write_text(AGENT + '\n\ndesk.run_sync("Pay")\n')
    subprocess.run([sys.executable, str(agent)], check=True)
    agent.write_text(AGENT)
    assert (tmp_path / "done.txt").read_text() == "paid"

    assert main(["replay", "order-42", "desk_agent.py:desk"]) == 0
    assert "no difference, 2 of 2 replies" in capsys.readouterr().out
    assert main(["replay", "--all", "desk_agent.py", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["session"] for one in found["replays"]] == ["order-42"]
    assert (
        main(["export", "order-42", "--form", "pytest", "--agent", "desk_agent.py", "--output", "test_42.py"])
        == 0
    )
    written = (tmp_path / "test_42.py").read_text()
    assert "sk-proj" not in written
    assert "resp_0123" not in written
    assert "toolu_" not in written

    def test() -> int:
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_42.py"]
        return subprocess.run(command, env={**os.environ, "HOLDFAST_STORE": ""}, check=False).returncode

    assert test() == 0
    agent.write_text(AGENT.replace("cents: int)", "cents: str)"))
    assert test() == 1
    assert (tmp_path / "done.txt").read_text() == "paid"


def test_a_loop_can_be_named_on_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A function with one parameter is a loop; one without makes the agent."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOLDFAST_STORE", "sqlite:s.db")
    (tmp_path / "own_loop.py").write_text(LOOP)
    subprocess.run([sys.executable, "own_loop.py"], check=True)
    assert main(["replay", "s", "own_loop.py:replayed"]) == 0
    assert "no difference, 1 of 1" in capsys.readouterr().out
    assert (
        main(["export", "s", "--form", "pytest", "--agent", "own_loop.py:replayed", "--output", "test_s.py"])
        == 0
    )
    assert "from own_loop import replayed" in (tmp_path / "test_s.py").read_text()
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_s.py"]
    assert subprocess.run(command, check=False).returncode == 0


LOOP = """
import asyncio

import holdfast


async def loop(session, ask):
    async with session.run(agent="own") as run:
        async with run.request() as request:
            await request.reply(await ask(), format="openai")
        await session.checkpoint()


async def replayed(turn):
    for message in turn.messages:
        await turn.session.add(message)
    await loop(turn.session, turn.ask)


async def main():
    async with holdfast.open_store("sqlite:s.db") as store, store.session("s") as session:
        await session.add("Hello")

        async def ask():
            return {"role": "assistant", "content": "Hello."}

        await loop(session, ask)


if __name__ == "__main__":
    asyncio.run(main())
"""
