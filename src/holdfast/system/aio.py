"""What differs between asyncio and trio. No other module imports either of them.

Everything else uses anyio. What is here is not in anyio, or costs several times as much there.
"""

from __future__ import annotations

import asyncio
import sys
import warnings
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from contextvars import copy_context
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar

import anyio
import anyio.to_thread
from anyio._core._eventloop import threadlocals
from anyio.lowlevel import checkpoint, current_token

from ..errors import Closed
from . import processes, threads

T = TypeVar("T")
Work: TypeAlias = Callable[[], Coroutine[Any, Any, T]]

AsyncioCancelled: TypeAlias = asyncio.CancelledError
"""What cancels a task in asyncio. In trio, it is an error like any other."""

_tasks: set[asyncio.Task[None]] = set()
"""What `spawn` started: asyncio itself keeps no strong reference to a task."""

_LOOK_S = 1.0
"""How often a thread that waits for an event loop checks whether the loop still runs."""

_blocked: list[Any] = []
"""The event loops whose threads are in `blocking_this_loop`, once for each time."""


# -- event loops -------------------------------------------------------------------------------------


def _is_asyncio() -> bool:
    """Whether the running event loop is one of asyncio."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def current_loop() -> Any:
    """The running event loop, to compare by identity and for the functions below."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return current_token().native_token


def find_task() -> Any:
    """The running task, to compare by identity; None outside of one."""
    try:
        return asyncio.current_task()
    except RuntimeError:  # No event loop of asyncio runs.
        trio: Any = sys.modules.get("trio")
        try:
            return None if trio is None else trio.lowlevel.current_task()
        except RuntimeError:
            return None


def has_ended(loop: Any) -> bool:
    """Whether no task of the loop can ever run again."""
    if isinstance(loop, asyncio.AbstractEventLoop):
        return loop.is_closed()
    try:
        loop.run_sync_soon(_do_nothing)
    except RuntimeError:  # trio raises it for a run that has finished.
        return True
    return False


def is_stopped(loop: Any) -> bool:
    """Whether no task of the loop can run now: it has ended, does not run, or is blocked by a sync call."""
    return loop in _blocked or not _is_running(loop)


def _is_running(loop: Any) -> bool:
    """Whether the loop runs, even if a sync call blocks it at the moment."""
    return not has_ended(loop) and (not isinstance(loop, asyncio.AbstractEventLoop) or loop.is_running())


@contextmanager
def blocking_this_loop() -> Iterator[None]:
    """Tell other threads that the event loop of this thread, if it has one, is blocked for the block."""
    blocked: list[Any] = []
    with suppress(RuntimeError):  # There is none.
        blocked = [current_loop()]
    _blocked.extend(blocked)
    try:
        yield
    finally:
        for loop in blocked:
            _blocked.remove(loop)


def _do_nothing() -> None: ...


def call_in_loop(loop: Any, function: Callable[..., object], *args: object) -> None:
    """Call a function in the loop, from any thread. An error is raised if the loop has ended."""
    if isinstance(loop, asyncio.AbstractEventLoop):
        loop.call_soon_threadsafe(function, *args)
    else:
        loop.run_sync_soon(function, *args)


def wait_in_loop(loop: Any, work: Work[T]) -> T:
    """Run a coroutine in the loop, with the context of the caller, and wait for its result. To be called in
    another thread. `Closed` if the loop has ended or ends meanwhile."""
    found: list[T] = []
    errors: list[Exception] = []
    ended = threads.Event()

    async def run() -> None:
        try:
            found.append(await work())
        except Exception as error:
            errors.append(error)
        finally:
            ended.set()

    if _is_running(loop):
        with suppress(RuntimeError):  # It has ended since.
            call_in_loop(loop, copy_context().run, spawn, run)
            # A loop that stops does not always cancel what has not begun.
            while not ended.wait(_LOOK_S) and _is_running(loop):
                pass
    if errors:
        raise errors[0]
    if not found:
        raise Closed("the event loop has ended")
    return found[0]


