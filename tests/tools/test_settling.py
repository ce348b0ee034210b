"""Settling what is in doubt: verify, then idempotent, then a person; the transcript is whole again."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import anyio
import pytest

import holdfast
import holdfast.tools.ledger
import holdfast.tools.reconcile
from holdfast import Landed, NotLanded, Registry, Session, Store, ToolContext, Unsure, tool
from holdfast.core.entries import ToolIssued, ToolSettled
from holdfast.errors import BadInput
from holdfast.tools import Retry
from tests.internals import engine_of, stop_heartbeat
from tests.tools.example_tools import (
    NoWaiting,
    Url,
    World,
    bodies,
    call,
    come_true,
    die,
    later,
    opened,
    reply,
    results,
)


@pytest.fixture
def world() -> World:
    """The outside world."""
    return World()


def dying(world: World, *, lands: bool = True, proof: bool = True, **options: Any) -> Registry:
    """A tool whose process dies the first time, after its effect has landed (or before).

    Without `proof` it may only have been cut off.
    """
    dies = iter([True])

    @tool(**{"side_effects": {"mutate"}, **options})
    async def act(ctx: ToolContext[Store], what: str = "it") -> str:
        first = next(dies, False)
        if lands or not first:
            world.do(what, ctx.key)
        if first:
            die(ctx.deps, proof=proof)
        return f"did {what}"

    return Registry([act], max_repeats=100)


async def die_in(registry: Registry, url: Url) -> None:
    """A process dies in the middle of a reply's call."""
    async with opened(url) as (store, session):
        await reply(session, call("act"))
        with pytest.raises(holdfast.errors.Closed):
            await registry.dispatch_step(session, deps=store)


async def test_verify_is_asked_first(store_url: Url, world: World) -> None:
    """Landed: the call gets its true result, and the transcript can go on."""
    registry = dying(world, verify=lambda ctx, what: Landed({"key": ctx.key}), idempotent=True)
    await die_in(registry, store_url)
    async with opened(store_url) as (store, session):
        assert session.problems
        assert len(session.in_doubt) == 1
        assert await session.settle(registry) == []
        assert session.continuable
        (block,) = results(session)
        assert (block.value, block.is_error) == ({"key": world.keys[0]}, False)
        (settled,) = await bodies(store, session, ToolSettled)
        assert (settled.verdict, settled.by, settled.told) == ("landed", "verify", True)
    assert world.done == ["it"]


async def test_what_did_not_land_is_carried_on(store_url: Url, world: World) -> None:
    """With the same key, as the next attempt of the same call."""
    registry = dying(world, lands=False, verify=lambda what: NotLanded())
    await die_in(registry, store_url)
    async with opened(store_url) as (store, session):
        assert await session.settle(registry) == []
        assert session.problems
        assert world.done == []
        (found,) = await registry.dispatch_step(session, deps=store)
        assert found.content == "did it"
        assert session.continuable
        issued = await bodies(store, session, ToolIssued)
        assert [(one.attempt, one.key) for one in issued] == [(1, world.keys[0]), (2, world.keys[0])]
    assert world.done == ["it"]


@pytest.mark.parametrize("verify", [None, lambda what: Unsure()])
async def test_the_idempotent_is_run_again_with_the_same_key(
    verify: Callable[..., Any] | None, store_url: Url, world: World
) -> None:
    """If nobody can be asked, or nobody can tell."""
    registry = dying(world, verify=verify, idempotent=True)
    await die_in(registry, store_url)
    async with opened(store_url) as (_, session):
        assert await session.settle(registry) == []
        assert session.continuable
        assert [block.content for block in results(session)] == ["did it"]
    assert world.done == ["it", "it"]
    assert len(set(world.keys)) == 1


async def test_the_idempotent_is_not_run_again_once_its_key_is_forgotten(
    store_url: Url, world: World
) -> None:
    """It would be a second effect: a person decides."""
    registry = dying(world, idempotent=60)
    await die_in(registry, store_url)
    async with opened(store_url) as (_, session):
        later(session, 61)
        assert len(await session.settle(registry)) == 1
    assert world.done == ["it"]


async def test_the_rest_waits_for_a_person(store_url: Url, world: World) -> None:
    """Nothing is run, nothing is told, the transcript waits as well."""
    registry = dying(world)
    await die_in(registry, store_url)
    async with opened(store_url) as (_, session):
        (row,) = await session.settle(registry)
        assert (row.tool, row.call.id, row.args) == ("act", "call_0", {"what": "it"})
        assert session.problems
        (found,) = await registry.dispatch_step(session)
        assert found.status == "in_doubt"
    assert world.done == ["it"]


