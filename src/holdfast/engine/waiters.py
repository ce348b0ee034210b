"""Those who wait for a commit, in whatever event loop they are, and how they are told."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from ..errors import HoldfastError
from ..system import aio

log = logging.getLogger("holdfast")


class HomeLoop:
    """The event loop that something was opened in. What was left open there is nobody's once it has ended."""

    __slots__ = ("_loop",)

    def __init__(self) -> None:
        self._loop = aio.current_loop()

    @property
    def has_ended(self) -> bool:
        """Whether no task of it can ever run again."""
        return aio.has_ended(self._loop)


class Waiter(aio.Signal):
    """A task that waits until entry `seq` is durable."""

    __slots__ = ("error", "seq")

    def __init__(self, seq: int) -> None:
        super().__init__()
        self.seq = seq
        self.error: HoldfastError | None = None

    async def wait(self, limit_s: float | None = None) -> None:
        await super().wait(limit_s)
        if self.error is not None:
            raise self.error


def wake_up(waiters: Iterable[Waiter]) -> None:
    """One call into each event loop, however many of its tasks wait."""
    loops: dict[int, list[Waiter]] = {}
    for waiter in waiters:
        loops.setdefault(id(waiter.loop), []).append(waiter)
    for group in loops.values():
        try:
            aio.call_in_loop(group[0].loop, _set_all, group)
        except Exception:  # That event loop has ended, and everybody in it.
            log.debug("nobody is left to be told of %d commits", len(group))


def _set_all(waiters: list[Waiter]) -> None:
    for waiter in waiters:
        waiter.set()
