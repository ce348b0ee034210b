"""Once ever, over all sessions and stores of one database."""

from __future__ import annotations

from typing import Any

import anyio
import anyio.lowlevel
import pytest

import holdfast
import holdfast.tools.claims
import holdfast.tools.dispatch
from holdfast import Landed, NotDone, NotLanded, Registry, Session, Store, ToolContext, tool
from holdfast.errors import BadInput, NotFound
from holdfast.records import Effect
from holdfast.session.effect_claims import effect_key, find_claim
from holdfast.tools import Retry
from holdfast.tools.claims import Mine, OperationClaims
from tests.internals import writer_of
from tests.tools.example_tools import NoWaiting, Url, World, die, hear, opened


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
) -> holdfast.tools.Result:
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
        assert "what became of it is not known" in blocked.content
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
    found: dict[str, holdfast.tools.Result] = {}
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
            assert "welcome: not run. session 'one' is working on it (" in blocked.content
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
        with pytest.raises(holdfast.errors.Closed):
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
        record = writer_of(one).record

        def dying(*bodies: Any, **rest: Any) -> None:
            if type(bodies[0]).__name__ == "ToolIssued":
                die(store)
            record(*bodies, **rest)

        writer_of(one).record = dying  # type: ignore[method-assign]
        with pytest.raises(holdfast.errors.Closed):
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


async def leave_in_doubt(registry: Registry, url: Url) -> str:
    """A session issues it, and is deleted before anybody knows what became of it; the operation."""
    async with opened(url, "one") as (store, one):
        await send(registry, one, "c1")
        (row,) = one.in_doubt
    async with holdfast.open_store(url) as store:
        await store.delete("one")
    return row.operation


async def test_a_deleted_session_does_not_free_what_it_may_have_done(store_url: Url, world: World) -> None:
    """It is not run again, and whoever asks is told what a person can do about it."""
    registry = welcoming(world, ValueError("reset"))
    operation = await leave_in_doubt(registry, store_url)
    async with opened(store_url, "two") as (store, two):
        blocked = await send(registry, two, "c2")
        assert blocked.status == "in_doubt"
        assert f"with key {world.keys[0]} and was deleted; it is not known whether" in blocked.content
        assert f"store.resolve_operation('{operation}', 'landed' or 'not_landed', by=…)" in blocked.content
        async with store.session("one") as anew:
            assert (await send(registry, anew, "c1")).status == "in_doubt"
    assert world.done == ["ann"]


@pytest.mark.parametrize("verdict", ["landed", "not_landed"])
async def test_what_a_deleted_session_left_in_doubt_is_listed_until_somebody_says_what_became_of_it(
    verdict: Any, store_url: Url, world: World
) -> None:
    """With what a person needs: the tool, the key, and the operation to resolve."""
    operation = await leave_in_doubt(welcoming(world, ValueError("reset")), store_url)
    async with holdfast.open_store(store_url) as store:
        (doubt,) = [one async for one in store.in_doubt()]
        assert (doubt.session, doubt.operation) == ("one", operation)
        assert (doubt.effect.tool, doubt.effect.call.id, doubt.effect.status) == ("welcome", "c1", "in_doubt")
        assert (doubt.effect.key, doubt.effect.args) == (world.keys[0], None)
        assert await store.resolve_operation(operation, verdict, by="ann") == "settled"
        assert [one async for one in store.in_doubt()] == []
        # Another session of its name has nothing to do with it.
        async with store.session("one"):
            pass
        await store.delete("one")
        assert [one async for one in store.in_doubt()] == []


async def test_a_person_can_say_that_it_landed_after_its_session_is_gone(
    store_url: Url, world: World
) -> None:
    """Then everybody gets that result, and it is on record who said so."""
    registry = welcoming(world, ValueError("reset"))
    operation = await leave_in_doubt(registry, store_url)
    async with opened(store_url, "two") as (store, two):
        said = {"by": "ann", "note": "it is in the outbox"}
        answered = await store.resolve_operation(operation, "landed", result={"sent": "yes"}, **said)
        assert answered == "settled"
        assert await store.resolve_operation(operation, "not_landed", by="bob") == "late"
        found = await send(registry, two, "c2")
        assert (found.value, found.replay_of) == ({"sent": "yes"}, "c1")
        claim, _ = find_claim(writer_of(two).engine, effect_key(operation))
        assert [(one.verdict, one.by, one.note, one.session) for one in claim.said] == [
            ("landed", "ann", "it is in the outbox", "one")
        ]
    assert world.done == ["ann"]


