"""What a step waits for: its calls without a result, and those of the delegates below it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress

from ..core.entries import CallRef
from ..core.session_state import SessionState
from ..errors import NotFound
from ..ids import SessionId
from ..session.session import Session
from ..store.approvals import Waiting, list_waiting
from .lineage import derive_id
from .outcome import Result


class StepResults(list[Result]):
    """The results of the calls of a reply, in their order.

    `waiting` has what must be answered before the step is whole: calls that a person has to approve, calls in
    doubt, delegates that wait. Dispatching the step again before that changes nothing: end the run.
    """

    def __init__(self, results: Iterable[Result], waiting: Iterable[Waiting]) -> None:
        super().__init__(results)
        self.waiting: tuple[Waiting, ...] = tuple(waiting)


async def find_waiting(session: Session) -> tuple[Waiting, ...]:
    """What a session waits for, and what the delegates below it wait for."""
    store = session.store
    found: list[Waiting] = []
    states = [session.state]
    while states:
        state = states.pop()
        found += list_waiting(state)
        # By the open calls: delegates that a rewind left behind may wait for ever.
        for id in _list_delegates(state):
            with suppress(NotFound):
                below = await store.load(id)
                if below.status == "waiting":
                    states.append(below)
    return tuple(found)


def _list_delegates(state: SessionState) -> list[SessionId]:
    """The sessions of the delegates that the last reply called and that have not ended."""
    rows = [
        row
        for ref, _ in state.transcript_fold.list_unanswered()
        for row in state.facts.effects.find_call(ref)[-1:]
        if not row.changes_the_world
    ]
    return [derive_id(state.facts.head.session, row.tool, row.key) for row in rows]


async def find_waiting_calls(
    session: Session, results: Sequence[tuple[CallRef, Result]]
) -> tuple[Waiting, ...]:
    """What the unanswered calls of the last reply wait for: of each, at least one. `results` are theirs."""
    here = {ref.id for ref, _ in results}
    known = await find_waiting(session)
    found = [one for one in known if one.session != session.id or one.call in here]
    asked = {one.call for one in found if one.session == session.id}
    asks_below = any(one.session != session.id for one in found)
    for ref, result in results:
        tried = session.state.facts.effects.find_call(ref)
        if ref.id in asked or (asks_below and tried and not tried[-1].changes_the_world):
            continue
        # Another session has the delegate, or is in doubt about the same operation.
        found.append(
            Waiting(
                session=session.id,
                call=ref.id,
                tool=result.name,
                kind="in_doubt" if result.status == "in_doubt" else "delegate",
                why=result.content,
                entry=tried[-1].issued if tried else ref.reply or 0,
                since=tried[-1].at if tried else session.state.facts.head.updated_at,
            )
        )
    return tuple(found)
