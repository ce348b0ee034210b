"""Undo: take effects back. Each undo is an effect of its own."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import anyio

from ..core.effects import Effect, Undone, UndoStatus
from ..core.entries import CallRef, ToolIssued, ToolUndone
from ..engine.journal import Journal
from ..errors import Corrupt
from ..ids import SessionId
from ..messages import Json
from ..session.session import Session
from .canonical import digest
from .declaration import AnyTool, Hook
from .gates import Gates, Ready
from .ledger import Issue
from .outcome import Ran, as_given
from .reconcile import find_end_s
from .runner import Runner


async def undo(
    session: Session, tools: Mapping[str, AnyTool], gates: Gates, runner: Runner, effects: Sequence[Effect]
) -> list[Undone]:
    """Take the effects back, the last first. An effect that cannot be undone is reported, and stays."""
    found: list[Undone] = []
    rows = session.state.facts.effects.rows
    for given in sorted(effects, key=lambda one: one.issued, reverse=True):
        # The given effect may be a copy, made before something happened to the effect.
        row = rows.get(given.issued)
        if row is None or row.key != given.key:
            status, why = _NOT_OURS
        else:
            status, why = await _undo_one(session, tools.get(row.tool), gates, runner, row)
        found.append(Undone(tool=given.tool, call=given.call.id, issued=given.issued, status=status, why=why))
    return found


_NOT_OURS: tuple[UndoStatus, str] = "cannot", "it is not an effect of this session"


async def _undo_one(
    session: Session, tool: AnyTool | None, gates: Gates, runner: Runner, row: Effect
) -> tuple[UndoStatus, str]:
    if row.status == "running":
        return "cannot", "it is running"
    if tool is None or tool.undo is None:
        return "cannot", "the tool is gone" if tool is None else "the tool has no undo"
    intent, owner = await session._writer.engine.call(_find_intent, session, row.issued)
    if owner != session.id:
        return "cannot", f"session {owner!r} did it, before this one was forked from it: undo it there"
    if intent is None:
        return "cannot", "its arguments were erased"
    ready = gates.fit(tool, intent.args)
    if ready is None:
        return "cannot", "its arguments no longer fit the tool"
    operation = digest("undo", session.state.facts.head.uid, str(row.issued))
    effects, last = session.state.facts.effects, None
    while True:
        last = effects.find_last(operation)
        if last is not None and runner.ledger.is_in_progress(last):
            await runner.ledger.wait_for(last)
            continue
        if row.status != "completed":
            return ("undone", "") if row.status == "undone" else ("cannot", f"it is {row.status}")
        if last is not None and last.status in ("running", "in_doubt", "gave_up"):
            return "in_doubt", last.why
        if last is not None and math.isinf(await find_end_s(session, last)):
            return "in_doubt", "the body of its last undo still runs"
        result = await runner.ledger.recall(row)
        if row.scope == "global":
            await runner.reconciler.claims.reopen(row.operation)
        if effects.find_last(operation) is last and row.status == "completed":
            break  # Else another caller has begun to take it back meanwhile.
    issued = runner.ledger.issue(
        ready, CallRef(id=f"undo-{row.issued}"), "call", operation, _how(last), undoes=row.issued
    )
    try:
        await runner.commit(issued)
        ran = await _run(runner, tool.undo, ready, row, issued, result.value)
        with anyio.CancelScope(shield=True):
            status, why = await _record(session, runner, tool, row, issued, ran)
    finally:
        runner.ledger.leave(issued)
    ends = ran.exit or ran.interrupt
    if ends is not None:
        raise ends
    return status, why


def _how(last: Effect | None) -> Issue:
    if last is None:
        return Issue()
    if last.status in ("not_landed", "discarded"):
        return Issue.again(last)
    return Issue(generation=last.generation + 1)


async def _run(runner: Runner, hook: Hook, ready: Ready, row: Effect, issued: Effect, result: Json) -> Ran:
    ctx = runner.ledger.context(issued, runner.deps)
    ctx.result, ctx.notes = result, dict(row.notes)
    return await runner.run_once(ready, issued, hook, ctx)


async def _record(
    session: Session, runner: Runner, tool: AnyTool, row: Effect, issued: Effect, ran: Ran
) -> tuple[UndoStatus, str]:
    """Record how the undo ended. With its completion the effect counts as taken back."""
    definite = runner.ledger.is_definite(tool, issued, ran)
    status: UndoStatus = "undone" if ran.done else "failed" if definite else "in_doubt"
    why = "" if ran.done else ran.why
    if status == "undone":
        given = as_given(ran.value, f"undo of {tool.name}", changes_the_world=True)
        await runner.ledger.complete(issued, given, ran.latency_ms)
        session._writer.record(ToolUndone(issued=row.issued, by=issued.issued))
    elif status == "failed":
        runner.ledger.fail(issued, f"undo of {tool.name}: {why}", why, final=True)
    else:
        runner.ledger.doubt(issued, why)
    await session.flush()
    if status == "undone" and row.scope == "global":
        await runner.reconciler.claims.free(row)
    return status, why


def _find_intent(session: Session, issued: int) -> tuple[ToolIssued | None, SessionId]:
    """The intent of an effect (None if it was erased), and the session that did it: a fork inherits those of
    its origin."""
    journal = Journal(session._writer.engine.driver, session.id)
    for entry in journal.entries(issued - 1, issued, said=False):
        if isinstance(entry.body, ToolIssued):
            return None if entry.details_erased else entry.body, journal.find_owner(issued).id
    raise Corrupt(journal.where, "the intent is not there", seq=issued)
