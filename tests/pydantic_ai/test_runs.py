"""Runs of pydantic-ai's agents in a session: what arrives there, and what a second run is given."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import anyio
import anyio.to_thread
import pytest
from pydantic import BaseModel
from pydantic_ai import Agent, BinaryContent, ModelRetry, RunContext, ToolReturn, UsageLimits
from pydantic_ai.exceptions import UnexpectedModelBehavior, UsageLimitExceeded
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    TextPart,
    UserPromptPart,
)
from pydantic_ai.models.test import TestModel
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import FunctionToolset

import holdfast
from holdfast import LeaseHeld
from holdfast.adapters.pydantic_ai import (
    Durable,
    RunWaits,
    annotate,
    continue_run,
    current_effect,
    effects,
    fork_run,
)
from holdfast.adapters.pydantic_ai.declarations import Declarations
from holdfast.drivers.memory import MemoryDriver
from holdfast.errors import RunExists
from holdfast.messages import ForeignMessage

from .scripted_runs import SESSION, Script, call, kill, killed, look, results

PURE = effects(side_effects=())
MUTATES = effects(side_effects={"mutate"})


async def test_a_run_arrives_in_its_session() -> None:
    script = Script([call("add", a=1, b=2)], "three")
    agent = script.agent()
    agent.tool_plain(metadata=PURE)(add)
    async with holdfast.open_store("memory:") as store:
        result = await agent.run("What is 1 + 2?", capabilities=[Durable(store, session=SESSION)])
        assert result.output == "three"
        state = await look(store)
        assert [message.role for message in state.transcript] == ["user", "assistant", "tool", "assistant"]
        assert state.facts.head.title == "What is 1 + 2?"
        assert state.continuable
        assert state.version == 2
        assert state.facts.head.status == "completed"
        assert state.facts.head.tool_calls == 1
        assert state.facts.head.usage.input_tokens == result.usage.input_tokens
        (run,) = [run async for run in store.runs(session=SESSION)]
        assert (run.agent, run.status) == ("clerk", "completed")
        assert run.run.startswith("clerk-")
        assert result.all_messages()[0].run_id == run.run


def add(a: int, b: int) -> int:
    return a + b


def gone() -> str:
    return "gone"


async def test_messages_are_kept_verbatim() -> None:
    """Every field that this version of pydantic-ai writes, and whatever a newer one adds."""
    script = Script([call("snap")], "nice")
    agent = script.agent()

    picture = BinaryContent(b"\x00png", media_type="image/png")

    @agent.tool_plain(metadata=PURE)
    def snap() -> ToolReturn[Any]:
        return ToolReturn("taken", content=[picture], metadata={"x": 1})

    async with holdfast.open_store("memory:") as store:
        result = await agent.run(
            ["look", BinaryContent(b"\xff\xfe", media_type="image/png")],
            capabilities=[Durable(store, session=SESSION)],
        )
        state = await look(store)
        kept = [message.data for message in state.transcript if isinstance(message, ForeignMessage)]
        assert kept == ModelMessagesTypeAdapter.dump_python(result.all_messages(), mode="json")


async def test_a_second_run_with_the_history_goes_on_with_the_conversation() -> None:
    script = Script("one", "two")
    agent = script.agent()
    async with holdfast.open_store("memory:") as store:
        durable = Durable(store, session=SESSION)
        first = await agent.run("a", capabilities=[durable])
        second = await agent.run("b", message_history=first.all_messages(), capabilities=[durable])
        assert (second.output, len(second.new_messages())) == ("two", 2)
        state = await look(store)
        assert [message.text for message in state.transcript] == ["a", "one", "b", "two"]


async def test_a_history_from_elsewhere_is_recorded_first() -> None:
    history: list[ModelMessage] = [
        ModelRequest(parts=[UserPromptPart("before")]),
        ModelResponse(parts=[TextPart("indeed")]),
    ]
    agent = Script("zero", "one").agent()
    async with holdfast.open_store("memory:") as store:
        await agent.run("now", message_history=history, capabilities=[Durable(store, session=SESSION)])
        state = await look(store)
        assert [message.text for message in state.transcript] == ["before", "indeed", "now", "one"]


async def test_a_conversation_is_a_session_where_none_is_named() -> None:
    agent = Script("hello").agent()
    async with holdfast.open_store("memory:") as store:
        result = await agent.run("a", conversation_id="user:42", capabilities=[Durable(store)])
        state = await look(store, "user.3a.42")
        assert state.facts.head.labels["session"] == "user:42"
        assert result.all_messages()[-1].conversation_id == "user:42"


@pytest.mark.parametrize("spoken", ["user:" + "x" * 300, "user\x1b[2J" + "x" * 300])
async def test_a_long_id_is_a_digest_and_its_original_a_label(spoken: str) -> None:
    """Of the conversation and of the run; two that begin alike are two."""
    agent = Script("hello").agent()
    async with holdfast.open_store("memory:") as store:
        for one in (spoken, spoken + "y"):
            await agent.run("a", conversation_id=one, run_id=one, capabilities=[Durable(store)])
            session = holdfast.records.fit_session_id(one)
            head = (await look(store, session)).facts.head
            assert head.labels["session"] == one.replace("\x1b", "\\x1b")
            (run,) = [run async for run in store.runs(session=session)]
            assert run.run == session
            assert run.config["pydantic_ai"]["original_run_id"] == one
        assert len([head async for head in store.sessions()]) == 2
        found = await continue_run(store, session=spoken)
        assert (found.session, len(found.messages)) == (spoken, 2)
        forked = await fork_run(store, session=spoken, into=spoken + "z")
        assert forked.session == spoken + "z"
        head = await store.head(holdfast.records.fit_session_id(spoken + "z"))
        assert head.labels["session"] == (spoken + "z").replace("\x1b", "\\x1b")


async def test_the_session_is_the_conversation_where_none_is_given() -> None:
    agent = Script("hello").agent()
    async with holdfast.open_store("memory:") as store:
        result = await agent.run("a", capabilities=[Durable(store, session="a@example.org")])
        assert result.all_messages()[0].conversation_id == "a@example.org"
        assert (await look(store, holdfast.records.fit_session_id("a@example.org"))).facts.head.messages == 2


async def test_a_session_may_depend_on_the_run() -> None:
    agent = Script("hello").agent(deps_type=str)
    durable: Any = None
    async with holdfast.open_store("memory:") as store:
        durable = Durable(store, session=lambda ctx: f"for-{ctx.deps}")
        await agent.run("a", deps="ann", capabilities=[durable])
        assert (await look(store, "for-ann")).facts.head.messages == 2


async def test_a_run_id_of_the_callers_own_is_used_once() -> None:
    agent = Script("one").agent()
    async with holdfast.open_store("memory:") as store:
        await agent.run("a", run_id="job 1", capabilities=[Durable(store, session="x")])
        (run,) = [run.run async for run in store.runs(session="x")]
        assert run == "job.20.1"
        for session in ("x", "y"):
            with pytest.raises(RunExists, match="give them the same session"):
                await agent.run("b", run_id="job 1", capabilities=[Durable(store, session=session)])
        (run,) = [run.status async for run in store.runs(session="x")]
        assert run == "completed"


async def test_a_run_id_of_the_callers_own_may_be_given_again_to_go_on() -> None:
    script = Script([call("go")], "done")
    url = MemoryDriver()
    dies = True

    def agent(store: holdfast.Store) -> Agent[Any, Any]:
        made = script.agent()

        @made.tool_plain(metadata=PURE)
        async def go() -> str:
            if dies:
                kill(store)
            return "gone"

        return made

    def drive(store: holdfast.Store) -> Any:
        return agent(store).run("a", run_id="job", capabilities=[Durable(store, session=SESSION)])

    await killed(url, drive)
    dies = False
    async with holdfast.open_store(url) as store:
        assert (await drive(store)).output == "done"
        runs = [(run.run, run.status, run.continues) async for run in store.runs(session=SESSION)]
        assert runs[0] == ("job", "interrupted", None)
        assert runs[1][1:] == ("completed", "job")
    assert script.asked == [0, 1]


async def test_a_run_that_was_completed_is_followed_by_a_new_one() -> None:
    script = Script("one")
    agent = script.agent()
    async with holdfast.open_store("memory:") as store:
        for _ in range(2):
            await agent.run("a", capabilities=[Durable(store, session=SESSION)])
        assert script.asked == [0, 0]
        await agent.run("a", capabilities=[Durable(store, session=SESSION, once=True)])
        assert script.asked == [0, 0]


async def test_a_second_driver_is_refused_and_told_who_has_it() -> None:
    agent = Script("one").agent()
    url = MemoryDriver()
    async with holdfast.open_store(url) as store, holdfast.open_store(url) as other:
        async with other.session(SESSION):
            with pytest.raises(LeaseHeld, match="is held by"):
                await agent.run("a", capabilities=[Durable(store, session=SESSION)])


async def test_a_tool_that_raises_ends_the_run_and_its_neighbours_are_kept() -> None:
    """As without durability; run again, what was done is not done again."""
    script = Script([call("charge", "c0"), call("find", "c1")], "done")
    agent, log, fails = script.agent(), [], True

    @agent.tool_plain(metadata=MUTATES)
    async def charge() -> str:
        log.append("charge")
        return "charged"

    @agent.tool_plain(metadata=PURE, sequential=True)
    async def find() -> str:
        if fails:
            raise KeyError("find")
        return "found"

    async with holdfast.open_store("memory:") as store:
        durable = Durable(store, session=SESSION)
        with pytest.raises(KeyError, match="find"):
            await agent.run("a", capabilities=[durable])
        assert (await look(store)).facts.head.status == "failed"
        fails = False
        result = await agent.run("a", capabilities=[durable])
        assert results(result.all_messages()) == ["charged", "found"]
    assert (log, script.asked) == (["charge"], [0, 1])


async def test_an_exception_from_a_tool_with_side_effects_leaves_it_in_doubt() -> None:
    script = Script([call("charge")], "done")
    agent, log = script.agent(), []

    @agent.tool_plain(metadata=MUTATES)
    async def charge() -> str:
        log.append("charge")
        raise TimeoutError("no answer")

    async with holdfast.open_store("memory:") as store:
        durable = Durable(store, session=SESSION)
        with pytest.raises(TimeoutError, match="no answer") as raised:
            await agent.run("a", capabilities=[durable])
        assert "Whether it happened is not known" in raised.value.__notes__[0]
        with pytest.raises(RunWaits) as waits:
            await agent.run("a", capabilities=[durable])
        (one,) = waits.value.waiting
        assert (one.tool, one.kind) == ("charge", "in_doubt")
        assert (await look(store)).facts.head.status == "waiting"
        await store.resolve(SESSION, one.call, "landed", by="ann", result="paid by hand")
        result = await agent.run("a", capabilities=[durable])
        assert results(result.all_messages()) == ["paid by hand"]
    assert (log, script.asked) == (["charge"], [0, 1])


async def test_a_retry_asked_for_by_a_tool_is_not_in_doubt() -> None:
    script = Script([call("charge", cents=1)], [call("charge", cents=2)], "done")
    agent, log = script.agent(), []

    @agent.tool_plain(metadata=MUTATES, retries=2)
    async def charge(cents: int) -> str:
        log.append(cents)
        if cents == 1:
            raise ModelRetry("more, please")
        return "charged"

    async with holdfast.open_store("memory:") as store:
        result = await agent.run("a", capabilities=[Durable(store, session=SESSION, once=True)])
        assert result.output == "done"
        assert not (await look(store)).in_doubt
        again = await agent.run("a", capabilities=[Durable(store, session=SESSION, once=True)])
        assert again.all_messages()[2].parts == result.all_messages()[2].parts
        assert again.usage == result.usage
    assert (log, script.asked) == ([1, 2], [0, 1, 2])


@pytest.mark.parametrize("metadata", [PURE, effects(side_effects={"write"}), MUTATES, None])
async def test_a_retry_that_a_tool_asks_for_is_no_loop(metadata: dict[str, Any] | None) -> None:
    """The same call with the same arguments, as often as the agent allows, and over a crash as well."""
    script = Script(*([call("fetch", n=1)] for _ in range(4)), "done")
    log: list[int] = []
    url, dies = MemoryDriver(), True

    async def drive(store: holdfast.Store) -> Any:
        agent = script.agent()

        @agent.tool_plain(metadata=metadata, retries=5)
        async def fetch(n: int) -> str:
            if dies and len(log) == 2:
                kill(store)
            log.append(n)
            if len(log) < 4:
                raise ModelRetry("not yet")
            return "there"

        durable = Durable(store, session=SESSION, in_doubt="tell")
        return await agent.run("a", capabilities=[durable], usage_limits=UsageLimits(request_limit=10))

    await killed(url, drive)
    dies = False
    if metadata in (MUTATES, None):  # What was cut off in the middle is for a person to say.
        async with holdfast.open_store(url) as store:
            (doubt,) = [one async for one in store.in_doubt()]
            await store.resolve(SESSION, doubt.effect.call.id, "not_landed", by="ann")
    async with holdfast.open_store(url) as store:
        result = await drive(store)
        assert result.output == "done"
        assert "there" in results(result.all_messages())[-1]
    assert log == [1, 1, 1, 1]


async def test_the_same_result_over_and_over_is_a_loop_although_retries_came_before() -> None:
    """Retries are the tool's own wish; what comes after them counts as ever."""
    script = Script(*([call("fetch")] for _ in range(5)), "done")
    agent, log = script.agent(), []

    @agent.tool_plain(metadata=PURE, retries=5)
    async def fetch() -> str:
        log.append("fetch")
        if len(log) < 3:
            raise ModelRetry("not yet")
        return "there"

    async with holdfast.open_store("memory:") as store:
        result = await agent.run("a", capabilities=[Durable(store, session=SESSION)])
    assert len(log) == 4
    assert "tool-call loop detected" in results(result.all_messages())[-1]


