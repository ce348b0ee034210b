"""The journals of a saver: one session for each namespace of a thread, written without a lease."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, ClassVar, TypeVar

from msgspec import Raw
from msgspec.structs import replace

from ...content.lazy import BlobReader, Shared
from ...core.entries import AdapterBody, Entry, SessionOpened, Span
from ...drivers.contract import Done, HeadFilter
from ...engine.engine import Engine
from ...engine.journal import Journal, find_erasures
from ...errors import Overtaken
from ...ids import SessionId, fresh_uid
from ...limits import ADAPTER_CACHE_BYTES, ADAPTER_SEEN_MAX, PAGE_ROWS
from ...session.fork import fork_end
from ..leaseless_journal import EntryToWrite, LeaselessJournal, LeaselessJournals, Outdated
from .thread_ids import ThreadNamespace, fit_labels, thread_prefix
from .thread_index import KEPT, NAMED, PREFIX
from .thread_state import ThreadState, new_entry

T = TypeVar("T")
LABELS: Mapping[str, str] = {"adapter": "langgraph"}
_OPEN_BYTES = 1024
"""What an open journal takes in memory beside its values."""


_READ_AHEAD = 16
"""Entries whose contents are read together at first: those before the one that is needed …"""
_READ_AHEAD_GROWTH = 4
"""… and how many times as many the next time, as what is needed seems to go far back."""


class ThreadJournal(LeaselessJournal[ThreadNamespace]):
    """The journal of one namespace of a thread."""

    FOLD: ClassVar = ("langgraph", 1)

    def __init__(self, engine: Engine, namespace: ThreadNamespace, thread: ThreadState, writer: str) -> None:
        """`writer` is the saver's own id."""
        super().__init__(engine, namespace, namespace.session)
        self.thread, self._writer = thread, writer
        self._read_ahead = _READ_AHEAD
        thread.load = self._load

    @property
    def folded_bytes(self) -> int:
        return self.thread.index.folded_bytes

    def reset(self) -> None:
        self.thread.reset()

    def fold(self, entry: Entry) -> None:
        self.thread.apply(entry)

    def fold_own(self, entry: Entry, new: EntryToWrite) -> None:
        self.thread.apply_own(entry, new.content)

    def write_fold(self) -> bytes:
        return self.thread.store()

    def read_fold(self, data: Raw) -> None:
        self.thread.restore(data)

    def _load(self, seq: int) -> None:
        """Read the content of an entry, and those of some before it."""
        reader = self.get_reader()
        first = self.thread.find_unloaded(seq, self._read_ahead)
        self._read_ahead *= _READ_AHEAD_GROWTH
        found = reader.read_contents(0, [Span(first, seq)], False)
        self.thread.add_contents(found)

    def begin(self, entries: Sequence[EntryToWrite]) -> list[EntryToWrite]:
        opened = SessionOpened(id=self.session, uid=fresh_uid(), labels=labels_of(self.key))
        return [EntryToWrite(body=opened), self._sign(_named(self.key))]

    def prepare(self, entries: Sequence[EntryToWrite]) -> list[EntryToWrite]:
        """Each entry says which saver wrote it, and in which process."""
        return [self._sign(entry) for entry in entries]

    def _sign(self, entry: EntryToWrite) -> EntryToWrite:
        assert isinstance(entry.body, AdapterBody)
        data: Any = entry.body.data
        signed = {"by": self._writer, "at": self.engine.heartbeat.name, **data}
        return replace(entry, body=AdapterBody(data=signed))


