"""Taking effects back: each undo is an effect of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from ..effects import Effect
from ..entries import CallRef, ToolIssued, ToolUndone
from ..errors import Corrupt
from ..messages import Json
from ..session.session import Session
from ..store.journal import Journal
from .canonical import digest
from .gates import Gates
from .ledger import Issue, Ledger
from .outcome import NotDone
from .tool import AnyTool

UndoStatus: TypeAlias = Literal["undone", "cannot", "failed", "in_doubt"]


class Undone(Struct, frozen=True, kw_only=True):
    """What became of an effect that was to be taken back."""

    tool: str
    call: str
    issued: int
    status: UndoStatus
    why: str = ""


async def undo(
    session: Session,
    tools: Mapping[str, AnyTool],
    gates: Gates,
    effects: Sequence[Effect],
    *,
    grace_s: float,
    deps: Any,
) -> list[Undone]:
    """Take the effects back, the last first. One that cannot be is reported, and stays."""
    found: list[Undone] = []
    for row in sorted(effects, key=lambda one: one.issued, reverse=True):
        status, why = await _undo_one(session, tools.get(row.tool), gates, row, grace_s, deps)
        found.append(Undone(tool=row.tool, call=row.call.id, issued=row.issued, status=status, why=why))
    return found


async def _undo_one(
    session: Session, tool: AnyTool | None, gates: Gates, row: Effect, grace_s: float, deps: Any
) -> tuple[UndoStatus, str]:
    if row.status != "completed":
        return "cannot", f"it is {row.status}"
    if tool is None or tool.undo is None:
        return "cannot", "the tool is gone" if tool is None else "the tool has no undo"
    ready = gates.fit(tool, await session.engine.call(_args_of, session, row.issued))
    if ready is None:
        return "cannot", "its arguments no longer fit the tool"
    ledger = Ledger.of(session)
    operation = digest("undo", session.state.facts.head.uid, str(row.issued))
    last = session.state.facts.effects.find_last(operation)
    if last is not None and last.status == "in_doubt":
        return "in_doubt", last.why
    how = Issue(generation=0 if last is None else last.generation + 1)
    call = CallRef(id=f"undo-{row.issued}-{how.generation}")
    issued = ledger.issue(ready, call, "call", operation, how, undoes=row.issued)
    await session.flush()
    ctx = ledger.context(issued, deps)
    ctx.result = (await ledger.recall(row)).value
    ran = await ledger.run(issued, tool.undo, ctx, ready.values, grace_s=grace_s)
    if ran.error is None and not ran.stopped:
        ledger.complete(issued, ran.value, ran.latency_ms)
        session.record(ToolUndone(issued=row.issued, by=issued.issued))
        await session.flush()
        if ran.interrupt is not None:
            raise ran.interrupt
        return "undone", ""
    why = f"{type(ran.error).__name__}: {ran.error}" if ran.error else f"it {ran.stopped}"
    definite = isinstance(ran.error, (NotDone, *tool.harmless))
    if definite:
        ledger.fail(issued, f"undo of {tool.name}: {why}", why, final=True)
    else:
        ledger.doubt(issued, why)
    await session.flush()
    if ran.interrupt is not None:
        raise ran.interrupt
    return ("failed" if definite else "in_doubt"), why


def _args_of(session: Session, issued: int) -> Json:
    journal = Journal(session.engine.driver, session.id)
    for entry in journal.entries(issued - 1, issued):
        if isinstance(entry.body, ToolIssued):
            return entry.body.args
    raise Corrupt(journal.where, "the intent is not there", seq=issued)
