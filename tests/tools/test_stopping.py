"""Timeouts, cancellation, and bodies that cannot be stopped."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

import holdfast
import holdfast.tools.executor
from holdfast import Landed, NotDone, NotLanded, Registry, Session, ToolContext, tool
from holdfast.core.entries import InboxTaken, ToolInDoubt, ToolSettled
from holdfast.tools import Result, Retry, executor
from tests.internals import engine_of
from tests.tools.example_tools import (
    Url,
    World,
    bodies,
    call,
    come_true,
    hear,
    kinds,
    opened,
    reply,
    results,
)


@pytest.fixture
def world() -> World:
    """The outside world."""
    return World()


class Stuck:
    """A sync body that stays until it is let go."""

    def __init__(self, world: World, **options: Any) -> None:
        self.entered, self.release = threading.Event(), threading.Event()
        self.error: Exception | None = None
        self.world = world

        @tool(**{"side_effects": {"mutate"}, **options})
        def act(ctx: ToolContext[Any], what: str = "it") -> str:
            self.entered.set()
            assert self.release.wait(60)
            if self.error is not None:
                raise self.error
            return world.do(what, ctx.key)

        self.registry = Registry([act], max_repeats=100, grace_s=0.01)

    async def leave(self, session: Session, *, call_id: str = "c1") -> None:
        """Dispatch it, and go away while it runs."""
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as tasks:

                async def cancel() -> None:
                    await anyio.to_thread.run_sync(self.entered.wait)
                    scope.cancel()

                tasks.start_soon(cancel)
                await self.registry.dispatch("act", {}, call_id=call_id, session=session)

    async def let_go(self, until: Callable[[], bool]) -> None:
        """Let it go on, and wait for something to come true."""
        self.release.set()
        await come_true(until)


@pytest.fixture
def stuck(world: World) -> Iterator[Stuck]:
    """One that is let go at the end, whatever happens."""
    found = Stuck(world)
    yield found
    found.release.set()


# -- timeouts ------------------------------------------------------------------------------------------


async def test_a_body_with_side_effects_that_times_out_is_in_doubt(store_url: Url, world: World) -> None:
    """It was stopped, and had perhaps begun."""

    @tool(side_effects={"mutate"}, timeout_s=0.01)
    async def act() -> None:
        world.do("half of it")
        await anyio.sleep_forever()

    async with opened(store_url) as (store, session):
        found = await Registry([act]).dispatch("act", {}, session=session)
        assert found.status == "in_doubt"
        assert "is in doubt: it timed out." in found.content
        assert [one.why for one in await bodies(store, session, ToolInDoubt)] == ["it timed out"]
    assert world.done == ["half of it"]


@pytest.mark.parametrize("with_session", [True, False])
async def test_a_harmless_body_that_times_out_has_failed(with_session: bool, store_url: Url) -> None:
    """It may be tried again by whoever likes."""

    @tool(side_effects={"read"}, timeout_s=0.01, retry=Retry(attempts=3))
    async def look() -> None:
        await anyio.sleep_forever()

    async with opened(store_url) as (_, session):
        found = await Registry([look]).dispatch("look", {}, session=session if with_session else None)
        assert (found.status, found.content) == ("failed", "look timed out")
        assert session.in_doubt == []


async def test_a_timeout_is_settled_by_the_tool_itself(store_url: Url, world: World) -> None:
    """As any other doubt."""

    @tool(side_effects={"mutate"}, timeout_s=0.01, verify=lambda: Landed("found it"))
    async def act() -> None:
        world.do("it")
        await anyio.sleep_forever()

    async with opened(store_url) as (_, session):
        found = await Registry([act]).dispatch("act", {}, session=session)
        assert (found.status, found.value) == ("completed", "found it")


# -- cancellation --------------------------------------------------------------------------------------


async def cancelled(
    registry: Registry, session: Session, began: anyio.Event, **options: Any
) -> anyio.CancelScope:
    """Dispatch `act` and cancel the caller once the body has begun."""
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as tasks:

            async def cancel() -> None:
                await began.wait()
                scope.cancel()

            tasks.start_soon(cancel)
            await registry.dispatch("act", {}, session=session, **options)
    return scope


async def test_a_side_effect_gets_a_grace_to_end_and_be_recorded(store_url: Url, world: World) -> None:
    """The caller is gone, and the effect is not lost."""
    began = anyio.Event()

    @tool(side_effects={"mutate"})
    async def act() -> str:
        began.set()
        for _ in range(20):
            await anyio.lowlevel.checkpoint()
        return world.do("it")

    registry = Registry([act], grace_s=60)
    async with opened(store_url) as (_, session):
        scope = await cancelled(registry, session, began, call_id="c1")
        assert scope.cancelled_caught
        assert session.in_doubt == []
        again = await registry.dispatch("act", {}, call_id="c2", session=session)
        assert (again.value, again.replay_of) == ("did it", "c1")
    assert world.done == ["it"]


async def test_a_side_effect_that_outlives_its_grace_is_in_doubt(store_url: Url, world: World) -> None:
    """On record as cancelled, before the caller hears of it."""
    began = anyio.Event()

    @tool(side_effects={"mutate"})
    async def act() -> None:
        world.do("it")
        began.set()
        await anyio.sleep_forever()

    registry = Registry([act], grace_s=0.01)
    async with opened(store_url) as (store, session):
        assert (await cancelled(registry, session, began)).cancelled_caught
        (row,) = session.in_doubt
        assert row.why == "it was cancelled"
        assert (await kinds(store, session))[-2:] == ["tool.issued", "tool.in_doubt"]
        assert (await registry.dispatch("act", {}, session=session)).status == "in_doubt"
    assert world.done == ["it"]


async def test_an_exception_within_the_grace_is_recorded_too(store_url: Url, world: World) -> None:
    """`NotDone` means that it may simply be done again."""
    began = anyio.Event()
    errors = iter([NotDone("no")])

    @tool(side_effects={"mutate"})
    async def act() -> str:
        began.set()
        await anyio.lowlevel.checkpoint()
        error = next(errors, None)
        if error is not None:
            raise error
        return world.do("it")

    registry = Registry([act], grace_s=60)
    async with opened(store_url) as (_, session):
        await cancelled(registry, session, began)
        assert session.in_doubt == []
        assert (await registry.dispatch("act", {}, session=session)).status == "completed"
    assert world.done == ["it"]


async def test_a_harmless_body_is_stopped_at_once(store_url: Url) -> None:
    """And may be run again, under the same call id, too."""
    began, ended = anyio.Event(), anyio.Event()
    waits = iter([True])

    @tool(side_effects={"read"})
    async def act() -> str:
        began.set()
        if next(waits, False):
            try:
                await anyio.sleep_forever()
            finally:
                ended.set()
        return "seen"

    registry = Registry([act], grace_s=60)
    async with opened(store_url) as (store, session):
        await cancelled(registry, session, began, call_id="c1")
        assert ended.is_set()
        assert "tool.discarded" in await kinds(store, session)
        with anyio.fail_after(60):
            found = await registry.dispatch("act", {}, call_id="c1", session=session)
        assert found.value == "seen"


async def test_what_was_not_begun_when_the_caller_left_is_not_in_doubt(store_url: Url, world: World) -> None:
    """The second of two writes waits for the first: only the first has perhaps happened."""
    began = anyio.Event()
    waits = iter([True])

    @tool(side_effects={"write"}, idempotent=False)
    async def put(what: str) -> str:
        world.do(what)
        began.set()
        if next(waits, False):
            await anyio.sleep_forever()
        return what

    registry = Registry([put], grace_s=0.01)
    async with opened(store_url) as (_, session):
        await reply(session, call("put", {"what": "a"}, "x"), call("put", {"what": "b"}, "y"))
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as tasks:

                async def cancel() -> None:
                    await began.wait()
                    scope.cancel()

                tasks.start_soon(cancel)
                await registry.dispatch_step(session)
        assert [row.call.id for row in session.in_doubt] == ["x"]
        with anyio.fail_after(60):
            found = await registry.dispatch_step(session)
        assert [one.status for one in found] == ["in_doubt", "completed"]
    assert world.done == ["a", "b"]


async def test_who_is_cancelled_while_the_intent_is_written_begins_nothing(
    store_url: Url, world: World
) -> None:
    """The intent may be on record all the same: it says that the body was not entered."""

    @tool(side_effects={"mutate"})
    async def act() -> str:
        return world.do("it")

    registry = Registry([act])
    async with opened(store_url) as (_, session):
        with anyio.CancelScope() as scope:
            scope.cancel()
            await registry.dispatch("act", {}, session=session)
        assert world.done == []
        assert session.in_doubt == []
        with anyio.fail_after(60):
            found = await registry.dispatch("act", {}, session=session)
        assert found.status == "completed"
    async with opened(store_url) as (_, session):
        assert session.in_doubt == []
    assert world.done == ["it"]


async def test_a_body_that_cancels_itself_does_not_take_the_loop_along(
    store_url: Url, world: World, anyio_backend_name: str
) -> None:
    """A task inside it was cancelled, and it did not look: in doubt, as after any exception."""
    if anyio_backend_name == "trio":
        return  # Nothing is cancelled from outside its scopes there.
    import asyncio

    @tool(side_effects={"mutate"})
    async def act() -> None:
        world.do("it")
        inner = asyncio.ensure_future(asyncio.sleep(60))
        inner.cancel()
        await inner

    async with opened(store_url) as (_, session):
        found = await Registry([act]).dispatch("act", {}, session=session)
        assert found.status == "in_doubt"
        assert [row.why for row in session.in_doubt] == ["it was cancelled"]


# -- sync bodies ---------------------------------------------------------------------------------------


async def test_a_sync_body_does_not_block_the_event_loop(store_url: Url, world: World) -> None:
    """The loop lets it go: if it were blocked, nobody could."""
    stuck = Stuck(world)
    async with opened(store_url) as (_, session), anyio.create_task_group() as tasks:

        async def let_go() -> None:
            await anyio.to_thread.run_sync(stuck.entered.wait)
            stuck.release.set()

        tasks.start_soon(let_go)
        found = await stuck.registry.dispatch("act", {}, session=session)
        assert (found.status, found.value) == ("completed", "did it")


async def test_a_sync_body_that_cannot_be_stopped_is_left_behind(stuck: Stuck, store_url: Url) -> None:
    """In doubt, and never run again beside itself; its late outcome settles it."""
    async with opened(store_url) as (store, session):
        await stuck.leave(session)
        (row,) = session.in_doubt
        assert row.why == "it was cancelled; its body cannot be stopped and still runs"
        for id in ("c1", "c2"):
            again = await stuck.registry.dispatch("act", {}, call_id=id, session=session)
            assert again.status == "in_doubt"
        await stuck.let_go(lambda: not session.in_doubt)
        (settled,) = await bodies(store, session, ToolSettled)
        assert (settled.verdict, settled.by) == ("landed", "the tool itself, late")
        last = await stuck.registry.dispatch("act", {}, call_id="c3", session=session)
        assert (last.value, last.replay_of) == ("did it", "c1")
    assert stuck.world.done == ["it"]


async def test_the_late_outcome_is_the_result_in_the_transcript(stuck: Stuck, store_url: Url) -> None:
    """The call has waited for it."""
    async with opened(store_url) as (_, session):
        await reply(session, call("act"))
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as tasks:

                async def cancel() -> None:
                    await anyio.to_thread.run_sync(stuck.entered.wait)
                    scope.cancel()

                tasks.start_soon(cancel)
                await stuck.registry.dispatch_step(session)
        assert session.problems
        await stuck.let_go(lambda: session.continuable)
        assert [block.content for block in results(session)] == ["did it"]


@pytest.mark.parametrize(("error", "status"), [(NotDone("no"), "not_landed"), (ValueError("?"), "in_doubt")])
async def test_a_late_exception_says_what_it_says(
    error: Exception, status: str, stuck: Stuck, store_url: Url
) -> None:
    """`NotDone` frees the operation; anything else leaves it in doubt."""
    stuck.error = error
    async with opened(store_url) as (_, session):
        await stuck.leave(session)
        (row,) = session.in_doubt
        await stuck.let_go(lambda: not executor.is_running(row) and row.status == status)
        stuck.error = None
        found = await stuck.registry.dispatch("act", {}, call_id="c2", session=session)
        assert found.status == ("completed" if status == "not_landed" else "in_doubt")


async def test_nobody_can_have_it_run_beside_itself(stuck: Stuck, store_url: Url) -> None:
    """Neither a person's "not landed" nor a hook's nor its being idempotent."""
    async with opened(store_url) as (store, session):
        await stuck.leave(session)
        await store.resolve("s", "c1", "not_landed", by="ann")
        await hear(session)
        assert session.in_doubt == []
        found = await stuck.registry.dispatch("act", {}, call_id="c2", session=session)
        assert found.status == "in_doubt"
        await stuck.let_go(lambda: not engine_of(store).is_busy())
        found = await stuck.registry.dispatch("act", {}, call_id="c2", session=session)
        assert found.status == "completed"
    assert stuck.world.done == ["it", "it"]


@pytest.mark.parametrize("options", [{"verify": lambda what: NotLanded()}, {"idempotent": True}])
async def test_no_hook_and_no_promise_has_it_run_beside_itself(
    options: dict[str, Any], store_url: Url, world: World
) -> None:
    """`NotLanded` is not believed while the body still runs; an idempotent one is not run again yet."""
    stuck = Stuck(world, retry=Retry(attempts=3, backoff_s=0), **options)
    async with opened(store_url) as (_, session):
        await stuck.leave(session)
        found = await stuck.registry.dispatch("act", {}, session=session)
        assert found.status == "in_doubt"
        assert len(await session.settle(stuck.registry)) == 1
        await stuck.let_go(lambda: not session.in_doubt)
    assert world.done == ["it"]


async def test_a_body_that_outlives_its_session_tells_the_next_one(stuck: Stuck, store_url: Url) -> None:
    """The outcome goes to the inbox; whoever holds the session takes it in."""
    async with holdfast.open_store(store_url) as store:
        async with store.session("s") as session:
            await stuck.leave(session)
        async with store.session("s") as session:
            assert len(session.in_doubt) == 1
            assert len(await session.settle(stuck.registry)) == 1
            await stuck.let_go(lambda: not engine_of(store).is_busy())
            with anyio.fail_after(60):
                while session.in_doubt:
                    await hear(session)
                    await anyio.sleep(0.001)
            (taken,) = await bodies(store, session, InboxTaken)
            assert taken.item.by.endswith(", which was out")
            found = await stuck.registry.dispatch("act", {}, call_id="c1", session=session)
            assert (found.status, found.value) == ("completed", "did it")
    assert stuck.world.done == ["it"]


async def test_a_store_that_closes_over_a_running_body_does_not_say_that_it_ended(
    stuck: Stuck, store_url: Url
) -> None:
    """Another process must not believe that nothing can land any more."""
    async with opened(store_url) as (store, session):
        await stuck.leave(session)
        engine = engine_of(store)
        assert engine.is_busy()
    async with holdfast.open_store(store_url) as store:
        assert not engine_of(store).heartbeat.judge(engine.heartbeat.holder).ended
        await stuck.let_go(lambda: not engine.is_busy())


async def test_a_cancelled_sync_body_learns_of_it(store_url: Url, world: World) -> None:
    """If it looks: `ctx.cancelled`."""
    began = threading.Event()
    seen: list[bool] = []

    @tool(side_effects={"mutate"}, timeout_s=0.2)
    def act(ctx: ToolContext[Any]) -> str:
        began.set()
        for _ in range(60_000):
            if ctx.cancelled:
                break
            threading.Event().wait(0.001)
        seen.append(ctx.cancelled)
        raise NotDone("stopped in time")

    async with opened(store_url) as (_, session):
        # On a busy machine the time may be over before the thread begins; then nothing was done.
        while not began.is_set():
            await Registry([act]).dispatch("act", {}, session=session)
        await come_true(lambda: bool(seen) and not session.in_doubt)
    assert seen == [True]


async def test_tool_threads_have_a_limit_of_their_own(
    store_url: Url, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stuck bodies never stop a commit; one that waits for a thread until its time is up has not begun."""
    stuck = Stuck(world)
    release: list[Result] = []

    def late() -> str:
        return world.do("late")

    def within(timeout_s: float) -> Registry:
        return Registry([tool(side_effects={"mutate"}, timeout_s=timeout_s)(late)])

    async def one(number: int) -> None:
        args = {"what": f"{number}"}
        release.append(await stuck.registry.dispatch("act", args, session=session))

    async with opened(store_url) as (_, session):
        threads = anyio.CapacityLimiter(2)
        monkeypatch.setattr(holdfast.tools.executor, "tool_threads", lambda: threads)
        async with anyio.create_task_group() as tasks:
            for number in range(2):
                tasks.start_soon(one, number)
            await anyio.to_thread.run_sync(stuck.entered.wait)
            await come_true(lambda: not threads.available_tokens)
            found = await within(0.01).dispatch("late", {}, session=session)
            assert (found.status, found.content) == ("failed", "late timed out")
            assert [row.tool for row in session.in_doubt] == []
            stuck.release.set()
        found = await within(60).dispatch("late", {}, session=session)
        assert found.status == "completed"
    assert sorted(world.done) == ["0", "1", "late"]
