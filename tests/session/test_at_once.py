"""Closing, cancelling, deleting and opening, while something else is under way in the same process."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import anyio
import anyio.from_thread
import anyio.to_thread
import pytest

from holdfast import Store, open_store
from holdfast.core.codec import Page
from holdfast.core.entries import SummaryChanged
from holdfast.drivers.contract import Append, Driver, Outcome
from holdfast.errors import Closed, Fenced, StoreFailed
from holdfast.ids import SessionId
from tests.drivers import in_thread, kinds_of
from tests.internals import engine_of, stop_heartbeat, writer_of
from tests.session.example_sessions import StoreUrl, collect, step, texts

on_asyncio = pytest.mark.parametrize("anyio_backend", ["asyncio"])
"""There, a task can be cancelled through every shield."""


class Gate:
    """Lets a thread of the store's wait in the middle of something until a task was cancelled."""

    def __init__(self) -> None:
        self._loop, self.entered = asyncio.get_running_loop(), asyncio.Event()
        self._open = threading.Event()

    def wait(self) -> None:
        """In the thread: it is in the middle of it."""
        self._loop.call_soon_threadsafe(self.entered.set)
        assert self._open.wait(60)

    async def cancel(self, work: Callable[[], Any]) -> None:
        """Cancel a task that does this, while it is in the middle of it."""
        task = asyncio.ensure_future(work())
        await asyncio.sleep(0)  # It has begun.
        await self.entered.wait()
        task.cancel()
        await asyncio.sleep(0)
        self._open.set()
        with pytest.raises(asyncio.CancelledError):
            await task


def hold_up(monkeypatch: pytest.MonkeyPatch, driver: Driver, gate: Gate, kind: str = "") -> None:
    """Commits wait at the gate: all of them, or those with an entry of this kind."""
    commit = driver.commit

    def late(batch: Sequence[Append]) -> Sequence[Outcome]:
        if not kind or any(kind in kinds_of(item) for item in batch):
            gate.wait()
        return commit(batch)

    monkeypatch.setattr(driver, "commit", in_thread(late))


def fail(*_: Any, **__: Any) -> Any:
    """A disk that is full."""
    raise StoreFailed("disk full")


def is_let_go(store: Store) -> bool:
    """Whether none of its threads is left."""
    engine = engine_of(store)
    # Only the engine knows its own threads from those of other stores.
    threads = (engine.committer._thread, engine.heartbeat._thread)
    return not any(thread is not None and thread.is_alive() for thread in threads)


# -- closing ---------------------------------------------------------------------------------------------


async def test_two_may_close_a_store_at_once(store_url: StoreUrl) -> None:
    """Who comes second waits for the first."""
    store = await open_store(store_url).__aenter__()
    async with store.session("s") as session:
        await step(session, "hello")
    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(store.aclose)
    assert is_let_go(store)
    async with open_store(store_url) as store, store.session("s") as session:
        assert texts(session.transcript) == ["hello"]


