"""Journals that several processes append to without a lease.

The stores that frameworks bring (LangGraph's checkpointer, the step store of pydantic-ai-harness) are never
told that a run is over, so a lease would never be released. Instead, each commit names the `sum` that it
follows, as everywhere, and is refused if another process has written since. A refused writer reads the new
entries and decides again.

An adapter subclasses `LeaselessJournal` with its fold, and `LeaselessJournals` with its own operations.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Hashable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, Generic, TypeVar

import anyio
from msgspec import Struct
from msgspec.structs import replace

from ..content.extract import Piece
from ..core.codec import GENESIS, Chain, Sealed, open_line
from ..core.entries import Body, Entry
from ..core.session_state import SessionState
from ..drivers.contract import Append, ClaimChange, Done
from ..engine.committer import Channel, HomeLoop, Waiter, wake_up
from ..engine.engine import Engine
from ..engine.journal import NONSENSE, Journal
from ..errors import Closed, Corrupt, Fenced, LeaseHeld, NotFound, ReadOnly
from ..ids import SessionId
from ..system import threads
from ..system.aio import run_to_end

K = TypeVar("K", bound=Hashable)
_LOCK_POLL_S = 1.0
"""How often a task that waits for a lock checks that the event loop of the task that has it can run."""


class NewEntry(Struct, frozen=True, kw_only=True):
    """An entry to append."""

    body: Body
    kind: str | None = None
    """For bodies of an adapter's own kind."""
    run: str | None = None
    content: bytes | None = None
    pieces: tuple[Piece, ...] = ()
    """The blobs that must be durable before the entry is written."""


class LoopLock:
    """A lock for tasks of several event loops.

    It may be held across an `await`. If the event loop of the task that holds it cannot run, the next task
    takes the lock over, and `was_abandoned` is set: the loop may have ended, or may itself wait for the next
    task, in a sync method. A loop that is only blocked goes on later, and its task does not know that it has
    lost the lock. So what an abandoned lock guards must not be used any more.
    """

    def __init__(self) -> None:
        self._guard = threads.Lock()
        self._holder: HomeLoop | None = None
        self._queue: list[Waiter] = []
        self.was_abandoned = False

    @property
    def is_held(self) -> bool:
        """Whether a task has it."""
        return self._holder is not None

    async def acquire(self) -> None:
        """Take it, after the tasks that came before."""
        while True:
            with self._guard:
                if self._holder is None or self._holder.is_stopped:
                    self.was_abandoned = self.was_abandoned or self._holder is not None
                    self._holder = HomeLoop()
                    return
                waiter = Waiter(0)
                self._queue.append(waiter)
            try:
                with anyio.move_on_after(_LOCK_POLL_S):
                    await waiter.wait()
            except BaseException:
                if not self._leave_queue(waiter) and not self.is_held:
                    self._wake_next()  # The wake-up was for this task, which does not take the lock.
                raise
            self._leave_queue(waiter)

    def release(self) -> None:
        """Let the next task have it."""
        with self._guard:
            self._holder = None
            is_waited_for = bool(self._queue)
        if is_waited_for:
            self._wake_next()

    async def __aenter__(self) -> None:
        await self.acquire()

    async def __aexit__(self, *exc_info: object) -> None:
        self.release()

    def _leave_queue(self, waiter: Waiter) -> bool:
        with self._guard:
            waits = waiter in self._queue
            if waits:
                self._queue.remove(waiter)
            return waits

    def _wake_next(self) -> None:
        with self._guard:
            first, self._queue = self._queue[:1], self._queue[1:]
        if first:
            wake_up(first)


