"""The journals of a step store.

Events that only inform are not waited for: they join the next entry of their run, or are written after a
short linger.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, ClassVar, TypeVar

import anyio.to_thread
from msgspec import Raw
from msgspec.structs import replace

from ...core.codec import encode_body
from ...core.entries import AdapterBody, Entry, RunStarted, SessionOpened, Span
from ...engine.engine import Engine
from ...errors import Closed, Fenced, HoldfastError, NotFound
from ...ids import SessionId, fit_session_id, fresh_uid, label_of_original
from ...limits import LINGER_S, STEP_JOURNALS_MAX
from ...messages import Message
from ...system import aio
from ..leaseless_journal import EntryToWrite, FoldIncomplete, LeaselessJournal, LeaselessJournals, Outdated
from .step_fold import CONFIG, EVENTS, Record, Snapshot, Steps, name_run, split
from .step_history import Histories

log = logging.getLogger("holdfast")
T = TypeVar("T")
_LABELS = {"adapter": "pydantic-ai"}
_GAP_ENTRIES = 64
"""Reading so many entries that are not needed takes less than another question to the store."""


class StepEntry(EntryToWrite, frozen=True, kw_only=True):
    """An entry of a run. One of an adapter's kind takes the pending events of the run along."""

    run_id: str
    events: Sequence[Record] = ()


def events_entry(run_id: str) -> StepEntry:
    """An entry for the pending events of a run."""
    return StepEntry(run_id=run_id, kind=EVENTS, body=AdapterBody(data={}))


