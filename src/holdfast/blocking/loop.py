"""An event loop in a thread of its own, for code without one."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from typing import Any, Generic, TypeVar

import anyio
from anyio.from_thread import BlockingPortal

from ..errors import Closed
from ..system import aio, processes, threads
from ..tools.executor import asks_to_exit

T = TypeVar("T")


class Loop:
    """An event loop in its thread. Work runs in a copy of the caller's context."""

    def __init__(self, portal: BlockingPortal) -> None:
        self._portal, self._pid = portal, processes.pid()

    @property
    def is_here(self) -> bool:
        """True if the thread runs in this process: a forked child has none of its parent's threads, and they
        stand still when the interpreter ends."""
        return self._pid == processes.pid() and not processes.is_ending()

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the loop and wait for its result."""
        if not self.is_here:
            work.close()
            ending = "this process ends" if processes.is_ending() else "open it here"
            raise Closed(f"the store was closed, or was opened in the parent of this process: {ending}")
        task = _Task(work)
        try:
            # A task of the caller's own event loop may have a lock that this work needs.
            with aio.blocking_this_loop():
                return self._start(task).result()
        except _Exit as wrapped:
            raise wrapped.error from None
        except threads.CancelledError as error:
            raise Closed("the store was closed meanwhile") from error
        except BaseException:
            # Ctrl-C reaches the waiting thread, not the loop's; the task is cancelled, and still records how
            # far it came.
            if not task.ended.is_set():
                self._stop(task)
            raise

    def _start(self, task: _Task[T]) -> threads.Future[T]:
        try:
            return self._portal.start_task_soon(task.go)
        except RuntimeError as error:
            task.stop()
            raise Closed(f"the store was closed, or this is its own event loop: {error}") from error

    def _stop(self, task: _Task[Any]) -> None:
        with suppress(RuntimeError):
            self._portal.call(task.stop)
            task.ended.wait()

    def stop(self, *, cancel: bool) -> None:
        """Stop the loop when its tasks have ended, or cancel them."""
        self._portal.call(self._portal.stop, cancel)

    @contextmanager
    def inside(self, manager: AbstractAsyncContextManager[T]) -> Iterator[T]:
        """Enter and leave an async context manager."""
        entered: list[T] = []

        async def enter() -> None:
            entered.append(await manager.__aenter__())

        try:
            self.wait(enter())
        except BaseException as error:
            if entered:  # Ctrl-C came too late to stop the entering: leave it here.
                with suppress(Closed):
                    self.wait(manager.__aexit__(type(error), error, error.__traceback__))
            raise
        with self.leaving(manager):
            yield entered[0]

    @contextmanager
    def leaving(self, manager: AbstractAsyncContextManager[Any]) -> Iterator[None]:
        """Leave an async context manager that was entered. A forked child has nothing to leave."""
        try:
            yield
        except BaseException as error:
            if not self.is_here:
                raise
            if not self.wait(manager.__aexit__(type(error), error, error.__traceback__)):
                raise
        else:
            if self.is_here:
                self.wait(manager.__aexit__(None, None, None))

    def iterate(self, items: AsyncIterator[T]) -> Iterator[T]:
        """Iterate over an async iterator, one item at a time."""
        try:
            while found := self.wait(_next(items)):
                yield from found
        except BaseException:
            if isinstance(items, AsyncGenerator):
                with suppress(Closed):
                    self.wait(items.aclose())
            raise


@contextmanager
def start_loop() -> Iterator[Loop]:
    """Run a loop for the block. The like in anyio makes a forked child wait forever at its exit."""
    ready: threads.Future[Loop] = threads.Future()

    async def serve() -> None:
        async with BlockingPortal() as portal:
            ready.set_result(Loop(portal))
            await portal.sleep_until_stopped()

    thread = threads.Thread(target=anyio.run, args=(serve,), daemon=True, name="holdfast-blocking")
    thread.start()
    loop, cancel = ready.result(), True
    try:
        yield loop
        cancel = False
    finally:
        if loop.is_here:
            loop.stop(cancel=cancel)
            thread.join()


class _Exit(Exception):
    """Carries `SystemExit` and the like to the waiting thread.

    Raised as it is, it would end the loop's thread, which other callers need, too.
    """

    def __init__(self, error: BaseException) -> None:
        super().__init__(str(error))
        self.error = error


class _Task(Generic[T]):
    """A coroutine in the loop. It may be stopped before it has started."""

    def __init__(self, work: Coroutine[Any, Any, T]) -> None:
        self._work = work
        self._scope: anyio.CancelScope | None = None
        self.ended = threads.Event()

    async def go(self) -> T:
        if not self.ended.is_set():
            try:
                with anyio.CancelScope() as self._scope:
                    return await self._work
            except BaseException as error:
                if asks_to_exit(error):
                    raise _Exit(error) from None
                raise
            finally:
                self.ended.set()
        raise Closed("it was stopped")

    def stop(self) -> None:
        if self._scope is not None:
            self._scope.cancel()
        elif not self.ended.is_set():
            self._work.close()
            self.ended.set()


async def _next(items: AsyncIterator[T]) -> list[T]:
    async for item in items:
        return [item]
    return []
