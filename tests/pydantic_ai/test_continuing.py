"""Going on from a session: with its history, from an earlier version, elsewhere, under another agent."""

from __future__ import annotations

from typing import Any

from pydantic_ai.messages import UserPromptPart

import holdfast
from holdfast.adapters.pydantic_ai import Durable, as_tools, continue_run, effects, fork_run
from holdfast.agents import ScriptedModel
from holdfast.drivers.memory import MemoryDriver
from holdfast.messages import Message, Text

from .scripted_runs import SESSION, Script, call, kill, killed, look, results

PURE = effects(side_effects=())


async def test_a_session_gives_its_history_to_go_on_with() -> None:
    script = Script("one", "two")
    agent = script.agent()
    async with holdfast.open_store("memory:") as store:
        first = await agent.run("a", capabilities=[Durable(store, session="user:1")])
        on = await continue_run(store, session="user:1")
        assert (on.messages, on.version) == (first.all_messages(), 1)
        second = await agent.run(
            "b", message_history=on.messages, capabilities=[Durable(store, session=on.session)]
        )
        assert second.output == "two"
        assert [message.text for message in (await look(store, "user.3a.1")).transcript] == [
            "a", "one", "b", "two",
        ]  # fmt: skip


async def test_a_step_that_was_cut_off_is_left_behind() -> None:
    script = Script([call("go", n=1)], [call("go", n=2)], "done")
    url = MemoryDriver()

    async def drive(store: holdfast.Store) -> Any:
        agent = script.agent()

        @agent.tool_plain(metadata=PURE)
        async def go(n: int) -> int:
            if n == 2:
                kill(store)
            return n

        return await agent.run("a", capabilities=[Durable(store, session=SESSION)])

    await killed(url, drive)
    async with holdfast.open_store(url) as store:
        assert not (await look(store)).continuable
        on = await continue_run(store, session=SESSION)
        assert results(on.messages) == [1]
        assert (await look(store)).continuable


async def test_a_fork_may_begin_with_an_earlier_version_and_does_nothing_twice() -> None:
    """What theirs cannot."""
    script = Script([call("send", to="a")], [call("send", "c1", to="b")], "done")
    log: list[str] = []
    agent = script.agent()

    @agent.tool_plain(metadata=effects(side_effects={"mutate"}))
    async def send(to: str) -> str:
        log.append(to)
        return f"sent to {to}"

    async with holdfast.open_store("memory:") as store:
        await agent.run("a", capabilities=[Durable(store, session=SESSION)])
        forked = await fork_run(store, session=SESSION, version=1, into="another way")
        assert results(forked.messages) == ["sent to a"]
        other = Script("", [call("send", to="a")], "well")
        second = other.agent(name="other")
        second.tool_plain(metadata=effects(side_effects={"mutate"}), name="send")(send)
        result = await second.run(
            "b", message_history=forked.messages, capabilities=[Durable(store, session=forked.session)]
        )
        assert result.output == "well"
        assert "[idempotent replay of" in results(result.all_messages())[-1]
        assert (await look(store, holdfast.records.fit_session_id(forked.session))).continuable
        assert len((await look(store)).transcript) == 6
    assert log == ["a", "b"]


async def test_a_session_of_holdfasts_own_agent_can_be_gone_on_with() -> None:
    script = Script("zero", "one")
    async with holdfast.open_store("memory:") as store:
        agent = holdfast.Agent(ScriptedModel(["hello"]), name="own")
        await agent.run("a", session=SESSION, store=store)
        on = await continue_run(store, session=SESSION)
        result = await script.agent().run(
            "b", message_history=on.messages, capabilities=[Durable(store, session=SESSION)]
        )
        assert result.output == "one"
        [asked] = script.seen[0][0].parts
        assert isinstance(asked, UserPromptPart)
        assert asked.content == "a"


async def test_holdfasts_own_agent_can_go_on_with_a_session_of_pydantic_ai() -> None:
    from holdfast.formats.own_blocks import to_own_message

    agent = Script([call("add", a=1)], "three").agent()

    @agent.tool_plain(metadata=PURE)
    def add(a: int) -> dict[str, int]:
        return {"sum": a}

    async with holdfast.open_store("memory:") as store:
        await agent.run("a", capabilities=[Durable(store, session=SESSION)])
        shown = [to_own_message(message) for message in (await look(store)).transcript]
        assert shown[0] == Message(role="user", blocks=(Text("a"),))
        assert [call.name for call in shown[1].tool_calls] == ["add"]
        [result] = shown[2].blocks
        assert isinstance(result, holdfast.messages.ToolResult)
        assert result.content == '{"sum":1}'
        assert shown[3].text == "three"
        mine = holdfast.Agent(ScriptedModel(["", "", "four"]), name="own")
        assert (await mine.run("b", session=SESSION, store=store)).output == "four"


async def test_tools_declared_with_our_decorator_are_tools_of_theirs() -> None:
    seen: list[Any] = []

    @holdfast.tool(side_effects={"mutate"}, scope="call")
    async def charge(ctx: holdfast.ToolContext[str], order: str, cents: int = 100) -> str:
        """Charge the card on file."""
        seen.append((ctx.deps, order, cents))
        await ctx.annotate(vendor="v")
        return ctx.key

    script = Script([call("charge", order="7")], "done")
    agent = script.agent(deps_type=str, tools=as_tools(charge))
    async with holdfast.open_store("memory:") as store:
        result = await agent.run("a", deps="bank", capabilities=[Durable(store, session=SESSION)])
        (row,) = (await look(store)).facts.effects.rows.values()
        assert results(result.all_messages()) == [row.key]
        assert (row.scope, row.notes) == ("call", {"vendor": "v"})
    assert seen == [("bank", "7", 100)]
