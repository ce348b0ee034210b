"""What people answer: what became of a call in doubt, and whether a call may be made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Struct

from ..core.effects import Effect, Question
from ..core.entries import InboxApproval, InboxVerdict, Verdict
from ..core.session_state import SessionState
from ..engine.engine import Engine
from ..engine.journal import Journal
from ..errors import BadInput, LeaseHeld, NotFound
from ..ids import SessionId, check_text
from ..messages import Json, refuse_unfaithful
from ..session.effect_claims import OperationVerdict, list_doubts, settle_operation
from ..session.inbox import encode_item

if TYPE_CHECKING:
    from .store import Store

Answered: TypeAlias = Literal["settled", "posted", "late"]
"""Taken in at once, left for whoever holds the session, or too late to change anything."""


class Doubt(Struct, frozen=True):
    """A call in doubt, and its session. `operation` is what to resolve if that one was deleted, by
    `resolve_operation`; else it is None."""

    session: SessionId
    effect: Effect
    operation: str | None = None


def open_doubts(engine: Engine, session: SessionId) -> list[Doubt]:
    """The calls in doubt of a session. One that runs counts if its holder is gone."""
    facts = Journal(engine.driver, session).fold().facts
    lease = facts.head.lease
    held = lease is not None and engine.heartbeat.judge(lease.holder).alive
    rows = [facts.effects.rows[issued] for issued in facts.effects.open]
    return [
        Doubt(session, row)
        for row in rows
        if row.status == "in_doubt" or (row.changes_the_world and not held)
    ]


def gone_doubts(engine: Engine) -> list[Doubt]:
    """What deleted sessions left in doubt, and others may still want."""
    return [
        Doubt(claim.session, claim.effect, operation)
        for operation, claim in list_doubts(engine)
        if claim.session is not None and claim.effect is not None
    ]


async def resolve(
    store: Store, session: SessionId, call: str | int, verdict: Verdict, by: str, note: str, result: Json
) -> Answered:
    """Say what became of a call; `call` is its id, or the `seq` of its intent."""
    if verdict not in ("landed", "not_landed", "gave_up"):
        raise BadInput(f"a verdict is landed, not_landed or gave_up, not {verdict!r}")
    _check_result(verdict, result)
    _check_by(by)
    row = _find_effect(await store._engine.call(_fold, store._engine, session), call)
    text = result if isinstance(result, str) else msgspec.json.encode(result).decode()
    landed = verdict == "landed"
    item = InboxVerdict(
        issued=row.issued,
        verdict=verdict,
        by=by,
        note=note,
        content=text if landed else None,
        value=result if landed else None,
    )
    return await _answer(store, session, encode_item(item))


async def resolve_operation(
    engine: Engine, operation: str, verdict: OperationVerdict, by: str, note: str, result: Json
) -> Answered:
    """Say what became of an operation whose session is gone."""
    if verdict not in ("landed", "not_landed"):
        raise BadInput(f"an operation is landed or not_landed, not {verdict!r}; until then it stays blocked")
    _check_result(verdict, result)
    _check_by(by)
    check_text("operation", operation)
    settled = await engine.call(settle_operation, engine, operation, verdict, by, note, result)
    return "settled" if settled else "late"


async def decide(
    store: Store,
    session: SessionId,
    call: str | int,
    by: str,
    note: str,
    *,
    approved: bool,
    args: Json | None,
) -> Answered:
    """Approve a call, perhaps with other arguments, or refuse it."""
    _check_by(by)
    refuse_unfaithful(args, "args")
    question = _find_question(await store._engine.call(_fold, store._engine, session), call)
    item = InboxApproval(
        asked=question.asked, approved=approved, by=by, args=UNSET if args is None else args, note=note
    )
    return await _answer(store, session, encode_item(item))


async def _answer(store: Store, session: SessionId, item: bytes) -> Answered:
    """Post the item. If no process holds the session, open it, which takes the item in at once."""
    number = await store._engine.call(store._engine.driver.post, session, item)
    try:
        async with store.session(session, create=False) as opened:
            return "late" if number in opened.state.facts.late else "settled"
    except LeaseHeld:
        return "posted"


def _fold(engine: Engine, session: SessionId) -> SessionState:
    return Journal(engine.driver, session).fold()


def _check_by(by: str) -> None:
    if not by.strip():
        raise BadInput("say who decides: by=…")
    check_text("by", by)


def _check_result(verdict: Verdict, result: Json) -> None:
    if result is not None and verdict != "landed":
        raise BadInput("only a call that landed has a result")
    refuse_unfaithful(result, "result")


def _find_effect(state: SessionState, call: str | int) -> Effect:
    rows = [row for row in state.facts.effects.rows.values() if call in (row.call.id, row.issued)]
    waiting = [row for row in rows if row.issued in state.facts.effects.open]
    if not rows:
        doubts = ", ".join(row.call.id for row in state.in_doubt) or "none"
        raise NotFound(f"session {state.facts.head.session!r} issued no call {call!r}; in doubt: {doubts}")
    _refuse_ambiguous(call, [row.issued for row in waiting])
    return (waiting or rows)[-1]


def _find_question(state: SessionState, call: str | int) -> Question:
    questions = state.facts.effects.questions.values()
    found = [question for question in questions if call in (question.call.id, question.asked)]
    if not found:
        waiting = ", ".join(question.call.id for question in questions) or "none"
        raise NotFound(
            f"session {state.facts.head.session!r} asks nothing about {call!r}; to approve: {waiting}"
        )
    _refuse_ambiguous(call, [question.asked for question in found])
    return found[0]


def _refuse_ambiguous(call: str | int, lines: list[int]) -> None:
    """Providers use call ids again: an answer must not go to another call than the person meant."""
    if len(lines) > 1:
        raise BadInput(f"{len(lines)} calls {call!r} wait; name one by its entry: {lines}")
