"""Journals that several processes append to without a lease.

The stores that frameworks bring (LangGraph's checkpointer, the step store of pydantic-ai-harness) are never
told that a run is over, so a lease would never be released. Instead, each commit names the `sum` that it
follows, as everywhere, and is refused if another process has written since. A refused writer reads the new
entries and decides again.

An adapter subclasses `LeaselessJournal` with its fold, and `LeaselessJournals` with its own operations. A
journal is read without what was said in it, from its last keyframe on, which holds the adapter's fold. What
the fold does not hold is read when an operation needs it, in a worker thread (`LeaselessJournals.compute`),
or the journal is read from its beginning (`LeaselessJournals.read_from_start`). An adapter whose entries are
messages of the session has no fold of its own: `FOLD` is None, and the session's state is all there is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from functools import partial
from typing import Any, ClassVar, Generic, TypeVar

import anyio
from msgspec import Raw, Struct
from msgspec.structs import replace

from ..content.extract import Piece
from ..core.codec import GENESIS, NewEntry
from ..core.entries import Body, Entry, SessionErased, Span
from ..core.session_state import AdapterFold, Keyframe, SessionState
from ..core.transcript_items import Content, Contents
from ..drivers.contract import ClaimChange, Done
from ..engine.committer import Channel, HomeLoop, Waiter, make_append, wake_up
from ..engine.engine import Engine
from ..engine.journal import NONSENSE, Journal
from ..errors import Closed, Corrupt, Fenced, HoldfastError, LeaseHeld, NotFound, ReadOnly
from ..ids import SessionId
from ..limits import (
    ADAPTER_KEYFRAME_ENTRIES_MIN,
    ADAPTER_KEYFRAME_GROWTH,
    KEYFRAME_ENTRIES_MIN,
    KEYFRAME_GROWTH,
)
from ..session.replica import refuse_replica
from ..system import threads
from ..system.aio import run_to_end

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")
_LOCK_POLL_S = 1.0
"""How often a task that waits for a lock checks that the event loop of the task that has it can run."""


class EntryToWrite(Struct, frozen=True, kw_only=True):
    """An entry to append."""

    body: Body
    kind: str | None = None
    """For bodies of an adapter's own kind."""
    run: str | None = None
    content: bytes | None = None
    pieces: tuple[Piece, ...] = ()
    """The blobs that must be durable before the entry is written."""


class NotLoaded(Exception):
    """The fold does not hold what was asked for, and this thread must not read it: see `compute`."""


class Outdated(Exception):
    """The journal has changed in the store, and what was asked for is no longer there: read it anew."""


