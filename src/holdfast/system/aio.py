"""Work that is brought to its end, whoever is cancelled meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import anyio

T = TypeVar("T")


async def unbroken(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """What the work gives; a cancellation that came meanwhile is raised when it has ended.

    A shielded scope alone is not enough: `asyncio.Task.cancel` goes through it.
    """
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        with anyio.CancelScope(shield=True):
            return await work()
    task = loop.create_task(work())
    interrupt: asyncio.CancelledError | None = None
    while not task.done():
        try:
            with anyio.CancelScope(shield=True):
                await asyncio.wait((task,))
        except asyncio.CancelledError as error:
            interrupt = error
    if interrupt is None:
        return task.result()
    if not task.cancelled():
        task.exception()  # Nobody else will ask for it.
    raise interrupt
