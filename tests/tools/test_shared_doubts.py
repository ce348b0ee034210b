"""Effects in doubt that forks share: one session settles them, or runs them again, for all of them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

import holdfast
import holdfast.tools.claims
from holdfast import Landed, NotLanded, Registry, Store, ToolContext, Unsure, tool
from holdfast.tools import Result, Retry
from tests.internals import engine_of
from tests.tools.example_tools import Url, World, call, die, opened, reply, results

Answer = Landed | NotLanded | Unsure


class Service:
    """A service that can be asked, and what it was asked."""

    def __init__(
        self, world: World, *, lands: bool = False, answer: Callable[[], Answer] | None = None
    ) -> None:
        self.world, self._lands, self._answer = world, lands, answer
        self.asked = 0
        self._dies = True

    def registry(self, **options: Any) -> Registry:
        """A tool of it whose process dies the first time."""

        @tool(**{"side_effects": {"mutate"}, "verify": self._verify, **options})
        async def pay(ctx: ToolContext[Store]) -> str:
            dies, self._dies = self._dies, False
            if not dies or self._lands:
                self.world.do("pay", ctx.key)
            if dies:
                die(ctx.deps)
            return "paid"

        return Registry([pay], max_repeats=100)

    def _verify(self, ctx: ToolContext[Any]) -> Answer:
        self.asked += 1
        if self._answer is not None:
            return self._answer()
        return Landed("paid") if ctx.key in self.world.keys else NotLanded()


@pytest.fixture
def world() -> World:
    """The outside world."""
    return World()


async def fork_in_doubt(registry: Registry, url: Url, *forks: str) -> None:
    """The process of session `s` dies in a call, and the session is forked then."""
    async with opened(url) as (store, session):
        await reply(session, call("pay"))
        with suppress(holdfast.errors.Closed):
            await registry.dispatch_step(session, deps=store)
    async with holdfast.open_store(url) as store:
        async with store.session("s") as session:
            await session.checkpoint()
        origin = "s"
        for fork in forks:
            # Each of the one before: a fork of a fork shares it just the same.
            await store.fork(origin, into=fork)
            async with store.session(fork) as session:
                await session.checkpoint()
            origin = fork


async def go_on(registry: Registry, store: Store, id: str) -> Result:
    """Settle what is in doubt, and make the calls that have no result."""
    async with store.session(id) as session:
        await session.settle(registry, deps=store)
        (result,) = await registry.dispatch_step(session, deps=store)
        return result


@pytest.mark.parametrize(("order", "idempotent"), [("s f g", False), ("f s g", True), ("g f s", False)])
async def test_origin_and_forks_that_are_told_that_nothing_landed_run_it_once(
    order: str, idempotent: bool, store_url: Url, world: World
) -> None:
    """All of them are told so truthfully; one runs it, and the others get what it gave."""
    registry = Service(world).registry(idempotent=idempotent)
    await fork_in_doubt(registry, store_url, "f", "g")
    async with holdfast.open_store(store_url) as store:
        sessions = order.split()
        for id in sessions:
            async with store.session(id) as session:
                assert await session.settle(registry, deps=store) == []
        for id in sessions:
            assert (await go_on(registry, store, id)).value == "paid"
        for id in sessions:
            async with store.session(id) as session:
                assert [one.content for one in results(session)] == ["paid"]
                assert session.continuable
                assert session.in_doubt == []
    assert world.done == ["pay"]


@pytest.mark.parametrize("first", ["s", "f"])
async def test_a_verdict_of_one_is_recorded_by_the_others_without_asking(
    first: str, store_url: Url, world: World
) -> None:
    """The hook is asked once; what it said is the result everywhere."""
    service = Service(world, lands=True)
    registry = service.registry()
    await fork_in_doubt(registry, store_url, "f")
    async with holdfast.open_store(store_url) as store:
        for id in (first, "f" if first == "s" else "s"):
            assert (await go_on(registry, store, id)).value == "paid"
    assert (service.asked, world.done) == (1, ["pay"])


@pytest.mark.parametrize("deleted", ["s", "f"])
async def test_what_a_deleted_session_found_out_is_kept_for_those_who_share_it(
    deleted: str, store_url: Url, world: World
) -> None:
    """Deleting the one that settled it, or ran it again, does not make it happen a second time."""
    service = Service(world)
    registry = service.registry()
    await fork_in_doubt(registry, store_url, "f")
    async with holdfast.open_store(store_url) as store:
        await go_on(registry, store, deleted)
        await store.delete(deleted)
        other = "f" if deleted == "s" else "s"
        assert (await go_on(registry, store, other)).value == "paid"
        assert [doubt async for doubt in store.in_doubt()] == []
    assert (service.asked, world.done) == (1, ["pay"])


@pytest.mark.parametrize("first", ["s", "f"])
async def test_what_a_person_says_to_one_is_known_to_the_others(
    first: str, store_url: Url, world: World
) -> None:
    """A later answer, to another session that shares the call, comes too late."""
    registry = Service(world, answer=Unsure).registry()
    await fork_in_doubt(registry, store_url, "f")
    other = "f" if first == "s" else "s"
    async with holdfast.open_store(store_url) as store:
        assert await store.resolve(first, "call_0", "landed", by="ann", result="seen") == "settled"
        assert (await go_on(registry, store, other)).value == "seen"
    assert world.done == []


async def test_a_person_who_contradicts_what_is_known_is_told_so(store_url: Url, world: World) -> None:
    """What another session knows to have happened is not run, whatever is said here."""
    registry = Service(world, answer=Unsure).registry()
    await fork_in_doubt(registry, store_url, "f")
    async with holdfast.open_store(store_url) as store:
        assert await store.resolve("f", "call_0", "landed", by="ann", result="seen") == "settled"
        assert await store.resolve("s", "call_0", "not_landed", by="bob") == "late"
        assert (await go_on(registry, store, "s")).value == "seen"
    assert world.done == []


async def test_two_persons_who_say_that_nothing_landed_have_it_run_once(store_url: Url, world: World) -> None:
    """Both may be right; one session runs it."""
    registry = Service(world, answer=Unsure).registry()
    await fork_in_doubt(registry, store_url, "f")
    async with holdfast.open_store(store_url) as store:
        for id in ("s", "f"):
            assert await store.resolve(id, "call_0", "not_landed", by="ann") == "settled"
        for id in ("f", "s"):
            assert (await go_on(registry, store, id)).value == "paid"
    assert world.done == ["pay"]


async def test_what_one_gave_up_is_given_up_by_the_others(store_url: Url, world: World) -> None:
    """It is not run, and the model is told."""
    registry = Service(world).registry()
    await fork_in_doubt(registry, store_url, "f")
    async with holdfast.open_store(store_url) as store:
        assert await store.resolve("s", "call_0", "gave_up", by="ann") == "settled"
        async with store.session("f") as session:
            assert await session.settle(registry, deps=store) == []
            assert "given up by session s" in str(results(session)[0].content)
    assert world.done == []


async def test_what_one_gave_up_is_run_by_another_where_a_person_says_so(
    store_url: Url, world: World
) -> None:
    """Giving up says nothing about whether it happened."""
    registry = Service(world, answer=Unsure).registry()
    await fork_in_doubt(registry, store_url, "f")
    async with holdfast.open_store(store_url) as store:
        assert await store.resolve("s", "call_0", "gave_up", by="ann") == "settled"
        assert await store.resolve("f", "call_0", "not_landed", by="bob") == "settled"
        assert (await go_on(registry, store, "f")).value == "paid"
    assert world.done == ["pay"]


async def test_a_fork_of_a_call_that_runs_leaves_it_to_the_session_that_runs_it(
    store_url: Url, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Forked in the middle of the call: it is not in doubt there, and the fork does not run it."""
    monkeypatch.setattr(holdfast.tools.claims, "CLAIM_WAIT_S", 0.0)
    seen: list[str] = []

    @tool(side_effects={"mutate"}, verify=lambda: NotLanded())
    async def pay(ctx: ToolContext[Store]) -> str:
        assert ctx.session is not None
        if not seen:
            await ctx.session.checkpoint()
            await ctx.deps.fork("s", into="f")
            async with ctx.deps.session("f") as fork:
                left = await fork.settle(registry, deps=ctx.deps)
                seen.extend(row.status for row in left)
        world.do("pay", ctx.key)
        return "paid"

    registry = Registry([pay])
    async with opened(store_url) as (store, session):
        await reply(session, call("pay"))
        await registry.dispatch_step(session, deps=store)
        assert (await go_on(registry, store, "f")).value == "paid"
    assert (seen, world.done) == (["in_doubt"], ["pay"])