async def test_a_person_can_say_that_it_did_not_land_after_its_session_is_gone(
    store_url: Url, world: World
) -> None:
    """Then the next one does it, with the same key, and it stays on record who said so."""
    registry = welcoming(world, ValueError("reset"))
    operation = await leave_in_doubt(registry, store_url)
    async with opened(store_url, "two") as (store, two):
        assert await store.resolve_operation(operation, "not_landed", by="ann") == "settled"
        assert (await send(registry, two, "c2")).status == "completed"
        claim, _ = find_claim(writer_of(two).engine, effect_key(operation))
        assert (claim.session, claim.done, [one.by for one in claim.said]) == ("two", True, ["ann"])
    assert world.done == ["ann", "ann"]
    assert len(set(world.keys)) == 1


async def test_only_what_nobody_else_can_tell_is_resolved_by_its_operation(
    store_url: Url, world: World
) -> None:
    """A session that is still there has the record of it, and takes the verdict in."""
    registry = welcoming(world, ValueError("reset"))
    async with opened(store_url, "one") as (store, one):
        await send(registry, one, "c1")
        (row,) = one.in_doubt
        with pytest.raises(BadInput, match=r"use store.resolve\('one', 'c1', …\)"):
            await store.resolve_operation(row.operation, "landed", by="ann")
        with pytest.raises(NotFound, match="no session ever claimed"):
            await store.resolve_operation("0" * 64, "landed", by="ann")
        with pytest.raises(BadInput, match="landed or not_landed"):
            await store.resolve_operation(row.operation, "gave_up", by="ann")  # type: ignore[arg-type]
        with pytest.raises(BadInput, match="only a call that landed"):
            await store.resolve_operation(row.operation, "not_landed", by="ann", result=1)
        with pytest.raises(BadInput, match="say who decides"):
            await store.resolve_operation(row.operation, "landed", by=" ")


async def test_a_session_that_is_deleted_before_it_began_leaves_nothing_blocked(
    store_url: Url, world: World
) -> None:
    """Its process died between the claim and the intent."""
    registry = welcoming(world)
    async with opened(store_url, "one") as (store, one):
        record = writer_of(one).record

        def dying(*bodies: Any, **rest: Any) -> None:
            if type(bodies[0]).__name__ == "ToolIssued":
                die(store)
            record(*bodies, **rest)

        writer_of(one).record = dying  # type: ignore[method-assign]
        with pytest.raises(holdfast.errors.Closed):
            await send(registry, one, "c1")
    async with opened(store_url, "two") as (store, two):
        await store.delete("one")
        assert (await send(registry, two, "c2")).status == "completed"
    assert world.done == ["ann"]


async def test_a_session_that_is_deleted_leaves_what_its_journal_knew(store_url: Url, world: World) -> None:
    """Also where only a person's verdict in that journal said so."""
    registry = welcoming(world, ValueError("reset"), ValueError("reset"))
    async with opened(store_url, "one") as (store, one):
        await send(registry, one, "c1", "ann")
        await send(registry, one, "c2", "bob")
        await store.resolve("one", "c1", "landed", by="eve", result="found it")
        await store.resolve("one", "c2", "not_landed", by="eve")
    async with opened(store_url, "two") as (store, two):
        await store.delete("one")
        found = await send(registry, two, "c3", "ann")
        assert (found.value, found.replay_of) == ("found it", "c1")
        again = await send(registry, two, "c4", "bob")
        assert (again.status, again.replay_of) == ("completed", None)
    assert world.done == ["ann", "bob", "bob"]


async def test_a_holder_that_is_out_does_not_give_back_what_its_successor_has(
    store_url: Url, world: World
) -> None:
    """It failed, and was stopped just before it could say so with the claim."""
    registry = welcoming(world, NotDone("no network"))
    async with opened(store_url, "one") as (store, one):
        claims = OperationClaims(one)
        free = claims.free

        async def stopped(row: Effect) -> None:
            die(store)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(OperationClaims, "free", lambda self, row: stopped(row))
            await send(registry, one, "c1")
        (row,) = one.state.facts.effects.rows.values()
        async with opened(store_url, "one") as (store, successor):
            await send(registry, successor, "c2", "ann")
            claim, record = find_claim(writer_of(successor).engine, row.operation)
            writer_of(one).engine.call = writer_of(successor).engine.call  # type: ignore[method-assign]
            await free(row)
            assert find_claim(writer_of(successor).engine, row.operation) == (claim, record)
    assert world.done == ["ann", "ann"]


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


