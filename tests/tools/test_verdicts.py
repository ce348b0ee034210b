"""A person says what became of a call: from another process, with a name, and sometimes too late."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import holdfast
from holdfast import Registry, Store, ToolContext, tool
from holdfast.core.entries import InboxTaken, ToolSettled
from holdfast.errors import BadInput, NotFound
from holdfast.messages import Message, ToolResult
from tests.tools.example_tools import Url, World, bodies, call, die, hear, opened, reply, results


@pytest.fixture
def world() -> World:
    """The outside world."""
    return World()


def raising(world: World, **options: Any) -> Registry:
    """A tool that is in doubt the first time."""
    fails = iter([True])

    @tool(**{"side_effects": {"mutate"}, **options})
    async def act(ctx: ToolContext[Any], what: str = "it") -> str:
        world.do(what, ctx.key)
        if next(fails, False):
            raise ValueError("reset")
        return f"did {what}"

    return Registry([act], max_repeats=100)


@pytest.mark.parametrize("held", [True, False])
async def test_landed_gives_the_call_its_result(held: bool, store_url: Url, world: World) -> None:
    """By another process, while somebody holds the session and while nobody does."""
    registry = raising(world)
    async with opened(store_url) as (_, session):
        await reply(session, call("act"))
        await registry.dispatch_step(session)
        if held:
            async with holdfast.open_store(store_url) as other:
                answered = await other.resolve(
                    "s", "call_0", "landed", by="ann", note="on the statement", result={"id": 7}
                )
                assert answered == "posted"
            await hear(session)
            assert session.continuable
    if not held:
        async with holdfast.open_store(store_url) as other:
            answered = await other.resolve(
                "s", "call_0", "landed", by="ann", note="on the statement", result={"id": 7}
            )
            assert answered == "settled"
    async with opened(store_url) as (store, session):
        assert session.continuable
        assert session.in_doubt == []
        (block,) = results(session)
        assert (block.value, block.content, block.is_error) == ({"id": 7}, '{"id":7}', False)
        (settled,) = await bodies(store, session, ToolSettled)
        assert (settled.verdict, settled.by, settled.note) == ("landed", "ann", "on the statement")
        again = await registry.dispatch("act", {}, session=session)
        assert (again.value, again.replay_of) == ({"id": 7}, "call_0")
    assert world.done == ["it"]


async def test_the_time_of_a_verdict_is_on_record(store_url: Url, world: World) -> None:
    """As that of every line."""
    async with opened(store_url) as (store, session):
        await raising(world).dispatch("act", {}, call_id="c1", session=session)
        await store.resolve("s", "c1", "gave_up", by="ann")
        await hear(session)
        at = [entry.at async for entry in store.tail("s", follow=False) if entry.kind == "tool.settled"]
        assert len(at) == 1
        assert datetime.now(UTC) - at[0] < timedelta(minutes=1)


async def test_not_landed_frees_the_operation(store_url: Url, world: World) -> None:
    """The call is carried on with the same key."""
    registry = raising(world)
    async with opened(store_url) as (store, session):
        await reply(session, call("act"))
        await registry.dispatch_step(session)
        await store.resolve("s", "call_0", "not_landed", by="ann")
        await hear(session)
        assert session.in_doubt == []
        assert session.problems
        (found,) = await registry.dispatch_step(session)
        assert found.status == "completed"
        assert session.continuable
    assert len(set(world.keys)) == 1


async def test_given_up_the_model_is_told_and_nothing_is_run(store_url: Url, world: World) -> None:
    """The operation stays blocked for everybody; who finds out later can still say so."""
    registry = raising(world)
    async with opened(store_url) as (store, session):
        await reply(session, call("act"))
        await registry.dispatch_step(session)
        await store.resolve("s", "call_0", "gave_up", by="ann", note="The bank is closed.")
        await hear(session)
        assert session.continuable
        (block,) = results(session)
        assert block.is_error
        assert block.content == "act: given up by ann. The bank is closed. It is not run again."
        blocked = await registry.dispatch("act", {}, session=session)
        assert blocked.status == "in_doubt"
        assert "was given up as unknown" in blocked.content
        row = session.state.facts.effects.find_call(_ref(session))[0]
        await store.resolve("s", row.issued, "not_landed", by="bob")
        await hear(session)
        assert (await registry.dispatch("act", {}, session=session)).status == "completed"
    assert world.done == ["it", "it"]


def _ref(session: holdfast.Session) -> Any:
    return next(iter(session.state.facts.effects.rows.values())).call


async def test_a_verdict_that_comes_too_late_changes_nothing(store_url: Url, world: World) -> None:
    """It is on record as such."""
    registry = raising(world)
    async with opened(store_url) as (store, session):
        await registry.dispatch("act", {}, call_id="c1", session=session)
        assert await store.resolve("s", "c1", "landed", by="ann", result="yes") == "posted"
        assert await store.resolve("s", "c1", "not_landed", by="bob", note="I think") == "posted"
        await hear(session)
        taken = await bodies(store, session, InboxTaken)
        assert [(one.item.by, one.item.verdict, one.late) for one in taken] == [
            ("ann", "landed", False),
            ("bob", "not_landed", True),
        ]
        assert len(await bodies(store, session, ToolSettled)) == 1
        assert (await registry.dispatch("act", {}, call_id="c2", session=session)).value == "yes"
    async with holdfast.open_store(store_url) as other:
        assert await other.resolve("s", "c1", "not_landed", by="bob") == "late"
    assert world.done == ["it"]


async def test_a_verdict_about_a_call_whose_process_died_needs_no_holder(
    store_url: Url, world: World
) -> None:
    """The person's own process takes the session, says so, and leaves it."""

    @tool(side_effects={"mutate"})
    async def act(ctx: ToolContext[Store]) -> None:
        world.do("it")
        die(ctx.deps)

    async with opened(store_url) as (store, session):
        await reply(session, call("act"))
        with pytest.raises(holdfast.errors.Closed):
            await Registry([act]).dispatch_step(session, deps=store)
    async with holdfast.open_store(store_url) as other:
        (doubt,) = [doubt async for doubt in other.in_doubt()]
        assert (doubt.session, doubt.effect.call.id) == ("s", "call_0")
        answered = await other.resolve(doubt.session, doubt.effect.issued, "landed", by="ann", result="ok")
        assert answered == "settled"
        assert [doubt async for doubt in other.in_doubt()] == []
        state = await other.load("s")
        assert state.continuable
        assert state.facts.head.lease is None


