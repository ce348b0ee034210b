"""The calls of a reply, together: one commit for the intents, side by side, results in the calls' order."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

import anyio
import anyio.lowlevel
import pytest

import holdfast
from holdfast import NotDone, Registry, ToolContext, open_store, tool
from holdfast.drivers.contract import Append, Outcome
from holdfast.errors import BadInput
from holdfast.messages import (
    CallPart,
    ForeignMessage,
    Message,
    Shape,
    Text,
    ToolCall,
    ToolResult,
    register_format,
)
from holdfast.records import find_problems
from holdfast.tools import Retry
from tests.drivers import kinds_of
from tests.internals import engine_of
from tests.tools.example_tools import Url, World, call, die, kinds, opened, reply, results


@pytest.fixture
def world() -> World:
    """The outside world."""
    return World()


def acting(world: World, **options: Any) -> Registry:
    """A registry with one tool."""

    @tool(**{"side_effects": {"mutate"}, **options})
    async def act(ctx: ToolContext[Any], what: str) -> str:
        """Do it."""
        return world.do(what, ctx.key)

    return Registry([act])


async def test_one_commit_carries_all_intents(store_url: Url, world: World) -> None:
    """However many calls there are."""
    registry = acting(world)
    # Entries that no caller waits for stay in memory, however long the five calls take to be made.
    async with open_store(store_url, linger_s=3600) as store, store.session("s") as session:
        await reply(session, *(call("act", {"what": f"{number}"}, f"c{number}") for number in range(5)))
        await session.flush()
        driver, commits = engine_of(store).driver, []
        commit = driver.commit

        def counted(batch: Sequence[Append], *, wait: bool = True) -> Sequence[Outcome]:
            commits.append([kind for item in batch for kind in kinds_of(item)])
            return commit(batch, wait=wait)

        driver.commit = counted  # type: ignore[method-assign]
        await registry.dispatch_step(session)
    assert commits[0] == ["tool.issued"] * 5
    assert sorted(world.done) == ["0", "1", "2", "3", "4"]


async def test_calls_run_side_by_side(store_url: Url) -> None:
    """Each of them waits for the other one: alone it would wait for ever."""
    here, there = anyio.Event(), anyio.Event()

    @tool(side_effects={"mutate"})
    async def a() -> None:
        here.set()
        await there.wait()

    @tool(side_effects={"read"})
    async def b() -> None:
        there.set()
        await here.wait()

    async with opened(store_url) as (_, session):
        await reply(session, call("a", id="x"), call("b", id="y"))
        with anyio.fail_after(60):
            found = await Registry([a, b]).dispatch_step(session)
        assert [one.status for one in found] == ["completed", "completed"]


async def test_two_calls_of_a_mutating_tool_run_side_by_side(store_url: Url) -> None:
    """Only what writes is kept in order."""
    inside = {"a": anyio.Event(), "b": anyio.Event()}

    @tool(side_effects={"mutate"})
    async def act(me: str, other: str) -> None:
        inside[me].set()
        await inside[other].wait()

    async with opened(store_url) as (_, session):
        await reply(
            session, call("act", {"me": "a", "other": "b"}, "x"), call("act", {"me": "b", "other": "a"}, "y")
        )
        with anyio.fail_after(60):
            results = await Registry([act]).dispatch_step(session)
        assert [result.status for result in results] == ["completed", "completed"]


async def test_the_writes_of_one_tool_run_in_the_order_of_the_reply(store_url: Url, world: World) -> None:
    """Nobody else waits for them; the second begins when the first has ended."""
    release = anyio.Event()
    running: list[str] = []

    @tool(side_effects={"write"})
    async def put(what: str) -> str:
        running.append(what)
        assert running == [what]
        await release.wait()
        running.remove(what)
        return world.do(what)

    @tool(side_effects={"write"})
    async def other() -> str:
        release.set()
        return world.do("other")

    async with opened(store_url) as (_, session):
        puts = [call("put", {"what": what}, what) for what in ("v3", "v1", "v2")]
        await reply(session, *puts, call("other", id="o"))
        with anyio.fail_after(60):
            found = await Registry([put, other]).dispatch_step(session)
        assert [one.content for one in found] == ["did v3", "did v1", "did v2", "did other"]
    assert world.done == ["other", "v3", "v1", "v2"]


async def test_results_stand_in_the_order_of_the_calls(store_url: Url) -> None:
    """Whichever came first; so a provider finds each where it expects it."""
    first = anyio.Event()

    @tool(side_effects={"read"})
    async def slow() -> str:
        await first.wait()
        return "slow"

    @tool(side_effects={"read"})
    async def fast() -> str:
        first.set()
        return "fast"

    registry = Registry([slow, fast])
    async with opened(store_url) as (_, session):
        await reply(session, call("slow", id="a"), call("nonsense", id="b"), call("fast", id="c"))
        found = await registry.dispatch_step(session)
        assert [one.call_id for one in found] == ["a", "b", "c"]
        assert [block.call_id for block in results(session)] == ["a", "b", "c"]
        assert [block.is_error for block in results(session)] == [False, True, False]
    async with opened(store_url) as (_, session):
        assert [block.call_id for block in results(session)] == ["a", "b", "c"]
        assert session.continuable


async def test_a_provider_may_use_its_call_ids_again(store_url: Url, world: World) -> None:
    """`call_0` each turn, and even twice in one reply: calls are told apart by their place."""
    registry = acting(world)
    async with opened(store_url) as (_, session):
        for turn in range(2):
            await reply(session, call("act", {"what": f"{turn} a"}), call("act", {"what": f"{turn} b"}))
            found = await registry.dispatch_step(session)
            assert [one.content for one in found] == [f"did {turn} a", f"did {turn} b"]
            assert [block.content for block in results(session)] == [f"did {turn} a", f"did {turn} b"]
            assert session.continuable
        assert find_problems(session.transcript) == ()
    assert len(world.done) == 4


async def test_equal_calls_in_one_reply_are_one_operation(store_url: Url, world: World) -> None:
    """The second joins the first, and each has its own result."""
    async with opened(store_url) as (_, session):
        await reply(session, call("act", {"what": "a"}, "x"), call("act", {"what": "a"}, "y"))
        found = await acting(world).dispatch_step(session)
        assert [one.replay_of for one in found] == [None, "x"]
        assert session.continuable
    assert world.done == ["a"]


@pytest.mark.parametrize("options", [{}, {"side_effects": {"write"}}, {"scope": "global"}, {"scope": "run"}])
async def test_concurrent_dispatch_of_one_operation_runs_once(
    options: dict[str, Any], store_url: Url, world: World
) -> None:
    """In one process: the others wait for the outcome of the first."""
    entered, release = anyio.Event(), anyio.Event()

    @tool(**{"side_effects": {"mutate"}, **options})
    async def act() -> str:
        entered.set()
        await release.wait()
        return world.do("it")

    registry = Registry([act], max_repeats=100)
    found: dict[str, holdfast.tools.Result] = {}
    async with opened(store_url) as (_, session):

        async def dispatch(id: str) -> None:
            found[id] = await registry.dispatch("act", {}, call_id=id, session=session)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(dispatch, "a")
            await entered.wait()
            for id in ("b", "c", "d"):
                tasks.start_soon(dispatch, id)
            for _ in range(20):
                await anyio.lowlevel.checkpoint()
            release.set()
    assert world.done == ["it"]
    assert {one.value for one in found.values()} == {"did it"}
    assert {found[id].replay_of for id in "bcd"} == {"a"}


async def test_who_joins_a_call_that_failed_does_it_itself(store_url: Url, world: World) -> None:
    """One after another, until it is done or everybody has failed."""
    entered = anyio.Event()
    fails = iter([True])

    @tool(side_effects={"mutate"})
    async def act() -> str:
        entered.set()
        await anyio.lowlevel.checkpoint()
        if next(fails, False):
            raise holdfast.NotDone("no")
        return world.do("it")

    registry = Registry([act], max_repeats=100)
    found: dict[str, str] = {}
    async with opened(store_url) as (_, session):

        async def dispatch(id: str) -> None:
            found[id] = (await registry.dispatch("act", {}, call_id=id, session=session)).status

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(dispatch, "a")
            await entered.wait()
            tasks.start_soon(dispatch, "b")
            tasks.start_soon(dispatch, "c")
    assert found == {"a": "failed", "b": "completed", "c": "completed"}
    assert world.done == ["it"]


async def test_one_bad_call_does_not_stop_the_others(store_url: Url, world: World) -> None:
    """An error is a result."""

    @tool(side_effects={"read"})
    async def broken() -> None:
        raise RuntimeError("broken")

    registry = acting(world)
    registry.add(broken)
    async with opened(store_url) as (_, session):
        await reply(session, call("broken", id="x"), call("act", {"what": "a"}, "y"), call("act", {}, "z"))
        found = await registry.dispatch_step(session)
        assert [one.status for one in found] == ["failed", "completed", "refused"]
        assert session.continuable
    assert world.done == ["a"]


async def test_an_interrupted_batch_goes_on_with_what_is_missing(store_url: Url, world: World) -> None:
    """The finished calls are kept; the harmless ones that were running are run again, the others settled."""
    stores: list[holdfast.Store] = []
    finished = [anyio.Event(), anyio.Event()]

    @tool(side_effects={"mutate"}, verify=lambda: holdfast.Landed("found it"))
    async def pay() -> str:
        world.do("pay")
        await finished[0].wait()
        await finished[1].wait()
        die(stores[-1])
        return "lost"

    @tool(side_effects={"mutate"})
    async def mail(to: str) -> str:
        return world.do(f"mail {to}")

    @tool(side_effects={"read"})
    async def look() -> str:
        world.do("look")
        if len(stores) == 1:
            await anyio.sleep_forever()
        return "seen"

    registry = Registry([pay, mail, look])
    async with opened(store_url) as (store, session):
        stores.append(store)
        await reply(
            session,
            call("pay", id="a"),
            call("mail", {"to": "ann"}, "b"),
            call("look", id="c"),
            call("mail", {"to": "bob"}, "d"),
        )

        async def watch() -> None:
            while sum(row.status == "completed" for row in session.state.facts.effects.rows.values()) < 2:
                await anyio.lowlevel.checkpoint()
            await session.flush()
            for event in finished:
                event.set()

        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(watch)

                async def step() -> None:
                    with pytest.raises(holdfast.errors.Closed):
                        await registry.dispatch_step(session)

                tasks.start_soon(step)
                while not session.is_lost:
                    await anyio.lowlevel.checkpoint()
                scope.cancel()
    async with opened(store_url) as (store, session):
        stores.append(store)
        assert [block.call_id for block in results(session)] == ["b", "d"]
        assert session.problems
        assert await session.settle(registry) == []
        found = await registry.dispatch_step(session)
        assert [one.content for one in found] == ["found it", "did mail ann", "seen", "did mail bob"]
        assert [block.call_id for block in results(session)] == ["a", "b", "c", "d"]
        assert session.continuable
    assert sorted(world.done) == ["look", "look", "mail ann", "mail bob", "pay"]


async def test_a_finished_step_is_not_run_again(store_url: Url, world: World) -> None:
    """Dispatching it once more gives the results that it has."""
    registry = acting(world)
    async with opened(store_url) as (store, session):
        await reply(session, call("act", {"what": "a"}, "x"), call("nope", {}, "y"))
        first = await registry.dispatch_step(session)
        before = await kinds(store, session)
        second = await registry.dispatch_step(session)
        assert [one.content for one in second] == [one.content for one in first]
        assert [one.is_error for one in second] == [False, True]
        assert await kinds(store, session) == before
    assert world.done == ["a"]


async def test_results_that_somebody_added_are_kept(store_url: Url, world: World) -> None:
    """Only what has no result is dispatched."""
    async with opened(store_url) as (_, session):
        await reply(session, call("act", {"what": "a"}, "x"), call("act", {"what": "b"}, "y"))
        given = ToolResult(call_id="x", content=(Text("by "), Text("hand")))
        await session.add(Message(role="tool", blocks=(given,)))
        found = await acting(world).dispatch_step(session)
        assert [one.content for one in found] == ["by hand", "did b"]
    assert world.done == ["b"]


async def test_without_calls_there_is_nothing_to_do(store_url: Url, world: World) -> None:
    """Neither in an empty session nor after a plain reply."""
    async with opened(store_url) as (_, session):
        assert await acting(world).dispatch_step(session) == []
        await session.add(Message(role="assistant", blocks=(Text("Hello."),)))
        assert await acting(world).dispatch_step(session) == []


# -- other formats -------------------------------------------------------------------------------------


async def test_openai_messages_are_dispatched(store_url: Url, world: World) -> None:
    """Arguments are JSON text there; a custom call, whose input is free text, is told that it is not."""
    message = {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "c1", "type": "custom", "custom": {"name": "act", "input": "just do it"}},
            {"id": "c2", "type": "function", "function": {"name": "act", "arguments": '{"what": "a"}'}},
            {"id": "c3", "type": "function", "function": {"name": "act", "arguments": "{"}},
        ],
    }
    async with opened(store_url) as (_, session):
        await session.add(message, format="openai")
        found = await acting(world).dispatch_step(session)
        assert [one.status for one in found] == ["refused", "completed", "refused"]
        assert "args: not valid JSON" in found[2].content
        assert [block.call_id for block in results(session)] == ["c1", "c2", "c3"]
        assert session.continuable
    assert world.done == ["a"]


async def test_anthropic_messages_are_dispatched(store_url: Url, world: World) -> None:
    """Arguments are objects there, among other blocks."""
    message = {
        "role": "assistant",
        "content": [
            {"type": "text", "text": "Let me see."},
            {"type": "tool_use", "id": "toolu_1", "name": "act", "input": {"what": "a"}},
        ],
    }
    async with opened(store_url) as (_, session):
        await session.add(message, format="anthropic")
        (found,) = await acting(world).dispatch_step(session)
        assert found.content == "did a"
        assert session.continuable
    assert world.done == ["a"]


async def test_a_format_of_ones_own_says_where_its_calls_are(store_url: Url, world: World) -> None:
    """Or dispatching it is refused with a hint."""

    def read(message: Any) -> Shape:
        return Shape(role="assistant", parts=(CallPart("c1", message["do"]),))

    message = {"do": "act", "with": {"what": "a"}}
    name = f"own-{uuid.uuid4()}"
    register_format(name, read)
    async with opened(store_url) as (_, session):
        await session.add(message, format=name)
        assert isinstance(session.transcript[0], ForeignMessage)
        with pytest.raises(BadInput, match=f"no reader for the calls of '{name}' messages"):
            await acting(world).dispatch_step(session)
        register_format(name, read, calls=lambda one: [ToolCall(id="c1", name=one["do"], args=one["with"])])
        (found,) = await acting(world).dispatch_step(session)
        assert found.content == "did a"
    assert world.done == ["a"]


@pytest.mark.parametrize("fails", [False, True])
async def test_no_call_of_a_reply_waits_for_a_later_one(fails: bool, store_url: Url, world: World) -> None:
    """They run in order, and the last means the first anew, for there was another since."""

    @tool(side_effects={"write"}, retry=Retry(attempts=1))
    async def put(what: str) -> str:
        world.do(what)
        if fails and len(world.log) == 1:
            raise NotDone("full")
        return "ok"

    async with opened(store_url) as (_, session):
        await reply(session, *(call("put", {"what": what}, f"c{place}") for place, what in enumerate("aaba")))
        with anyio.fail_after(60):
            results = await Registry([put]).dispatch_step(session)
    expected = ["failed", "completed"] if fails else ["completed", "completed"]
    assert [one.status for one in results] == [*expected, "completed", "completed"]
    assert world.done == (["a", "a", "b", "a"] if fails else ["a", "b", "a"])
