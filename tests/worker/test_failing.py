"""Sessions that fail: tried again after a while, and given up in the end. The count is in their journal."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from threading import Event
from typing import Any

import anyio
import anyio.to_thread
import pytest

from holdfast import Agent, Budget, HoldfastError, Session, Store, open_store
from holdfast.agents import ScriptedModel
from holdfast.core.head import Head
from holdfast.errors import ModelError, StoreFailed
from holdfast.store.work_queue import find_due
from holdfast.tools import Retry
from holdfast.workers import WorkEvent
from tests.agent.scripted_agents import World, call, make, texts
from tests.internals import engine_of
from tests.session.example_sessions import StoreUrl, abandon, entries, eventually, kinds
from tests.worker.example_workers import Log, make_worker, until, work, working

SLOW = Retry(attempts=3, backoff_s=3600.0, backoff_max_s=3600.0, jitter=0.0)
ONCE = Retry(attempts=1)
NEVER = ModelError("no such model")


async def test_what_failed_is_tried_again(store_url: StoreUrl) -> None:
    """After a pause; until then it is active, and nobody's."""
    async with open_store(store_url) as store:
        await store.submit("a", "hello", agent="clerk")
        log = Log()
        await make_worker(store, make([NEVER, "hi"], name="clerk", retry=ONCE), tell=log, retry=SLOW).run(
            until_idle=True
        )
        assert log.kinds == [("a", "taken"), ("a", "postponed")]
        event = log.events[-1]
        assert (event.reason, event.error) == ("model_error", "no such model")
        head = await store.head("a")
        assert (head.status, head.failures, head.due) == ("active", 1, event.retry_at)
        assert head.due is not None
        assert head.due - head.updated_at > timedelta(minutes=59)
        assert await work(store, make(["hi"], name="clerk")) == []


async def test_there_is_one_pause_after_each_failure(store_url: StoreUrl) -> None:
    """A run that failed has said when to try again: nobody takes it for a worker that died."""
    async with open_store(store_url) as store:
        log = Log()
        await store.submit("a", "hello", agent="clerk")
        async with working(store, make([NEVER, NEVER, "hi"], name="clerk", retry=ONCE), tell=log):
            await until(store, "a", "completed")
        assert [event.reason for event in log.events if event.kind == "postponed"] == ["model_error"] * 2


async def test_a_message_ends_the_pause(store_url: StoreUrl) -> None:
    """Something new: no reason to wait."""
    async with open_store(store_url) as store:
        await store.submit("a", "hello", agent="clerk")
        await work(store, make([NEVER, "hi"], name="clerk", retry=ONCE), retry=SLOW)
        await store.submit("a", "now?")
        assert await work(store, make(["hi"], name="clerk")) == [("a", "taken"), ("a", "completed")]
        assert (await store.head("a")).failures == 0


async def _has_failed(store: Store, at_least: int) -> bool:
    head = await store.head("a")
    return head.failures >= at_least and head.lease is None


async def test_a_session_that_fails_again_and_again_is_given_up(store_url: StoreUrl) -> None:
    """By whichever workers: the count is a fold over the journal."""
    async with open_store(store_url) as store:
        await store.submit("a", "hello", agent="clerk")
    for failures in (1, 2, 3):
        async with open_store(store_url) as store:
            log = Log()
            async with working(store, make([NEVER] * 9, name="clerk", retry=ONCE), tell=log):
                await eventually(partial(_has_failed, store, failures))
    async with open_store(store_url) as store:
        head = await store.head("a")
        assert (head.status, head.reason, head.due) == ("failed", "gave_up", None)
        last = [entry.body for entry in await entries(store, "a") if entry.kind == "run.failed"][-1]
        assert "3 failures in a row; the last: model_error: no such model" in last.error  # type: ignore[attr-defined]
        assert await work(store, make(["hi"], name="clerk")) == []
        await store.submit("a", "try once more")
        assert await work(store, make(["hi"], name="clerk")) == [("a", "taken"), ("a", "completed")]


