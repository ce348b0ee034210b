"""Once ever, over all sessions and stores of one database."""

from __future__ import annotations

from typing import Any

import anyio
import anyio.lowlevel
import pytest

import holdfast
import holdfast.tools.claims
import holdfast.tools.dispatch
from holdfast import Landed, NotDone, NotLanded, Registry, Retry, Session, Store, ToolContext, tool
from tests.tools.stage import NoWaiting, Url, World, die, hear, opened


@pytest.fixture
def world() -> World:
    """The outside world."""
    return World()


@pytest.fixture(autouse=True)
def short_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for long."""
    monkeypatch.setattr(holdfast.tools.dispatch, "CLAIM_WAIT_S", 0.3)


def welcoming(world: World, *errors: BaseException | None, **options: Any) -> Registry:
    """A mail that everybody gets once; its first attempts may fail."""
    left = iter(errors)

    @tool(**{"side_effects": {"mutate"}, "scope": "global", **options})
    async def welcome(ctx: ToolContext[Store | None], to: str) -> dict[str, str]:
        world.do(to, ctx.key)
        error = next(left, None)
        if error is not None:
            raise error
        return {"sent": to}

    return Registry([welcome], max_repeats=100)


async def send(
    registry: Registry, session: Session, id: str, to: str = "ann", **options: Any
) -> holdfast.Result:
    """One welcome."""
    return await registry.dispatch("welcome", {"to": to}, call_id=id, session=session, **options)


async def test_every_session_gets_the_outcome_of_the_first(store_url: Url, world: World) -> None:
    """Marked with the call and the session that did it; also over two stores on one database."""
    registry = welcoming(world)
    async with opened(store_url, "one") as (store, one), store.session("two") as two:
        first = await send(registry, one, "c1")
        second = await send(registry, two, "c2")
        again = await send(registry, one, "c3")
    async with opened(store_url, "three") as (_, three):
        third = await send(registry, three, "c4")
        other = await send(registry, three, "c5", "bob")
    assert first.value == second.value == third.value == {"sent": "ann"}
    assert second.content == f"[idempotent replay of c1 in session one]: {first.content}"
    assert (second.replay_of, third.replay_of, again.replay_of) == ("c1", "c1", "c1")
    assert other.value == {"sent": "bob"}
    assert world.done == ["ann", "bob"]


async def test_another_store_is_another_world(store_url: Url, world: World) -> None:
    """And has other keys."""
    registry = welcoming(world)
    async with opened(store_url) as (_, one), opened("memory:") as (_, two):
        await send(registry, one, "c1")
        await send(registry, two, "c1")
    assert world.done == ["ann", "ann"]
    assert len(set(world.keys)) == 2


async def test_it_outlives_the_session_that_did_it(store_url: Url, world: World) -> None:
    """Deleted, rewound or erased: what was done once ever stays done."""
    registry = welcoming(world)
    async with opened(store_url, "one") as (_, one):
        await one.checkpoint()
        await send(registry, one, "c1")
        await one.rewind(version=1)
        assert (await send(registry, one, "c2")).replay_of == "c1"
    async with opened(store_url, "two") as (store, two):
        await store.delete("one")
        assert (await send(registry, two, "c3")).value == {"sent": "ann"}
        async with store.session("one") as anew:
            assert (await send(registry, anew, "c1")).value == {"sent": "ann"}
    assert world.done == ["ann"]


async def test_a_definite_failure_frees_it_for_everybody(store_url: Url, world: World) -> None:
    """With another key."""
    registry = welcoming(world, NotDone("no network"))
    async with opened(store_url, "one") as (store, one), store.session("two") as two:
        assert (await send(registry, one, "c1")).status == "failed"
        assert (await send(registry, two, "c2")).status == "completed"
        assert (await send(registry, one, "c1")).replay_of == "c2"
    assert world.done == ["ann", "ann"]
    assert len(set(world.keys)) == 2


async def test_in_doubt_it_is_blocked_for_everybody(
    store_url: Url, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once, and they are told who has it; a person's verdict in the one session frees all."""
    registry = welcoming(world, ValueError("reset"))
    async with opened(store_url, "one") as (store, one), store.session("two") as two:
        assert (await send(registry, one, "c1")).status == "in_doubt"
        waiting = NoWaiting(monkeypatch, holdfast.tools.claims)
        blocked = await send(registry, two, "c2")
        assert waiting.slept == []
        assert blocked.status == "in_doubt"
        assert "welcome: not run. session 'one' issued it at" in blocked.content
        assert "nobody knows what became of it" in blocked.content
        await store.resolve("one", "c1", "landed", by="ann", result={"sent": "yes"})
        await hear(one)
        found = await send(registry, two, "c2")
        assert (found.value, found.replay_of) == ({"sent": "yes"}, "c1")
    assert world.done == ["ann"]


