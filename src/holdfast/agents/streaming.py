"""Events as they happen, for a caller that iterates."""

from __future__ import annotations

import asyncio
import contextvars
import math
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any

import anyio

from .loop import Tell
from .outcome import Event, OutputT

_tasks: set[asyncio.Task[None]] = set()
"""asyncio itself keeps no strong reference to a task."""


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

    _spawn(work_on)
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


def _spawn(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    try:
        task = asyncio.get_running_loop().create_task(work())
    except RuntimeError:
        import trio  # Then it is there: this is its event loop.

        trio.lowlevel.spawn_system_task(work, context=contextvars.copy_context())
    else:
        _tasks.add(task)
        task.add_done_callback(_tasks.discard)