async def test_an_effect_cut_off_by_the_timeout_of_its_tool_is_in_doubt() -> None:
    """pydantic-ai says it as a request for a retry, but it is not known what the body has done by then."""
    script = Script([call("charge")], "done")
    agent, log = script.agent(), []

    @agent.tool_plain(metadata=MUTATES, retries=2, timeout=0.01)
    async def charge() -> None:
        log.append("charge")
        await anyio.sleep_forever()

    async with holdfast.open_store("memory:") as store:
        with pytest.raises(RunWaits):
            await agent.run("a", capabilities=[Durable(store, session=SESSION)])
        assert [row.tool for row in (await look(store)).in_doubt] == ["charge"]
    assert log == ["charge"]


async def test_a_look_cut_off_by_the_timeout_of_its_tool_is_retried() -> None:
    """As without a session."""
    script = Script([call("peek")], [call("peek")], "done")
    agent, log = script.agent(), []

    @agent.tool_plain(metadata=effects(side_effects={"read"}), retries=2, timeout=0.01)
    async def peek() -> str:
        log.append("peek")
        if len(log) == 1:
            await anyio.sleep_forever()
        return "seen"

    async with holdfast.open_store("memory:") as store:
        result = await agent.run("a", capabilities=[Durable(store, session=SESSION)])
    assert (result.output, len(log)) == ("done", 2)


