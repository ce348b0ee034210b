"""What all sessions of an open store share: the driver, its threads, the committer and the heartbeat."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import TypeVar, TypeVarTuple

import anyio
import anyio.to_thread
from anyio.lowlevel import RunVar

from ..clock import utc_now
from ..errors import Closed
from ..ids import SessionId
from ..limits import LEASE_TERM_S, LINGER_S, STORE_THREADS
from ..values import Codec, Values
from .blobs.driver import DriverHome
from .blobs.home import BlobHome
from .committer import Channel, Committer
from .driver import Driver
from .presence import Presence

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class Engine:
    """An open store. Blocking calls to the driver run in threads of its own."""

    def __init__(
        self,
        driver: Driver,
        *,
        home: BlobHome | None = None,
        lease_s: float = LEASE_TERM_S,
        linger_s: float = LINGER_S,
        codecs: Iterable[Codec] = (),
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        self.driver = driver
        self.home: BlobHome = home or DriverHome(driver)
        self.committer = Committer(driver, linger_s=linger_s)
        self.channels: dict[SessionId, Channel] = {}
        """Of the sessions that are open here."""
        self.holds: dict[str, object] = {}
        """Resources that are held here, or about to be."""
        self.presence = Presence(
            driver, term_s=lease_s, on_posted=self._note_posted, sessions=lambda: list(self.channels)
        )
        self.values = Values(codecs)
        self.now = now
        self.is_busy: Callable[[], bool] = lambda: False
        """Whether a tool that could not be stopped still runs. Set by the ledger."""
        self._threads: RunVar[anyio.CapacityLimiter] = RunVar(f"holdfast_store_threads_{id(self)}")
        self._closed = False
        _engines.add(self)

    async def call(self, function: Callable[[*Ts], T], *args: *Ts) -> T:
        """Run a blocking function of the driver's in a thread."""
        if self._closed:
            raise Closed("the store was closed, or was opened in the parent of this process: open it here")
        return await anyio.to_thread.run_sync(function, *args, limiter=self._limiter())

    async def call_or_undo(self, function: Callable[[*Ts], T], undo: Callable[[T], None], *args: *Ts) -> T:
        """Run a blocking function whose result must not get lost: if the caller is cancelled meanwhile (the
        thread runs on), `undo` is given what it returned."""
        lock = threading.Lock()
        given: list[T] = []
        abandoned = False

        def run() -> T:
            result = function(*args)
            with lock:
                given.append(result)
                late = abandoned
            if late:
                undo(result)
            return result

        try:
            return await self.call(run)
        except BaseException:
            with lock:
                abandoned = True
                result = given[:]
            if result:
                threading.Thread(target=undo, args=(result[0],)).start()
            raise

    def _limiter(self) -> anyio.CapacityLimiter:
        """One for each event loop that uses the store."""
        try:
            return self._threads.get()
        except LookupError:
            limiter = anyio.CapacityLimiter(STORE_THREADS)
            self._threads.set(limiter)
            return limiter

    def _note_posted(self, posted: Mapping[SessionId, int]) -> None:
        for session, number in posted.items():
            channel = self.channels.get(session)
            if channel is not None:
                channel.posted = max(channel.posted, number)

    async def close(self) -> None:
        """Write what is left, say goodbye, let go. Safe to call twice."""
        if self._closed:
            return
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self._close)
        self._closed = True

    def forget_in_child(self) -> None:
        """A forked child has no right to what its parent opened."""
        self._closed = True

    def _close(self) -> None:
        self.committer.close()
        self.presence.end(busy=self.is_busy())
        self.home.close()
        self.driver.close()


_engines: weakref.WeakSet[Engine] = weakref.WeakSet()


def _forget_in_child() -> None:
    for engine in list(_engines):
        engine.forget_in_child()


os.register_at_fork(after_in_child=_forget_in_child)
