"""A saver's sync methods while a task of an event loop is in the middle of something with the same thread."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.adapters.langgraph import HoldfastSaver
from holdfast.errors import StoreFailed
from tests.internals import engine_of

from .checkpoints_by_hand import Writer, values_at
from .graphs import thread

_LARGE = "y" * 3_000_000
"""It is stored as a blob."""


def _read(saver: HoldfastSaver, writer: Writer) -> None:
    found = saver.get_tuple(thread())
    assert found is not None
    assert found.checkpoint["channel_values"] == {"value": "small"}


def _iterate(saver: HoldfastSaver, writer: Writer) -> None:
    assert [one.checkpoint["channel_values"] for one in saver.list(thread())] == [{"value": "small"}]


def _write(saver: HoldfastSaver, writer: Writer) -> None:
    saver.put_writes(writer.config, [("value", "pending")], "task")


@pytest.mark.parametrize("use", [_read, _iterate, _write])
def test_a_sync_method_does_not_wait_for_a_task_of_the_event_loop_that_it_blocks(
    use: Callable[[HoldfastSaver, Writer], None],
) -> None:
    """The task cannot go on before the method returns. It does afterwards, and nothing is lost."""
    began, go_on, seen = threading.Event(), threading.Event(), list[Any]()

    async def main() -> None:
        async with holdfast.open_store("memory:") as store:
            blobs = engine_of(store).blobs
            keep = blobs.keep

            def slowly(pieces: Any) -> Any:
                began.set()
                assert go_on.wait(60)
                return keep(pieces)

            blobs.keep = slowly  # type: ignore[method-assign]
            saver = HoldfastSaver(store)
            writer = Writer(saver)
            first = await writer.put(value="small")
            putting = asyncio.create_task(writer.put(value=_LARGE))
            assert await asyncio.to_thread(began.wait, 60)
            use(saver, writer)
            go_on.set()
            await putting
            seen.append(await values_at(saver, thread()))
            found = await HoldfastSaver(store).aget_tuple(first)
            assert found is not None
            seen.append(found.pending_writes)
            saver.close()

    running = threading.Thread(target=asyncio.run, args=(main(),), daemon=True)
    running.start()
    running.join(60)
    assert seen == [{"value": _LARGE}, [("task", "value", "pending")] if use is _write else []]


async def test_threads_whose_last_checkpoint_could_not_be_stored_do_not_stay_in_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They are as good as any other to be closed, and read again."""
    monkeypatch.setattr("holdfast.adapters.langgraph.journal.ADAPTER_CACHE_BYTES", 20_000)
    async with holdfast.open_store("memory:") as store:

        def fail(pieces: Any) -> Any:
            raise StoreFailed("disk full")

        monkeypatch.setattr(engine_of(store).blobs, "keep", fail)
        saver = HoldfastSaver(store)
        for number in range(40):
            writer = Writer(saver, f"t{number}")
            await writer.put(value="small")
            with pytest.raises(StoreFailed):
                await writer.put(value=_LARGE)
        # Which journals are kept shows in memory only.
        assert len(saver._journals._open) <= 20
        assert await values_at(saver, thread("t0")) == {"value": "small"}


_FORK = """
import asyncio, os, sys, threading, holdfast
from holdfast.adapters.langgraph import HoldfastSaver

CONFIG = {"configurable": {"thread_id": "t"}}

async def main():
    async with holdfast.open_store(sys.argv[1]) as store:
        saver = HoldfastSaver(store)
        driver, began, go_on = store._engine.driver, threading.Event(), threading.Event()
        find_tip = driver.find_tip

        def slowly(session):
            began.set()
            assert go_on.wait(60)
            return find_tip(session)

        driver.find_tip = slowly
        reading = asyncio.create_task(saver.aget_tuple(CONFIG))
        assert await asyncio.to_thread(began.wait, 60)
        child = os.fork()
        if child == 0:
            try:
                saver.get_tuple(CONFIG)
            except holdfast.errors.Closed:
                os._exit(3)
            os._exit(1)
        go_on.set()
        await reading
        print("ended", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)

asyncio.run(main())
"""


def test_a_forked_child_is_told_that_the_store_is_its_parents(tmp_path: Path) -> None:
    """Also if a task of the parent was reading the thread: that never goes on in the child."""
    command = [sys.executable, "-c", _FORK, f"sqlite:{tmp_path}/store.db"]
    parent = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        printed, _ = parent.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        os.killpg(parent.pid, signal.SIGKILL)  # The child, too.
        parent.communicate()
        raise
    assert printed.split()[-2:] == ["ended", "3"]
