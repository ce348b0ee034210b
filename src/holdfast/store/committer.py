"""One thread writes for all sessions of a store.

Sessions hand over lines as they arise. A line that nobody waits for leaves with the next barrier, or after a
short linger. While one commit is under way the next batch gathers, so one transaction and one sync carry the
lines of many sessions.

A commit that failed may have landed all the same. It is settled by committing the very same lines again: they
name the `sum` they follow, so they land once or find themselves there, and no read can be fooled.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import anyio
from anyio.lowlevel import current_token

from ..codec import Sealed
from ..errors import Closed, Fenced, HoldfastError, NotFound, StoreFailed, StoreUnreachable
from ..head import Head
from ..ids import SessionId
from ..limits import BATCH_BYTES_MAX, BATCH_LINES_MAX, LINGER_S
from .driver import Append, Claimed, Conflict, Done, Driver, OriginGone, Outcome, Pin

log = logging.getLogger("holdfast")
_RETRY_S = 1.0
"""How soon lines that failed are tried again when nobody asks for them."""


class _Waiter:
    """Somebody who waits until entry `seq` is durable, in an event loop of asyncio's or of trio's."""

    __slots__ = ("_event", "_future", "error", "post", "seq")

    def __init__(self, seq: int) -> None:
        self.seq = seq
        self.error: HoldfastError | None = None
        self.post: Callable[..., object]
        self._future: asyncio.Future[None] | None = None
        try:
            # A bare future where there is one: it costs half of an event, once per step.
            loop = asyncio.get_running_loop()
            self._future, self.post = loop.create_future(), loop.call_soon_threadsafe
        except RuntimeError:
            native: Any = current_token().native_token
            self._event, self.post = anyio.Event(), native.run_sync_soon

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


class Channel:
    """What one open session has handed over, and what became of it. Guarded by the committer's lock."""

    def __init__(self, session: SessionId, after: str | None, pin: Pin | None = None) -> None:
        self.session, self.after, self.pin = session, after, pin
        self.fence = 0
        self.lines: list[bytes] = []
        self.kinds: list[str] = []
        self.head: Head | None = None
        self.first_seq = 0
        self.keyframe: bytes | None = None
        self.flying: Append | None = None
        """Being committed, or failed and not yet settled."""
        self.durable_seq = 0
        self.posted = 0
        self.lost: HoldfastError | None = None
        """Why nothing can be written any more, not even what was handed over."""
        self.closed: HoldfastError | None = None
        """Why nothing more can be handed over."""
        self.waiters: list[_Waiter] = []

    def take(self) -> Append:
        """What to commit next: what failed before, else all that has gathered."""
        if self.flying is None:
            assert self.head is not None
            self.flying = Append(
                session=self.session,
                after=self.after,
                first_seq=self.first_seq,
                lines=tuple(self.lines),
                kinds=tuple(self.kinds),
                head=self.head,
                keyframe=self.keyframe,
                pin=self.pin,
            )
            self.lines, self.kinds, self.keyframe, self.pin = [], [], None, None
            self.after = self.head.sum
        return self.flying


