"""Resuming under changed code: what no longer fits is explained, and never simply run."""

from __future__ import annotations

from typing import Any

import pytest

import holdfast
from holdfast import Registry, Store, ToolContext, tool
from tests.tools.example_tools import Url, World, call, die, opened, reply, results


@pytest.fixture
def world() -> World:
    """The outside world."""
    return World()


def old(world: World, *, dies: bool = True) -> Registry:
    """The code of yesterday."""

    @tool(side_effects={"mutate"})
    async def send(ctx: ToolContext[Store], to: str) -> str:
        world.do(to)
        if dies:
            die(ctx.deps)
        return f"sent to {to}"

    return Registry([send])


def other(world: World) -> Registry:
    """The tool is gone."""

    @tool(side_effects={"mutate"})
    async def send_mail(to: str) -> None:
        world.do(f"new {to}")

    return Registry([send_mail])


def changed(world: World) -> Registry:
    """Its arguments no longer fit."""

    @tool(side_effects={"mutate"}, verify=lambda to, urgent: holdfast.NotLanded())
    async def send(to: list[str], urgent: bool) -> None:
        world.do(f"new {to}")

    return Registry([send])


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (other, "unknown tool: 'send'. Did you mean 'send_mail'? Available: ['send_mail']"),
        (changed, 'send: invalid arguments. args.to: "ann" is not of type "array"'),
    ],
)
async def test_a_call_that_was_not_issued_gets_an_explained_error(
    make: Any, why: str, store_url: Url, world: World
) -> None:
    """The model can go on from there."""
    async with opened(store_url) as (_, session):
        await reply(session, call("send", {"to": "ann"}))
    async with opened(store_url) as (_, session):
        (found,) = await make(world).dispatch_step(session)
        assert found.status == "refused"
        assert found.content.startswith(why)
        assert session.continuable
        assert session.in_doubt == []
    assert world.done == []


@pytest.mark.parametrize(
    ("make", "why"),
    [(other, "unknown tool: 'send'."), (changed, "send: invalid arguments. args.to: ")],
)
async def test_a_call_that_was_issued_is_in_doubt_and_says_so(
    make: Any, why: str, store_url: Url, world: World
) -> None:
    """It cannot be verified nor carried on: a person can still settle it."""
    async with opened(store_url) as (store, session):
        await reply(session, call("send", {"to": "ann"}))
        with pytest.raises(holdfast.errors.Closed):
            await old(world).dispatch_step(session, deps=store)
    async with opened(store_url) as (store, session):
        assert len(await session.settle(make(world))) == 1
        (found,) = await make(world).dispatch_step(session)
        assert found.status == "in_doubt"
        assert found.content.startswith(why)
        assert found.content.endswith(
            "It was issued before, and is in doubt: the process that ran it is gone and left no outcome."
        )
        assert session.continuable
        assert results(session)[0].is_error
        (row,) = session.in_doubt
    async with holdfast.open_store(store_url) as store:
        assert await store.resolve("s", row.issued, "landed", by="ann", result="sent") == "settled"
        state = await store.load("s")
        assert state.in_doubt == []
    assert world.done == ["ann"]


@pytest.mark.parametrize("make", [other, changed])
async def test_a_completed_call_keeps_its_result(make: Any, store_url: Url, world: World) -> None:
    """Whatever became of its tool."""
    async with opened(store_url) as (_, session):
        first = await old(world, dies=False).dispatch("send", {"to": "ann"}, call_id="c1", session=session)
    async with opened(store_url) as (_, session):
        again = await make(world).dispatch("send", {"to": "ann"}, call_id="c1", session=session)
        assert again == first
    assert world.done == ["ann"]


async def test_a_new_default_does_not_make_an_issued_call_another_one(store_url: Url, world: World) -> None:
    """It fits, and means something else by now: it stays what was issued, in doubt."""

    @tool(side_effects={"mutate"})
    async def send(to: str, copies: int = 2) -> None:
        world.do(f"new {to}")

    async with opened(store_url) as (store, session):
        await reply(session, call("send", {"to": "ann"}))
        with pytest.raises(holdfast.errors.Closed):
            await old(world).dispatch_step(session, deps=store)
    async with opened(store_url) as (_, session):
        (found,) = await Registry([send]).dispatch_step(session)
        assert found.status == "in_doubt"
    assert world.done == ["ann"]


async def test_a_changed_prompt_stops_nothing(store_url: Url, world: World) -> None:
    """Nor does another agent or model: the pending call is carried on."""
    async with opened(store_url) as (_, session):
        async with session.run(agent="a", model="m1", instructions="Be brief."):
            await reply(session, call("send", {"to": "ann"}))
    async with opened(store_url) as (_, session):
        async with session.run(agent="b", model="m2", instructions="Be long."):
            (found,) = await old(world, dies=False).dispatch_step(session)
            assert found.status == "completed"
    assert world.done == ["ann"]


async def test_a_harmless_call_of_a_tool_that_is_gone_is_simply_explained(store_url: Url) -> None:
    """Issued or not: there is nothing to be in doubt about."""

    @tool(side_effects={"read"})
    async def look(ctx: ToolContext[Store]) -> None:
        await ctx.session.flush()
        die(ctx.deps)

    async with opened(store_url) as (store, session):
        await reply(session, call("look"))
        with pytest.raises(holdfast.errors.Closed):
            await Registry([look]).dispatch_step(session, deps=store)
    async with opened(store_url) as (_, session):
        (found,) = await Registry([]).dispatch_step(session)
        assert (found.status, found.content) == ("refused", "unknown tool: 'look'. Available: []")
        assert session.in_doubt == []
        assert session.continuable