async def test_what_is_being_done_is_waited_for(store_url: Url, world: World) -> None:
    """By another session of another store: it gets the outcome."""
    entered, release = anyio.Event(), anyio.Event()

    @tool(side_effects={"mutate"}, scope="global")
    async def welcome(to: str) -> str:
        entered.set()
        await release.wait()
        return world.do(to)

    registry = Registry([welcome])
    found: dict[str, holdfast.Result] = {}
    async with opened(store_url, "one") as (_, one), opened(store_url, "two") as (_, two):
        async with anyio.create_task_group() as tasks:

            async def first() -> None:
                found["one"] = await send(registry, one, "c1")

            async def second() -> None:
                found["two"] = await send(registry, two, "c2")

            tasks.start_soon(first)
            await entered.wait()
            tasks.start_soon(second)
            for _ in range(20):
                await anyio.lowlevel.checkpoint()
            release.set()
    assert found["two"].value == found["one"].value == "did ann"
    assert world.done == ["ann"]


async def test_who_waits_for_too_long_is_told_who_has_it(store_url: Url, world: World) -> None:
    """And nothing is run."""
    entered, release = anyio.Event(), anyio.Event()

    @tool(side_effects={"mutate"}, scope="global")
    async def welcome(to: str) -> str:
        entered.set()
        await release.wait()
        return world.do(to)

    registry = Registry([welcome])
    async with opened(store_url, "one") as (_, one), opened(store_url, "two") as (_, two):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(send, registry, one, "c1")
            await entered.wait()
            blocked = await send(registry, two, "c2")
            assert blocked.status == "in_doubt"
            assert "welcome: not run. session 'one' is at it (" in blocked.content
            release.set()
    assert world.done == ["ann"]


@pytest.mark.parametrize("landed", [True, False])
async def test_a_process_that_died_in_it_is_settled_by_its_own_session(
    landed: bool, store_url: Url, world: World
) -> None:
    """Until then nobody else runs it."""

    def check(to: str) -> Landed | NotLanded:
        return Landed({"sent": "found"}) if landed else NotLanded()

    dies = iter([True])

    @tool(side_effects={"mutate"}, scope="global", verify=check)
    async def welcome(ctx: ToolContext[Store], to: str) -> dict[str, str]:
        world.do(to, ctx.key)
        if next(dies, False):
            die(ctx.deps)
        return {"sent": to}

    registry = Registry([welcome], max_repeats=100)
    async with opened(store_url, "one") as (store, one):
        with pytest.raises(holdfast.Closed):
            await send(registry, one, "c1", deps=store)
    async with opened(store_url, "two") as (store, two):
        assert (await send(registry, two, "c2", deps=store)).status == "in_doubt"
        async with store.session("one") as one:
            await one.settle(registry)
        found = await send(registry, two, "c2", deps=store)
        assert found.status == "completed"
    assert world.done == ["ann"] if landed else ["ann", "ann"]
    assert len(set(world.keys)) == 1


