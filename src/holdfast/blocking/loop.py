"""An event loop in a thread of its own, for those who have none."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from typing import Any, TypeVar

from anyio.from_thread import BlockingPortal

from ..errors import Closed

T = TypeVar("T")


class Loop:
    """The event loop in its thread. Whatever it is given runs in a copy of the caller's context."""

    def __init__(self, portal: BlockingPortal) -> None:
        self._portal = portal

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Have it done, and wait for it."""
        try:
            future: Future[T] = self._portal.start_task_soon(_itself, work)
        except RuntimeError as error:
            work.close()
            raise Closed(f"the store was closed, or this is its own event loop: {error}") from error
        try:
            return future.result()
        except BaseException:
            future.cancel()  # Ctrl-C reaches the thread that waits, not the one that works.
            raise

    @contextmanager
    def inside(self, manager: AbstractAsyncContextManager[T]) -> Iterator[T]:
        """The block of an `async with`."""
        entered = self.wait(manager.__aenter__())
        with self.leaving(manager):
            yield entered

    @contextmanager
    def leaving(self, manager: AbstractAsyncContextManager[Any]) -> Iterator[None]:
        """The block of an `async with` that was entered before."""
        try:
            yield
        except BaseException as error:
            if not self.wait(manager.__aexit__(type(error), error, error.__traceback__)):
                raise
        else:
            self.wait(manager.__aexit__(None, None, None))

    def iterate(self, items: AsyncIterator[T]) -> Iterator[T]:
        """The items, one by one, as they are asked for."""
        try:
            while found := self.wait(_next(items)):
                yield from found
        except GeneratorExit:
            if isinstance(items, AsyncGenerator):
                with suppress(Closed):
                    self.wait(items.aclose())
            raise


def _itself(work: Coroutine[Any, Any, T]) -> Coroutine[Any, Any, T]:
    return work


async def _next(items: AsyncIterator[T]) -> list[T]:
    async for item in items:
        return [item]
    return []
