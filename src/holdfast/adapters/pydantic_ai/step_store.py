"""`HoldfastStepStore`: a store for `StepPersistence` of pydantic-ai-harness.

A conversation is one journal, so the runs of a conversation share their messages. A run's id is claimed for
the whole store in the commit that registers it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias, TypeVar

from pydantic import TypeAdapter

from ...content.lazy import BlobReader
from ...content.references import MARK
from ...core.entries import AdapterBody, Body, Parent, RunCompleted, RunFailed, RunStarted
from ...drivers.contract import ClaimChange
from ...errors import MissingExtra, RunExists
from ...ids import SessionId, fit_session_id
from ...limits import STEP_RUNS_MAX
from ...store.opening import AnyStore, KeptStore

try:
    from pydantic_ai.messages import ModelMessagesTypeAdapter
    from pydantic_ai_harness.step_persistence import (
        ContinuableSnapshot,
        RunRecord,
        StepEvent,
        ToolEffectRecord,
    )
except ImportError as missing:
    raise MissingExtra("HoldfastStepStore (pydantic-ai-harness 0.62)", "pydantic-ai-harness") from missing

from .step_fold import CONFIG, EFFECT, SNAPSHOT, Record, RunSteps, Snapshot, join
from .step_history import Unpacking
from .step_journal import StepEntry, StepJournal, StepJournals, events_entry

_RUN: Final = TypeAdapter(RunRecord)
_EVENT: Final = TypeAdapter(StepEvent)
_EFFECT: Final = TypeAdapter(ToolEffectRecord)
_SNAPSHOT: Final = TypeAdapter(ContinuableSnapshot)

T = TypeVar("T")
Saved: TypeAlias = tuple[Record, list[bytes]]
"""A snapshot: its fields, and its messages as they are stored."""


class HoldfastStepStore:
    """A `StepStore` on any holdfast store: `StepPersistence(store=HoldfastStepStore(store))`.

    Runs, their ends, histories, tool effects and what begins (`…_started`) are durable when a call returns;
    other events follow within a tenth of a second, or with the next of those. A history is stored as what it
    adds to the one before. Large files in it are kept as blobs, once
    for equal bytes. Several processes may write to one conversation.

    `store` is an open store, or the URL or `Path` of one that is opened when first needed, and closed by
    `aclose` or at the end of `async with`.
    """

    def __init__(self, store: AnyStore) -> None:
        self._store = KeptStore(store)
        self._opened: StepJournals | None = None
        self._sessions: dict[str, SessionId] = {}

    async def __aenter__(self) -> HoldfastStepStore:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Write what is left and close the store if it was opened here; one that was given stays open."""
        await self._store.aclose()

    # -- runs ----------------------------------------------------------------------------------------

    async def register_run(self, record: RunRecord) -> None:
        """Register a run. `RunExists` if another run has its id; that one is not changed."""
        journals, key = await self._open(), _claim_key(record.run_id)
        started = _start(record, await self._find_parent(record))
        while True:
            claim = await self._find_claim(record.run_id)
            session = SessionId(claim) if claim is not None else _lone_session(record.run_id)
            # Settled: the process that claimed it may have written meanwhile.
            known, registered = await journals.look(
                session,
                lambda journal: _find_record(journal.steps.find(record.run_id)),
                settled=claim is not None,
            )
            if registered is not None:
                if record.registration_id and registered.get("registration_id") == record.registration_id:
                    return  # The same registration once more.
                raise RunExists(record.run_id, session)
            if not known and record.conversation_id is not None:
                session = _conversation_session(record.conversation_id)
            change = ClaimChange(key=key, expect=claim, record=session)
            if await journals.write_claimed(session, [started], change):
                return

    async def get_run(self, *, run_id: str) -> RunRecord | None:
        """The run as it was registered."""
        record = await self._look(run_id, lambda _, run: run.record)
        return None if record is None else _RUN.validate_python(record)

    async def list_runs(
        self, *, parent_run_id: str | None = None, conversation_id: str | None = None
    ) -> list[RunRecord]:
        """Runs, oldest first. Filters combine."""
        found: list[RunRecord] = []
        store = await self._store.get()
        async for run in store.runs():
            record = run.config.get(CONFIG) if isinstance(run.config, dict) else None
            if (
                record is not None
                and "run_id" in record  # Else it is a run of `Durable`.
                and parent_run_id in (None, record.get("parent_run_id"))
                and conversation_id in (None, record.get("conversation_id"))
            ):
                found.append(_RUN.validate_python(record))
        return sorted(found, key=lambda one: one.started_at)

    # -- what happened -------------------------------------------------------------------------------

    async def append_event(self, event: StepEvent) -> None:
        """Record an event. One with a known idempotency key changes nothing."""
        data: Record = _EVENT.dump_python(event, mode="json")
        journals, session = await self._open(), await self._find_session(event.run_id)
        await journals.add_event(session, event.run_id, data)
        # A start is durable before the work begins: the process may be killed in it.
        if not event.kind.startswith("run_") and not event.kind.endswith("_started"):
            return

        def decide(journal: StepJournal) -> list[StepEntry]:
            is_pending = event.run_id in journal.list_pending_runs()
            entries = [events_entry(event.run_id)] if is_pending else []
            ended, run = _end_of(event), journal.state.facts.runs.get(fit_session_id(event.run_id))
            if ended is not None and run is not None and run.ended_at is None:
                entries.append(StepEntry(run_id=event.run_id, body=ended))
            return entries

        await journals.write(session, decide)

    async def list_events(self, *, run_id: str) -> list[StepEvent]:
        """The events of a run, in order."""
        found = await self._look(run_id, lambda _, run: list(run.get_past().events))
        return [_EVENT.validate_python(one) for one in found or ()]

    # -- histories -----------------------------------------------------------------------------------

    async def save_snapshot(self, snapshot: ContinuableSnapshot) -> None:
        """Record a history to continue from; only new messages are written."""
        fields: Record = _SNAPSHOT.dump_python(snapshot, mode="json", exclude={"messages"})

        def decide(journal: StepJournal) -> list[StepEntry]:
            run = journal.steps.get(snapshot.run_id)
            if run.knows_snapshot(snapshot.idempotency_key):
                return []
            delta = journal.histories.add(snapshot.run_id, snapshot.messages)
            data = {
                "snapshot": run.write_snapshot(fields),
                "base": None if delta.base is None else delta.base.seq,
                "keep": delta.keep,
                "new": len(delta.own),
            }
            content = join(delta.own) if delta.own else None
            entry = StepEntry(
                run_id=snapshot.run_id,
                kind=SNAPSHOT,
                body=AdapterBody(data=data),
                content=content,
                pieces=delta.pieces,
            )
            return [entry]

        def undo(journal: StepJournal) -> None:
            journal.histories.forget(snapshot.run_id)

        def load(journal: StepJournal) -> None:
            journal.load(journal.histories.list_needed(snapshot.run_id))

        journals = await self._open()
        await journals.write(await self._find_session(snapshot.run_id), decide, undo, load)

    async def latest_snapshot(
        self, *, run_id: str, include_interrupted: bool = False
    ) -> ContinuableSnapshot | None:
        """The newest history to continue from."""

        def look(journal: StepJournal, run: RunSteps) -> list[Saved]:
            latest = run.find_latest(include_interrupted=include_interrupted)
            return _list_saved(journal, [] if latest is None else [latest])

        found = await self._look(run_id, look)
        return (await self._read(run_id, found))[0] if found else None

    async def list_snapshots(
        self, *, run_id: str, include_interrupted: bool = False
    ) -> list[ContinuableSnapshot]:
        """All histories of a run, oldest first."""

        def look(journal: StepJournal, run: RunSteps) -> list[Saved]:
            return _list_saved(
                journal, run.get_past().list_snapshots(include_interrupted=include_interrupted)
            )

        return await self._read(run_id, await self._look(run_id, look) or [])

    async def _read(self, run_id: str, snapshots: Sequence[Saved]) -> list[ContinuableSnapshot]:
        """Histories as they were saved, with the files in them."""
        engine, unpacking = (await self._store.get())._engine, None
        found: list[ContinuableSnapshot] = []
        for fields, messages in snapshots:
            if any(MARK in message for message in messages):
                if unpacking is None:
                    place = BlobReader(
                        await self._find_session(run_id), engine.blobs, where=f"run {run_id!r}"
                    )
                    unpacking = Unpacking(place)
                messages = await engine.call_home(unpacking.unpack, messages)
            found.append(_restore(fields, messages))
        return found

    # -- tool effects --------------------------------------------------------------------------------

    async def record_tool_effect(self, record: ToolEffectRecord) -> None:
        """Record the status of a tool call; the last record wins."""
        data: Record = _EFFECT.dump_python(record, mode="json")

        def decide(journal: StepJournal) -> list[StepEntry]:
            effect = journal.steps.get(record.run_id).write_effect(data)
            return [StepEntry(run_id=record.run_id, kind=EFFECT, body=AdapterBody(data={"effect": effect}))]

        journals = await self._open()
        await journals.write(await self._find_session(record.run_id), decide)

    async def get_tool_effect(self, *, run_id: str, tool_call_id: str) -> ToolEffectRecord | None:
        """The status of a tool call."""
        found = await self._look(run_id, lambda _, run: run.effects.get(tool_call_id))
        return None if found is None else _EFFECT.validate_python(found)

    async def list_unresolved_tool_effects(self, *, run_id: str) -> list[ToolEffectRecord]:
        """Tool calls that were started and have no recorded end."""
        found = await self._look(run_id, lambda _, run: list(run.effects.values()))
        return [_EFFECT.validate_python(one) for one in found or () if one["status"] == "started"]

    # -- where things are ----------------------------------------------------------------------------

    async def _open(self) -> StepJournals:
        store = await self._store.get()
        if self._opened is None:
            self._opened = StepJournals(store._engine)
        return self._opened

    async def _find_claim(self, run_id: str) -> str | None:
        engine = (await self._store.get())._engine
        return await engine.call(engine.driver.find_claim, _claim_key(run_id))

    async def _find_session(self, run_id: str) -> SessionId:
        """The journal of a run: where its id was claimed, or one of its own if it was never registered."""
        known = self._sessions.get(run_id)
        if known is not None:
            return known
        claim = await self._find_claim(run_id)
        if claim is None:
            return _lone_session(run_id)
        if len(self._sessions) >= STEP_RUNS_MAX:
            self._sessions.clear()
        return self._sessions.setdefault(run_id, SessionId(claim))

    async def _look(self, run_id: str, look: Callable[[StepJournal, RunSteps], T]) -> T | None:
        """What `look` finds in the records of a run; None if there are none. It must not change anything."""

        def look_in(journal: StepJournal) -> tuple[bool, T | None]:
            run = journal.steps.find(run_id)
            return (False, None) if run is None else (True, look(journal, run))

        journals, session = await self._open(), await self._find_session(run_id)
        is_there, found = await journals.look(session, look_in)
        if not is_there and self._sessions.pop(run_id, None) is not None:
            # Its conversation was deleted, and the id may have been used anew.
            moved = await self._find_session(run_id)
            if moved != session:
                _, found = await journals.look(moved, look_in)
        return found

    async def _find_parent(self, record: RunRecord) -> Parent | None:
        if record.parent_run_id is None:
            return None
        session = await self._find_session(record.parent_run_id)
        return Parent(session=session, run=fit_session_id(record.parent_run_id))