async def test_retries_count_across_a_crash() -> None:
    """One that was spent before it is not given again."""
    script = Script([call("pick", n=1)], [call("pick", n=2)], [call("pick", n=3)], "done")
    url = MemoryDriver()
    dies = True

    async def drive(store: holdfast.Store) -> Any:
        agent = script.agent()

        @agent.tool_plain(metadata=PURE, retries=2)
        async def pick(n: int) -> str:
            if n == 2 and dies:
                kill(store)
            raise ModelRetry(f"not {n}")

        return await agent.run("a", capabilities=[Durable(store, session=SESSION)])

    await killed(url, drive)
    dies = False
    async with holdfast.open_store(url) as store:
        with pytest.raises(UnexpectedModelBehavior, match="exceeded max retries"):
            await drive(store)
    assert script.asked == [0, 1, 2]


async def test_a_run_that_failed_on_the_replies_it_got_is_not_gone_on_with() -> None:
    script = Script([call("pick")], "never")
    agent = script.agent()

    @agent.tool_plain(metadata=PURE, retries=0)
    def pick() -> str:
        raise ModelRetry("no")

    async with holdfast.open_store("memory:") as store:
        for _ in range(2):
            with pytest.raises(UnexpectedModelBehavior):
                await agent.run("a", capabilities=[Durable(store, session=SESSION)])
    assert script.asked == [0, 0]