class FoldIncomplete(Exception):
    """The fold in a keyframe is not enough, for the entries after it or for what was asked: read the whole
    journal."""


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

    FOLD: ClassVar[tuple[str, int] | None] = None
    """The name and the version of the adapter's fold. The version is increased whenever a change gives
    another fold for the same journal, or writes it in another way. None: it has no fold but the session's."""
    FOLDS_CONTENTS: ClassVar[bool] = False
    """Whether the fold is given the contents of entries, where it does not go on from a keyframe."""

    def __init__(self, engine: Engine, key: K, session: SessionId) -> None:
        self.engine, self.key, self.session = engine, key, session
        self.lock = LoopLock()
        self._journal: Journal | None = None
        self.state = self._begin_state()
        self.channel = Channel(session, None)
        self.is_open = True
        """False: a task that waited for the lock gets the journal anew."""
        self.is_spoiled = False
        """The folds hold something that was not written: the journal is read anew before its next use."""
        self.is_leased = False
        """A process held the session's lease. It may have released it by the next use: likewise."""
        self.from_start = False
        """It is to be read from its beginning, and not from a keyframe."""
        self._is_original = False
        """The session is known to be no replica of one in another store."""
        self._keyframe_bytes = 0
        """The size of the adapter's fold in the last keyframe."""
        self._keyframe_at = 0
        """The value of `folded_bytes` when it was written or read."""
        self._may_block = False

    # -- what an adapter brings ----------------------------------------------------------------------

    def reset(self) -> None:
        """Begin the fold."""

    def fold(self, entry: Entry) -> None:
        """Fold an entry that was read."""

    def fold_own(self, entry: Entry, new: EntryToWrite) -> None:
        """Fold an entry that was made here."""

    @abstractmethod
    def begin(self, entries: Sequence[EntryToWrite]) -> Sequence[EntryToWrite]:
        """The entries that a new session begins with, before those that are appended first."""

    def prepare(self, entries: Sequence[EntryToWrite]) -> Sequence[EntryToWrite]:
        """The entries as they are written."""
        return entries

    def write_fold(self) -> bytes:
        """The fold as JSON, for a keyframe."""
        raise NotImplementedError

    def read_fold(self, data: Raw) -> None:
        """Go on from a fold that was written. Data that makes no sense may raise anything in `NONSENSE`."""
        raise NotImplementedError

    @property
    def folded_bytes(self) -> int:
        """About how many bytes the entries are in the store that were folded since the fold began."""
        raise NotImplementedError

    def complete(self, one: EntryToWrite) -> EntryToWrite:
        """An entry as it is written, now that those before it were folded."""
        return one

    # -- state ---------------------------------------------------------------------------------------

    @property
    def is_new(self) -> bool:
        """Whether the session has no entries."""
        return self.state.seq == 0

    @property
    def is_known_original(self) -> bool:
        """Whether it is known without a look that the session is no replica."""
        return self.is_new or (self._is_original and not self.state.facts.moving)

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

        `NotFound` if there is no such session, `Corrupt` if the entries do not follow those that are known,
        `Outdated` if what was said may have been erased since.
        """
        journal = self._journal = Journal(self.engine.driver, self.session, self.engine.blobs)
        sum = self.channel.sum or GENESIS
        said = self.FOLDS_CONTENTS
        if not self.is_new:
            # What was said is erased after the entry that tells of it, by a process that has the lease.
            if self.state.facts.head.lease is not None:
                raise Outdated
            self.state = journal.fold_on(self.state, sum, self._fold_new, said=said)
            if not self.state.is_complete:
                raise Outdated  # Another process has gone back to messages that were not read here.
        elif self.from_start or not self._read_from_keyframe(journal):
            self.reset()
            self.state = journal.fold_on(self._begin_state(), sum, self.fold, said=said)
        unknown = self.state.facts.unknown
        if unknown is not None:
            raise ReadOnly(self.session, *unknown)
        self._note_durable(self.state.facts.head.sum)

    def _begin_state(self) -> SessionState:
        if self.FOLD is not None:
            return SessionState(self.session)
        return SessionState(self.session, self.engine.blobs, Contents(self._read_contents))

    def _read_contents(self, spans: Sequence[Span], own: bool) -> dict[int, Content]:
        return self._get_journal().read_contents(0, spans, own)

    def _get_journal(self) -> Journal:
        if self._journal is None:
            self._journal = Journal(self.engine.driver, self.session, self.engine.blobs)
        return self._journal

    def _fold_new(self, entry: Entry) -> None:
        """Fold an entry that another process has appended. `Outdated` if it has erased what is in memory."""
        if isinstance(entry.body, SessionErased):
            raise Outdated
        self.fold(entry)

    def _read_from_keyframe(self, journal: Journal) -> bool:
        """Read it from its last keyframe, or from its beginning; False if the keyframe is not enough."""
        if self.FOLD is None:
            self.state = journal.fold()
            return True
        try:
            self.state = journal.fold_on(
                self.state, GENESIS, self.fold, self._restore, said=self.FOLDS_CONTENTS
            )
        except FoldIncomplete:
            return False
        return self.state.transcript_fold.complete

    def _restore(self, stored: AdapterFold) -> bool:
        if (stored.name, stored.version) != self.FOLD:
            return False
        try:
            self.read_fold(stored.data)
        except NONSENSE:
            self.reset()
            return False
        self._keyframe_bytes, self._keyframe_at = len(memoryview(stored.data)), self.folded_bytes
        return True

    def refuse_replica(self) -> None:
        """Raise `ReadOnlyReplica` if nothing may be written. Blocks; looks once."""
        if not self.is_known_original:
            refuse_replica(self.engine.driver, self.session, self.state.facts.head.uid)
            self._is_original = True

    def append(self, entries: Sequence[EntryToWrite]) -> None:
        """Fold the entries, and hand them to the committer as one commit."""
        new = self._make(entries)
        head = replace(self.state.facts.head)
        self.engine.committer.offer(self.channel, new, head, keyframe=self._make_keyframe())

    def _make_keyframe(self) -> Keyframe | None:
        """A keyframe, if one is due: all of them together cost a constant per entry."""
        state = self.state
        if self.FOLD is None:
            return state.take_due_keyframe(KEYFRAME_ENTRIES_MIN, KEYFRAME_GROWTH)
        if state.seq - state.keyframe_seq < ADAPTER_KEYFRAME_ENTRIES_MIN:
            return None
        if self.folded_bytes - self._keyframe_at < ADAPTER_KEYFRAME_GROWTH * self._keyframe_bytes:
            return None
        state.keyframe_seq = state.seq
        return state.keyframe(self._store_fold)

    def _store_fold(self) -> AdapterFold:
        assert self.FOLD is not None
        name, version = self.FOLD
        data = self.write_fold()
        self._keyframe_bytes, self._keyframe_at = len(data), self.folded_bytes
        return AdapterFold(name=name, version=version, data=Raw(data))

    def forget_keyframe(self) -> None:
        """The keyframe was removed: the next entry brings a new one."""
        self.state.keyframe_seq = self._keyframe_bytes = 0

    def commit(self, entries: Sequence[EntryToWrite], claims: tuple[ClaimChange, ...] = ()) -> bool:
        """Commit the entries together with the claims, or neither. Blocks.

        False if another process has the claims, or has appended to the journal.
        """
        new = self._make(entries)
        item = make_append(new, after=self.channel.sum, head=replace(self.state.facts.head), claims=claims)
        if isinstance(self.engine.committer.commit_now(item), Done):
            self._note_durable(item.head.sum)
            return True
        return False

    def _make(self, entries: Sequence[EntryToWrite]) -> list[NewEntry]:
        first = self.begin(entries) if self.is_new else ()
        return [self._make_one(one) for one in (*first, *self.prepare(entries))]

    def _make_one(self, one: EntryToWrite) -> NewEntry:
        one = self.complete(one)
        new = self.state.append(one.body, self.engine.now(), one.run, one.content, kind=one.kind)
        self.fold_own(new.entry, one)
        return new

    def get_reader(self) -> Journal:
        """The journal, to read what the fold does not hold. `NotLoaded` if the caller must not block."""
        if not self._may_block:
            raise NotLoaded
        return self._get_journal()

    def compute(self, function: Callable[[], T]) -> T:
        """Call a function that may read what the fold does not hold. Blocks.

        `Outdated` if the journal in the store is no longer the one that was folded here.
        """
        self._may_block = True
        try:
            found = function()
        except (HoldfastError, *NONSENSE) as error:
            if self._is_outdated():
                raise Outdated from error
            raise
        finally:
            self._may_block = False
        if self._journal is not None and not self._journal.is_there():
            raise Outdated
        return found

    def _is_outdated(self) -> bool:
        """Whether another process has written, and may have erased what was written before."""
        tip = self.engine.driver.find_tip(self.session)
        return tip is None or tip.sum != self.channel.sum

    def _note_durable(self, sum: str) -> None:
        head = replace(self.state.facts.head, sum=sum)
        channel = self.channel
        channel.head, channel.sum, channel.durable_seq = head, sum, head.seq


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
        self._from_start: set[K] = set()
        """Journals that are to be read from their beginning next time."""
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

    def reading(self, key: K, *, settled: bool = True) -> AbstractAsyncContextManager[J]:
        """The journal with everything that any process has committed, locked for the block.

        With `settled=False`, entries of this process that are not durable yet are not waited for; as long as
        there are any, those of other processes are not seen.
        """
        return _Reading(partial(self._lock_to_read, key, settled=settled))

    def read_from_start(self, key: K) -> None:
        """Have a journal read from its beginning by its next user: its keyframe leaves out what is needed."""
        with self._guard:
            self._from_start.add(key)
            journal = self._open.get(key)
            if journal is not None:
                journal.is_spoiled = True

    async def compute(self, journal: J, function: Callable[[], T]) -> T:
        """What a function finds in a journal that is locked.

        If the fold does not hold all that it needs, the function is called again, in a worker thread, where
        it may read. Until then it must not have changed anything. `Outdated`: get the journal anew.
        """
        try:
            return function()
        except NotLoaded:
            pass
        try:
            # To its end, also if the caller is cancelled: the next task must not find the thread at it.
            return await run_to_end(lambda: self.engine.call(journal.compute, function))
        except Outdated:
            journal.is_spoiled = True
            raise

    async def _lock_to_read(self, key: K, *, settled: bool) -> J:
        while True:
            journal = await self._lock(key)
            try:
                if await self._bring_up_to_date(journal, settled=settled):
                    self.on_reading(journal)
                    return journal
                self._drop(journal)
            except BaseException:
                journal.lock.release()
                raise
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
            elif tip.sum != journal.channel.sum and (
                tip.seq <= head.seq or not await run_to_end(partial(self._read_new, journal))
            ):
                return False  # Another session of this id.
        self._check_open()
        if not journal.is_usable:
            return False
        try:
            self.on_read(journal)
        except FoldIncomplete:
            self.read_from_start(journal.key)
            return False
        with self._guard:
            self._from_start.discard(journal.key)
        return True

    async def _read_new(self, journal: J) -> bool:
        was_new = journal.is_new
        try:
            await self.engine.call(journal.read_new)
        except BaseException as error:
            # Here, and not by the caller: that may have been cancelled meanwhile.
            self._drop(journal)
            if isinstance(error, FoldIncomplete):
                self.read_from_start(journal.key)
                return False  # Another process has gone on with what the keyframe leaves out.
            if isinstance(error, NotFound | Outdated) or (isinstance(error, Corrupt) and not was_new):
                return False  # It was deleted or erased, or may be another session by now.
            raise
        return True

    # -- writing -------------------------------------------------------------------------------------

    async def write(
        self,
        key: K,
        decide: Callable[[J], Sequence[EntryToWrite]],
        undo: Callable[[J], object] | None = None,
        load: Callable[[J], object] | None = None,
    ) -> None:
        """Append the entries that `decide` returns for the journal as it is. Durable on return.

        `decide` is called again if another process has written in between. `undo` takes back what `decide`
        has changed, if it fails, or a blob cannot be stored; without it, the journal is read anew then.
        `load` is called first, by `compute`, and looks at all that `decide` needs.
        """
        while True:
            journal = await self._lock_to_write(key)
            try:
                offered = await self._append(journal, decide, undo or _spoil, load)
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
        self,
        journal: J,
        decide: Callable[[J], Sequence[EntryToWrite]],
        undo: Callable[[J], object],
        load: Callable[[J], object] | None,
    ) -> bool:
        """Hand over what `decide` returns, once its blobs are durable; False if that is refused at once."""
        if load is not None:
            try:
                await self.compute(journal, partial(load, journal))
            except Outdated:
                return False
            if not journal.is_usable:
                return False
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

    async def write_claimed(self, key: K, entries: Sequence[EntryToWrite], claim: ClaimChange) -> bool:
        """Append together with a claim; False if another process was quicker. Durable on return."""
        async with self.reading(key) as journal:
            await self._check_lease(journal)
            # To its end: whether it landed must be known before another task uses the journal.
            return await run_to_end(partial(self._commit, journal, entries, claim))

    async def _commit(self, journal: J, entries: Sequence[EntryToWrite], claim: ClaimChange) -> bool:
        landed = False
        try:
            if journal.is_usable:
                landed = await self.engine.call(journal.commit, entries, (claim,))
        finally:
            if not landed:
                self._drop(journal)  # Its folds hold what may not be in the store.
        return landed

    async def _check_lease(self, journal: J) -> None:
        if not journal.is_known_original:
            await self.engine.call(journal.refuse_replica)
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
            made.from_start = key in self._from_start
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


class _Reading(AbstractAsyncContextManager[J]):
    """A journal that is locked for a block. Not a generator: an event loop that was ended and is used once
    more, as a framework's sync methods do, warns of those."""

    def __init__(self, lock: Callable[[], Awaitable[J]]) -> None:
        self._lock = lock

    async def __aenter__(self) -> J:
        self._journal = await self._lock()
        return self._journal

    async def __aexit__(self, *exc_info: object) -> None:
        self._journal.lock.release()


def _spoil(journal: LeaselessJournal[Any]) -> None:
    journal.is_spoiled = True