class LeaselessJournal(ABC, Generic[K]):
    """An open journal: its state, and the channel for new entries. Guarded by `lock`."""

    def __init__(self, engine: Engine, key: K, session: SessionId) -> None:
        self.engine, self.key, self.session = engine, key, session
        self.lock = LoopLock()
        self.state = SessionState(session)
        self.channel = Channel(session, None)
        self.is_open = True
        """False: a task that waited for the lock gets the journal anew."""
        self.is_spoiled = False
        """The folds hold something that was not written: the journal is read anew before its next use."""
        self.is_leased = False
        """A process held the session's lease. It may have released it by the next use: likewise."""

    # -- what an adapter brings ----------------------------------------------------------------------

    @abstractmethod
    def fold(self, entry: Entry) -> None:
        """Fold an entry that was read."""

    @abstractmethod
    def fold_own(self, entry: Entry, new: NewEntry) -> None:
        """Fold an entry that was made here."""

    @abstractmethod
    def begin(self, entries: Sequence[NewEntry]) -> Sequence[NewEntry]:
        """The entries that a new session begins with, before those that are appended first."""

    def prepare(self, entries: Sequence[NewEntry]) -> Sequence[NewEntry]:
        """The entries as they are written."""
        return entries

    # -- state ---------------------------------------------------------------------------------------

    @property
    def is_new(self) -> bool:
        """Whether the session has no entries."""
        return self.state.seq == 0

    @property
    def is_settled(self) -> bool:
        """Whether all entries that were made here are durable."""
        return self.channel.durable_seq >= self.state.seq

    @property
    def is_usable(self) -> bool:
        """Whether a task that has the lock may use it; else it is dropped. To be asked after each `await`."""
        return self.is_open and not (self.is_spoiled or self.is_leased or self.lock.was_abandoned)

    @property
    def is_idle(self) -> bool:
        """Whether it can be closed without a loss."""
        channel = self.channel
        # Not `is_settled`: what was only folded, and never handed over, is not waited for.
        is_written = channel.head is None or channel.durable_seq >= channel.head.seq
        return (is_written or channel.lost is not None) and not self.lock.is_held

    # -- reading and writing -------------------------------------------------------------------------

    def read_new(self) -> None:
        """Fold the entries that other processes have appended, to the end. Blocks.

        `NotFound` if there is no such session, `Corrupt` if the entries do not follow those that are known.
        """
        journal = Journal(self.engine.driver, self.session)
        head = self.state.facts.head
        chain = Chain(journal.where, head.seq, head.sum or GENESIS)
        for data in journal.acknowledged(head.seq):
            line = chain.check(data)
            entry = open_line(line, journal.where)
            try:
                self.state.apply(entry, line.sum)
                self.fold(entry)
            except NONSENSE as error:
                why = f"it makes no sense after what came before it ({error!r})"
                raise Corrupt(journal.where, why, seq=line.seq) from error
        unknown = self.state.facts.unknown
        if unknown is not None:
            raise ReadOnly(self.session, *unknown)
        self._note_durable()

    def append(self, entries: Sequence[NewEntry]) -> None:
        """Fold the entries, and hand them to the committer as one commit."""
        sealed = self._seal(entries)
        self.engine.committer.offer(self.channel, sealed, replace(self.state.facts.head))

    def commit(self, entries: Sequence[NewEntry], claims: tuple[ClaimChange, ...] = ()) -> bool:
        """Commit the entries together with the claims, or neither. Blocks.

        False if another process has the claims, or has appended to the journal.
        """
        after = self.state.facts.head.sum or None
        sealed = self._seal(entries)
        item = Append(
            session=self.session,
            after=after,
            first_seq=sealed[0].entry.seq,
            lines=tuple(one.line for one in sealed),
            kinds=tuple(one.entry.kind for one in sealed),
            head=replace(self.state.facts.head),
            claims=claims,
        )
        if isinstance(self.engine.committer.commit_now(item), Done):
            self._note_durable()
            return True
        return False

    def _seal(self, entries: Sequence[NewEntry]) -> list[Sealed]:
        first = self.begin(entries) if self.is_new else ()
        return [self._seal_one(new) for new in (*first, *self.prepare(entries))]

    def _seal_one(self, new: NewEntry) -> Sealed:
        sealed = self.state.append(new.body, self.engine.now(), new.run, new.content, kind=new.kind)
        self.fold_own(sealed.entry, new)
        return sealed

    def _note_durable(self) -> None:
        head = replace(self.state.facts.head)
        channel = self.channel
        channel.head, channel.after, channel.durable_seq = head, head.sum, head.seq


