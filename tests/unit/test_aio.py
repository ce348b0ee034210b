"""What differs between asyncio and trio: tasks, signals and calls, in both kinds of event loops."""

import asyncio
import gc
import threading
import time
import weakref

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

from holdfast.system.aio import (
    Signal,
    call_in_loop,
    call_later,
    current_loop,
    has_ended,
    run_in_daemon_thread,
    run_to_end,
    spawn,
)

done: list[str] = []


async def _work() -> str:
    for name in ("a", "b"):
        await anyio.sleep(0.01)
        done.append(name)
    return "given"


class Steps:
    """Work that is begun, and goes on when it is told to."""

    def __init__(self) -> None:
        self.begun, self.go_on = anyio.Event(), anyio.Event()

    async def work(self) -> str:
        """Half of it, a pause, and the rest."""
        done.append("a")
        self.begun.set()
        await self.go_on.wait()
        await anyio.lowlevel.checkpoint()
        done.append("b")
        return "given"


@pytest.fixture(autouse=True)
def _nothing_is_done_yet() -> None:
    done.clear()


@pytest.mark.anyio
async def test_it_gives_what_the_work_gives() -> None:
    """And raises what it raises."""

    async def fail() -> None:
        raise KeyError("mine")

    assert await run_to_end(_work) == "given"
    with pytest.raises(KeyError, match="mine"):
        await run_to_end(fail)


@pytest.mark.anyio
async def test_a_scope_that_is_cancelled_waits_for_its_end() -> None:
    """In both kinds of event loops."""
    steps = Steps()

    async def cancel() -> None:
        await steps.begun.wait()
        scope.cancel()
        await anyio.wait_all_tasks_blocked()
        steps.go_on.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(cancel)
        with anyio.CancelScope() as scope:
            await run_to_end(steps.work)
            await anyio.lowlevel.checkpoint()
    assert scope.cancelled_caught
    assert done == ["a", "b"]


def test_a_task_that_is_cancelled_again_and_again_waits_for_its_end() -> None:
    """As asyncio cancels: through every shield. Then the cancellation is raised."""

    async def main() -> None:
        steps = Steps()
        task = asyncio.create_task(run_to_end(steps.work))
        await steps.begun.wait()
        for _ in range(3):
            task.cancel()
            await asyncio.sleep(0.002)
        steps.go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert done == ["a", "b"]


@pytest.mark.anyio
async def test_a_signal_wakes_its_task_from_any_thread() -> None:
    """And a signal that was set before is not waited for."""
    signal = Signal()

    async def set_it() -> None:
        await anyio.to_thread.run_sync(call_in_loop, signal.loop, signal.set)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(set_it)
        await signal.wait()
    assert signal.is_set
    await signal.wait()


@pytest.mark.anyio
async def test_a_signal_is_waited_for_as_long_as_is_said() -> None:
    """Then the wait ends, and the signal can be waited for again."""
    signal = Signal()
    began = anyio.current_time()
    await signal.wait(0.02)
    assert anyio.current_time() - began >= 0.01
    assert not signal.is_set
    signal.set()
    await signal.wait(60)


@pytest.mark.anyio
async def test_a_spawned_task_tells_its_end() -> None:
    """Also one that a later call starts."""
    ended = anyio.Event()

    async def note() -> None:
        done.append("spawned")

    call_later(0.01, lambda: spawn(note, ended.set))
    assert done == []
    with anyio.fail_after(60):
        await ended.wait()
    assert done == ["spawned"]


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_an_event_loop_that_has_ended_is_known(backend: str) -> None:
    """Calls into it are refused."""

    async def main() -> object:
        loop = current_loop()
        assert not has_ended(loop)
        return loop

    loop = anyio.run(main, backend=backend)
    assert has_ended(loop)
    with pytest.raises(RuntimeError):
        call_in_loop(loop, done.clear)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_daemon_thread_is_used_again_once_its_function_has_ended() -> None:
    """Starting a thread for each call takes longer than the call. trio's own threads are daemons."""
    limiter = anyio.CapacityLimiter(4)
    first = await run_in_daemon_thread(threading.current_thread, limiter)
    second = await run_in_daemon_thread(threading.current_thread, limiter)
    assert first is second
    assert first.daemon


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_function_that_was_left_behind_keeps_its_thread() -> None:
    """The next call gets another one, and the one left behind is free when its function ends."""
    limiter = anyio.CapacityLimiter(4)
    begun, go_on, found = threading.Event(), threading.Event(), list[threading.Thread]()

    def wait() -> None:
        found.append(threading.current_thread())
        begun.set()
        assert go_on.wait(300)

    async def cancel_when_begun() -> None:
        assert await anyio.to_thread.run_sync(begun.wait, 300)
        tasks.cancel_scope.cancel()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run_in_daemon_thread, wait, limiter)
        tasks.start_soon(cancel_when_begun)
    try:
        assert await run_in_daemon_thread(threading.current_thread, limiter) is not found[0]
    finally:
        go_on.set()


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_an_error_in_a_daemon_thread_is_the_callers() -> None:
    """And the thread goes on."""
    limiter = anyio.CapacityLimiter(4)
    with pytest.raises(ZeroDivisionError):
        await run_in_daemon_thread(lambda: 1 // 0, limiter)
    assert await run_in_daemon_thread(lambda: 42, limiter) == 42


def test_a_thread_that_waits_for_a_function_keeps_no_event_loop() -> None:
    """It would stay in memory until the thread is used again."""
    found: list[weakref.ref[asyncio.AbstractEventLoop]] = []

    async def call() -> None:
        found.append(weakref.ref(asyncio.get_running_loop()))
        await run_in_daemon_thread(lambda: None, anyio.CapacityLimiter(1))

    # In a thread of its own: anyio keeps the last event loop of a thread.
    caller = threading.Thread(target=lambda: asyncio.run(call()))
    caller.start()
    caller.join()
    deadline_s = time.monotonic() + 60
    while found[0]() is not None:
        gc.collect()
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
