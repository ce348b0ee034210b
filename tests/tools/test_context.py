"""What a running body is told, and what it can say about itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

import holdfast
from holdfast import NotDone, Registry, ToolContext, tool
from holdfast.core.entries import ToolAnnotated
from holdfast.tools import Retry
from tests.tools.example_tools import Url, World, die, kinds, opened


@dataclass
class Deps:
    """What a caller hands in."""

    store: holdfast.Store
    name: str = "deps"


@pytest.mark.parametrize("sync", [False, True])
async def test_a_body_knows_its_call(sync: bool, store_url: Url) -> None:
    """In a thread as well as in the event loop."""
    seen: list[ToolContext[Deps]] = []

    async def act(ctx: ToolContext[Deps], what: str) -> None:
        seen.append(ctx)

    def act_in_thread(ctx: ToolContext[Deps], what: str) -> None:
        seen.append(ctx)

    body = tool(side_effects={"mutate"}, name="act")(act_in_thread if sync else act)
    async with opened(store_url) as (store, session):
        deps = Deps(store)
        await Registry([body]).dispatch("act", {"what": "x"}, call_id="c1", session=session, deps=deps)
        (ctx,) = seen
        (row,) = session.state.facts.effects.rows.values()
        assert (ctx.key, ctx.call_id, ctx.attempt, ctx.issued_at) == (row.key, "c1", 1, row.at)
        assert ctx.deps is deps
        assert ctx.session is session
        assert ctx.fence == session.fence
        assert not ctx.cancelled


@pytest.mark.parametrize("sync", [False, True])
async def test_an_annotation_is_durable_when_it_returns(sync: bool, store_url: Url) -> None:
    """And survives completion and reopening."""

    async def act(ctx: ToolContext[Deps]) -> None:
        await ctx.annotate(vendor="v-1", amount={"cents": 5})
        assert (await kinds(ctx.deps.store, ctx.session))[-1] == "tool.annotated"
        await ctx.annotate(summary="paid")
        assert ctx.notes == {"vendor": "v-1", "amount": {"cents": 5}, "summary": "paid"}

    def act_in_thread(ctx: ToolContext[Deps]) -> None:
        ctx.annotate(vendor="v-1", amount={"cents": 5})
        ctx.annotate(summary="paid")

    body = tool(side_effects={"mutate"}, name="act")(act_in_thread if sync else act)
    async with opened(store_url) as (store, session):
        found = await Registry([body]).dispatch("act", {}, session=session, deps=Deps(store))
        assert found.status == "completed", found.content
        assert [list(one.notes) for one in await _annotated(store, session)] == [
            ["vendor", "amount"],
            ["summary"],
        ]
    async with opened(store_url) as (_, session):
        (row,) = session.state.facts.effects.rows.values()
        assert row.notes == {"vendor": "v-1", "amount": {"cents": 5}, "summary": "paid"}
        assert row.status == "completed"


async def _annotated(store: holdfast.Store, session: holdfast.Session) -> list[ToolAnnotated]:
    entries = [entry.body async for entry in store.tail(session.id, follow=False)]
    return [body for body in entries if isinstance(body, ToolAnnotated)]


async def test_an_annotation_survives_a_crash(store_url: Url) -> None:
    """That is what it is for: the hook that settles the doubt has the vendor's id."""
    told: list[Any] = []

    def check(ctx: ToolContext[Any]) -> holdfast.Landed:
        told.append(ctx.notes)
        return holdfast.Landed()

    @tool(side_effects={"mutate"}, verify=check)
    async def act(ctx: ToolContext[holdfast.Store]) -> None:
        await ctx.annotate(vendor="v-1")
        die(ctx.deps)

    registry = Registry([act])
    async with opened(store_url) as (store, session):
        with pytest.raises(holdfast.errors.Closed):
            await registry.dispatch("act", {}, session=session, deps=store)
    async with opened(store_url) as (_, session):
        assert session.in_doubt[0].notes == {"vendor": "v-1"}
        assert await session.settle(registry) == []
    assert told == [{"vendor": "v-1"}]