J = TypeVar("J", bound=LeaselessJournal[Any])


class LeaselessJournals(Generic[K, J]):
    """The open journals of one store, the last used ones.

    `size` is what a journal counts towards `size_max`; the least recently used ones are closed beyond it.
    """

    def __init__(
        self, engine: Engine, make: Callable[[K], J], *, size: Callable[[J], int], size_max: int
    ) -> None:
        self.engine, self._make = engine, make
        self._size, self._size_max = size, size_max
        self._open: OrderedDict[K, J] = OrderedDict()
        self._guard = threads.Lock()
        """Of the fields here: tasks of several event loops use them."""
        self._closing = False

    # -- what an adapter may add ---------------------------------------------------------------------

    def on_read(self, journal: J) -> None:
        """Called when a journal was read to its end."""

    def on_reading(self, journal: J) -> None:
        """Called before the caller of the adapter reads a journal."""

    def on_drop(self, journal: J) -> None:
        """Called when a journal is no longer used."""

    def check_writer(self, journal: J) -> None:
        """Refuse to write if the adapter has a reason."""

    # -- reading -------------------------------------------------------------------------------------

    @asynccontextmanager
    async def reading(self, key: K, *, settled: bool = True) -> AsyncIterator[J]:
        """The journal with everything that any process has committed, locked for the block.

        With `settled=False`, entries of this process that are not durable yet are not waited for; as long as
        there are any, those of other processes are not seen.
        """
        while True:
            journal = await self._lock(key)
            try:
                if await self._bring_up_to_date(journal, settled=settled):
                    self.on_reading(journal)
                    yield journal
                    return
                self._drop(journal)
            finally:
                journal.lock.release()

    async def _lock_to_write(self, key: K) -> J:
        """The journal as it was last read, locked. If that is out of date, entries are refused."""
        while True:
            journal = await self._lock(key)
            try:
                if not journal.is_new or await self._bring_up_to_date(journal, settled=True):
                    await self._check_lease(journal)
                    if journal.is_usable:
                        self.check_writer(journal)
                        return journal
                self._drop(journal)
            except BaseException:
                journal.lock.release()
                raise
            journal.lock.release()

    async def _lock(self, key: K) -> J:
        while True:
            journal = self._get(key)
            await journal.lock.acquire()
            if journal.is_usable:
                return journal
            try:
                if journal.is_open:
                    with suppress(Fenced):
                        await self.engine.committer.barrier(journal.channel)
                    self._drop(journal)
            finally:
                journal.lock.release()

    async def _bring_up_to_date(self, journal: J, *, settled: bool) -> bool:
        """Read what other processes have appended; False if the journal must be read from its beginning."""
        try:
            if settled or journal.channel.lost is not None:
                await self.engine.committer.barrier(journal.channel)
        except Fenced:
            return False
        if journal.is_settled:
            tip = await self.engine.call(self.engine.driver.find_tip, journal.session)
            head = journal.state.facts.head
            if tip is None:
                if not journal.is_new:
                    return False  # Deleted.
            # To its end, also if the caller is cancelled: half of it would be read again.
            elif tip.sum != head.sum and (
                tip.seq <= head.seq or not await run_to_end(partial(self._read_new, journal))
            ):
                return False  # Another session of this id.
        self._check_open()
        if not journal.is_usable:
            return False
        self.on_read(journal)
        return True

    async def _read_new(self, journal: J) -> bool:
        was_new = journal.is_new
        try:
            await self.engine.call(journal.read_new)
        except BaseException as error:
            # Here, and not by the caller: that may have been cancelled meanwhile.
            self._drop(journal)
            if isinstance(error, NotFound) or (isinstance(error, Corrupt) and not was_new):
                return False  # It was deleted, or may be another session by now.
            raise
        return True

    # -- writing -------------------------------------------------------------------------------------

    async def write(
        self,
        key: K,
        decide: Callable[[J], Sequence[NewEntry]],
        undo: Callable[[J], object] | None = None,
    ) -> None:
        """Append the entries that `decide` returns for the journal as it is. Durable on return.

        `decide` is called again if another process has written in between. `undo` takes back what `decide`
        has changed, if it fails, or a blob cannot be stored; without it, the journal is read anew then.
        """
        while True:
            journal = await self._lock_to_write(key)
            try:
                offered = await self._append(journal, decide, undo or _spoil)
            finally:
                journal.lock.release()
            if not offered:
                continue
            try:
                await self.engine.committer.barrier(journal.channel)
            except Fenced:
                async with journal.lock:
                    self._drop(journal)
            else:
                return

    async def _append(
        self, journal: J, decide: Callable[[J], Sequence[NewEntry]], undo: Callable[[J], object]
    ) -> bool:
        """Hand over what `decide` returns, once its blobs are durable; False if that is refused at once."""
        try:
            entries = decide(journal)
            pieces = [piece for entry in entries for piece in entry.pieces]
            if pieces:
                await self.engine.call_home(self.engine.blobs.keep, pieces)
        except BaseException:
            undo(journal)
            raise
        if not journal.is_usable:
            return False
        try:
            if entries:
                journal.append(entries)
        except Fenced:
            self._drop(journal)
            return False
        except BaseException:
            _spoil(journal)
            raise
        return True

    async def write_claimed(self, key: K, entries: Sequence[NewEntry], claim: ClaimChange) -> bool:
        """Append together with a claim; False if another process was quicker. Durable on return."""
        async with self.reading(key) as journal:
            await self._check_lease(journal)
            # To its end: whether it landed must be known before another task uses the journal.
            return await run_to_end(partial(self._commit, journal, entries, claim))

    async def _commit(self, journal: J, entries: Sequence[NewEntry], claim: ClaimChange) -> bool:
        landed = False
        try:
            if journal.is_usable:
                landed = await self.engine.call(journal.commit, entries, (claim,))
        finally:
            if not landed:
                self._drop(journal)  # Its folds hold what may not be in the store.
        return landed

    async def _check_lease(self, journal: J) -> None:
        if journal.state.facts.head.lease is not None:
            await self.engine.call(self._refuse_leased, journal)

    def _refuse_leased(self, journal: J) -> None:
        """Raise `LeaseHeld` if a living process holds the session's lease. Blocks."""
        lease = journal.state.facts.head.lease
        life = None if lease is None else self.engine.heartbeat.judge(lease.holder)
        if life is not None and life.alive:
            journal.is_leased = True
            raise LeaseHeld(journal.session, life.name, left_s=life.left_s)

    # -- what is open --------------------------------------------------------------------------------

    def _check_open(self) -> None:
        if self._closing:
            raise Closed("the store was closed")
        self.engine.check_open()

    def _get(self, key: K) -> J:
        self._check_open()
        with self._guard:
            journal = self._open.get(key)
            if journal is not None:
                self._open.move_to_end(key)
                return journal
            made = self._open[key] = self._make(key)
        self._make_room(made)
        return made

    def _drop(self, journal: J) -> None:
        """Have the journal read anew by its next user. Needs its lock, or that it is idle."""
        with self._guard:
            if not journal.is_open:
                return
            journal.is_open = False
            del self._open[journal.key]
        self.on_drop(journal)

    def _make_room(self, latest: J) -> None:
        with self._guard:
            journals = list(self._open.values())
        total = sum(map(self._size, journals))
        for journal in journals:
            if total <= self._size_max:
                return
            if journal is not latest and journal.is_idle:
                total -= self._size(journal)
                self._drop(journal)


def _spoil(journal: LeaselessJournal[Any]) -> None:
    journal.is_spoiled = True
