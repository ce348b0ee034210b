"""Those who wait for a commit, in whatever event loop they are, and how they are told."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Any

import anyio
from anyio.lowlevel import current_token

from ..errors import HoldfastError

log = logging.getLogger("holdfast")


class HomeLoop:
    """The event loop that something was opened in. What was left open there is nobody's once it has ended."""

    __slots__ = ("_loop",)

    def __init__(self) -> None:
        self._loop: Any
        try:
            self._loop = asyncio.get_running_loop()
        except RuntimeError:
            self._loop = current_token().native_token

    @property
    def has_ended(self) -> bool:
        """Whether no task of it can ever run again."""
        if isinstance(self._loop, asyncio.AbstractEventLoop):
            return self._loop.is_closed()
        try:
            self._loop.run_sync_soon(_do_nothing)
        except RuntimeError:  # As trio says it of a run that has finished.
            return True
        return False


def _do_nothing() -> None: ...


class Waiter:
    """Somebody who waits until entry `seq` is durable, in an event loop of asyncio's or of trio's."""

    __slots__ = ("_event", "_future", "error", "loop", "seq")

    def __init__(self, seq: int) -> None:
        self.seq = seq
        self.error: HoldfastError | None = None
        self.loop: Any
        self._future: asyncio.Future[None] | None = None
        try:
            # A bare future where there is one: it costs half of an event, once per step.
            self.loop = asyncio.get_running_loop()
            self._future = self.loop.create_future()
        except RuntimeError:
            self.loop, self._event = current_token().native_token, anyio.Event()

    def call(self, function: Callable[..., object], *args: object) -> None:
        """Call it in the event loop that waits here, from any thread."""
        if self._future is None:
            self.loop.run_sync_soon(function, *args)
        else:
            self.loop.call_soon_threadsafe(function, *args)

    async def wait(self) -> None:
        if self._future is not None:
            await self._future
        else:
            await self._event.wait()
        if self.error is not None:
            raise self.error

    def wake(self) -> None:
        if self._future is None:
            self._event.set()
        elif not self._future.done():  # It is done if the caller was cancelled.
            self._future.set_result(None)


def wake_up(waiters: Iterable[Waiter]) -> None:
    """One call into each event loop, however many of its tasks wait."""
    loops: dict[int, list[Waiter]] = {}
    for waiter in waiters:
        loops.setdefault(id(waiter.loop), []).append(waiter)
    for group in loops.values():
        try:
            group[0].call(_set_all, group)
        except Exception:  # That event loop has ended, and everybody in it.
            log.debug("nobody is left to be told of %d commits", len(group))


def _set_all(waiters: list[Waiter]) -> None:
    for waiter in waiters:
        waiter.wake()