def call_later(delay_s: float, function: Callable[[], object]) -> None:
    """Call a function in the running event loop after a delay, unless the loop ends before."""
    try:
        asyncio.get_running_loop().call_later(delay_s, function)
    except RuntimeError:

        async def wait() -> None:
            await anyio.sleep(delay_s)
            function()

        spawn(wait)


async def let_others_run() -> None:
    """Give every task that is ready its turn."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        await checkpoint()
    else:
        await asyncio.sleep(0)  # The same as a checkpoint, at a lower cost.


# -- tasks -------------------------------------------------------------------------------------------


def spawn(work: Work[None], on_end: Callable[[], object] = _do_nothing) -> None:
    """Start a task that no other task waits for. `on_end` is called when it has ended."""
    try:
        task = asyncio.get_running_loop().create_task(work())
    except RuntimeError:
        import trio  # It is installed: this is its event loop.

        async def run() -> None:
            try:
                await work()
            finally:
                on_end()

        trio.lowlevel.spawn_system_task(run, context=copy_context())
    else:
        _tasks.add(task)
        task.add_done_callback(_tasks.discard)
        task.add_done_callback(lambda _: on_end())


def start_task(work: Work[T]) -> asyncio.Task[T]:
    """Begin the work in a task of asyncio, for a framework that knows only that and looks at the task."""
    return asyncio.get_running_loop().create_task(work())


def run_in_default_loop(work: Work[T]) -> T:
    """Run the work in the event loop of this thread, which stays open: clients that were made in it are used
    again. For frameworks that know asyncio only."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        pass
    else:
        raise RuntimeError("an event loop is running here: await the coroutine in its place")
    policy = asyncio.get_event_loop_policy()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            loop = policy.get_event_loop()
        except RuntimeError:
            loop = policy.new_event_loop()
            policy.set_event_loop(loop)
    if loop.is_closed():
        loop = policy.new_event_loop()
        policy.set_event_loop(loop)
    task = loop.create_task(work())
    try:
        return loop.run_until_complete(task)
    finally:
        if not task.done():  # Ctrl-C, say: it is cancelled, and still records how far it came.
            task.cancel()
            with suppress(asyncio.CancelledError):
                loop.run_until_complete(task)


async def run_to_end(work: Work[T]) -> T:
    """Run the work to its end and return its result. A cancellation meanwhile is raised afterwards.

    A shielded scope alone is not enough: `asyncio.Task.cancel` goes through it.
    """
    if not _is_asyncio():
        with anyio.CancelScope(shield=True):
            return await work()
    task = asyncio.get_running_loop().create_task(work())
    interrupt = await _wait_for(task)
    if interrupt is None:
        return task.result()
    if not task.cancelled():
        task.exception()  # Else asyncio logs that it was never retrieved.
    raise interrupt


async def run_attended(
    work: Work[None],
    attend: Callable[[Callable[[], object]], Coroutine[Any, Any, None]],
    cancel: Callable[[], object],
) -> None:
    """Run `work` in a task of its own while `attend` looks after it; return when both have ended.

    `attend` is given the function that cancels the task: once in asyncio, else `cancel`.
    """
    if not _is_asyncio():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(work)
            await attend(cancel)
        return
    # A bare task: a task group costs several times as much, for every effect.
    task = asyncio.get_running_loop().create_task(work())
    interrupt: BaseException | None = None
    try:
        await attend(task.cancel)
    except asyncio.CancelledError as error:
        interrupt = error
    interrupt = await _wait_for(task) or interrupt
    if not task.cancelled():
        task.result()
    if interrupt is not None:
        raise interrupt


async def _wait_for(task: asyncio.Task[Any]) -> asyncio.CancelledError | None:
    """Wait until the task has ended. Return the cancellation that came meanwhile."""
    interrupt: asyncio.CancelledError | None = None
    while not task.done():
        try:
            with anyio.CancelScope(shield=True):
                await asyncio.wait((task,))
        except asyncio.CancelledError as error:
            interrupt = error
    return interrupt


def is_cancelled() -> bool:
    """Whether asyncio is cancelling this task itself, and not something that the task waited for."""
    try:
        task = asyncio.current_task()
    except RuntimeError:
        return False
    return task is None or task.cancelling() > 0