@pytest.mark.parametrize("by_registry", [True, False])
async def test_or_the_model_is_told(by_registry: bool, store_url: Url, world: World) -> None:
    """It can go on without it; the operation stays blocked either way."""
    registry = dying(world)
    await die_in(registry, store_url)
    chosen = Registry(registry.tools.values(), in_doubt="tell") if by_registry else registry
    async with opened(store_url) as (store, session):
        left = await session.settle(chosen, policy=None if by_registry else "tell")
        assert len(left) == 1
        assert session.continuable
        (block,) = results(session)
        assert block.is_error
        assert "is in doubt: the process that ran it is gone" in str(block.content)
        await reply(session, call("act"))
        (found,) = await registry.dispatch_step(session)
        assert found.status == "in_doubt"
        assert session.continuable
        # Somebody finds out, at last: the first call has its true result after all.
        await store.resolve("s", left[0].issued, "landed", by="ann", result="it did")
        await session.set("heard", 1)
        await session.flush()
        message = session.transcript[1]
        assert isinstance(message, holdfast.messages.Message)
        assert message.blocks == (
            holdfast.messages.ToolResult(call_id="call_0", content="it did", value="it did"),
        )
    assert world.done == ["it"]


async def test_a_policy_that_does_not_exist_is_refused(store_url: Url, world: World) -> None:
    """There are two."""
    async with opened(store_url) as (_, session):
        with pytest.raises(BadInput, match="policy is 'wait' or 'tell', not 'guess'"):
            await session.settle(dying(world), policy="guess")


async def test_nothing_is_settled_where_nothing_is_in_doubt(store_url: Url, world: World) -> None:
    """It costs nothing to ask."""
    async with opened(store_url) as (_, session):
        assert await session.settle(dying(world)) == []


async def test_calls_in_doubt_are_settled_side_by_side(store_url: Url) -> None:
    """A slow hook of one does not hold up the others."""
    asked = {"a": anyio.Event(), "b": anyio.Event()}
    other = {"a": "b", "b": "a"}

    async def check(ctx: ToolContext[Any], what: str) -> Landed:
        asked[what].set()
        await asked[other[what]].wait()
        return Landed(what)

    @tool(side_effects={"mutate"}, verify=check)
    async def act(ctx: ToolContext[Store], what: str) -> None:
        die(ctx.deps)

    registry = Registry([act])
    async with opened(store_url) as (store, session):
        await reply(session, call("act", {"what": "a"}, "x"), call("act", {"what": "b"}, "y"))
        with pytest.raises(holdfast.errors.Closed):
            await registry.dispatch_step(session, deps=store)
    async with opened(store_url) as (_, session):
        assert len(session.in_doubt) == 2
        with anyio.fail_after(60):
            assert await session.settle(registry) == []
        assert [block.value for block in results(session)] == ["a", "b"]


async def test_writes_in_doubt_are_done_again_in_their_order(store_url: Url, world: World) -> None:
    """The last one meant is the last one done: a process died in the first of two writes."""

    @tool(side_effects={"write"})
    async def put(ctx: ToolContext[Store | None], what: str) -> None:
        if ctx.deps is None and what == "v1":
            await anyio.sleep(0.05)  # The others would be quicker, if they did not wait.
        world.do(what, ctx.key)
        if ctx.deps is not None:
            die(ctx.deps)

    registry = Registry([put])
    async with opened(store_url) as (store, session):
        await reply(session, *(call("put", {"what": what}, what) for what in ("v1", "v2", "v3")))
        with pytest.raises(holdfast.errors.Closed):
            await registry.dispatch_step(session, deps=store)
    async with opened(store_url) as (_, session):
        assert [row.call.id for row in session.in_doubt] == ["v1", "v2", "v3"]
        assert await session.settle(registry) == []
        assert session.continuable
    assert world.done == ["v1", "v1", "v2", "v3"]


async def test_an_error_while_settling_is_raised_after_all_the_others(store_url: Url, world: World) -> None:
    """As itself, not wrapped: here the lease is lost on the way."""
    stores: list[Store] = []

    def check(what: str) -> Landed:
        die(stores[-1])
        return Landed()

    registry = dying(world, verify=check)
    await die_in(registry, store_url)
    async with opened(store_url) as (store, session):
        stores.append(store)
        with pytest.raises(holdfast.errors.Closed):
            await session.settle(registry)


