"""A tool's function or hook that asks its own session to be called again is told so, and not called again."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import anyio
import anyio.from_thread
import pytest

import holdfast
from holdfast import Landed, Registry, Session, ToolContext, Unsure, tool
from holdfast.errors import BadInput
from tests.tools.example_tools import Url, World, call, opened, reply, results

Ask = Callable[[Registry, Session, Any], Any]


@pytest.fixture
def world() -> World:
    """The outside world."""
    return World()


async def settle(registry: Registry, session: Session, deps: Any) -> Any:
    """Ask for everything in doubt to be settled."""
    return await session.settle(registry, deps=deps)


async def step(registry: Registry, session: Session, deps: Any) -> Any:
    """Ask for the calls of the last reply."""
    return await registry.dispatch_step(session, deps=deps)


async def same(registry: Registry, session: Session, deps: Any) -> Any:
    """Ask for the very same thing."""
    return await registry.dispatch("act", {}, session=session, deps=deps)


@pytest.mark.parametrize("sync", [False, True])
async def test_a_verify_hook_that_settles_its_own_session_is_asked_once(
    sync: bool, store_url: Url, world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """It would ask itself, and so on: it is told so, and counts as unsure."""

    async def verify(ctx: ToolContext[Any]) -> Landed:
        world.do("asked")
        await ctx.session.settle(registry)
        return Landed()

    def verify_in_thread(ctx: ToolContext[Any]) -> Landed:
        return anyio.from_thread.run(verify, ctx)

    @tool(side_effects={"mutate"}, verify=verify_in_thread if sync else verify)
    async def act() -> None:
        raise ValueError("reset")

    registry = Registry([act])
    async with opened(store_url) as (_, session):
        with caplog.at_level(logging.WARNING, "holdfast"), anyio.fail_after(60):
            assert (await registry.dispatch("act", {}, session=session)).status == "in_doubt"
            assert len(await session.settle(registry)) == 1
    assert world.done == ["asked", "asked"]
    assert "the verify hook of act called settle on the session that it works for" in caplog.text


@pytest.mark.parametrize("effects", [set(), {"mutate"}])
@pytest.mark.parametrize("ask", [settle, step, same])
async def test_a_tool_that_asks_its_own_session_to_call_it_again_is_refused(
    ask: Ask, effects: Any, store_url: Url, world: World
) -> None:
    """Its body is entered once, whatever it asks for."""
    said: list[str] = []

    @tool(side_effects=effects)
    async def act(ctx: ToolContext[Any]) -> str:
        world.do("it")
        with pytest.raises(BadInput) as refused:
            await ask(registry, ctx.session, ctx.deps)
        said.append(str(refused.value))
        return "done"

    registry = Registry([act])
    async with opened(store_url) as (_, session):
        await reply(session, call("act"))
        with anyio.fail_after(60):
            await registry.dispatch_step(session)
        assert [one.content for one in results(session)] == ["done"]
    assert world.done == ["it"]
    assert "tool act " in said[0]


async def test_a_tool_of_one_line_that_calls_itself_is_refused(store_url: Url, world: World) -> None:
    """It has no intent on record yet, when it does."""

    @tool(side_effects=())
    async def act() -> str:
        world.do("it")
        with pytest.raises(BadInput, match="with the arguments that it was called with"):
            await registry.dispatch("act", {}, session=session)
        with pytest.raises(BadInput, match="called dispatch_step on the session"):
            await registry.dispatch_step(session)
        return "done"

    registry = Registry([act])
    async with opened(store_url) as (_, session):
        assert (await registry.dispatch("act", {}, session=session)).value == "done"
    assert world.done == ["it"]


async def test_an_undo_hook_that_takes_back_what_it_takes_back_is_refused(
    store_url: Url, world: World
) -> None:
    """It would wait for itself for ever."""

    async def undo(ctx: ToolContext[Any]) -> None:
        with pytest.raises(BadInput, match="the undo hook of act asks for the very effect"):
            await registry.undo(ctx.session, ctx.session.left_behind())
        world.do("undone")

    @tool(side_effects={"mutate"}, undo=undo)
    async def act() -> str:
        return "done"

    registry = Registry([act])
    async with opened(store_url) as (_, session):
        await registry.dispatch("act", {}, session=session)
        with anyio.fail_after(60):
            (undone,) = await registry.undo(session, session.left_behind())
        assert undone.status == "undone"
    assert world.done == ["undone"]


async def test_a_tool_may_call_others_and_itself_with_other_arguments_and_other_sessions(
    store_url: Url, world: World
) -> None:
    """Only what would never end is refused."""

    @tool(side_effects={"mutate"})
    async def count(ctx: ToolContext[holdfast.Store], down_from: int) -> int:
        world.do(f"{ctx.session.id} {down_from}")
        if down_from == 0:
            await registry.dispatch("note", {}, session=ctx.session)
            async with ctx.deps.session("other") as other:
                await other.settle(registry)
                if ctx.session.id == "s":
                    await reply(other, call("note"))
                    await registry.dispatch_step(other)
            return 0
        below = await registry.dispatch(
            "count", {"down_from": down_from - 1}, session=ctx.session, deps=ctx.deps
        )
        return int(below.value) + 1

    @tool(side_effects=())
    async def note() -> None:
        world.do("noted")

    registry = Registry([count, note])
    async with opened(store_url) as (store, session):
        found = await registry.dispatch("count", {"down_from": 2}, session=session, deps=store)
        assert found.value == 2
    assert world.done == ["s 2", "s 1", "s 0", "noted", "noted"]


async def test_what_a_tool_started_and_left_may_settle_once_the_tool_has_ended(
    store_url: Url, world: World
) -> None:
    """It is no longer inside."""

    async with anyio.create_task_group() as tasks:

        async def later(session: Session) -> None:
            await ended.wait()
            world.do(f"{len(await session.settle(registry))} in doubt")

        @tool(side_effects=())
        async def act(ctx: ToolContext[Any]) -> str:
            tasks.start_soon(later, ctx.session)
            return "done"

        ended = anyio.Event()
        registry = Registry([act])
        async with opened(store_url) as (_, session):
            await registry.dispatch("act", {}, session=session)
            ended.set()
            with anyio.fail_after(60):
                while not world.done:  # noqa: ASYNC110
                    await anyio.sleep(0.001)
    assert world.done == ["0 in doubt"]


async def test_a_hook_that_drives_an_agent_in_its_own_session_is_refused(
    store_url: Url, world: World
) -> None:
    """The loop begins with settling, which asks the hook."""

    async def verify(ctx: ToolContext[Any]) -> Unsure:
        world.do("asked")
        with pytest.raises(BadInput, match="the verify hook of act called settle"):
            await agent.resume(ctx.session)
        return Unsure()

    @tool(side_effects={"mutate"}, verify=verify)
    async def act() -> None:
        raise ValueError("reset")

    agent = holdfast.Agent(holdfast.agents.ScriptedModel(["Never."]), tools=[act])
    async with opened(store_url) as (_, session):
        await session.add("Go")
        with anyio.fail_after(60):
            await Registry([act]).dispatch("act", {}, session=session)
    assert world.done == ["asked"]