@pytest.mark.parametrize("verdict", ["landed", "not_landed"])
async def test_while_nobody_knows_whether_it_was_taken_back_it_is_neither_done_nor_free(
    verdict: Any, store_url: Url, world: World
) -> None:
    """In its own session and in all others, until somebody says what became of the undo."""

    def unsend(to: str) -> None:
        world.do(f"sorry {to}")
        raise ValueError("reset")

    registry = welcoming(world, undo=unsend)
    async with opened(store_url, "two") as (store, two):
        async with store.session("one") as one:
            await send(registry, one, "c1")
            await registry.undo(one, one.left_behind())
            (undo,) = one.in_doubt
            blocked = await send(registry, two, "c2")
            assert blocked.status == "in_doubt"
            assert "and then its undo, and what became of it is not known" in blocked.content
            assert f"store.resolve('one', {undo.issued}, …)" in blocked.content
            ours = await send(registry, one, "c3")
            assert ours.status == "in_doubt"
            assert "which takes it back, is in doubt" in ours.content
        await store.resolve("one", undo.issued, verdict, by="ann")
        found = await send(registry, two, "c4")
        assert (found.status, found.replay_of) == ("completed", None if verdict == "landed" else "c1")
        async with store.session("one") as one:
            assert (await send(registry, one, "c5")).replay_of == ("c4" if verdict == "landed" else "c1")
    assert world.done == ["ann", "sorry ann"] + ["ann"] * (verdict == "landed")


async def test_what_is_being_taken_back_is_waited_for(store_url: Url, world: World) -> None:
    """Then it is free, and done anew."""
    entered, release = anyio.Event(), anyio.Event()

    async def unsend(to: str) -> None:
        entered.set()
        await release.wait()
        world.do(f"sorry {to}")

    registry = welcoming(world, undo=unsend)
    found: dict[str, holdfast.tools.Result] = {}
    async with opened(store_url, "one") as (store, one), store.session("two") as two:
        await send(registry, one, "c1")

        async def ask(session: Session, id: str) -> None:
            found[id] = await send(registry, session, id)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(registry.undo, one, one.left_behind())
            await entered.wait()
            blocked = await send(registry, two, "c2")
            assert "session 'one' is taking it back" in blocked.content
            tasks.start_soon(ask, one, "c3")
            for _ in range(20):
                await anyio.lowlevel.checkpoint()
            release.set()
        assert (found["c3"].status, found["c3"].replay_of) == ("completed", None)
    assert world.done == ["ann", "sorry ann", "ann"]


@pytest.mark.parametrize("verdict", ["landed", "not_landed"])
async def test_a_session_deleted_in_the_middle_of_an_undo_leaves_it_blocked(
    verdict: Any, store_url: Url, world: World
) -> None:
    """Landed: the effect stands. Not landed: it does not, and is done anew with another key."""

    def unsend(ctx: ToolContext[Store], to: str) -> None:
        raise ValueError("reset")

    registry = welcoming(world, undo=unsend)
    async with opened(store_url, "one") as (_, one):
        await send(registry, one, "c1")
        (row,) = one.left_behind()
        await registry.undo(one, [row])
    async with opened(store_url, "two") as (store, two):
        await store.delete("one")
        blocked = await send(registry, two, "c2")
        assert blocked.status == "in_doubt"
        assert "session 'one' did it, issued its undo at" in blocked.content
        await store.resolve_operation(row.operation, verdict, by="ann")
        found = await send(registry, two, "c3")
        assert (found.status, found.replay_of) == ("completed", "c1" if verdict == "landed" else None)
    assert world.done == ["ann"] * (1 if verdict == "landed" else 2)
    assert len(set(world.keys)) == len(world.keys)


async def test_a_fork_that_only_claimed_it_does_not_speak_for_its_origin(
    store_url: Url, world: World
) -> None:
    """The fork inherits the row of an effect that its origin has taken back since."""
    registry = welcoming(world, undo=lambda to: world.do(f"sorry {to}"))
    async with opened(store_url, "one") as (store, one):
        await send(registry, one, "c1")
        await one.checkpoint()
        await store.fork("one", into="f")
        (row,) = one.left_behind()
        await registry.undo(one, [row])
        async with store.session("f") as fork:
            assert isinstance(await OperationClaims(fork).take(row.operation, "c2", 0), Mine)
        async with store.session("two") as two:
            found = await send(registry, two, "c3")
            assert (found.status, found.replay_of) == ("completed", None)
    assert world.done == ["ann", "sorry ann", "ann"]


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