async def test_what_failed_surely_is_free_for_a_fork_with_a_key_of_its_own(
    store_url: Url, world: World
) -> None:
    """The key was made void at the service: a fork uses another one."""
    answers = iter([NotLanded(final=True)])
    registry = Service(world, answer=lambda: next(answers)).registry(retry=Retry(attempts=1))
    await fork_in_doubt(registry, store_url, "f")
    async with holdfast.open_store(store_url) as store:
        async with store.session("s") as session:
            (row,) = session.in_doubt
            assert await session.settle(registry, deps=store) == []
        assert (await go_on(registry, store, "s")).value == "paid"
        # The origin has done it anew, which is what the fork's call was about.
        assert (await go_on(registry, store, "f")).value == "paid"
    assert world.done == ["pay"]
    assert row.key not in world.keys


async def test_a_deleted_session_leaves_its_doubt_to_be_settled_by_a_fork(
    store_url: Url, world: World
) -> None:
    """It is listed, and the fork can still ask its hook."""
    registry = Service(world).registry()
    await fork_in_doubt(registry, store_url, "f")
    async with holdfast.open_store(store_url) as store:
        await store.delete("s")
        assert [(one.session, one.operation is None) async for one in store.in_doubt()] == [
            ("f", True),
            ("s", False),
        ]
        assert (await go_on(registry, store, "f")).value == "paid"
        assert [doubt async for doubt in store.in_doubt()] == []
    assert world.done == ["pay"]


