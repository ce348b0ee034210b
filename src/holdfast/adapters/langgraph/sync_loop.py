"""An event loop for the saver's and the tools' sync methods."""

from __future__ import annotations

from contextlib import ExitStack

from ...blocking import Store
from ...blocking.loop import Loop, start_loop
from ...store.opening import AnyStore
from ...system import threads


class SyncLoop:
    """The event loop of a blocking store, or one that starts when it is first needed."""

    def __init__(self, loop: Loop | None) -> None:
        self._loop = loop
        self._stack = ExitStack()
        self._starting = threads.Lock()
        """Tools that run at once are called from several threads."""

    @classmethod
    def of(cls, store: AnyStore) -> SyncLoop:
        """The loop of the store, if it has one."""
        return cls(store._loop if isinstance(store, Store) else None)

    @property
    def loop(self) -> Loop:
        with self._starting:
            if self._loop is None or not self._loop.is_here:
                self._loop = self._stack.enter_context(start_loop())
            return self._loop

    def end(self) -> None:
        self._stack.close()
        self._loop = None
