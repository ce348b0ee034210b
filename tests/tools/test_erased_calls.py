"""After `clean` has erased what was said: calls that are not settled lose nothing; others are not guessed."""

from __future__ import annotations

from typing import Any

import pytest

import holdfast
from holdfast import Landed, Registry, ToolContext, Unsure, tool
from holdfast.tools import Retry
from tests.tools.example_tools import Url, World, opened
from tests.tools.test_approval import ANN, asking
from tests.tools.test_undo import booking, step


@pytest.fixture
def world() -> World:
    """The outside world."""
    return World()


async def erase(url: Url) -> None:
    """Erase what was said in the session."""
    async with holdfast.open_store(url) as store:
        assert await store.clean("s", checkpoints=False) == "cleaned"


async def test_an_effect_whose_arguments_were_erased_cannot_be_undone(store_url: Url, world: World) -> None:
    """The undo of a tool whose arguments all have defaults would take back something else."""

    async def unbook(ctx: ToolContext[Any], what: str = "everything") -> str:
        return world.do(f"unbook {what}")

    @tool(side_effects={"mutate"}, undo=unbook)
    async def book(what: str = "everything") -> str:
        return world.do(f"book {what}")

    registry = Registry([book])
    async with opened(store_url) as (_, session):
        await session.checkpoint()
        await registry.dispatch("book", {"what": "train"}, session=session)
        await session.checkpoint()
    await erase(store_url)
    async with opened(store_url) as (_, session):
        rewound = await session.rewind(version=1, undo=True, registry=registry)
        (one,) = rewound.still_done
        assert (one.tool, one.status, one.why) == ("book", "cannot", "its arguments were erased")
    assert world.done == ["book train"]


async def test_what_was_done_since_can_be_undone(store_url: Url, world: World) -> None:
    """Only what was erased is lost."""
    registry = booking(world)
    async with opened(store_url) as (_, session):
        await step(registry, session, "book", what="train")
    await erase(store_url)
    async with opened(store_url) as (_, session):
        await step(registry, session, "book", what="hotel")
        rewound = await session.rewind(version=1, undo=True, registry=registry)
        assert [one.status for one in rewound.undone] == ["undone"]
    assert world.done == ["book train", "book hotel", "unbook hotel"]


async def test_a_corrected_approval_stays_until_the_call_is_made(store_url: Url, world: World) -> None:
    """The call is made as it was approved, not as it was asked for."""
    registry, corrected = asking(world), {"to": "ann", "cents": 400}
    async with opened(store_url) as (store, session):
        await registry.dispatch("pay", ANN, call_id="c", session=session)
    async with holdfast.open_store(store_url) as store:
        assert await store.approve("s", "c", by="boss", args=corrected) == "settled"
    await erase(store_url)
    async with opened(store_url) as (_, session):
        found = await registry.dispatch("pay", ANN, call_id="c", session=session)
        assert found.content == "did ann 400"
    assert world.done == ["ann 400"]
    await erase(store_url)
    async with opened(store_url) as (_, session):
        again = await registry.dispatch("pay", ANN, call_id="c", session=session)
        assert (again.status, again.content) == ("completed", "[erased]")
    assert world.done == ["ann 400"]


async def test_a_refusal_stays_one(store_url: Url, world: World) -> None:
    """Its reason is gone; the model is told of the refusal all the same."""
    registry = asking(world)
    async with opened(store_url) as (store, session):
        await registry.dispatch("pay", ANN, call_id="c", session=session)
    async with holdfast.open_store(store_url) as store:
        await store.refuse("s", "c", by="boss", reason="a secret reason")
    await erase(store_url)
    async with opened(store_url) as (_, session):
        found = await registry.dispatch("pay", ANN, call_id="c", session=session)
        assert (found.status, found.content) == ("refused", "pay: a person refused it")
    assert world.done == []


async def test_the_notes_of_an_earlier_attempt_stay_for_the_one_in_doubt(
    store_url: Url, world: World
) -> None:
    """Its verify hook finds out by them what became of it."""
    seen: list[Any] = []

    async def find_out(ctx: ToolContext[Any]) -> Landed | Unsure:
        seen.append(dict(ctx.notes))
        return Landed("charged") if ctx.deps == "the service answers" else Unsure("no answer")

    @tool(
        side_effects={"mutate"},
        idempotent=True,
        verify=find_out,
        retry=Retry(attempts=2, backoff_s=0.0, backoff_max_s=0.0),
    )
    async def charge(ctx: ToolContext[Any]) -> str:
        if not world.log:
            await ctx.annotate(vendor="v-1")
        world.do("charge", ctx.key)
        raise ConnectionError("the answer is lost")

    registry = Registry([charge])
    async with opened(store_url) as (_, session):
        await registry.dispatch("charge", {}, session=session)
        (row,) = session.in_doubt
        assert (row.attempt, row.notes) == (2, {"vendor": "v-1"})
    await erase(store_url)
    seen.clear()
    async with opened(store_url) as (_, session):
        assert await session.settle(registry, deps="the service answers") == []
    assert seen == [{"vendor": "v-1"}]
    assert world.done == ["charge", "charge"]