class Committer:
    """Gathers lines, commits them in batches, and wakes up who waits."""

    def __init__(self, driver: Driver, *, linger_s: float = LINGER_S) -> None:
        self._driver, self._linger_s = driver, linger_s
        self._lock = threading.Lock()
        self._wake = threading.Condition(self._lock)
        self._dirty: dict[Channel, None] = {}
        self._urgent = False
        self._due: float | None = None
        self._closing = False
        self._thread: threading.Thread | None = None
        _committers.add(self)

    # -- called by sessions, in their event loop -----------------------------------------------------

    def offer(
        self, channel: Channel, sealed: Sequence[Sealed], head: Head, *, keyframe: bytes | None = None
    ) -> None:
        """Hand over lines that belong into one commit. Returns at once; `head` must not change any more."""
        # The bare lock, not the condition around it: this is done for every entry.
        with self._lock:
            if channel.lost is not None or channel.closed is not None or self._closing:
                self.check(channel)
            if not channel.lines:
                channel.first_seq = sealed[0].entry.seq
            for one in sealed:
                channel.lines.append(one.line)
                channel.kinds.append(one.entry.kind)
            channel.head = head
            channel.keyframe = keyframe or channel.keyframe
            if self._due is None or channel not in self._dirty:
                self._mark(channel)

    def check(self, channel: Channel) -> None:
        """Raise why nothing can be written through this channel any more, if so."""
        ended = channel.lost or channel.closed
        if ended is not None:
            raise ended
        if self._closing:
            raise Closed("the store was closed, or was opened in the parent of this process: open it here")

    def _mark(self, channel: Channel) -> None:
        self._dirty[channel] = None
        if self._due is None:
            self._due = time.monotonic() + self._linger_s
            self._wake.notify()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="holdfast-committer", daemon=True)
            self._thread.start()

    async def barrier(self, channel: Channel) -> None:
        """Wait until everything that was offered so far is durable."""
        with self._lock:
            if channel.lost is not None or self._closing:
                self.check(channel)
            seq = channel.head.seq if channel.head else 0
            if channel.durable_seq >= seq:
                return
            waiter = _Waiter(seq)
            channel.waiters.append(waiter)
            self._mark(channel)
            if not self._urgent:
                self._urgent = True
                self._wake.notify()
        # If the caller is cancelled here, the lines are committed all the same.
        await waiter.wait()

    # -- the thread ----------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            with self._wake:
                while not self._urgent and not self._closing:
                    left = None if self._due is None else self._due - time.monotonic()
                    if left is not None and left <= 0:
                        break
                    self._wake.wait(left)
                batch = self._gather()
                if not batch:
                    if self._closing:
                        return
                    continue
            self._write(batch)

    def _gather(self) -> list[tuple[Channel, Append]]:
        batch: list[tuple[Channel, Append]] = []
        sessions: set[SessionId] = set()
        lines = size = 0
        for channel in list(self._dirty):
            if batch and (lines > BATCH_LINES_MAX or size > BATCH_BYTES_MAX):
                break
            if channel.session in sessions:
                continue  # Somebody left it while its lines failed, and opened it anew: one after the other.
            if channel.lost is not None:
                del self._dirty[channel]  # What came after the lines that were refused.
                continue
            retry = channel.flying is not None
            if retry or channel.lines:
                item = channel.take()
                batch.append((channel, item))
                sessions.add(channel.session)
                lines += len(item.lines)
                size += sum(map(len, item.lines))
            if not (retry and channel.lines):
                del self._dirty[channel]
        self._urgent = any(channel.waiters for channel in self._dirty) if self._dirty else False
        # After a commit it looks once more by itself: what is offered until then need not wake it up.
        self._due = time.monotonic() + self._linger_s if batch or self._dirty else None
        return batch

    def _write(self, batch: list[tuple[Channel, Append]]) -> None:
        try:
            outcomes: list[Outcome | HoldfastError] = list(self._driver.commit([item for _, item in batch]))
        except StoreUnreachable as error:  # It is no session's trouble, and trying each would take for ever.
            outcomes = [error] * len(batch)
        except Exception:  # One session's trouble must not be everybody's, nor end this thread.
            outcomes = [self._write_one(item) for _, item in batch]
        with self._wake:
            woken: list[_Waiter] = []
            for (channel, item), outcome in zip(batch, outcomes, strict=True):
                woken += self._settle(channel, item, outcome)
        _wake_up(woken)

    def _write_one(self, item: Append) -> Outcome | HoldfastError:
        try:
            return self._driver.commit([item])[0]
        except HoldfastError as error:
            return error
        except Exception as error:
            log.exception("the driver raised what it should not")
            return StoreFailed(f"the driver failed: {error!r}")

    def _settle(self, channel: Channel, item: Append, outcome: Outcome | HoldfastError) -> list[_Waiter]:
        """Record what became of the item; who can be told now."""
        error: HoldfastError | None = None
        match outcome:
            case Done(posted):
                channel.posted = max(channel.posted, posted)
                channel.flying, channel.durable_seq = None, item.head.seq
            case Conflict(sum) if sum == item.head.sum:
                channel.flying, channel.durable_seq = None, item.head.seq  # An earlier try had landed.
            case Conflict():
                error = channel.lost = Fenced(channel.session, fence=channel.fence)
            case OriginGone():
                error = channel.lost = NotFound("the session to fork from was deleted")
            case Claimed(key, _):
                error = channel.lost = HoldfastError(f"the claim {key!r} is somebody else's")
            case HoldfastError():
                error = outcome
                if self._closing:
                    channel.lost = error
                    log.error("session %s: the last lines could not be written: %s", channel.session, error)
                else:
                    log.warning("session %s: a commit failed; will try again: %s", channel.session, error)
                    self._dirty[channel] = None
                    self._due = time.monotonic() + _RETRY_S
        told = [one for one in channel.waiters if error is not None or one.seq <= channel.durable_seq]
        for waiter in told:
            waiter.error = error
        if told:
            channel.waiters = [one for one in channel.waiters if one not in told]
        return told

    # -- the end -------------------------------------------------------------------------------------

    def close(self) -> None:
        """Write what is left and end the thread. Lines that fail once more are dropped, and logged."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        if self._thread is not None:
            self._thread.join()


_committers: weakref.WeakSet[Committer] = weakref.WeakSet()


def _end_in_child() -> None:
    """A forked child has neither the threads nor a right to the connections of its parent."""
    for committer in list(_committers):
        # Another thread may have held the lock at the moment of the fork.
        committer._lock = threading.Lock()
        committer._wake = threading.Condition(committer._lock)
        committer._closing, committer._thread = True, None


os.register_at_fork(after_in_child=_end_in_child)


def _wake_up(waiters: Iterable[_Waiter]) -> None:
    """One call into each event loop, however many of its tasks wait."""
    loops: dict[int, list[_Waiter]] = {}
    for waiter in waiters:
        loops.setdefault(id(getattr(waiter.post, "__self__", None)), []).append(waiter)
    for group in loops.values():
        try:
            group[0].post(_set_all, group)
        except RuntimeError:  # That event loop has ended, and everybody in it.
            log.debug("nobody is left to be told of %d commits", len(group))


def _set_all(waiters: list[_Waiter]) -> None:
    for waiter in waiters:
        waiter.wake()


def commit_now(driver: Driver, item: Append) -> Outcome:
    """Commit one item outside any channel; a failure is settled by trying once more."""
    try:
        return driver.commit([item])[0]
    except StoreFailed:
        outcome = driver.commit([item])[0]
        if isinstance(outcome, Conflict) and outcome.sum == item.head.sum:
            return Done(0)
        return outcome
