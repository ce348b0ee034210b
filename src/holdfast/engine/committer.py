"""All sessions of a store share one committer.

Sessions hand over entries as they arise. An entry that no task waits for leaves with the next barrier, or
after a short linger. What is waited for is gathered until the event loop's turn ends, and while a commit is
under way the next batch gathers: so one transaction and one sync carry the entries of many sessions. The
entries of a session become chunks when they are committed, most often one.

A thread commits. A single session's entries are committed right on the event loop's thread, as long as that
has been quick: a hop into a thread and back would take as long as the commit itself.

A commit that failed may have landed all the same. It is settled by committing the very same chunks again:
they name the `sum` they follow, so they land once or find themselves there, and no read can be fooled.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Final

from ..core.codec import Chunk, NewEntry, seal, timestamp
from ..core.entries import Entry, InboxTaken, RunStarted
from ..core.fold import RUN_ENDS
from ..core.head import Head
from ..core.session_state import Keyframe
from ..drivers.contract import (
    Append,
    ClaimChange,
    Claimed,
    Conflict,
    Done,
    Driver,
    OriginGone,
    Outcome,
    Pin,
    RunMark,
)
from ..errors import Closed, Fenced, HoldfastError, NotFound, StoreFailed, StoreUnreachable
from ..ids import SessionId
from ..limits import BATCH_BYTES_MAX, BATCH_ENTRIES_MAX, COMMIT_HERE_BYTES, COMMIT_HERE_S, LINGER_S
from ..system import aio, processes, threads
from ..system.clock import monotonic_s

log = logging.getLogger("holdfast")
_RETRY_S = 1.0
"""How soon entries that failed are tried again when no task asks for them."""
_REMEMBER = 0.9
_BUSY_LIKE_S = 10 * COMMIT_HERE_S
"""A commit that would have had to wait counts as this: the next few are made in the thread."""


class HomeLoop:
    """The event loop in which something was opened. What is open there has no owner once it has ended."""

    __slots__ = ("_loop",)

    def __init__(self) -> None:
        self._loop = aio.current_loop()

    @property
    def has_ended(self) -> bool:
        """Whether no task of it can ever run again."""
        return aio.has_ended(self._loop)

    @property
    def is_stopped(self) -> bool:
        """Whether no task of it can run now."""
        return aio.is_stopped(self._loop)


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
        except Exception:  # That event loop has ended, and its tasks.
            log.debug("no task is left that waited for %d commits", len(group))


def _set_all(waiters: list[Waiter]) -> None:
    for waiter in waiters:
        waiter.set()


class Channel:
    """What one open session has handed over, and what became of it. Guarded by the committer's lock."""

    def __init__(self, session: SessionId, sum: str | None) -> None:
        self.session = session
        self.sum = sum
        """The sum that the next commit follows; None if it begins the journal."""
        self.fence = 0
        self.entries: list[NewEntry] = []
        self.size = 0
        """The bytes of the entries, about."""
        self.head: Head | None = None
        self.keyframe: Keyframe | None = None
        self.flying: Append | None = None
        """Being committed, or failed and not yet settled."""
        self.durable_seq = 0
        self.posted = 0
        self.lost: HoldfastError | None = None
        """Why nothing can be written any more, not even what was handed over."""
        self.closed: HoldfastError | None = None
        """Why nothing more can be handed over."""
        self.waiters: list[Waiter] = []
        self.home: HomeLoop | None = None
        """Where the session is open; None while it is being opened."""

    @property
    def is_abandoned(self) -> bool:
        """Whether the session was never left, and its event loop has ended."""
        return self.home is not None and self.home.has_ended

    def take(self) -> Append:
        """What to commit next: what failed before, else all that has gathered."""
        if self.flying is None:
            assert self.head is not None
            item = make_append(self.entries, after=self.sum, head=self.head, keyframe=self.keyframe)
            # In one go: a signal's handler that raises must not come in between.
            self.entries, self.size, self.keyframe, self.sum, self.flying = (
                [], 0, None, item.head.sum, item
            )  # fmt: skip
        return self.flying


_RUN_KINDS: Final = frozenset({RunStarted, *RUN_ENDS})
_NOTED: Final = _RUN_KINDS | {InboxTaken}
"""Kinds of entries that a commit names, besides storing them."""


