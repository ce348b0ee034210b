"""Events as they happen, for a caller that iterates."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress

import anyio

from ..system import aio
from .loop import Tell
from .outcome import Event, OutputT


async def stream(work: Callable[[Tell], Awaitable[object]]) -> AsyncGenerator[Event[OutputT], None]:
    """What the work tells, until it ends. Who stops listening stops the work.

    The work runs in a task of its own. A task group would not do: a caller may leave a generator half-way,
    and it is then closed by another task than the one that entered the group.
    """
    send, receive = anyio.create_memory_object_stream[Event[OutputT]](math.inf)
    scope, ended = anyio.CancelScope(), anyio.Event()
    failures: list[BaseException] = []

    def tell(event: Event[OutputT]) -> None:
        with suppress(anyio.BrokenResourceError):  # Nobody listens any more: the cancellation is on its way.
            send.send_nowait(event)

    async def work_on() -> None:
        try:
            with scope:
                await work(tell)
        except BaseException as error:
            failures.append(error)
        finally:
            send.close()
            ended.set()

    aio.spawn(work_on)
    try:
        with receive:
            async for event in receive:
                yield event
    finally:
        scope.cancel()
        with anyio.CancelScope(shield=True):
            await ended.wait()
    if failures:
        raise failures[0]