class Answer(BaseModel):
    """What is asked for."""

    total: int


async def test_output_tools_and_their_retries_work() -> None:
    script = Script([call("final_result", total="many")], [call("final_result", "c1", total=3)])
    agent = script.agent(output_type=Answer, retries={"output": 2})
    async with holdfast.open_store("memory:") as store:
        result = await agent.run("a", capabilities=[Durable(store, session=SESSION, once=True)])
        assert result.output == Answer(total=3)
        state = await look(store)
        assert state.continuable
        assert len(state.transcript) == 5
        again = await agent.run("a", capabilities=[Durable(store, session=SESSION, once=True)])
        assert again.output == Answer(total=3)
        assert (await look(store)).facts.head.messages == 5
    assert script.asked == [0, 1]


async def test_usage_limits_see_what_was_spent_before_a_crash() -> None:
    script = Script([call("go", n=1)], [call("go", n=2)], [call("go", n=3)], "done")
    url = MemoryDriver()
    dies = True

    async def drive(store: holdfast.Store) -> Any:
        agent = script.agent()

        @agent.tool_plain(metadata=PURE)
        async def go(n: int) -> int:
            if n == 2 and dies:
                kill(store)
            return n

        limits = UsageLimits(request_limit=3)
        return await agent.run("a", usage_limits=limits, capabilities=[Durable(store, session=SESSION)])

    await killed(url, drive)
    dies = False
    async with holdfast.open_store(url) as store:
        with pytest.raises(UsageLimitExceeded, match="request_limit of 3"):
            await drive(store)
    assert script.asked == [0, 1, 2]