async def test_a_person_may_be_quicker_than_the_hook(store_url: Url, world: World) -> None:
    """Then the hook's answer comes too late, and changes nothing."""
    stores: list[Store] = []
    sessions: list[Session] = []

    async def check(what: str) -> NotLanded:
        await stores[-1].resolve("s", "call_0", "landed", by="ann", result="seen on the statement")
        await sessions[-1].set("heard", 1)
        await sessions[-1].flush()
        return NotLanded()

    registry = dying(world, verify=check)
    await die_in(registry, store_url)
    async with opened(store_url) as (store, session):
        stores.append(store)
        sessions.append(session)
        assert await session.settle(registry) == []
        assert [block.content for block in results(session)] == ["seen on the statement"]
        assert len(await bodies(store, session, ToolSettled)) == 1


async def test_a_person_may_be_quicker_than_the_call_itself(store_url: Url, world: World) -> None:
    """The body raised, and while the hook is asked somebody says that it landed: that is the result."""
    stores: list[Store] = []

    async def check(ctx: ToolContext[Any]) -> NotLanded:
        await stores[-1].resolve("s", "c1", "landed", by="ann", result="yes")
        await ctx.session.set("heard", 1)
        await ctx.session.flush()
        return NotLanded()

    @tool(side_effects={"mutate"}, verify=check)
    async def act() -> None:
        world.do("it")
        raise ValueError("reset")

    async with opened(store_url) as (store, session):
        stores.append(store)
        found = await Registry([act]).dispatch("act", {}, call_id="c1", session=session)
        assert (found.status, found.value) == ("completed", "yes")
    assert world.done == ["it"]


# -- when "not landed" can be believed -----------------------------------------------------------------