@on_asyncio
async def test_a_store_is_closed_although_who_closes_it_is_cancelled(
    store_url: StoreUrl, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else its threads and its lease would outlive it."""
    store = await open_store(store_url).__aenter__()
    session = await store.session("s").__aenter__()
    gate = Gate()
    hold_up(monkeypatch, engine_of(store).driver, gate)
    await session.add("hello")
    await gate.cancel(store.aclose)
    assert is_let_go(store)
    async with open_store(store_url) as again:
        assert texts((await again.load("s")).transcript) == ["hello"]


@on_asyncio
async def test_a_store_whose_opening_is_cancelled_is_closed(
    store_url: StoreUrl, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its caller does not wait for a server that does not answer. The thread that opens it goes on, and
    closes what nobody else would."""
    store = open_store(store_url)
    make = store._open_both  # Held up below: a store is cancelled while its driver is being opened.
    gate, closed = Gate(), threading.Event()

    def slowly() -> Any:
        gate.wait()
        driver, home = make()
        close = driver.close

        def close_and_tell() -> None:
            close()
            closed.set()

        monkeypatch.setattr(driver, "close", close_and_tell)
        return driver, home

    monkeypatch.setattr(store, "_open_both", slowly)
    await gate.cancel(store.__aenter__)
    assert await anyio.to_thread.run_sync(closed.wait, 60)
    with pytest.raises(Closed):
        await store.load("s")


async def test_nobody_comes_alive_after_the_end(store_url: StoreUrl) -> None:
    """As a session that is being opened while its store closes would."""
    async with open_store(store_url) as store:
        heartbeat = engine_of(store).heartbeat
    for begin in (heartbeat.begin, heartbeat.renew):
        with pytest.raises(Closed):
            begin()


@pytest.mark.parametrize("broken", ["beat", "retire"])
async def test_a_kernel_lock_is_not_left_behind(
    broken: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither if the first heartbeat fails, nor if the goodbye does: then it is found free."""
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    url = f"sqlite:{tmp_path}/store.db"
    async with open_store(url) as store:
        if broken == "retire":
            await store.session("s").__aenter__()
        monkeypatch.setattr(engine_of(store).driver, broken, fail)
        if broken == "beat":
            with pytest.raises(StoreFailed):
                await store.session("s").__aenter__()
    held = {os.readlink(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd") if _is_open(name)}
    assert not [one for one in held if str(tmp_path / "holdfast-") in one]
    async with open_store(url) as store, store.session("s"):
        pass


def _is_open(name: str) -> bool:
    return os.path.exists(f"/proc/self/fd/{name}")


# -- opening ---------------------------------------------------------------------------------------------


async def test_a_session_that_is_deleted_while_it_is_opened_begins_anew(
    store_url: StoreUrl, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not with a line in the middle of nothing."""
    async with open_store(store_url) as one, open_store(store_url) as two:
        async with one.session("s") as session:
            await step(session, "old")
        driver = engine_of(one).driver
        read = driver.read

        def delete_between(session: SessionId, after: int, limit: int, *, said: bool) -> Page:
            found = read(session, after, limit, said=said)
            if (after, limit) == (0, 1):
                monkeypatch.setattr(driver, "read", read)
                anyio.from_thread.run(two.delete, "s")
            return found

        monkeypatch.setattr(driver, "read", delete_between)
        async with one.session("s") as session:
            await step(session, "new")
        assert texts((await two.load("s")).transcript) == ["new"]


async def test_what_could_not_be_written_on_leaving_is_there_when_it_is_opened_again(
    store_url: StoreUrl, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once, and not only after the next try."""
    async with open_store(store_url) as store:
        driver = engine_of(store).driver
        session = await store.session("s").__aenter__()
        with monkeypatch.context() as broken:
            broken.setattr(driver, "commit", fail)
            await session.add("hello")
            with pytest.raises(StoreFailed):
                await session.__aexit__(None, None, None)
        async with store.session("s") as session:
            assert texts(session.transcript) == ["hello"]


async def test_who_is_out_can_open_the_session_again_at_once(store_url: StoreUrl) -> None:
    """As the error says, also before it has left the old one."""
    async with open_store(store_url, lease_s=0.1) as one, open_store(store_url) as two:
        async with one.session("s") as session:
            stop_heartbeat(one)
            async with two.session("s", wait_s=60) as taken:
                await step(taken, "theirs")
            with pytest.raises(Fenced):
                await step(session, "mine")
            with anyio.fail_after(60):
                async with one.session("s") as again:
                    assert texts(again.transcript) == ["theirs"]


# -- in the middle ---------------------------------------------------------------------------------------


@on_asyncio
@pytest.mark.parametrize("where", ["at its beginning", "at its end"])
async def test_a_run_that_is_cancelled_has_an_end(
    where: str, store_url: StoreUrl, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody takes it for one whose process died."""
    async with open_store(store_url) as store:
        gate = Gate()
        kind = "run.started" if where == "at its beginning" else "run.completed"

        async def live() -> None:
            async with store.session("s") as session:
                hold_up(monkeypatch, engine_of(store).driver, gate, kind)
                async with session.run(run_id="r" if where == "at its beginning" else None) as run:
                    await session.add("hello")
                    run.complete("fine")

        await gate.cancel(live)
        (run,) = await collect(store.runs())
        assert run.status == ("cancelled" if where == "at its beginning" else "completed")


async def test_an_erasure_that_is_cancelled_leaves_no_title(
    store_url: StoreUrl, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says what was said."""
    async with open_store(store_url) as store:
        async with store.session("s") as session:
            await step(session, "my secret")
        driver = engine_of(store).driver
        erase = driver.erase
        with anyio.CancelScope() as scope:

            def cancelled(*args: Any) -> Any:
                found = erase(*args)
                anyio.from_thread.run_sync(scope.cancel)
                return found

            monkeypatch.setattr(driver, "erase", cancelled)
            await store.clean("s", checkpoints=False)
        assert (await store.head("s")).title == ""
        assert texts((await store.load("s")).transcript) == ["[erased]"]


async def test_an_erased_title_does_not_come_back(store_url: StoreUrl) -> None:
    """Whatever is folded anew."""
    async with open_store(store_url) as store:
        async with store.session("s") as session:
            await step(session, "my secret")
        await store.fork("s", into="f")  # It keeps what was said.
        await store.clean("s", checkpoints=False)
        assert (await store.head("s")).title == ""
        assert (await store.load("s")).facts.head.title == ""


async def test_a_resource_that_cannot_be_given_back_does_not_hide_the_error(
    store_url: StoreUrl, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the block that held it."""
    async with open_store(store_url) as store, store.session("s") as session:

        async def hold() -> None:
            async with session.hold("printer"):
                monkeypatch.setattr(engine_of(store).driver, "claim", fail)
                raise KeyError("mine")

        with pytest.raises(KeyError, match="mine"):
            await hold()
        monkeypatch.undo()


async def test_what_was_refused_is_not_tried_for_ever(store_url: StoreUrl) -> None:
    """Entries that came behind those that were refused are dropped."""
    async with open_store(store_url, lease_s=0.1) as one, open_store(store_url) as two:
        session = await one.session("s").__aenter__()
        stop_heartbeat(one)
        async with two.session("s", wait_s=60):
            committer, channel = engine_of(one).committer, writer_of(session).channel
            await session.add("refused")
            with pytest.raises(Fenced):
                await session.flush()
            behind = session.state.append(SummaryChanged(summary="behind it"), engine_of(one).now())
            channel.entries.append(behind)
            # Such entries come at a moment that chance chooses; that none is tried shows nowhere else.
            committer._dirty[channel] = None
            with committer._lock:
                assert committer._gather() == []
                assert not committer._dirty
