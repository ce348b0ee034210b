"""Several tasks use a journal at once, and one of them fails, is cancelled or closes the store."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest
from pydantic_ai.messages import (
    BinaryContent,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_core import PydanticSerializationError

import holdfast
from holdfast.adapters.leaseless_journal import LeaselessJournal, LoopLock
from holdfast.adapters.pydantic_ai.step_journal import StepJournal
from holdfast.adapters.pydantic_ai.step_store import HoldfastStepStore
from holdfast.drivers.contract import Append, ClaimChange, Driver, Outcome
from holdfast.errors import Closed, LeaseHeld, NotFound, RunExists, StoreFailed
from holdfast.ids import SessionId
from holdfast.system import aio
from tests.drivers import in_thread
from tests.internals import engine_of
from tests.steps.example_histories import Url, effect, event, history, opened, run, snapshot

_ASKED = "model_request_started"


def driver_of(steps: HoldfastStepStore) -> Driver:
    """Where its lines go."""
    return engine_of(store_of(steps)).driver


def store_of(steps: HoldfastStepStore) -> holdfast.Store:
    """The store that it was made with."""
    # A step store does not hand it out.
    found = steps._store.found
    assert found is not None
    return found


async def begin(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    """It runs until it waits for something that takes a while."""
    task = asyncio.create_task(work)
    await asyncio.sleep(0.1)
    return task


async def list_kept(url: Url) -> list[str]:
    """The events of run `a`, as another process finds them."""
    async with opened(url) as steps:
        return [one.metadata["n"] for one in await steps.list_events(run_id="a")]


@pytest.mark.parametrize(
    "how", ["it fails", "another process is quicker", "it is cancelled", "it fails and is cancelled"]
)
async def test_a_registration_that_comes_to_nothing_harms_nobody(
    how: str, store_url: Url, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those who waited for it write after what is there, and not after what it would have written."""
    async with opened(store_url) as steps:
        await steps.register_run(run("a", conversation_id="c"))
        driver, go_on = driver_of(steps), threading.Event()
        commit = driver.commit

        def late(batch: Sequence[Append]) -> Sequence[Outcome]:
            if any(item.claims for item in batch):
                go_on.wait(30)
                if "it fails" in how:
                    raise StoreFailed("disk full")
            return commit(batch)

        monkeypatch.setattr(driver, "commit", in_thread(late))
        registering = await begin(steps.register_run(run("b", conversation_id="c")))
        saving = await begin(steps.save_snapshot(snapshot("a", history(1))))
        noting = await begin(steps.append_event(event("a", _ASKED, metadata={"n": "1"})))
        if how == "another process is quicker":
            driver.claim(ClaimChange(key="pydantic-ai:run:b", expect=None, record="steps-other"))
        elif "cancelled" in how:
            registering.cancel()
        go_on.set()
        await asyncio.gather(registering, return_exceptions=True)
        await saving
        await noting
    assert await list_kept(store_url) == ["1"]
    async with opened(store_url) as steps:
        assert [one.messages for one in await steps.list_snapshots(run_id="a")] == [history(1)]


