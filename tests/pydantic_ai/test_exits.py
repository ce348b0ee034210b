"""Tools of pydantic-ai that ask the process to end, raise, or clean up after themselves."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Any

import anyio
import pytest
from pydantic_ai import Agent, ModelResponse, RunContext
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import ModelMessage, ToolReturn
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.models.test import TestModel
from pydantic_ai.settings import ModelSettings

import holdfast
from holdfast import Landed
from holdfast.adapters.pydantic_ai import Durable, RunWaits, effects
from holdfast.drivers.memory import MemoryDriver
from holdfast.errors import BadInput

from .scripted_runs import SESSION, Script, call, kill, killed, look, results

READS = effects(side_effects={"read"})
MUTATES = effects(side_effects={"mutate"})


@pytest.mark.parametrize("sync", [False, True])
@pytest.mark.parametrize("alone", [False, True])
def test_a_tool_that_ends_the_process_does_so_once_it_is_on_record(sync: bool, alone: bool) -> None:
    """Its neighbours get their grace, the session is let go, and the same run goes on afterwards."""
    calls = [call("leave", "c0"), *([] if alone else [call("act", "c1")])]
    script, url = Script(calls, "done"), MemoryDriver()
    left: list[str] = []
    done: list[str] = []

    def agent() -> Agent[Any, Any]:
        made, loop = script.agent(), asyncio.get_running_loop()

        began = anyio.Event()

        def leave_once() -> str:
            loop.call_soon_threadsafe(began.set)
            if not left:
                left.append("once")
                sys.exit(3)
            return "back"

        async def leave() -> str:
            return leave_once()

        made.tool_plain(metadata=READS, name="leave")(leave_once if sync else leave)

        @made.tool_plain(metadata=MUTATES)
        async def act() -> str:
            await began.wait()
            done.append("act")
            return "acted"

        return made

    async def main() -> Any:
        async with holdfast.open_store(url) as store:
            durable = Durable(store, session=SESSION, grace_s=60)
            return await agent().run("a", capabilities=[durable])

    with pytest.raises(SystemExit) as caught:
        asyncio.run(main())
    assert caught.value.code == 3
    result = asyncio.run(main())
    assert result.output == "done"
    assert results(result.all_messages()) == (["back"] if alone else ["back", "acted"])
    assert done == ([] if alone else ["act"])


def test_an_effect_that_ends_the_process_is_in_doubt() -> None:
    """And waits for a person."""
    script, url = Script([call("charge")], "done"), MemoryDriver()
    agent = script.agent()

    @agent.tool_plain(metadata=MUTATES)
    async def charge() -> None:
        sys.exit("out of here")

    async def main() -> None:
        async with holdfast.open_store(url) as store:
            await agent.run("a", capabilities=[Durable(store, session=SESSION)])

    with pytest.raises(SystemExit):
        asyncio.run(main())
    with pytest.raises(RunWaits, match="charge"):
        asyncio.run(main())


def test_a_tool_of_an_inner_agent_ends_the_process_and_both_go_on() -> None:
    """Both sessions know of it, and the inner agent's work is found again."""
    left: list[str] = []
    url = MemoryDriver()
    outer, inner = Script([call("ask")], "done"), Script([call("leave")], "inner")

    async def main() -> Any:
        async with holdfast.open_store(url) as store:
            durable = Durable(store, session=SESSION)
            below, above = inner.agent(name="inner"), outer.agent()

            @below.tool_plain(metadata=READS)
            async def leave() -> str:
                if not left:
                    left.append("once")
                    sys.exit(3)
                return "back"

            @above.tool_plain(metadata=effects(side_effects=()))
            async def ask() -> str:
                try:
                    return str((await below.run("b", capabilities=[durable])).output)
                except Exception as error:  # It is none that a tool could make something of.
                    raise AssertionError from error

            return await above.run("a", capabilities=[durable])

    with pytest.raises(SystemExit):
        asyncio.run(main())
    assert asyncio.run(main()).output == "done"
    assert (outer.asked, inner.asked) == ([0, 1], [0, 1])


async def test_a_tool_that_raises_ends_the_run_unless_its_hook_knows_what_became_of_it() -> None:
    """What landed is given to the model, as if the tool had returned it."""
    script = Script([call("charge")], "done")
    agent, log = script.agent(), []

    def was_charged() -> Landed:
        return Landed("receipt")

    @agent.tool_plain(metadata=effects(side_effects={"mutate"}, verify=was_charged))
    async def charge() -> None:
        log.append("charge")
        raise ConnectionError("the line went dead")

    async with holdfast.open_store("memory:") as store:
        result = await agent.run("a", capabilities=[Durable(store, session=SESSION)])
    assert results(result.all_messages()) == ["receipt"]
    assert log == ["charge"]


@pytest.mark.parametrize("metadata", [READS, MUTATES])
async def test_a_tool_that_raises_ends_the_run(metadata: dict[str, Any]) -> None:
    """With its own exception."""
    agent = Script([call("charge")], "done").agent()

    @agent.tool_plain(metadata=metadata)
    async def charge() -> None:
        raise ConnectionError("the line went dead")

    async with holdfast.open_store("memory:") as store:
        with pytest.raises(ConnectionError, match="went dead"):
            await agent.run("a", capabilities=[Durable(store, session=SESSION)])
        doubts = [row.tool for row in (await look(store)).in_doubt]
        assert doubts == (["charge"] if metadata is MUTATES else [])