async def test_streamed_runs_are_recorded_and_given_again() -> None:
    script = Script([call("add", a=1, b=2)], "it is three")
    agent = script.agent()
    agent.tool_plain(metadata=PURE)(add)
    async with holdfast.open_store("memory:") as store:
        for _ in range(2):
            durable = Durable(store, session=SESSION, once=True)
            async with agent.run_stream("a", capabilities=[durable]) as stream:
                assert (await stream.get_output()).strip() == "it is three"
        state = await look(store)
        assert len(state.transcript) == 4
        assert state.continuable
        durable = Durable(store, session=SESSION, once=True)
        async with agent.run_stream_events("a", capabilities=[durable]) as stream_of_events:
            events = [event async for event in stream_of_events]
        assert any(type(event).__name__ == "FunctionToolResultEvent" for event in events)
    assert script.asked == [0, 1]


async def test_a_run_that_is_iterated_over_and_left_goes_on_later() -> None:
    script = Script([call("add", a=1, b=2)], "three")
    agent = script.agent()
    agent.tool_plain(metadata=PURE)(add)
    async with holdfast.open_store("memory:") as store:
        durable = Durable(store, session=SESSION)
        async with agent.iter("a", capabilities=[durable]) as run:
            async for node in run:
                if type(node).__name__ == "CallToolsNode":
                    break
        assert (await look(store)).facts.head.status == "cancelled"
        assert (await agent.run("a", capabilities=[durable])).output == "three"
    assert script.asked == [0, 1]


async def test_a_sync_run_opens_the_store_by_its_url(tmp_path: Any) -> None:
    agent = Script("one").agent()
    url = f"sqlite:{tmp_path}/store.db"

    def run() -> str:
        loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)
        try:
            return str(agent.run_sync("a", capabilities=[Durable(url, session=SESSION)]).output)
        finally:
            loop.close()

    assert await anyio.to_thread.run_sync(run) == "one"
    async with holdfast.open_store(url) as store:
        assert len((await look(store)).transcript) == 2