async def test_not_landed_is_not_believed_while_the_old_body_may_still_run(
    store_url: Url, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process was cut off, and there is no proof that it ended: wait for its timeout, and ask again."""
    waiting = NoWaiting(monkeypatch, holdfast.tools.reconcile)
    answers: list[Any] = []

    def check(what: str) -> Landed | NotLanded:
        answers.append(what)
        return NotLanded() if len(answers) == 1 else Landed("it was under way")

    registry = dying(world, lands=False, proof=False, verify=check, timeout_s=120)
    old = holdfast.open_store(store_url, lease_s=0.05)
    async with old as store, store.session("s") as session:
        await reply(session, call("act"))
        with pytest.raises(holdfast.errors.Closed):
            await registry.dispatch_step(session, deps=store)
        async with opened(store_url, wait_s=60) as (_, taken):
            assert await taken.settle(registry) == []
            assert [block.content for block in results(taken)] == ["it was under way"]
    assert len(answers) == 2
    (pause,) = [slept for slept in waiting.slept if slept]
    assert 100 < pause <= 120


async def test_not_landed_for_good_is_believed_at_once(
    store_url: Url, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The service refuses the key from now on: whatever still runs cannot do it any more."""
    waiting = NoWaiting(monkeypatch, holdfast.tools.reconcile)
    voided: list[str] = []

    def check(ctx: ToolContext[Any], what: str) -> NotLanded:
        voided.append(ctx.key)
        return NotLanded(final=True)

    registry = dying(world, lands=False, proof=False, verify=check)
    old = holdfast.open_store(store_url, lease_s=0.05)
    async with old as store, store.session("s") as session:
        await reply(session, call("act"))
        with pytest.raises(holdfast.errors.Closed):
            await registry.dispatch_step(session, deps=store)
        async with opened(store_url, wait_s=60) as (again, taken):
            assert await taken.settle(registry) == []
            (found,) = await registry.dispatch_step(taken, deps=again)
            assert found.status == "completed"
    assert len(voided) == 1
    assert world.keys != voided
    assert not any(waiting.slept)


async def test_nobody_waits_for_a_body_that_its_process_saw_end(
    store_url: Url, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was cancelled there, and its process lives on."""
    waiting = NoWaiting(monkeypatch, holdfast.tools.reconcile)

    @tool(side_effects={"mutate"}, verify=lambda: NotLanded())
    async def act() -> None:
        scope.cancel()
        await anyio.sleep_forever()

    registry = Registry([act], grace_s=0)
    async with holdfast.open_store(store_url) as old:
        async with old.session("s") as session:
            with anyio.CancelScope() as scope:
                await registry.dispatch("act", {}, session=session)
            assert len(session.in_doubt) == 1
        async with opened(store_url) as (_, taken):
            assert await taken.settle(registry) == []
    assert not any(waiting.slept)


async def test_a_holder_that_is_out_posts_what_it_still_learns(store_url: Url, world: World) -> None:
    """It cannot write any more; whoever has the session now hears how it ended."""
    entered, release = anyio.Event(), anyio.Event()

    @tool(side_effects={"mutate"})
    async def act(ctx: ToolContext[Any]) -> str:
        entered.set()
        await release.wait()
        return world.do("it", ctx.key)

    registry = Registry([act])
    async with holdfast.open_store(store_url, lease_s=0.05) as old, old.session("s") as session:
        async with anyio.create_task_group() as tasks:

            async def dispatch() -> None:
                with pytest.raises(holdfast.errors.Fenced):
                    await registry.dispatch("act", {}, call_id="c1", session=session)

            tasks.start_soon(dispatch)
            await entered.wait()
            stop_heartbeat(old)
            async with opened(store_url, wait_s=60) as (_, taken):
                assert [row.call.id for row in taken.in_doubt] == ["c1"]
                release.set()
                with anyio.fail_after(60):
                    while taken.in_doubt:
                        await taken.set("heard", 1)
                        await taken.flush()
                        await anyio.sleep(0.001)
                found = await registry.dispatch("act", {}, call_id="c1", session=taken)
                assert (found.status, found.value) == ("completed", "did it")
    assert world.done == ["it"]


async def test_a_holder_that_was_silent_for_a_whole_term_looks_before_it_acts(
    store_url: Url, world: World
) -> None:
    """Somebody has taken over meanwhile: no body is entered any more."""

    @tool(side_effects={"mutate"})
    async def act() -> str:
        return world.do("it")

    registry = Registry([act])
    async with holdfast.open_store(store_url, lease_s=0.05) as old, old.session("s") as session:
        stop_heartbeat(old)
        async with opened(store_url, wait_s=60):
            assert engine_of(old).heartbeat.left_s <= 0
            with pytest.raises(holdfast.errors.Fenced):
                await registry.dispatch("act", {}, session=session)
    assert world.done == []


async def test_a_term_that_ran_out_but_that_nobody_took_is_renewed(store_url: Url, world: World) -> None:
    """A laptop whose lid was shut goes on."""

    @tool(side_effects={"mutate"})
    async def act() -> str:
        return world.do("it")

    async with holdfast.open_store(store_url, lease_s=0.05) as store, store.session("s") as session:
        stop_heartbeat(store)
        await come_true(lambda: engine_of(store).heartbeat.left_s <= 0)
        found = await Registry([act]).dispatch("act", {}, session=session)
        assert found.status == "completed"
        kinds = [entry.kind async for entry in store.tail("s", follow=False)]
        assert kinds[-3:] == ["tool.issued", "lease.renewed", "tool.completed"]


# -- a whole store -------------------------------------------------------------------------------------


async def test_a_whole_store_is_settled(store_url: Url, world: World) -> None:
    """Each session that nobody holds; what stays in doubt is said, the rest left to whoever has it."""

    def check(what: str) -> Landed | Unsure:
        return Landed() if what == "known" else Unsure()

    @tool(side_effects={"mutate"}, verify=check)
    async def act(ctx: ToolContext[Store], what: str) -> None:
        die(ctx.deps)

    registry = Registry([act])
    for id, what in (("a", "known"), ("b", "unknown"), ("c", "known")):
        async with opened(store_url, id) as (store, session):
            with pytest.raises(holdfast.errors.Closed):
                await registry.dispatch("act", {"what": what}, session=session, deps=store)
    async with opened(store_url, "c") as (store, _):
        found = {doubt.session async for doubt in store.in_doubt()}
        assert found == {"a", "b", "c"}
        left = await registry.settle_all(store)
        assert {(doubt.session, doubt.effect.tool) for doubt in left} == {("b", "act"), ("c", "act")}


async def test_nothing_of_a_live_call_is_in_doubt(store_url: Url) -> None:
    """It is running. When its process is gone, it is."""
    entered = anyio.Event()

    @tool(side_effects={"mutate"}, retry=Retry(attempts=1))
    async def act() -> None:
        entered.set()
        await anyio.sleep_forever()

    async with opened(store_url) as (store, session):
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as tasks:

                async def dispatch() -> None:
                    with suppress(holdfast.errors.Closed):
                        await Registry([act], grace_s=0).dispatch("act", {}, session=session)

                tasks.start_soon(dispatch)
                await entered.wait()
                async with holdfast.open_store(store_url) as other:
                    assert [doubt async for doubt in other.in_doubt()] == []
                    assert (await other.load("s")).facts.head.in_doubt == 1
                    die(store)
                    assert [doubt.session async for doubt in other.in_doubt()] == ["s"]
                scope.cancel()