@pytest.mark.parametrize("metadata", [MUTATES, None])
async def test_the_cleanup_of_a_cancelled_effect_can_wait(metadata: dict[str, Any] | None) -> None:
    """After its grace the body is cancelled once; its `finally` has the same time again."""
    agent, log = Script([call("charge")], "done").agent(), []

    @agent.tool_plain(metadata=metadata)
    async def charge() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            await anyio.sleep(0.001)
            log.append("cleaned up")

    async with holdfast.open_store("memory:") as store:
        durable = Durable(store, session=SESSION, timeout_s=0.01, grace_s=60)
        with pytest.raises(RunWaits):
            await agent.run("a", capabilities=[durable])
        assert [row.why for row in (await look(store)).in_doubt] == ["it timed out"]
    assert log == ["cleaned up"]


async def test_a_cancelled_run_waits_no_longer_than_its_grace() -> None:
    """A grace of none is one."""
    agent, begun = Script([call("charge")], "done").agent(), anyio.Event()

    @agent.tool_plain(metadata=MUTATES)
    async def charge() -> None:
        begun.set()
        await anyio.sleep_forever()

    async with holdfast.open_store("memory:") as store:
        durable = Durable(store, session=SESSION, grace_s=0)
        task = asyncio.create_task(agent.run("a", capabilities=[durable]))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert [row.why for row in (await look(store)).in_doubt] == ["it was cancelled"]


async def test_an_effect_that_ends_in_its_grace_is_on_record_when_the_cancelled_run_has_ended() -> None:
    """The session stays open for it."""
    agent, begun, goes = Script([call("charge")], "done").agent(), anyio.Event(), anyio.Event()

    @agent.tool_plain(metadata=MUTATES)
    async def charge() -> str:
        begun.set()
        await goes.wait()
        return "charged"

    async with holdfast.open_store("memory:") as store:
        durable = Durable(store, session=SESSION, grace_s=60)
        task = asyncio.create_task(agent.run("a", capabilities=[durable]))
        await begun.wait()
        task.cancel()
        asyncio.get_running_loop().call_later(0.01, goes.set)
        with pytest.raises(asyncio.CancelledError):
            await task
        (row,) = (await look(store)).facts.effects.rows.values()
        assert row.status == "completed"
        assert not (await look(store)).in_doubt


@pytest.mark.parametrize("grace_s", [-1, float("nan"), float("inf")])
def test_a_grace_that_is_no_number_of_seconds_is_refused(grace_s: float) -> None:
    with pytest.raises(BadInput, match="grace_s"):
        Durable("memory:", grace_s=grace_s)


class Mute(Model):
    """A model that cannot stream."""

    @property
    def model_name(self) -> str:
        return "mute"

    @property
    def system(self) -> str:
        return "test"

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        return await TestModel().request(messages, model_settings, model_request_parameters)


async def test_a_model_that_cannot_stream_is_refused_in_the_words_of_the_framework() -> None:
    """As without a session; asked in one piece, it answers."""
    agent: Agent[None, str] = Agent(Mute())

    @agent.tool
    def where(ctx: RunContext[None]) -> str:
        return "here"

    async with holdfast.open_store("memory:") as store:
        with pytest.raises(UserError, match="Mute does not support streamed requests"):
            async with agent.run_stream("a", capabilities=[Durable(store, session=SESSION)]):
                pass
        assert (await agent.run("b", capabilities=[Durable(store, session="other")])).output


class Receipt:
    """Has no JSON form."""


@pytest.mark.parametrize(
    "make",
    [
        Receipt,
        lambda: {"deep": [Receipt()]},
        lambda: (letter for letter in "ab"),
        lambda: ToolReturn(Receipt()),
    ],
)
async def test_a_result_without_a_json_form_is_told_to_the_model_and_the_call_is_done(
    make: Callable[[], Any],
) -> None:
    """As a failed tool, not as a repr. After a kill it is told again, and nothing is repeated."""
    script, url, done, dies = Script([call("charge")], [call("go", "c1")], "done"), MemoryDriver(), [], True

    async def drive(store: holdfast.Store) -> Any:
        agent = script.agent()

        @agent.tool_plain(metadata=MUTATES)
        async def charge() -> Any:
            done.append("charge")
            return make()

        @agent.tool_plain(metadata=READS)
        async def go() -> str:
            if dies:
                kill(store)
            return "gone"

        return await agent.run("a", capabilities=[Durable(store, session=SESSION)])

    await killed(url, drive)
    dies = False
    async with holdfast.open_store(url) as store:
        result = await drive(store)
        rows = (await look(store)).facts.effects.rows.values()
    said, gone = results(result.all_messages())
    assert "charge: it ran, and its side effects are done. Its result cannot be kept: " in said
    assert "has no JSON form" in said
    assert (result.output, gone, done) == ("done", "gone", ["charge"])
    assert [row.status for row in rows if row.tool == "charge"] == ["completed"]