async def test_dynamic_toolsets_go_through_the_ledger() -> None:
    script = Script([call("send", to="a")], [call("send", to="a")], "done")
    agent, log = script.agent(), []

    def send(to: str) -> str:
        log.append(to)
        return f"sent to {to}"

    @agent.toolset
    def tools(ctx: RunContext[Any]) -> FunctionToolset[Any]:
        made: FunctionToolset[Any] = FunctionToolset()
        made.add_function(send)
        return made

    async with holdfast.open_store("memory:") as store:
        durable = Durable(store, session=SESSION, effects={"send": MUTATES})
        result = await agent.run("a", capabilities=[durable])
        first, second = results(result.all_messages())
        assert first == "sent to a"
        assert second.startswith("[idempotent replay of m")
        assert second.endswith("sent to a")
    assert log == ["a"]


async def test_what_an_mcp_server_says_of_a_tool_counts() -> None:
    from pydantic_ai.tools import ToolDefinition

    from holdfast.adapters.pydantic_ai.declarations import Declarations

    def effects_of(*, trust: bool = False, **hints: bool) -> tuple[set[str], str]:
        definition = ToolDefinition(name="t", metadata={"annotations": hints or None})
        found = Declarations({}, 300.0, trust=trust).find(definition)
        return set(found.side_effects), str(found.scope)

    assert effects_of(readOnlyHint=True) == ({"read"}, "call")
    assert effects_of(idempotentHint=True, destructiveHint=True) == ({"mutate"}, "call")
    assert effects_of(idempotentHint=True, trust=True) == ({"write"}, "call")
    assert effects_of(destructiveHint=False) == ({"mutate"}, "call")
    assert effects_of() == ({"mutate"}, "call")


async def test_a_tool_that_declares_nothing_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    script = Script([call("push", n=1)], [call("push", n=1)], "done")
    agent, log = script.agent(), []

    @agent.tool_plain
    def push(n: int) -> str:
        log.append(n)
        return f"pushed {len(log)}"

    async with holdfast.open_store("memory:") as store:
        durable = Durable(store, session=SESSION)
        with caplog.at_level(logging.WARNING, logger="holdfast"):
            for _ in range(2):
                await agent.run("a", capabilities=[durable])
        rows = (await look(store)).facts.effects.rows.values()
        assert {(row.side_effects, row.scope) for row in rows} == {(("mutate",), "call")}
    assert len([one for one in caplog.records if "does not say what it does" in one.message]) == 1
    assert log == [1, 1, 1, 1]


async def test_a_tool_has_a_key_and_can_annotate_its_effect() -> None:
    script = Script([call("charge")], "done")
    agent, keys = script.agent(), []

    @agent.tool_plain(metadata=MUTATES)
    async def charge() -> str:
        keys.append(current_effect().key)
        await annotate(vendor="v-17")
        return "charged"

    async with holdfast.open_store("memory:") as store:
        await agent.run("a", capabilities=[Durable(store, session=SESSION)])
        (row,) = (await look(store)).facts.effects.rows.values()
        assert (row.key, row.notes) == (keys[0], {"vendor": "v-17"})
    with pytest.raises(holdfast.errors.BadInput, match="for tools of an agent with Durable"):
        current_effect()


def test_side_effects_are_a_name_or_a_set_of_names() -> None:
    """As in `holdfast.tool`; and what is wrong is refused at once."""
    declarations = Declarations({"a": effects(side_effects="write"), "b": effects(side_effects={"write"})}, 1)
    for name in ("a", "b"):
        assert declarations.find(ToolDefinition(name=name)).side_effects == {"write"}
    with pytest.raises(holdfast.errors.BadInput, match="unknown side effects"):
        effects(side_effects="destroy")  # type: ignore[arg-type]


async def test_a_policy_and_the_loop_gate_stand_before_the_tools() -> None:
    same = [call("poke")]
    script = Script(same, same, same, [call("drop")], "done")
    agent, log = script.agent(), []

    @agent.tool_plain(metadata=effects(side_effects={"read"}))
    def poke() -> str:
        log.append("poke")
        return "still"

    @agent.tool_plain(metadata=MUTATES)
    def drop() -> str:
        raise AssertionError("never entered")

    async with holdfast.open_store("memory:") as store:
        policy = holdfast.tools.Policy(holdfast.tools.deny("drop", why="not here"))
        result = await agent.run("a", capabilities=[Durable(store, session=SESSION, policy=policy)])
        said = results(result.all_messages())
        assert said[:2] == ["still", "still"]
        assert "tool-call loop detected" in said[2]
        assert said[3] == "drop: denied. not here"
    assert log == ["poke", "poke"]


