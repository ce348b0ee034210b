"""`HoldfastStepStore`: where pydantic-ai-harness's `StepPersistence` can keep what it records.

A conversation is one journal, so the runs of a conversation share their messages. A run's id is claimed for
the whole store in the commit that registers it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pydantic import TypeAdapter

from ...content.lazy import Place
from ...content.references import MARK
from ...core.entries import Body, Parent, RunCompleted, RunFailed, RunStarted
from ...drivers.contract import ClaimChange
from ...errors import MissingExtra, RunExists
from ...ids import SessionId, fit_session_id
from ...limits import STEP_RUNS_MAX
from ...store.store import Store

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

from .step_fold import CONFIG, EFFECT, EVENTS, SNAPSHOT, RunSteps, Snapshot, join
from .step_journal import Desk, Desks, Draft
from .step_media import Unpacking
from .step_records import Record

_RUN: Final = TypeAdapter(RunRecord)
_EVENT: Final = TypeAdapter(StepEvent)
_EFFECT: Final = TypeAdapter(ToolEffectRecord)
_SNAPSHOT: Final = TypeAdapter(ContinuableSnapshot)


class HoldfastStepStore:
    """Their `StepStore`, on any store of ours: `StepPersistence(store=HoldfastStepStore(store))`.

    Runs, their ends, histories, tool effects and what begins (`…_started`) are durable when a call returns;
    other events follow within a tenth of a second, or with the next of those. A history is stored as what it
    adds to the one before, and every byte that is read is checked. Large files in it are kept as blobs, once
    for equal bytes. Several processes may write to one conversation.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._desks: Desks | None = None
        self._places: dict[str, SessionId] = {}

    # -- runs ----------------------------------------------------------------------------------------

    async def register_run(self, record: RunRecord) -> None:
        """Note that a run begins. An id that another run has is an error, and leaves that one alone."""
        key = _claim_key(record.run_id)
        started = _start(record, await self._find_parent(record))
        while True:
            claim = await self._find_claim(record.run_id)
            session = SessionId(claim) if claim is not None else _lone_session(record.run_id)
            # Settled: who claimed it may have written meanwhile.
            known = (await self._open.look(session, settled=claim is not None)).steps.find(record.run_id)
            if known is not None and known.record is not None:
                if record.registration_id and known.record.get("registration_id") == record.registration_id:
                    return  # The same registration once more.
                raise RunExists(record.run_id, session)
            if known is None and record.conversation_id is not None:
                session = _conversation_session(record.conversation_id)
            change = ClaimChange(key=key, expect=claim, record=session)
            if await self._open.write_claimed(session, [started], change):
                return

    async def get_run(self, *, run_id: str) -> RunRecord | None:
        """The run as it was registered."""
        known = await self._find(run_id)
        return None if known is None or known.record is None else _RUN.validate_python(known.record)

    async def list_runs(
        self, *, parent_run_id: str | None = None, conversation_id: str | None = None
    ) -> list[RunRecord]:
        """Runs, oldest first. Filters combine."""
        found: list[RunRecord] = []
        async for run in self._store.runs():
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
        """Note a boundary. One with a known key is a repetition, and changes nothing."""
        data: Record = _EVENT.dump_python(event, mode="json")
        place = await self._place(event.run_id)
        await self._open.hold(place, event.run_id, data)
        # What begins is on record before it begins: a process may be killed in it.
        if not event.kind.startswith("run_") and not event.kind.endswith("_started"):
            return

        def decide(desk: Desk) -> list[Draft]:
            drafts = [Draft(run_id=event.run_id, kind=EVENTS)] if desk.holds(event.run_id) else []
            ended, run = _end_of(event), desk.state.facts.runs.get(fit_session_id(event.run_id))
            if ended is not None and run is not None and run.ended_at is None:
                drafts.append(Draft(run_id=event.run_id, body=ended))
            return drafts

        await self._open.write(place, decide)

    async def list_events(self, *, run_id: str) -> list[StepEvent]:
        """What happened, in order."""
        known = await self._find(run_id)
        return [] if known is None else [_EVENT.validate_python(one) for one in known.events]

    # -- histories -----------------------------------------------------------------------------------

    async def save_snapshot(self, snapshot: ContinuableSnapshot) -> None:
        """Keep a history to go on from: of its messages, those that are new."""
        fields: Record = _SNAPSHOT.dump_python(snapshot, mode="json", exclude={"messages"})

        def decide(desk: Desk) -> list[Draft]:
            run = desk.steps.get(snapshot.run_id)
            if run.knows_snapshot(snapshot.idempotency_key):
                return []
            delta = desk.histories.add(snapshot.run_id, snapshot.messages)
            data = {
                "snapshot": run.write_snapshot(fields),
                "base": None if delta.base is None else delta.base.seq,
                "keep": delta.keep,
                "new": len(delta.own),
            }
            content = join(delta.own) if delta.own else None
            draft = Draft(
                run_id=snapshot.run_id, kind=SNAPSHOT, data=data, content=content, pieces=delta.pieces
            )
            return [draft]

        await self._open.write(await self._place(snapshot.run_id), decide)

    async def latest_snapshot(
        self, *, run_id: str, include_interrupted: bool = False
    ) -> ContinuableSnapshot | None:
        """The newest history to go on from."""
        known = await self._find(run_id)
        found = None if known is None else known.find_latest(include_interrupted=include_interrupted)
        return None if found is None else (await self._read(run_id, [found]))[0]

    async def list_snapshots(
        self, *, run_id: str, include_interrupted: bool = False
    ) -> list[ContinuableSnapshot]:
        """All histories of a run, oldest first."""
        known = await self._find(run_id)
        if known is None:
            return []
        return await self._read(run_id, known.list_snapshots(include_interrupted=include_interrupted))

    async def _read(self, run_id: str, snapshots: Sequence[Snapshot]) -> list[ContinuableSnapshot]:
        """Histories as they were given; the files in them may have to be fetched."""
        engine, unpacking = self._store._engine, None
        found: list[ContinuableSnapshot] = []
        for one in snapshots:
            messages = one.list_messages()
            if any(MARK in message for message in messages):
                if unpacking is None:
                    place = Place(await self._place(run_id), engine.blobs, where=f"run {run_id!r}")
                    unpacking = Unpacking(place)
                messages = await engine.call_home(unpacking.unpack, messages)
            found.append(_restore(one, messages))
        return found

    # -- tool effects --------------------------------------------------------------------------------

    async def record_tool_effect(self, record: ToolEffectRecord) -> None:
        """Note how a tool call stands; the last word counts."""
        data: Record = _EFFECT.dump_python(record, mode="json")

        def decide(desk: Desk) -> list[Draft]:
            effect = desk.steps.get(record.run_id).write_effect(data)
            return [Draft(run_id=record.run_id, kind=EFFECT, data={"effect": effect})]

        await self._open.write(await self._place(record.run_id), decide)

    async def get_tool_effect(self, *, run_id: str, tool_call_id: str) -> ToolEffectRecord | None:
        """How a tool call stands."""
        known = await self._find(run_id)
        found = None if known is None else known.effects.get(tool_call_id)
        return None if found is None else _EFFECT.validate_python(found)

    async def list_unresolved_tool_effects(self, *, run_id: str) -> list[ToolEffectRecord]:
        """Tool calls that were started, and of which nobody noted an end."""
        known = await self._find(run_id)
        found = [] if known is None else known.effects.values()
        return [_EFFECT.validate_python(one) for one in found if one["status"] == "started"]

    # -- where things are ----------------------------------------------------------------------------

    @property
    def _open(self) -> Desks:
        if self._desks is None:
            self._desks = Desks(self._store._engine)
        return self._desks

    async def _find_claim(self, run_id: str) -> str | None:
        engine = self._store._engine
        return await engine.call(engine.driver.find_claim, _claim_key(run_id))

    async def _place(self, run_id: str) -> SessionId:
        """The journal of a run: where its id was claimed, or one of its own if nobody registered it."""
        known = self._places.get(run_id)
        if known is not None:
            return known
        claim = await self._find_claim(run_id)
        if claim is None:
            return _lone_session(run_id)
        if len(self._places) >= STEP_RUNS_MAX:
            self._places.clear()
        return self._places.setdefault(run_id, SessionId(claim))

    async def _find(self, run_id: str) -> RunSteps | None:
        place = await self._place(run_id)
        found = (await self._open.look(place)).steps.find(run_id)
        if found is None and self._places.pop(run_id, None) is not None:
            # Its conversation was deleted, and the id may have been used anew.
            moved = await self._place(run_id)
            if moved != place:
                return (await self._open.look(moved)).steps.find(run_id)
        return found

    async def _find_parent(self, record: RunRecord) -> Parent | None:
        if record.parent_run_id is None:
            return None
        session = await self._place(record.parent_run_id)
        return Parent(session=session, run=fit_session_id(record.parent_run_id))


def _claim_key(run_id: str) -> str:
    return f"pydantic-ai:run:{run_id}"


def _conversation_session(conversation_id: str) -> SessionId:
    return fit_session_id(f"steps-{conversation_id}")


def _lone_session(run_id: str) -> SessionId:
    return fit_session_id(f"lone-steps-{run_id}")


def _start(record: RunRecord, parent: Parent | None) -> Draft:
    # Not the bare name: an agent of ours with that name would take the session for one to resume.
    agent = f"pydantic-ai/{record.agent_name or ''}"
    config = {CONFIG: _RUN.dump_python(record, mode="json")}
    return Draft(run_id=record.run_id, body=RunStarted(agent=agent, parent=parent, config=config))


def _end_of(event: StepEvent) -> Body | None:
    """What an event means for the run in our own words."""
    if event.kind == "run_completed":
        return RunCompleted()
    return RunFailed(reason="error", error=event.error or "") if event.kind == "run_failed" else None


def _restore(snapshot: Snapshot, messages: Sequence[bytes]) -> ContinuableSnapshot:
    found = _SNAPSHOT.validate_python({**snapshot.fields, "messages": []})
    found.messages = ModelMessagesTypeAdapter.validate_json(join(messages))
    return found