async def test_calls_in_doubt_are_found_over_all_sessions(store_url: Url, world: World) -> None:
    """Whatever else there is."""
    for number in range(3):
        async with opened(store_url, f"s{number}") as (_, session):
            registry = raising(world)
            await registry.dispatch("act", {"what": f"{number}"}, call_id=f"c{number}", session=session)
            await registry.dispatch("act", {"what": "fine"}, session=session)
    async with opened(store_url, "empty") as (store, _):
        found = [(doubt.session, doubt.effect.call.id) async for doubt in store.in_doubt()]
        assert found == [("s0", "c0"), ("s1", "c1"), ("s2", "c2")]


async def test_a_verdict_names_one_call(store_url: Url, world: World) -> None:
    """Providers use ids again: where two calls wait under one, the line must be named."""
    fails = iter([True, True])

    @tool(side_effects={"mutate"})
    async def act(what: str) -> None:
        if next(fails, False):
            raise ValueError("reset")

    registry = Registry([act])
    async with opened(store_url) as (store, session):
        await reply(session, call("act", {"what": "a"}), call("act", {"what": "b"}))
        await registry.dispatch_step(session)
        with pytest.raises(BadInput, match=r"2 calls 'call_0' wait; name one by its entry: \[\d+, \d+\]"):
            await store.resolve("s", "call_0", "landed", by="ann")
        first, second = (row.issued for row in session.in_doubt)
        await store.resolve("s", second, "landed", by="ann", result="b")
        await store.resolve("s", first, "landed", by="ann", result="a")
        await hear(session)
        message = session.transcript[-1]
        assert isinstance(message, Message)
        assert [one.content for one in message.blocks if isinstance(one, ToolResult)] == ["a", "b"]


async def test_a_verdict_must_make_sense(store_url: Url, world: World) -> None:
    """And say who gives it."""
    async with opened(store_url) as (store, session):
        await raising(world).dispatch("act", {}, call_id="c1", session=session)
        with pytest.raises(BadInput, match="a verdict is landed, not_landed or gave_up, not 'maybe'"):
            await store.resolve("s", "c1", "maybe", by="ann")  # type: ignore[arg-type]
        with pytest.raises(BadInput, match="only a call that landed has a result"):
            await store.resolve("s", "c1", "not_landed", by="ann", result=1)
        with pytest.raises(BadInput, match="say who decides"):
            await store.resolve("s", "c1", "landed", by=" ")
        with pytest.raises(NotFound, match="issued no call 'c9'; in doubt: c1"):
            await store.resolve("s", "c9", "landed", by="ann")
        with pytest.raises(NotFound, match="no session 'nowhere'"):
            await store.resolve("nowhere", "c1", "landed", by="ann")
        assert len(session.in_doubt) == 1