async def test_a_reply_is_progress(store_url: StoreUrl) -> None:
    """Only failures in a row count."""
    script: list[Any] = []
    for number in range(4):
        script += [NEVER, NEVER, call("look", id=f"c{number}", what=str(number))]
    async with (
        open_store(store_url) as store,
        working(store, make([*script, "done"], name="clerk", retry=Retry(attempts=1))),
    ):
        await store.submit("a", "hello", agent="clerk")
        await until(store, "a", "completed")
        assert (await store.load("a")).facts.head.failures == 0


async def test_a_run_that_ends_well_ends_the_row(store_url: StoreUrl) -> None:
    """Also one that asked no model."""
    async with open_store(store_url) as store, store.session("a") as session:
        for failures in (1, 2):
            async with session.run() as run:
                run.fail("error", "out of paper")
            assert session.state.facts.head.failures == failures
        async with session.run():
            pass
        assert session.state.facts.head.failures == 0


async def test_a_spent_budget_is_no_reason_to_try_again(store_url: StoreUrl) -> None:
    """It will not be less spent tomorrow."""
    agent = make([call("look", what="x"), "done"], name="clerk", budget=Budget(steps=1))
    async with open_store(store_url) as store:
        await store.submit("a", "hello", agent="clerk")
        assert await work(store, agent) == [("a", "taken"), ("a", "failed")]
        assert (await store.head("a")).reason == "budget_spent"
        assert await work(store, agent) == []


async def test_each_session_has_dependencies_of_its_own(store_url: StoreUrl) -> None:
    """Made for it, and put away when it is done with."""
    seen: list[str] = []

    @asynccontextmanager
    async def connect(session: Session) -> AsyncIterator[str]:
        seen.append(f"open {session.id}")
        yield f"for {session.labels['tenant']}"
        seen.append(f"close {session.id}")

    async def tell(ctx: Any) -> str:
        seen.append(ctx.deps)
        return "told"

    async with open_store(store_url) as store:
        agent = make([call("tell"), "done"], name="clerk", tools=[tell])
        for name in ("a", "b"):
            await store.submit(name, "go", agent="clerk", labels={"tenant": name.upper()})
        await work(store, agent, deps=connect, concurrency=1)
        assert seen == ["open a", "for A", "close a", "open b", "for B", "close b"]


async def test_dependencies_that_cannot_be_made_are_a_failure(store_url: StoreUrl) -> None:
    """On record, tried again, and given up like any other."""

    async def fail(session: Session) -> None:
        raise OSError("no route to the database")

    async with open_store(store_url) as store:
        async with working(store, make(["hi"], name="clerk"), deps=fail):
            await store.submit("a", "hello", agent="clerk")
            await until(store, "a", "failed")
        assert (await store.head("a")).reason == "gave_up"
        failed = [entry.body for entry in await entries(store, "a") if entry.kind == "run.failed"]
        assert [one.reason for one in failed] == ["deps", "deps", "gave_up"]  # type: ignore[attr-defined]
        assert "no route" in failed[-1].error  # type: ignore[attr-defined]


async def kill_workers(url: StoreUrl, deaths: int) -> None:
    """Session a, in whose run so many processes died."""

    async def die(store: Store) -> None:
        session = await store.session("a").__aenter__()
        await session.run(agent="clerk").__aenter__()
        await session.flush()

    async with open_store(url) as store:
        await store.submit("a", "hello", agent="clerk")
    for _ in range(deaths):
        await abandon(url, die)


async def test_a_session_that_kills_its_workers_is_given_up(store_url: StoreUrl) -> None:
    """The first death is anybody's; then there are pauses, and then an end."""
    await kill_workers(store_url, 3)
    async with open_store(store_url) as store:
        # Whoever takes it now is the third to find it without a holder.
        assert (await store.head("a")).failures == 2
        assert await work(store, make(["hi"], name="clerk")) == [("a", "taken"), ("a", "failed")]
        assert (await store.head("a")).reason == "gave_up"