class StepJournal(LeaselessJournal[SessionId]):
    """The journal of a conversation, or of a run that was never registered."""

    FOLD: ClassVar = ("steps", 1)
    FOLDS_CONTENTS: ClassVar = True

    def __init__(self, engine: Engine, session: SessionId) -> None:
        super().__init__(engine, session, session)
        self.reset()
        self._pending: dict[str, list[Record]] = {}
        """Events that are in no entry yet, by run."""
        self._sent: list[tuple[int, str, Sequence[Record]]] = []
        """Events in entries that may not be durable yet, with the `seq` of the entry."""

    @property
    def is_idle(self) -> bool:
        """Whether it can be closed without a loss."""
        return super().is_idle and not self._pending

    # -- events that are not waited for --------------------------------------------------------------

    def add_events(self, events: Sequence[tuple[str, Record]]) -> None:
        """Keep events for one of the next entries, except repetitions. All or none, if `FoldIncomplete`."""
        runs = [self.steps.get(run_id) for run_id, _ in events]
        for run, (run_id, event) in zip(runs, events, strict=True):
            if not run.knows_event(event.get("idempotency_key")):
                run.note_event(event)
                self._pending.setdefault(run_id, []).append(event)

    def list_pending_runs(self) -> list[str]:
        """The runs with pending events."""
        return list(self._pending)

    def list_unsettled(self) -> list[tuple[str, Record]]:
        """The events that are not durable yet."""
        sent = [(run, events) for seq, run, events in self._sent if seq > self.channel.durable_seq]
        return [(run, event) for run, events in (*sent, *self._pending.items()) for event in events]

    # -- entries -------------------------------------------------------------------------------------

    def reset(self) -> None:
        self.steps = Steps(f"session {self.session!r}")
        self.histories = Histories(self.steps, self.engine.blobs.sizes.inline_bytes)

    def fold(self, entry: Entry) -> None:
        self.steps.apply(entry)

    def fold_own(self, entry: Entry, new: EntryToWrite) -> None:
        if isinstance(new, StepEntry) and new.events:
            del self._pending[new.run_id]
            durable = self.channel.durable_seq
            self._sent = [one for one in self._sent if one[0] > durable]
            self._sent.append((entry.seq, new.run_id, new.events))
        self.steps.apply(entry, events_known=True)

    def write_fold(self) -> bytes:
        return self.steps.store(self._has_ended)

    def _has_ended(self, run_id: str) -> bool:
        run = self.state.facts.runs.get(fit_session_id(run_id))
        return run is not None and run.ended_at is not None

    def read_fold(self, data: Raw) -> None:
        self.reset()
        self.steps.restore(data)

    @property
    def folded_bytes(self) -> int:
        return self.steps.folded_bytes

    def load(self, snapshots: Iterable[Snapshot]) -> None:
        """Read the messages of these that are not in memory. `NotLoaded` if the caller must not block."""
        parts = {part.seq: part for one in snapshots for part, _ in one.list_parts() if part.own is None}
        if not parts:
            return
        reader = self.get_reader()
        found = reader.read_contents(0, _join_spans(sorted(parts)), False)
        read: dict[int, tuple[bytes, ...]] = {}
        for seq, part in parts.items():
            content = found.get(seq)
            assert not isinstance(content, Message)
            read[seq] = split(content)
            if len(read[seq]) != part.new:
                raise FoldIncomplete  # They were erased since the keyframe was read.
        for seq, part in parts.items():
            part.own = read[seq]

    def begin(self, entries: Sequence[EntryToWrite]) -> list[EntryToWrite]:
        labels = {**_LABELS, **self._label_original(entries)}
        return [EntryToWrite(body=SessionOpened(id=self.session, uid=fresh_uid(), labels=labels))]

    def _label_original(self, entries: Sequence[EntryToWrite]) -> dict[str, str]:
        """A label with the conversation, or the run, where the session's id is not made of it as it is."""
        found: dict[str, str] = {}
        for entry in entries:
            if not found and isinstance(entry, StepEntry):
                found = {"run": entry.run_id}
            config = entry.body.config if isinstance(entry.body, RunStarted) else None
            if isinstance(config, dict) and (config.get(CONFIG) or {}).get("conversation_id"):
                found = {"conversation": config[CONFIG]["conversation_id"]}
        return {
            key: label_of_original(one) for key, one in found.items() if not self.session.endswith(f"-{one}")
        }

    def prepare(self, entries: Sequence[EntryToWrite]) -> list[EntryToWrite]:
        """Pending events go first, in an entry of their own for each run that has no entry to join."""
        given = [entry for entry in entries if isinstance(entry, StepEntry)]
        joined = {entry.run_id for entry in given[:1] if entry.kind is not None}
        pending = dict(self._pending)
        first = [events_entry(run_id) for run_id in pending if run_id not in joined]
        return [self._prepare_one(entry, pending) for entry in (*first, *given)]

    def _prepare_one(self, entry: StepEntry, pending: dict[str, list[Record]]) -> StepEntry:
        if not isinstance(entry.body, AdapterBody):
            return replace(entry, run=name_run(entry.run_id, {})[0])
        name, data = name_run(entry.run_id, entry.body.data)
        events = pending.pop(entry.run_id, [])
        if events:
            data = {**data, "events": self.steps.get(entry.run_id).write_events(events)}
        return replace(entry, run=name, body=AdapterBody(data=data), events=events)


def _join_spans(seqs: Iterable[int]) -> list[Span]:
    """Spans that hold these entries, in ascending order, and not many others."""
    spans: list[Span] = []
    for seq in seqs:
        if spans and seq - spans[-1].last <= _GAP_ENTRIES:
            spans[-1] = Span(spans[-1].first, seq)
        else:
            spans.append(Span(seq, seq))
    return spans