async def test_an_annotation_is_there_for_the_next_attempt(store_url: Url) -> None:
    """In the same process and in the next one: it is about the effect, not about the attempt."""
    seen: list[Any] = []

    @tool(side_effects={"write"}, retry=Retry(attempts=2, backoff_s=0))
    async def act(ctx: ToolContext[Any]) -> None:
        seen.append(dict(ctx.notes))
        await ctx.annotate(**{f"try{ctx.attempt}": True})
        if len(seen) < 4:
            raise ValueError("reset")

    registry = Registry([act], max_repeats=100)
    async with opened(store_url) as (_, session):
        await registry.dispatch("act", {}, call_id="c1", session=session)
    async with opened(store_url) as (_, session):
        await registry.dispatch("act", {}, call_id="c1", session=session)
    async with opened(store_url) as (_, session):
        await registry.dispatch("act", {}, call_id="c1", session=session)
        assert session.in_doubt == []
    assert seen == [
        {},
        {"try1": True},
        {"try1": True, "try2": True},
        {"try1": True, "try2": True, "try3": True},
    ]


async def test_an_odd_annotation_is_kept_as_well_as_it_can_be(store_url: Url) -> None:
    """A note must never be what puts an effect in doubt."""

    @tool(side_effects={"mutate"})
    async def act(ctx: ToolContext[Any]) -> None:
        await ctx.annotate(what={1, 2}, half="\ud800", nan=float("nan"), this=ctx)
        ctx.report("\ud800")

    async with opened(store_url) as (_, session):
        assert (await Registry([act]).dispatch("act", {}, session=session)).status == "completed"
        (row,) = session.state.facts.effects.rows.values()
        assert row.notes["what"] == [1, 2]
        assert row.notes["half"] == "\\ud800"


@pytest.mark.parametrize("sync", [False, True])
async def test_progress_is_reported_while_it_runs(sync: bool, store_url: Url) -> None:
    """Anybody who follows the session sees it."""

    async def act(ctx: ToolContext[Any]) -> None:
        ctx.report("half way")
        ctx.report("done")

    def act_in_thread(ctx: ToolContext[Any]) -> None:
        ctx.report("half way")
        ctx.report("done")

    body = tool(side_effects={"mutate"}, name="act")(act_in_thread if sync else act)
    async with opened(store_url) as (store, session):
        await Registry([body]).dispatch("act", {}, session=session)
        await session.flush()
        said = [
            msgspec.json.decode(entry.content)
            async for entry in store.tail("s", follow=False)
            if entry.kind == "tool.reported" and entry.content is not None
        ]
        assert said == ["half way", "done"]
        await session.flush()
    async with holdfast.open_store(store_url) as store:
        # Progress is something that was said: it goes when what was said is erased.
        await store.clean("s", checkpoints=False)
        assert all([entry.content is None async for entry in store.tail("s", follow=False)])


async def test_a_tool_inside_a_tool_has_its_own_record(store_url: Url) -> None:
    """Tools may use other tools, through the same registry and in the same session."""
    world = World()

    @tool(side_effects={"mutate"})
    async def inner(what: str) -> str:
        return world.do(what)

    @tool(side_effects={"mutate"})
    async def outer(ctx: ToolContext[Registry]) -> str:
        found = await ctx.deps.dispatch("inner", {"what": "it"}, session=ctx.session, deps=ctx.deps)
        return f"outer {found.content}"

    registry = Registry([inner, outer])
    async with opened(store_url) as (_, session):
        found = await registry.dispatch("outer", {}, session=session, deps=registry)
        assert found.value == "outer did it"
        statuses = [(row.tool, row.status) for row in session.state.facts.effects.rows.values()]
        assert statuses == [("outer", "completed"), ("inner", "completed")]


async def test_a_run_started_by_a_tool_finds_its_parent(store_url: Url) -> None:
    """Also from a body in a thread of its own making."""

    @tool(side_effects={"mutate"})
    async def delegate(ctx: ToolContext[holdfast.Store]) -> None:
        async with ctx.deps.session("child") as child, child.run(agent="scout"):
            pass

    async with opened(store_url) as (store, session), session.run(agent="lead") as lead:
        await Registry([delegate]).dispatch("delegate", {}, session=session, deps=store)
        assert [run.agent async for run in store.runs(parent=lead.id)] == ["scout"]


async def test_a_body_that_knows_nothing_happened_says_so(store_url: Url) -> None:
    """`NotDone` is an error of holdfast, and not a crash."""

    @tool(side_effects={"mutate"})
    def act() -> None:
        raise NotDone("the shop is closed")

    async with opened(store_url) as (_, session):
        found = await Registry([act]).dispatch("act", {}, session=session)
        assert found.content == "act raised NotDone: the shop is closed"
    assert issubclass(NotDone, holdfast.HoldfastError)