async def test_after_the_second_death_there_is_a_pause(store_url: StoreUrl) -> None:
    """Once for each: who comes after it goes on."""
    await kill_workers(store_url, 2)
    async with open_store(store_url) as store:
        log = Log()
        async with working(store, make(["hi"], name="clerk"), tell=log):
            await until(store, "a", "completed")
        assert log.kinds == [("a", "taken"), ("a", "postponed"), ("a", "taken"), ("a", "completed")]


async def test_a_session_that_cannot_be_opened_stops_nobody(store_url: StoreUrl) -> None:
    """It is left alone for a while, and the others go on."""
    async with open_store(store_url) as store:
        await store.submit("a", "hello", agent="clerk")
        await store.submit("b", "hello", agent="clerk")
        engine_of(store).driver.post("a", b'{"kind":"from the future"}')  # type: ignore[arg-type]
        done = await work(store, make(["hi"], name="clerk"))
        assert ("a", "unusable") in done
        assert ("b", "completed") in done


async def test_a_model_that_cannot_be_had_is_an_error_before_anything_is_taken(store_url: StoreUrl) -> None:
    """Nothing is written."""
    async with open_store(store_url) as store:
        await store.submit("a", "hello", agent="clerk")
        with pytest.raises(HoldfastError):
            await make_worker(store, Agent("nonsense:x", name="clerk")).run()
        assert (await store.head("a")).seq == 1


async def test_a_failure_is_told_with_its_cause(store_url: StoreUrl) -> None:
    """Also one out of the application's own code."""

    def compact(session: Session) -> None:
        raise RuntimeError("out of paper")

    async with open_store(store_url) as store:
        log = Log()
        await store.submit("a", "hello", agent="clerk")
        agent = Agent(ScriptedModel(["hi"]), name="clerk", compact=compact)
        await make_worker(store, agent, tell=log, retry=SLOW).run(until_idle=True)
        assert [event.kind for event in log.events] == ["taken", "postponed"]
        assert log.events[-1].reason == "error"
        assert "out of paper" in log.events[-1].error
        assert await texts(store, "a") == ["user: hello"]
        assert World().done == []


async def test_a_store_that_fails_is_no_failure_of_the_session(store_url: StoreUrl) -> None:
    """Its run has no end, so whoever comes next goes on with it."""
    away = [StoreFailed("the disk is full")]

    def compact(session: Session) -> None:
        if away:
            raise away.pop()

    async with open_store(store_url) as store:
        await store.submit("a", "hello", agent="clerk")
        agent = Agent(ScriptedModel(["hi"]), name="clerk", compact=compact)
        assert await work(store, agent) == [("a", "taken"), ("a", "lost"), ("a", "taken"), ("a", "completed")]
        ends = [kind for kind in await kinds(store, "a") if kind.startswith("run.") and kind != "run.started"]
        assert ends == ["run.completed"]


async def test_a_session_that_ends_while_a_worker_looks_is_seen_the_next_time(
    store_url: StoreUrl, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The look did not see it, because it was held; so it says nothing about whether there is work."""
    away = [StoreFailed("the disk is full")]
    looked, lost = Event(), Event()

    def look(*args: Any, **options: Any) -> list[Head]:
        found = find_due(*args, **options)
        if not found and not lost.is_set():
            looked.set()
            assert lost.wait(30)
        return found

    async def compact(session: Session) -> None:
        if away:
            await anyio.to_thread.run_sync(looked.wait, 30)
            raise away.pop()

    def tell(event: WorkEvent) -> None:
        if event.kind == "lost":
            lost.set()

    monkeypatch.setattr("holdfast.workers.worker.find_due", look)
    async with open_store(store_url) as store:
        await store.submit("a", "hello", agent="clerk")
        agent = Agent(ScriptedModel(["hi"]), name="clerk", compact=compact)
        await make_worker(store, agent, tell=tell).run(until_idle=True)
        assert looked.is_set()
        assert (await store.head("a")).status == "completed"