class StepJournals(LeaselessJournals[SessionId, StepJournal]):
    """The journals of a step store that are open."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(
            engine, lambda session: StepJournal(engine, session), size=lambda _: 1, size_max=STEP_JOURNALS_MAX
        )
        self._unwritten: dict[SessionId, list[tuple[str, Record]]] = {}
        """Events whose entries were refused, for the next time that the journal is read."""
        self._timer: Any = None
        """The event loop that will send what is pending."""
        self._sending: set[tuple[Any, anyio.Event]] = set()
        """The end of each task that sends, with its event loop."""
        engine.on_close.append(self._write_rest)

    def on_read(self, journal: StepJournal) -> None:
        journal.add_events(self._unwritten.get(journal.session, ()))
        self._unwritten.pop(journal.session, None)

    def on_drop(self, journal: StepJournal) -> None:
        unsettled = journal.list_unsettled()
        if unsettled:
            self._unwritten.setdefault(journal.session, []).extend(unsettled)
            # While another process has the lease, each try would read the whole journal: the next entry, or
            # closing the store, writes them.
            if not self._closing and not journal.is_leased:
                self._send_soon()

    async def look(self, session: SessionId, look: Callable[[StepJournal], T], *, settled: bool = False) -> T:
        """What `look` finds in a journal as it is now. It must not change anything."""
        while True:
            async with self.reading(session, settled=settled) as journal:
                try:
                    return await self.compute(journal, partial(look, journal))
                except FoldIncomplete:
                    self.read_from_start(session)
                except Outdated:
                    pass

    async def write(
        self,
        key: SessionId,
        decide: Callable[[StepJournal], Sequence[EntryToWrite]],
        undo: Callable[[StepJournal], object] | None = None,
        load: Callable[[StepJournal], object] | None = None,
    ) -> None:
        """As every journal is written to; if its keyframe is not enough for that, it is read as a whole."""
        while True:
            try:
                return await super().write(key, decide, undo, load)
            except FoldIncomplete:
                self.read_from_start(key)

    async def add_event(self, session: SessionId, run_id: str, event: Record) -> None:
        """Keep an event for one of the next entries, unless it is a repetition."""
        encode_body(AdapterBody(data=event))  # Refuse it now: later, it would hold back other entries.
        while True:
            journal = await self._lock_to_write(session)
            try:
                self.engine.committer.check(journal.channel)
                journal.add_events([(run_id, event)])
            except Fenced:
                self._drop(journal)
                continue
            except FoldIncomplete:
                self.read_from_start(session)
                continue
            finally:
                journal.lock.release()
            self._send_soon()
            return

    def _send_soon(self) -> None:
        loop = aio.current_loop()
        if self._timer is not loop:
            self._timer = loop
            aio.call_later(LINGER_S, self._send)

    def _send(self) -> None:
        """Write the events that no other entry has taken along."""
        self._timer = None
        pending = (one.session for one in self._open.values() if one.list_pending_runs())
        for session in {*self._unwritten, *pending}:
            ended = aio.current_loop(), anyio.Event()
            self._sending.add(ended)
            aio.spawn(partial(self._send_one, session), partial(self._note_sent, ended))

    def _note_sent(self, ended: tuple[Any, anyio.Event]) -> None:
        self._sending.discard(ended)
        ended[1].set()

    async def _send_one(self, session: SessionId) -> None:
        try:
            await self.write(session, lambda journal: [*map(events_entry, journal.list_pending_runs())])
        except Closed:
            pass  # Closing the store writes them.
        except HoldfastError as error:
            # They stay pending: the next entry, or closing the store, writes them.
            log.warning("session %s: events could not be written: %s", session, error)

    async def _write_rest(self) -> None:
        """Before the store closes, write the events that are pending, or whose entries were refused."""
        self._closing = True
        loop = aio.current_loop()
        for ended in [ended for its_loop, ended in self._sending if its_loop is loop]:
            await ended.wait()
        for journal in list(self._open.values()):
            async with journal.lock:
                self._drop(journal)
        for session, events in self._unwritten.items():
            try:
                await anyio.to_thread.run_sync(self._write_unwritten, session, events)
            except HoldfastError as error:
                log.warning("session %s: %d events could not be written: %s", session, len(events), error)

    def _write_unwritten(self, session: SessionId, events: Sequence[tuple[str, Record]]) -> None:
        while True:
            journal = self._make(session)
            journal.from_start = True
            with suppress(NotFound):
                journal.read_new()
            self._refuse_leased(journal)
            journal.add_events(events)
            if not journal.list_pending_runs() or journal.commit([]):
                return