def _claim_key(run_id: str) -> str:
    return f"pydantic-ai:run:{run_id}"


def _conversation_session(conversation_id: str) -> SessionId:
    return fit_session_id(f"steps-{conversation_id}")


def _lone_session(run_id: str) -> SessionId:
    return fit_session_id(f"lone-steps-{run_id}")


def _start(record: RunRecord, parent: Parent | None) -> StepEntry:
    # Not the bare name: a holdfast agent of that name would take the session for one to resume.
    agent = f"pydantic-ai/{record.agent_name or ''}"
    config = {CONFIG: _RUN.dump_python(record, mode="json")}
    return StepEntry(run_id=record.run_id, body=RunStarted(agent=agent, parent=parent, config=config))


def _end_of(event: StepEvent) -> Body | None:
    """The entry for an event that ends its run."""
    if event.kind == "run_completed":
        return RunCompleted()
    return RunFailed(reason="error", error=event.error or "") if event.kind == "run_failed" else None


def _find_record(run: RunSteps | None) -> tuple[bool, Record | None]:
    """Whether there are records of a run, and the one that it was registered with."""
    return (False, None) if run is None else (True, run.record)


def _list_saved(journal: StepJournal, snapshots: Sequence[Snapshot]) -> list[Saved]:
    journal.load(snapshots)
    return [(one.fields, one.list_messages()) for one in snapshots]


def _restore(fields: Record, messages: Sequence[bytes]) -> ContinuableSnapshot:
    found = _SNAPSHOT.validate_python({**fields, "messages": []})
    found.messages = ModelMessagesTypeAdapter.validate_json(join(messages))
    return found