@pytest.mark.parametrize(("verdict", "value", "runs"), [("landed", "seen", 0), ("not_landed", "paid", 1)])
async def test_a_person_resolves_what_a_deleted_session_left_in_doubt(
    verdict: Any, value: str, runs: int, store_url: Url, world: World
) -> None:
    """By the key, which the list names; the fork takes it in."""
    registry = Service(world).registry()
    await fork_in_doubt(registry, store_url, "f")
    async with holdfast.open_store(store_url) as store:
        await store.delete("s")
        (gone,) = [one async for one in store.in_doubt() if one.operation is not None]
        assert gone.operation == gone.effect.key
        result = "seen" if verdict == "landed" else None
        assert await store.resolve_operation(gone.operation, verdict, by="ann", result=result) == "settled"
        assert [one.session async for one in store.in_doubt()] == ["f"]
        assert (await go_on(registry, store, "f")).value == value
    assert len(world.done) == runs


async def test_a_session_without_forks_leaves_no_claim_behind(store_url: Url, world: World) -> None:
    """Settled and run again, or deleted in doubt: nobody else could ask."""
    registry = Service(world).registry()
    await fork_in_doubt(registry, store_url)
    async with holdfast.open_store(store_url) as store:
        async with store.session("s") as session:
            (row,) = session.in_doubt
        assert (await go_on(registry, store, "s")).value == "paid"
        assert engine_of(store).driver.find_claim(f"settle:{row.key}") is None
        assert await in_doubt(store, "t") != ""
        await store.delete("t")
        assert [doubt async for doubt in store.in_doubt()] == []


async def in_doubt(store: Store, id: str) -> str:
    """A session with a call in doubt, and no version that has it; the call's key."""

    @tool(side_effects={"mutate"})
    async def send() -> None:
        raise ValueError("reset")

    async with store.session(id) as session:
        await Registry([send]).dispatch("send", {}, session=session)
        return session.in_doubt[0].key
