"""What waits for a person, and the answers: calls to approve, and calls in doubt."""

from __future__ import annotations

import logging
from datetime import datetime
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Struct
from msgspec.structs import replace

from ..core.effects import Effect, Question
from ..core.entries import InboxApproval, InboxVerdict, Verdict
from ..core.fold import Facts
from ..core.session_state import SessionState
from ..engine.engine import Engine
from ..engine.journal import Journal
from ..errors import BadInput, Corrupt, LeaseHeld, NotFound
from ..ids import SessionId, check_text
from ..messages import Json, refuse_unfaithful
from ..session.effect_claims import OperationVerdict, list_doubts, settle_operation
from ..session.inbox import encode_item

if TYPE_CHECKING:
    from .store import Store

log = logging.getLogger("holdfast")
Answered: TypeAlias = Literal["settled", "posted", "late"]
"""Taken in at once, left in the inbox for the holder of the session, or too late to change anything."""


class Waiting(Struct, frozen=True, kw_only=True):
    """A call that waits for a person's answer: `store.approve`, `refuse` or `resolve`.

    `entry` and `since` are the entry that asked, or issued the call, and its time. A call in doubt has in
    `why` also what its verify hook said, and in `notes` what its body noted with `ctx.annotate`. One of a
    deleted session has an `operation`, for `store.resolve_operation`. `delegate`: another process works on
    the session of a delegate, so there is nothing to answer. `effect` is the row of a call in doubt that was
    read from a journal; `schema`, the recorded JSON Schema of the arguments of a call to approve.
    """

    session: SessionId
    call: str
    tool: str
    kind: Literal["approval", "in_doubt", "delegate"]
    why: str = ""
    args: Json = None
    entry: int
    since: datetime
    operation: str | None = None
    notes: dict[str, Json] = {}
    effect: Effect | None = None
    schema: Json = None


class Doubt(Struct, frozen=True):
    """A call in doubt, and its session.

    If the session was deleted, `operation` is what `resolve_operation` needs; else it is None.
    """

    session: SessionId
    effect: Effect
    operation: str | None = None


def list_waiting(state: SessionState) -> list[Waiting]:
    """What an open session waits for, without its delegates: calls to approve, then calls in doubt."""
    session = state.facts.head.session
    questions = [_ask(session, question) for question in state.facts.effects.questions.values()]
    return [*questions, *(_as_waiting(Doubt(session, row)) for row in _list_in_doubt(state.facts, held=True))]


async def find_waiting(store: Store) -> list[Waiting]:
    """What all sessions of a store wait for, the oldest first."""
    found = await find_waiting_of_deleted(store)
    async for head in store.sessions():
        if head.waiting or head.in_doubt:
            try:
                found += await read_waiting(store, head.session)
            except (
                Corrupt,
                NotFound,
            ) as error:  # One damaged session must not hide what the others wait for.
                log.warning("session %s is left out: %s", head.session, error)
    return sorted(found, key=lambda one: (one.since, one.entry))


async def read_waiting(store: Store, session: SessionId) -> list[Waiting]:
    """What a session waits for, read from its journal: calls to approve, then calls in doubt."""
    return await store._engine.call(_read_waiting, store._engine, session)


def _read_waiting(engine: Engine, session: SessionId) -> list[Waiting]:
    facts = Journal(engine.driver, session).fold().facts
    questions = [_ask(session, question) for question in facts.effects.questions.values()]
    doubts = _list_in_doubt(facts, held=_is_held(engine, facts))
    return [*questions, *(_as_read(Doubt(session, row)) for row in doubts)]


async def find_waiting_of_deleted(store: Store) -> list[Waiting]:
    """The calls in doubt of deleted sessions, which other sessions may still repeat."""
    return [_as_read(doubt) for doubt in await store._engine.call(gone_doubts, store._engine)]


def _ask(session: SessionId, question: Question) -> Waiting:
    return Waiting(
        session=session,
        call=question.call.id,
        tool=question.tool,
        kind="approval",
        why=question.why,
        args=question.args,
        entry=question.asked,
        since=question.at,
        schema=question.schema,
    )


def _as_read(doubt: Doubt) -> Waiting:
    """A call of a state that nothing changes any more."""
    return replace(_as_waiting(doubt), effect=doubt.effect)


def _as_waiting(doubt: Doubt) -> Waiting:
    row = doubt.effect
    return Waiting(
        session=doubt.session,
        call=row.call.id,
        tool=row.tool,
        kind="in_doubt",
        why=row.reason,
        args=row.args,
        entry=row.issued,
        since=row.at,
        operation=doubt.operation,
        notes=row.notes,
    )


def _list_in_doubt(facts: Facts, *, held: bool) -> list[Effect]:
    """The calls in doubt of a session. A running effect counts if no live process holds the session."""
    rows = [facts.effects.rows[issued] for issued in facts.effects.open]
    return [row for row in rows if row.status == "in_doubt" or (row.changes_the_world and not held)]


def open_doubts(engine: Engine, session: SessionId) -> list[Doubt]:
    """The calls in doubt of a session, read from its journal. Blocks."""
    facts = Journal(engine.driver, session).fold().facts
    return [Doubt(session, row) for row in _list_in_doubt(facts, held=_is_held(engine, facts))]


def _is_held(engine: Engine, facts: Facts) -> bool:
    lease = facts.head.lease
    return lease is not None and engine.heartbeat.judge(lease.holder).alive


def gone_doubts(engine: Engine) -> list[Doubt]:
    """The calls in doubt that deleted sessions left, and that other sessions may still repeat. Blocks."""
    return [
        Doubt(claim.session, claim.effect, operation)
        for operation, claim in list_doubts(engine)
        if claim.session is not None and claim.effect is not None
    ]


async def resolve(
    store: Store, session: SessionId, call: str | int, verdict: Verdict, by: str, note: str, result: Json
) -> Answered:
    """Answer for a call in doubt; `call` is its id, or the `seq` of its intent."""
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
    """Answer for an operation in doubt of a deleted session."""
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
    """Approve a call that waits, perhaps with other arguments, or refuse it."""
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
    """Reject an id that several calls have: the answer could go to the wrong one. Providers reuse ids."""
    if len(lines) > 1:
        raise BadInput(f"{len(lines)} calls {call!r} wait; name one by its entry: {lines}")