async def test_a_budget_of_the_session_stops_the_run() -> None:
    agent = Script([call("go")], "done").agent()
    agent.tool_plain(metadata=PURE, name="go")(gone)
    async with holdfast.open_store("memory:") as store:
        async with store.session(SESSION) as session:
            await session.set_budget(holdfast.Budget(steps=1))
        with pytest.raises(holdfast.errors.BudgetSpent):
            await agent.run("a", capabilities=[Durable(store, session=SESSION)])
        assert (await look(store)).facts.head.reason == "budget_spent"


async def test_another_prompt_leaves_the_unfinished_run_behind(caplog: pytest.LogCaptureFixture) -> None:
    script = Script([call("go")], "done")
    url = MemoryDriver()
    prompt = "first"

    async def drive(store: holdfast.Store) -> Any:
        agent = script.agent()

        @agent.tool_plain(metadata=PURE)
        async def go() -> str:
            if prompt == "first":
                kill(store)
            return "gone"

        return await agent.run(prompt, capabilities=[Durable(store, session=SESSION)])

    await killed(url, drive)
    prompt = "second"
    async with holdfast.open_store(url) as store:
        with caplog.at_level(logging.WARNING, logger="holdfast"):
            assert (await drive(store)).output == "done"
        assert "it is abandoned" in caplog.text
        state = await look(store)
        assert state.continuable
        assert [message.text for message in state.transcript][-4:] == ["second", "", "", "done"]
    assert script.asked == [0, 0, 1]


async def test_the_capability_may_be_the_agents_own() -> None:
    async with holdfast.open_store("memory:") as store:
        agent = Agent(TestModel(), name="clerk", capabilities=[Durable(store, session=SESSION)])
        agent.tool_plain(metadata=PURE, name="go")(gone)
        await agent.run("a")
        # One given to a run takes its place.
        await agent.run("a", capabilities=[Durable(store, session="other")])
        for session in (SESSION, "other"):
            assert len((await look(store, session)).transcript) == 4


async def test_options_that_make_no_sense_are_refused_at_once() -> None:
    with pytest.raises(holdfast.errors.BadInput, match="in_doubt is 'wait' or 'tell'"):
        Durable("memory:", session=SESSION, in_doubt="guess")  # type: ignore[arg-type]
    with pytest.raises(holdfast.errors.BadInput, match=r"or what the functions .* mutate\(verify=…\)"):
        Durable("memory:", session=SESSION, effects={"send": {"side_effects": {"read"}}})
    with pytest.raises(holdfast.errors.BadInput, match="unknown side effects"):
        effects(side_effects={"sings"})  # type: ignore[arg-type]


async def test_what_json_cannot_say_is_described() -> None:
    script = Script([call("measure")], "done")
    agent = script.agent()

    @agent.tool_plain(metadata=PURE)
    def measure() -> str:
        return "half a character: \ud800"

    async with holdfast.open_store("memory:") as store:
        await agent.run("a", capabilities=[Durable(store, session=SESSION)])
        message = (await look(store)).transcript[2]
        assert isinstance(message, ForeignMessage)
        assert message.data["parts"][0]["content"] == "half a character: \\ud800"


async def test_media_are_kept_in_blobs_and_come_back() -> None:
    picture = BinaryContent(bytes(range(256)) * 400, media_type="image/png")
    script = Script([call("snap")], "nice")
    agent = script.agent()

    @agent.tool_plain(metadata=PURE)
    def snap() -> BinaryContent:
        return picture

    async with holdfast.open_store("memory:") as store:
        durable = Durable(store, session=SESSION, once=True)
        result = await agent.run(["look", picture], capabilities=[durable])
        sizes = [blob.size async for blob in store.blobs()]
        assert sizes.count(len(picture.data)) == 1, "in messages and ledger alike, it is kept once"
        on = await continue_run(store, session=SESSION)
        write = ModelMessagesTypeAdapter.dump_json
        assert write(on.messages) == write(result.all_messages())
        again = await agent.run(["look", picture], capabilities=[durable])
        assert again.output == "nice"
    assert script.asked == [0, 1]
