"""A tool that asks the process to end: it ends, and what that means for the call is on record."""

from __future__ import annotations

import sys
import threading
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from holdfast import Agent, Registry, Session, blocking, open_store, tool
from holdfast.agents import ScriptedModel
from holdfast.messages import Message, ToolCall
from holdfast.tools import Result
from tests.tools.example_tools import Url, World, call, opened, reply


def leaving(effects: Any, error: BaseException, *, kind: str, **options: Any) -> Any:
    """A tool whose body raises this, at once, after it has waited, or in a thread."""

    async def at_once() -> None:
        raise error

    async def waits() -> None:
        await anyio.lowlevel.checkpoint()
        raise error

    def in_thread() -> None:
        raise error

    body = {"at once": at_once, "waits": waits, "in a thread": in_thread}[kind]
    return tool(side_effects=effects, name="leave", **options)(body)


KINDS = pytest.mark.parametrize("kind", ["at once", "waits", "in a thread"])


async def leave(registry: Registry, session: Session, *calls: ToolCall) -> BaseException:
    """What comes out of the step."""
    await reply(session, *calls)
    with pytest.raises((SystemExit, KeyboardInterrupt)) as caught:
        await registry.dispatch_step(session)
    return caught.value


@KINDS
@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
async def test_an_effect_that_ends_the_process_is_in_doubt(
    kind: str, error: BaseException, store_url: Url
) -> None:
    """The exception goes on as it is, and whoever comes next knows that it may have happened."""
    registry = Registry([leaving({"mutate"}, error, kind=kind)])
    async with opened(store_url) as (_, session):
        assert await leave(registry, session, call("leave")) is error
        (row,) = session.in_doubt
        assert (row.tool, row.exited) == ("leave", True)
        assert row.why.startswith(f"it asked the process to end: {type(error).__name__}")
    async with opened(store_url) as (_, session):
        (found,) = await registry.dispatch_step(session)
        assert found.status == "in_doubt"


@KINDS
async def test_a_look_that_ends_the_process_is_made_again_and_not_for_ever(kind: str, store_url: Url) -> None:
    """Also within one session: each time counts like a crash."""
    registry = Registry([leaving({"read"}, SystemExit(3), kind=kind)], max_crashes=3)
    async with opened(store_url) as (_, session):
        await leave(registry, session, call("leave"))
        with pytest.raises(SystemExit):
            await registry.dispatch_step(session)
    async with opened(store_url) as (_, session):
        with pytest.raises(SystemExit):
            await registry.dispatch_step(session)
    async with opened(store_url) as (_, session):
        (found,) = await registry.dispatch_step(session)
        assert found.status == "refused"
        assert "each of the 3 times the process died or ended" in found.content
        assert session.continuable


async def test_a_retry_policy_does_not_keep_the_process_from_ending(store_url: Url) -> None:
    """Nor does a hook that could settle it: that is asked when the process is there again."""
    asked: list[str] = []

    def verify() -> None:
        asked.append("verify")

    left = leaving({"mutate"}, SystemExit(3), kind="waits", idempotent=True, verify=verify)
    async with opened(store_url) as (_, session):
        await leave(Registry([left]), session, call("leave"))
        assert len(session.in_doubt) == 1
    assert asked == []


async def test_neighbours_of_a_call_that_ends_the_process_get_their_grace(store_url: Url) -> None:
    """What they did is on record, and not done again."""
    world, began = World(), anyio.Event()

    @tool(side_effects={"mutate"})
    async def act() -> str:
        began.set()
        await anyio.sleep(0.01)
        return world.do("it")

    @tool(side_effects={"read"}, name="leave")
    async def leaves() -> None:
        await began.wait()
        sys.exit(3)

    async with opened(store_url) as (_, session):
        await leave(Registry([act, leaves], grace_s=60), session, call("act"), call("leave", id="c2"))
        assert [row.status for row in session.left_behind()] == ["completed"]
        assert session.in_doubt == []
    assert world.done == ["it"]


async def test_without_a_session_it_ends_the_process_as_well() -> None:
    """There is nothing to record."""
    with pytest.raises(SystemExit):
        await Registry([leaving((), SystemExit(3), kind="waits")]).dispatch("leave", {})


async def test_an_agent_whose_tool_ends_the_process_goes_on_when_it_is_resumed(store_url: Url) -> None:
    """The run was cancelled, and not failed."""
    left: list[str] = []

    @tool(side_effects={"read"}, name="leave")
    async def leaves() -> str:
        if not left:
            left.append("once")
            sys.exit(3)
        return "back"

    agent: Any = Agent(ScriptedModel([ToolCall(id="c0", name="leave", args={}), "Done."]), tools=[leaves])
    async with open_store(store_url) as store:
        with pytest.raises(SystemExit):
            await agent.run("Go", session="s", store=store)
        assert (await store.load("s")).facts.head.status == "cancelled"
        assert (await agent.resume("s", store=store)).output == "Done."


def test_without_an_event_loop_the_calling_thread_gets_it() -> None:
    """And the store can be used on, and closed."""
    here: list[int] = []

    @tool(side_effects={"read"}, name="leave")
    def leaves() -> None:
        here.append(threading.get_ident())
        sys.exit(3)

    @tool(side_effects=())
    def stay() -> str:
        return "here"

    registry = blocking.Registry([leaves, stay])
    with blocking.open_store("memory:") as store:
        with store.session("s") as session:
            session.add(Message(role="assistant", blocks=(call("leave"),)))
            with pytest.raises(SystemExit) as caught:
                registry.dispatch_step(session)
            assert caught.value.code == 3
        with store.session("t") as session:
            found: Result = registry.dispatch("stay", {}, session=session)
            assert found.content == "here"
    assert here != [threading.get_ident()]