async def test_a_claim_without_an_intent_is_taken_over(store_url: Url, world: World) -> None:
    """Its process died between the two: nothing was begun, and nothing can be any more."""
    registry = welcoming(world)
    async with opened(store_url, "one") as (store, one):
        record = one.record

        def dying(*bodies: Any, **rest: Any) -> None:
            if type(bodies[0]).__name__ == "ToolIssued":
                die(store)
            record(*bodies, **rest)

        one.record = dying  # type: ignore[method-assign]
        with pytest.raises(holdfast.Closed):
            await send(registry, one, "c1")
    async with opened(store_url, "two") as (_, two):
        assert (await send(registry, two, "c2")).status == "completed"
    async with opened(store_url, "one") as (_, one):
        assert (await send(registry, one, "c1")).replay_of == "c2"
    assert world.done == ["ann"]


async def test_a_claim_of_a_live_session_is_not_taken_over(store_url: Url, world: World) -> None:
    """It may be about to begin, or between two attempts."""
    entered, release = anyio.Event(), anyio.Event()
    fails = iter([True])

    @tool(side_effects={"mutate"}, scope="global", retry=Retry(attempts=2, backoff_s=0.05, jitter=0))
    async def welcome(to: str) -> str:
        if next(fails, False):
            entered.set()
            raise NotDone("busy")
        await release.wait()
        return world.do(to)

    registry = Registry([welcome])
    async with opened(store_url, "one") as (_, one), opened(store_url, "two") as (_, two):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(send, registry, one, "c1")
            await entered.wait()
            blocked = await send(registry, two, "c2")
            assert blocked.status == "in_doubt"
            release.set()
    assert world.done == ["ann"]


async def test_a_deleted_session_does_not_free_what_it_may_have_done(store_url: Url, world: World) -> None:
    """Nobody can tell any more: it is not run again."""
    registry = welcoming(world, ValueError("reset"))
    async with opened(store_url, "one") as (_, one):
        await send(registry, one, "c1")
    async with opened(store_url, "two") as (store, two):
        await store.delete("one")
        blocked = await send(registry, two, "c2")
        assert blocked.status == "in_doubt"
        assert "session 'one' had it and was deleted; nobody can tell whether it happened" in blocked.content
        async with store.session("one") as anew:
            assert (await send(registry, anew, "c1")).status == "in_doubt"
    assert world.done == ["ann"]


async def test_undone_it_is_free_for_everybody(store_url: Url, world: World) -> None:
    """With another key, in another session."""
    registry = welcoming(world, undo=lambda to: world.do(f"sorry {to}"))
    async with opened(store_url, "one") as (store, one), store.session("two") as two:
        await one.checkpoint()
        await send(registry, one, "c1")
        await one.rewind(version=1, undo=True, registry=registry)
        found = await send(registry, two, "c2")
        assert (found.status, found.replay_of) == ("completed", None)
        assert (await send(registry, one, "c3")).replay_of == "c2"
    assert world.done == ["ann", "sorry ann", "ann"]
    assert len({key for what, key in world.log if what == "ann"}) == 2


async def test_a_fork_does_not_do_it_again(store_url: Url, world: World) -> None:
    """It inherits the ledger, and what came later is done as well."""
    registry = welcoming(world)
    async with opened(store_url, "one") as (store, one):
        await one.checkpoint()
        await send(registry, one, "c1")
        await store.fork("one", version=1, into="f")
        async with store.session("f") as fork:
            assert (await send(registry, fork, "c2")).replay_of == "c1"
    assert world.done == ["ann"]


async def test_many_at_once_do_it_once(store_url: Url, world: World) -> None:
    """Ten sessions in two stores, all at the same moment."""
    registry = welcoming(world)
    statuses: list[str] = []

    async def race(store: Store, id: str, start: anyio.Event) -> None:
        async with store.session(id) as session:
            await start.wait()
            statuses.append((await send(registry, session, id)).status)

    start = anyio.Event()
    async with holdfast.open_store(store_url) as a, holdfast.open_store(store_url) as b:
        async with anyio.create_task_group() as tasks:
            for number in range(10):
                tasks.start_soon(race, a if number % 2 else b, f"s{number}", start)
            await anyio.sleep(0.05)
            start.set()
    assert world.done == ["ann"]
    assert statuses.count("completed") >= 1
    assert set(statuses) <= {"completed", "in_doubt"}