class ThreadJournals(LeaselessJournals[ThreadNamespace, ThreadJournal]):
    """The journals of all threads that one saver works with."""

    def __init__(self, engine: Engine, make_thread: Callable[[], ThreadState]) -> None:
        self.writer = fresh_uid()[:12]
        super().__init__(
            engine,
            lambda namespace: ThreadJournal(engine, namespace, make_thread(), self.writer),
            size=lambda journal: _OPEN_BYTES + journal.thread.memory_bytes,
            size_max=ADAPTER_CACHE_BYTES,
        )
        self._seen: dict[SessionId, tuple[str, int]] = {}
        """Up to where the saver's user has read each journal: its uid and an entry."""

    # -- reading -------------------------------------------------------------------------------------

    def on_reading(self, journal: ThreadJournal) -> None:
        """The saver's user has then seen all of it."""
        with self._guard:
            self._seen[journal.session] = journal.state.facts.head.uid, journal.state.seq
            while len(self._seen) > ADAPTER_SEEN_MAX:
                del self._seen[next(iter(self._seen))]

    async def fetch(self, namespace: ThreadNamespace, digests: Iterable[str]) -> dict[str, Shared]:
        """The bytes of these blobs; `LostBlob` if one of them cannot be read."""
        source = BlobReader(namespace.session, self.engine.blobs, where=str(namespace))
        return await self.engine.call_home(lambda: {digest: source.share(digest) for digest in digests})

    async def list_namespaces(self, thread: str | None = None) -> list[ThreadNamespace]:
        """The namespaces of a thread, or of all threads."""
        return await self.engine.call(self._list_namespaces, thread)

    def _list_namespaces(self, thread: str | None) -> list[ThreadNamespace]:
        with self._guard:
            known = {journal.session: key for key, journal in self._open.items()}
        prefix = "" if thread is None else thread_prefix(thread)
        wanted = HeadFilter(labels=LABELS)
        after: SessionId | None = SessionId(prefix[:-1]) if prefix else None
        found: list[ThreadNamespace] = []
        while True:
            tips = self.engine.driver.list_tips(wanted, after, PAGE_ROWS)
            sessions = [tip.session for tip in tips if tip.session.startswith(prefix)]
            here = [known.get(session) or self._read_namespace(session) for session in sessions]
            found += [namespace for namespace in here if namespace is not None]
            if len(tips) < PAGE_ROWS or not (tips[-1].session[: len(prefix)] <= prefix):
                return found
            after = tips[-1].session

    def _read_namespace(self, session: SessionId) -> ThreadNamespace | None:
        journal = Journal(self.engine.driver, session)
        # It stands where this session's own part of the journal begins: a copy has a name of its own.
        for entry in journal.entries(journal.own_from - 1, said=False):
            if entry.kind == NAMED and isinstance(entry.body, AdapterBody):
                named: Any = entry.body.data
                return ThreadNamespace(named["thread"], named["ns"])
        return None

    # -- writing -------------------------------------------------------------------------------------

    async def append(
        self,
        namespace: ThreadNamespace,
        make: Callable[[ThreadState], EntryToWrite | None],
        load: Callable[[ThreadState], object] | None = None,
    ) -> None:
        """Append the entry that `make` returns for the thread as it is. Durable on return.

        `load` looks at all that `make` needs. `Overtaken` if another saver wrote to it after this one last
        read it.
        """

        def decide(journal: ThreadJournal) -> list[EntryToWrite]:
            entry = make(journal.thread)
            return [] if entry is None else [entry]

        look = None if load is None else lambda journal: load(journal.thread)
        await self.write(namespace, decide, load=look)

    def check_writer(self, journal: ThreadJournal) -> None:
        """`Overtaken` if another saver has written something that the user of this one has not seen."""
        head, other = journal.state.facts.head, journal.thread.index.find_other_writer(self.writer)
        with self._guard:
            uid, seq = self._seen.setdefault(journal.session, (head.uid, journal.state.seq))
        if other is not None and (other.seq > seq or uid != head.uid):
            raise Overtaken(str(journal.key), other.process, other.by)

    async def read(self, namespace: ThreadNamespace, read: Callable[[ThreadJournal], T]) -> T:
        """What `read` finds in the thread as it is now. It must not change anything."""
        while True:
            async with self.reading(namespace) as journal:
                with suppress(Outdated):
                    return await self.compute(journal, partial(read, journal))

    async def shrink(self, namespace: ThreadNamespace, keep: Callable[[ThreadState], set[str]]) -> None:
        """Keep some of the checkpoints, and free the space of the others."""

        def look(journal: ThreadJournal) -> tuple[bool, bool]:
            thread = journal.thread
            ids = keep(thread)
            is_done = journal.is_new or ids >= thread.checkpoints.keys()
            return is_done, not ids and not thread.index.list_ahead()

        is_done, is_empty = await self.read(namespace, look)
        if is_done:
            return
        if is_empty:
            await self.delete(namespace)
            return
        made: list[EntryToWrite] = []

        def load(thread: ThreadState) -> None:
            made[:] = [thread.keep(keep(thread))]

        await self.append(namespace, lambda _: made[0], load)
        while not await self.engine.call(self._erase, namespace):
            pass
        async with self.reading(namespace) as journal:
            journal.forget_keyframe()

    def _erase(self, namespace: ThreadNamespace) -> bool:
        """Erase what the last `kept` entry has made void; False if another process wrote meanwhile."""
        session = namespace.session
        journal = Journal(self.engine.driver, session)
        kept = [
            entry.seq for entry in journal.entries(journal.own_from - 1, said=False) if entry.kind == KEPT
        ]

        def choose(entry: Entry) -> tuple[bool, bool]:
            return False, bool(kept) and entry.seq < kept[-1] and entry.kind.startswith(PREFIX)

        current = self._make(namespace)
        current.read_new()
        head = current.channel.head
        assert head is not None
        erased = find_erasures(self.engine.driver, session, choose)
        return isinstance(self.engine.driver.erase(session, head.sum, erased, head), Done)

    async def delete(self, namespace: ThreadNamespace) -> None:
        """Delete the session."""
        while True:
            async with self.reading(namespace) as journal:
                if journal.is_new:
                    return
                sum = journal.channel.sum
                assert sum is not None
                outcome = await self.engine.call(self.engine.driver.delete, journal.session, sum)
                if isinstance(outcome, Done):
                    self._drop(journal)
                    with self._guard:
                        self._seen.pop(journal.session, None)
                    return

    async def fork(self, source: ThreadNamespace, target: ThreadNamespace) -> None:
        """Copy a namespace without copying its entries; the target must not exist yet."""
        await self.share(source.session, target.session, labels_of(target))
        async with self.reading(target):
            pass  # What other savers wrote to the source is seen.
        await self.append(target, lambda thread: _named(target))

    async def share(self, source: SessionId, target: SessionId, labels: dict[str, str]) -> None:
        """Make a session that begins with all entries of another."""
        await self.engine.call(fork_end, self.engine, source, target, labels)


def labels_of(namespace: ThreadNamespace) -> dict[str, str]:
    """The labels of the session."""
    originals = {"langgraph.thread": namespace.thread, "langgraph.namespace": namespace.ns}
    return {**LABELS, **fit_labels(originals)}


def _named(namespace: ThreadNamespace) -> EntryToWrite:
    return new_entry(NAMED, {"thread": namespace.thread, "ns": namespace.ns})