def mark_runs(entries: Iterable[Entry], chunks: Sequence[Chunk]) -> tuple[RunMark, ...]:
    """Where runs begin and end in these chunks, which have the entries."""
    return tuple(
        RunMark(
            run=entry.run,
            ended=entry.body.__class__ is not RunStarted,
            at=timestamp(entry.at),
            seq=entry.seq,
            chunk=next(one.seq for one in chunks if one.seq >= entry.seq),
        )
        for entry in entries
        if entry.run is not None and entry.body.__class__ in _RUN_KINDS
    )


def make_append(
    entries: Sequence[NewEntry],
    *,
    after: str | None,
    head: Head,
    keyframe: Keyframe | bytes | None = None,
    claims: tuple[ClaimChange, ...] = (),
    pin: Pin | None = None,
    origin_sum: str = "",
) -> Append:
    """The commit of entries that follow the chunk with the sum `after`, or begin a journal (None).

    A fork's entries follow the chunk of its origin that has `origin_sum`. `head` becomes part of the commit:
    hand over a copy.
    """
    frame = keyframe if isinstance(keyframe, Keyframe) else None
    chunks = seal(entries, after or origin_sum, ends=None if frame is None else frame.seq)
    if frame is not None:
        keyframe = frame.encode(next(chunk.sum for chunk in chunks if chunk.seq == frame.seq))
    assert not isinstance(keyframe, Keyframe)
    head.sum = chunks[-1].sum
    noted = [new.entry for new in entries if new.entry.body.__class__ in _NOTED]
    return Append(
        session=head.session,
        after=after,
        chunks=tuple(chunks),
        head=head,
        keyframe=keyframe,
        claims=claims,
        pin=pin,
        runs=mark_runs(noted, chunks),
        takes_inbox=any(entry.body.__class__ is InboxTaken for entry in noted),
    )


