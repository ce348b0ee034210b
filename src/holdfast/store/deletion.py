"""Erasing what was said in a session, and deleting it."""

from __future__ import annotations

from msgspec.structs import replace

from ..core.effects import Effects
from ..core.entries import (
    ApprovalAsked,
    ApprovalGiven,
    Entry,
    SessionErased,
    SessionRewound,
    StateSet,
    ToolAnnotated,
    ToolInDoubt,
    ToolIssued,
    ToolReported,
)
from ..core.transcript import Transcript
from ..drivers.contract import ClaimChange, Done, Outcome
from ..engine.engine import Engine
from ..engine.journal import Journal, find_erasures
from ..errors import Fenced
from ..ids import SessionId
from ..session.effect_claims import settle_claims
from ..session.replica import find_replica, replica_key
from ..session.session import Session

_STATE = frozenset({StateSet, SessionRewound})
"""Bodies whose details are user state: the application's own, and not what was said."""

_ENDED = frozenset({"completed", "undone", "gave_up"})
"""A call with this status is not made again."""

_KEPT_CONTENTS = "adapter.langgraph."
"""Contents of these kinds are checkpoints of a graph, which its saver removes."""


async def erase(engine: Engine, session: Session) -> None:
    """Replace what was said by digests. The driver leaves what a fork refers to."""
    session._writer.record(SessionErased(upto=session.state.seq))
    await session.flush()
    outcome = await engine.call(_erase, engine, session)
    if not isinstance(outcome, Done):
        raise Fenced(session.id, fence=session.fence)
    await session._writer.reload()


def _erase(engine: Engine, session: Session) -> Outcome:
    driver, channel = engine.driver, session._writer.channel
    head, sum = channel.head, channel.sum
    assert head is not None
    assert sum is not None
    effects, transcript = session.state.facts.effects, session.state.transcript_fold
    unanswered = transcript.find_unanswered()

    def choose(entry: Entry) -> tuple[bool, bool]:
        if unanswered is not None and entry.seq == unanswered.seq:
            return False, False  # The calls are made by it.
        if _is_needed(entry, effects, transcript):
            return False, False
        return type(entry.body) not in _STATE, not entry.kind.startswith(_KEPT_CONTENTS)

    erased = find_erasures(driver, session.id, choose)
    return driver.erase(session.id, sum, erased, replace(head, sum=sum))


def _is_needed(entry: Entry, effects: Effects, transcript: Transcript) -> bool:
    """Whether the entry belongs to a call that is not settled: it may have to be made again, or shown."""
    body = entry.body
    if isinstance(body, ToolAnnotated):
        # A later attempt has the notes of those before it.
        return any(one.issued in effects.open for one in effects.attempts(effects.rows[body.issued]))
    if isinstance(body, ToolInDoubt | ToolReported):
        return body.issued in effects.open
    if isinstance(body, ToolIssued):
        return entry.seq in effects.open
    if isinstance(body, ApprovalGiven):
        # Without the arguments of the answer, the call would be made with those that it was asked for.
        rows = effects.find_call(body.call)
        has_failed = bool(rows) and rows[-1].status == "failed" and not transcript.lacks_result(body.call)
        return not has_failed and not any(row.status in _ENDED for row in rows)
    return isinstance(body, ApprovalAsked) and entry.seq in effects.questions


def delete_replica(engine: Engine, session: SessionId) -> bool:
    """Delete the session if it is a replica, which no process can have the lease of; whether it was one.
    Blocks."""
    while True:
        record = engine.driver.find_claim(replica_key(session))
        if record is None:
            return False
        facts = Journal(engine.driver, session).fold().facts
        if find_replica(engine.driver, session, facts.head.uid) is None:
            return False
        settle_claims(engine, facts, facts.head.seq)
        # A copy that is under way may have added to it.
        if isinstance(engine.driver.delete(session, facts.head.sum), Done):
            engine.driver.claim(ClaimChange(key=replica_key(session), expect=record, record=None))
            return True


async def delete(engine: Engine, session: Session) -> None:
    """Delete the session under its lease, so that no other process can have taken it meanwhile."""
    await session.flush()
    await engine.call(settle_claims, engine, session.state.facts, session.fence)
    sum = session._writer.channel.sum
    assert sum is not None
    outcome = await engine.call(engine.driver.delete, session.id, sum)
    if not isinstance(outcome, Done):
        raise Fenced(session.id, fence=session.fence)
    session._writer.mark_deleted()