class Signal:
    """An event that is set once, for a single task that waits for it.

    In asyncio, these are bare futures and timers: an event and a scope cost several times as much.
    """

    __slots__ = ("_event", "_future", "is_set", "loop")

    def __init__(self) -> None:
        self.is_set = False
        self._future: asyncio.Future[None] | None = None
        self._event: anyio.Event | None = None
        self.loop: Any = current_loop()
        if not isinstance(self.loop, asyncio.AbstractEventLoop):
            self._event = anyio.Event()

    def set(self) -> None:
        """Wake the task. To be called in its event loop."""
        self.is_set = True
        self._wake()
        if self._event is not None:
            self._event.set()

    def _wake(self) -> None:
        if self._future is not None and not self._future.done():  # It is done if the task was cancelled.
            self._future.set_result(None)

    async def wait(self, limit_s: float | None = None) -> None:
        """Wait until it is set, at most this long."""
        if self._event is not None:
            with anyio.move_on_after(limit_s):
                await self._event.wait()
        elif not self.is_set:
            timer = None if limit_s is None else self.loop.call_later(limit_s, self._wake)
            self._future = self.loop.create_future()
            try:
                await self._future
            finally:
                if timer is not None:
                    timer.cancel()


# -- threads -----------------------------------------------------------------------------------------


async def run_in_daemon_thread(function: Callable[[], T], limiter: anyio.CapacityLimiter) -> T:
    """Run a function in a daemon thread, and leave it behind if the caller is cancelled.

    A process that ends does not wait for it: what is under way then stays in doubt, as in a crash.
    """
    if not _is_asyncio():
        # trio's worker threads are daemons.
        return await anyio.to_thread.run_sync(function, abandon_on_cancel=True, limiter=limiter)
    task = _DaemonTask(function)
    try:
        return await anyio.to_thread.run_sync(task.run, abandon_on_cancel=True, limiter=limiter)
    finally:
        task.ended.set()  # Frees the worker thread, also if the function still runs.


class _DaemonTask:
    """A function in a daemon thread, with a worker thread of anyio that waits for it.

    The interpreter waits for anyio's worker threads when it ends, so the function cannot run in one of them.
    The daemon gets the worker's thread-local data, by which `anyio.from_thread` works.
    """

    def __init__(self, function: Callable[[], Any]) -> None:
        self._function = function
        self._found: threads.Future[Any] = threads.Future()
        self.ended = threads.Event()

    def run(self) -> Any:
        """In the worker thread: wait for the function, or until its caller has gone."""
        context, worker = copy_context(), dict(vars(threadlocals))
        try:
            daemon = _idle_daemons.pop()
        except IndexError:
            daemon = _Daemon()
        daemon.tasks.put((partial(context.run, self._work, worker), self.ended))
        self.ended.wait()
        return self._found.result() if self._found.done() else None

    def _work(self, worker: dict[str, Any]) -> None:
        vars(threadlocals).update(worker)
        try:
            self._found.set_result(self._function())
        except BaseException as error:
            self._found.set_exception(error)
        finally:
            vars(threadlocals).clear()  # They name the event loop, which must not outlive its end here.


class _Daemon:
    """A daemon thread that runs one function after the other: starting a thread takes longer than a hop."""

    def __init__(self) -> None:
        self.tasks: threads.SimpleQueue[tuple[Callable[[], object], threads.Event]] = threads.SimpleQueue()
        threads.Thread(target=self._run, name="holdfast tool", daemon=True).start()

    def _run(self) -> None:
        is_idle = True
        while is_idle:
            work, ended = self.tasks.get()
            try:
                work()
            finally:
                is_idle = len(_idle_daemons) < _IDLE_DAEMONS_MAX
                if is_idle:
                    _idle_daemons.append(self)  # First: who waits may call again at once.
                ended.set()
            del work, ended  # Nothing of it is kept while the thread waits.


_IDLE_DAEMONS_MAX: Final = 16
"""More threads than that end when they have nothing to do."""
_idle_daemons: list[_Daemon] = []

processes.register_at_fork(after_in_child=_idle_daemons.clear)