class Committer:
    """Gathers entries, commits them in batches, and wakes up who waits."""

    def __init__(self, driver: Driver, *, linger_s: float = LINGER_S) -> None:
        self._driver, self._linger_s = driver, linger_s
        self._lock = threads.Lock()
        self._wake = threads.Condition(self._lock)
        self._dirty: dict[Channel, None] = {}
        self._urgent = False
        self._leader: int | None = None
        """The thread whose event loop has its turn, and sees to what is urgent then."""
        self._writer: int | None = None
        """The thread that commits a batch at this moment."""
        self._due: float | None = None
        self._lately_s: float | None = None
        """How long a commit of one session takes: the mean of the last ones, the last counts most. The first
        one takes a lease, in a thread, before there is anything to hand over."""
        self._closing = False
        self._thread: threads.Thread | None = None
        _committers.add(self)

    # -- called by sessions, in their event loop -----------------------------------------------------

    def offer(
        self, channel: Channel, entries: Sequence[NewEntry], head: Head, *, keyframe: Keyframe | None = None
    ) -> None:
        """Hand over entries that belong into one commit. Returns at once; `head` must not change any more."""
        # The bare lock, not the condition around it: this is done for every entry.
        with self._lock:
            if channel.lost is not None or channel.closed is not None or self._closing:
                self.check(channel)
            channel.entries += entries
            for new in entries:
                channel.size += new.size
            channel.head = head
            if keyframe is not None:
                channel.keyframe = keyframe
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
            self._due = monotonic_s() + self._linger_s
            self._wake.notify()
        if self._thread is None:
            self._thread = threads.Thread(target=self._run, name="holdfast-committer", daemon=True)
            self._thread.start()

    async def barrier(self, channel: Channel) -> None:
        """Wait until everything that was offered so far is durable."""
        with self._lock:
            if channel.lost is not None or self._closing:
                self.check(channel)
            seq = channel.head.seq if channel.head else 0
            if channel.durable_seq >= seq:
                return
            self._mark(channel)
            leads = not self._urgent and self._leader is None and self._writer is None
            if leads:
                self._leader, waiter = threads.get_ident(), None
            else:
                waiter = self._add_waiter(channel, seq)
                if self._leader != threads.get_ident():
                    self._urgent = True  # Another event loop's turn may take its time.
                    self._wake.notify()
        if leads:
            waiter = await self._lead(channel, seq)
        # If the caller is cancelled here, the entries are committed all the same.
        if waiter is not None:
            await waiter.wait()

    def _add_waiter(self, channel: Channel, seq: int) -> Waiter:
        waiter = Waiter(seq)
        channel.waiters.append(waiter)
        return waiter

    async def _lead(self, channel: Channel, seq: int) -> Waiter | None:
        """The first who waits lets all tasks that are ready have their turn, and sees to what has gathered
        then: commits it, or has the thread do it; then it waits as the others do."""
        try:
            await aio.let_others_run()
        except BaseException:
            with self._lock:
                self._urgent = True
                self._wake.notify()
            raise
        told: list[Waiter] = []
        try:
            with self._lock:
                if channel.durable_seq >= seq:
                    return None
                self._refuse_lost(channel)
                item = self._take_here(channel) if self._may_write_here(channel) else None
                if item is None:
                    self._urgent = True
                    self._wake.notify()
                    return self._add_waiter(channel, seq)
            waiter = self._write_here(channel, item, seq, told)
            if told:
                wake_up(told)
            if waiter is None and channel.durable_seq < seq:
                self._refuse_lost(channel)
        except BaseException:
            # A signal's handler may raise at any point of it: the thread brings to its end what was begun.
            self._abandon(channel, told)
            raise
        return waiter

    def _refuse_lost(self, channel: Channel) -> None:
        if channel.lost is not None:
            raise channel.lost

    def _may_write_here(self, channel: Channel) -> bool:
        if self._writer is not None or self._closing or len(self._dirty) > 1 or channel not in self._dirty:
            return False
        if channel.flying is not None or channel.keyframe is not None or not channel.entries:
            return False
        is_quick = self._lately_s is not None and self._lately_s <= COMMIT_HERE_S
        return is_quick and channel.size <= COMMIT_HERE_BYTES

    def _take_here(self, channel: Channel) -> Append:
        """What `_gather` does, for the only session that has something to commit."""
        item = channel.take()
        del self._dirty[channel]
        self._urgent, self._leader, self._writer = False, None, threads.get_ident()
        self._due = monotonic_s() + self._linger_s
        return item

    def _write_here(self, channel: Channel, item: Append, seq: int, told: list[Waiter]) -> Waiter | None:
        """Commit the item of a single session; `told` gets the waiters to wake. If that would take longer
        than an event loop may wait, it is left to the thread: then wait for what is returned."""
        began_s, outcome = monotonic_s(), None
        with suppress(Exception):  # The thread meets it again, and deals with it.
            outcome = self._driver.commit((item,), wait=False)[0]
        waiter: Waiter | None = None
        with self._lock:
            self._note_time(_BUSY_LIKE_S if outcome is None else monotonic_s() - began_s)
            if outcome is None:
                waiter = self._add_waiter(channel, seq)
                self._dirty[channel] = None
                self._urgent = True
            else:
                self._settle(channel, item, outcome, told)
            self._writer = None
            if self._dirty or self._closing:
                self._wake.notify()
        return waiter

    def _abandon(self, channel: Channel, told: list[Waiter]) -> None:
        """Leave to the thread what this one has begun. Whatever was done of it may be done again."""
        with self._lock:
            if self._writer == threads.get_ident():
                self._writer = None
            if channel.lost is None and (channel.flying is not None or channel.entries):
                self._dirty[channel] = None
            self._urgent = True
            self._wake.notify()
            for waiter in channel.waiters:
                waiter.error = waiter.error or channel.lost
            told += [one for one in channel.waiters if one.error or one.seq <= channel.durable_seq]
        wake_up(told)

    def commit_now(self, item: Append) -> Outcome:
        """Commit one item outside any channel, in the caller's thread; a failure is settled by trying once
        more."""
        began_s = monotonic_s()
        try:
            outcome = self._driver.commit([item])[0]
        except StoreFailed:
            outcome = self._driver.commit([item])[0]
            if isinstance(outcome, Conflict) and outcome.sum == item.head.sum:
                outcome = Done(0)
        with self._lock:
            self._note_time(monotonic_s() - began_s)
        return outcome

    # -- the thread ----------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            with self._wake:
                while not self._is_time():
                    self._wake.wait(self._left_s())
                batch = self._gather()
                if not batch:
                    if self._closing:
                        return
                    continue
            told: list[Waiter] = []
            self._write(batch, told)
            wake_up(told)

    def _is_time(self) -> bool:
        if self._writer is not None:
            return False  # An event loop is at it, and says so when it is done.
        return self._urgent or self._closing or (self._due is not None and self._due <= monotonic_s())

    def _left_s(self) -> float | None:
        if self._writer is not None:
            return self._linger_s
        return None if self._due is None else max(0.0, self._due - monotonic_s())

    def _gather(self) -> list[tuple[Channel, Append]]:
        batch: list[tuple[Channel, Append]] = []
        sessions: set[SessionId] = set()
        count = size = 0
        for channel in list(self._dirty):
            if batch and (count > BATCH_ENTRIES_MAX or size > BATCH_BYTES_MAX):
                break
            if channel.session in sessions:
                continue  # It was left while its entries failed, and opened anew: one after the other.
            if channel.lost is not None:
                del self._dirty[channel]  # What came after the entries that were refused.
                continue
            retry = channel.flying is not None
            if retry or channel.entries:
                count += len(channel.entries)
                item = channel.take()
                batch.append((channel, item))
                sessions.add(channel.session)
                size += sum(chunk.size for chunk in item.chunks)
            if not (retry and channel.entries):
                del self._dirty[channel]
        self._urgent = any(channel.waiters for channel in self._dirty) if self._dirty else False
        # After a commit it looks once more by itself: what is offered until then need not wake it up.
        self._due = monotonic_s() + self._linger_s if batch or self._dirty else None
        self._leader = None
        if batch:
            self._writer = threads.get_ident()
        return batch

    def _write(self, batch: list[tuple[Channel, Append]], told: list[Waiter]) -> None:
        """Commit a batch; `told` gets the waiters to wake."""
        began_s = monotonic_s()
        outcomes = self._commit([item for _, item in batch])
        with self._lock:
            if len(batch) == 1:
                self._note_time(monotonic_s() - began_s)
            for (channel, item), outcome in zip(batch, outcomes, strict=True):
                self._settle(channel, item, outcome, told)
            self._writer = None
            if self._dirty or self._closing:
                self._wake.notify()

    def _note_time(self, took_s: float) -> None:
        before_s = took_s if self._lately_s is None else self._lately_s
        self._lately_s = _REMEMBER * before_s + (1 - _REMEMBER) * took_s

    def _commit(self, items: list[Append]) -> Sequence[Outcome | HoldfastError]:
        """What became of each."""
        try:
            return self._driver.commit(items)
        except Exception as error:
            if isinstance(error, StoreUnreachable):
                return [error] * len(items)  # It is no session's trouble: trying each would take for ever.
            # One session's trouble must not be that of all, nor end this thread.
            return [self._write_one(item) for item in items]

    def _write_one(self, item: Append) -> Outcome | HoldfastError:
        try:
            return self._driver.commit([item])[0]
        except HoldfastError as error:
            return error
        except Exception as error:
            log.exception("the driver raised what it should not")
            return StoreFailed(f"the driver failed: {error!r}")

    def _settle(
        self, channel: Channel, item: Append, outcome: Outcome | HoldfastError, told: list[Waiter]
    ) -> None:
        """Record what became of the item, and who can be told now."""
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
                error = channel.lost = HoldfastError(f"the claim {key!r} belongs to another session")
            case HoldfastError():
                error = outcome
                if self._closing:
                    channel.lost = error
                    log.error("session %s: the last entries could not be written: %s", channel.session, error)
                else:
                    log.warning("session %s: a commit failed; will try again: %s", channel.session, error)
                    self._dirty[channel] = None
                    self._due = monotonic_s() + _RETRY_S
        if channel.waiters:
            ended = [one for one in channel.waiters if error is not None or one.seq <= channel.durable_seq]
            for waiter in ended:
                waiter.error = error
            told += ended
            channel.waiters = [one for one in channel.waiters if one not in ended]

    # -- the end -------------------------------------------------------------------------------------

    def close(self) -> None:
        """Write what is left and end the thread. Entries that fail once more are dropped, and logged."""
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
        committer._lock = threads.Lock()
        committer._wake = threads.Condition(committer._lock)
        committer._closing, committer._thread, committer._writer = True, None, None


processes.register_at_fork(after_in_child=_end_in_child)