async def test_a_reader_that_is_cancelled_harms_nobody(
    store_url: Url, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An event that is being noted, sent, or waits to be sent, is there once, and soon."""
    async with opened(store_url) as steps:
        await steps.register_run(run("a", conversation_id="c"))
        driver = driver_of(steps)
        find_tip, commit = driver.find_tip, driver.commit

        def slowly(call: Callable[[Any], Any]) -> Callable[[Any], Any]:
            def called(given: Any) -> Any:
                time.sleep(0.15)
                return call(given)

            return called

        monkeypatch.setattr(driver, "find_tip", slowly(find_tip))
        monkeypatch.setattr(driver, "commit", in_thread(slowly(commit)))
        for number in range(4):
            reading = await begin(_read(steps))
            kind = "run_started" if number == 2 else _ASKED
            noting = asyncio.create_task(steps.append_event(event("a", kind, metadata={"n": f"{number}"})))
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
            await noting
            (await begin(_read(steps))).cancel()
        monkeypatch.undo()
        for _ in range(300):
            if len(found := await list_kept(store_url)) >= 4:
                break
            await asyncio.sleep(0.1)
        assert found == ["0", "1", "2", "3"]
    assert await list_kept(store_url) == ["0", "1", "2", "3"]


async def _read(steps: HoldfastStepStore) -> None:
    await steps.list_events(run_id="a")


async def test_a_reader_takes_no_event_from_a_store_that_closes(
    store_url: Url, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is told that the store is closed, and the event is written."""
    store = await holdfast.open_store(store_url).__aenter__()
    steps = HoldfastStepStore(store)
    await steps.register_run(run("a", conversation_id="c"))
    await steps.register_run(run("b", conversation_id="d"))
    driver = driver_of(steps)
    find_tip, asked, go_on = driver.find_tip, threading.Event(), threading.Event()

    def slowly(session: Any) -> Any:
        if session == "steps-d":
            asked.set()
            assert go_on.wait(300)
        return find_tip(session)

    monkeypatch.setattr(driver, "find_tip", slowly)
    await steps.append_event(event("a", _ASKED, metadata={"n": "1"}))
    other = await begin(_read_other(steps))
    assert await asyncio.to_thread(asked.wait, 300)
    closing = asyncio.create_task(store.aclose())
    await asyncio.sleep(0.01)  # It has begun, and waits for the other reader.
    with pytest.raises(Closed):
        await steps.list_events(run_id="a")
    go_on.set()
    await asyncio.gather(other, closing, return_exceptions=True)
    monkeypatch.undo()
    assert await list_kept(store_url) == ["1"]


async def _read_other(steps: HoldfastStepStore) -> None:
    await steps.list_events(run_id="b")


async def test_a_run_is_not_registered_twice_while_a_line_is_on_its_way(
    store_url: Url, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who has a line on its way does not see what others wrote, and looks again before it says no."""
    async with opened(store_url) as one, opened(store_url) as two:
        await two.register_run(run("old", conversation_id="c"))
        driver, go_on = driver_of(two), threading.Event()
        commit = driver.commit

        def late(batch: Sequence[Append]) -> Sequence[Outcome]:
            if any(b"slowly" in chunk.facts for item in batch for chunk in item.chunks):
                go_on.wait(30)
            return commit(batch)

        monkeypatch.setattr(driver, "commit", in_thread(late))
        recording = await begin(two.record_tool_effect(effect("old", "slowly")))
        await one.register_run(run("x", conversation_id="c", registration_id="1"))
        registering = await begin(two.register_run(run("x", conversation_id="d", registration_id="2")))
        go_on.set()
        with pytest.raises(RunExists):
            await registering
        await recording


def test_a_lock_is_held_by_one_task_of_all_event_loops() -> None:
    """Also while it waits for something, and whether others are cancelled meanwhile."""
    lock, inside, counted = LoopLock(), [0], [0]

    async def use() -> None:
        async with lock:
            inside[0] += 1
            try:
                assert inside[0] == 1
                await asyncio.sleep(0.001)
            finally:
                inside[0] -= 1  # Also if the task is cancelled in here.
            counted[0] += 1

    async def use_often() -> None:
        tasks = [asyncio.create_task(use()) for _ in range(40)]
        await asyncio.sleep(0.005)
        for task in tasks[30:]:
            task.cancel()
        await asyncio.gather(*tasks[:30])

    threads = [threading.Thread(target=asyncio.run, args=(use_often(),)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    assert counted[0] >= 90
    assert not lock.is_held


@pytest.mark.parametrize("closed", [True, False])
def test_a_lock_of_an_event_loop_that_has_ended_is_taken_over(closed: bool) -> None:
    """Its task can never release it; or not before the loop runs again, if it was only stopped."""
    lock, loop = LoopLock(), asyncio.new_event_loop()

    def serve() -> None:
        loop.run_forever()
        if closed:
            loop.close()

    async def take() -> bool:
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(lock.acquire(), loop))
        taking = await begin(lock.acquire())
        assert not taking.done()
        loop.call_soon_threadsafe(loop.stop)
        await asyncio.wait_for(taking, 60)
        return lock.was_abandoned

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    assert asyncio.run(take())
    thread.join(60)
    loop.close()


# -- what fails, and is tried again --------------------------------------------------------------------


async def test_events_wait_quietly_while_another_process_has_the_lease(
    store_url: Url, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are not tried again and again: the next entry takes them along."""
    timers: list[Callable[[], object]] = []
    monkeypatch.setattr(aio, "call_later", lambda _, function: timers.append(function))
    async with holdfast.open_store(store_url) as store, holdfast.open_store(store_url) as other:
        steps = HoldfastStepStore(store)
        await steps.register_run(run("a", conversation_id="c"))
        await steps.append_event(event("a", "tool_call_completed", metadata={"n": "1"}))
        assert timers
        tries = 0
        async with other.session("steps-c"):
            while timers and tries < 10:
                timers.pop()()
                tries += 1
                # The tasks that send tell of their end here only.
                for _, ended in list((await steps._open())._sending):
                    await ended.wait()
            with pytest.raises(LeaseHeld):
                await steps.record_tool_effect(effect("a"))
            assert not timers
        assert tries < 10
        await steps.record_tool_effect(effect("a"))
        assert await list_kept(store_url) == ["1"]


async def test_what_a_cancelled_reader_has_read_by_half_is_read_anew(
    store_url: Url, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the reading came to nothing after the reader was cancelled."""
    began, go_on = threading.Event(), threading.Event()
    async with opened(store_url) as steps, opened(store_url) as other:
        await steps.register_run(run("a", conversation_id="c"))
        await other.save_snapshot(snapshot("a", history(1)))

        def fail_halfway(journal: StepJournal) -> None:
            journal.steps.runs.clear()
            began.set()
            assert go_on.wait(60)
            raise NotFound("it was deleted meanwhile")

        with monkeypatch.context() as half:
            half.setattr(StepJournal, "read_new", fail_halfway)
            reading = asyncio.create_task(_read(steps))
            assert await asyncio.to_thread(began.wait, 60)
            reading.cancel()
            await asyncio.sleep(0)  # It is told.
            go_on.set()
            with pytest.raises(asyncio.CancelledError):
                await reading
        assert await steps.get_run(run_id="a") == run("a", conversation_id="c")


async def test_a_history_that_cannot_be_stored_costs_no_reading(
    store_url: Url, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is forgotten, and so compared with no later one, also if another process stores one next."""
    reads: list[SessionId] = []
    read_new = LeaselessJournal.read_new

    def counted(journal: LeaselessJournal[Any]) -> None:
        reads.append(journal.session)
        read_new(journal)

    def fail(pieces: Any) -> Any:
        raise StoreFailed("disk full")

    bad = [*history(1), ModelRequest(parts=[ToolReturnPart("look", object(), "call_1")])]
    image = BinaryContent(data=b"y" * 3_000_000, media_type="image/png")
    large = [*history(1), ModelRequest(parts=[UserPromptPart(content=[image])])]
    async with opened(store_url) as steps, opened(store_url) as other:
        await steps.register_run(run("a", conversation_id="c"))
        await steps.save_snapshot(snapshot("a", history(1)))
        monkeypatch.setattr(LeaselessJournal, "read_new", counted)
        with pytest.raises(PydanticSerializationError):
            await steps.save_snapshot(snapshot("a", bad))
        await steps.record_tool_effect(effect("a"))
        with monkeypatch.context() as disk:
            # Only a failing upload shows it.
            disk.setattr(engine_of(store_of(steps)).blobs, "keep", fail)
            with pytest.raises(StoreFailed):
                await steps.save_snapshot(snapshot("a", large))
        await steps.record_tool_effect(effect("a"))
        assert not reads
        await other.save_snapshot(snapshot("a", history(2)))
        await steps.list_events(run_id="a")
        await steps.save_snapshot(snapshot("a", [*large, *history(1)]))
    async with opened(store_url) as steps:
        found = [one.messages for one in await steps.list_snapshots(run_id="a")]
    said = [history(1), history(2), [*large, *history(1)]]
    assert [*map(ModelMessagesTypeAdapter.dump_json, found)] == [
        *map(ModelMessagesTypeAdapter.dump_json, said)
    ]
