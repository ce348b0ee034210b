"""Erasing what was said, and deleting all of a session."""

from __future__ import annotations

from copy import copy

from ..core.codec import erase as erase_line
from ..core.codec import parse
from ..core.entries import SessionErased
from ..drivers.contract import Done, Outcome
from ..engine.engine import Engine
from ..errors import Fenced
from ..limits import READ_LINES
from ..session.effect_claims import settle_claims
from ..session.session import Session

_SAID = frozenset(
    {
        "message.added",
        "model.replied",
        "transcript.compacted",
        "tool.completed",
        "tool.ran",
        "tool.failed",
        "tool.refused",
        "tool.reported",
        "tool.in_doubt",
        "tool.settled",
        "approval.refused",
        "adapter.steps.snapshot",
    }
)
"""Kinds whose content is what somebody said, or what a tool gave."""


async def erase(engine: Engine, session: Session) -> None:
    """Put digests in the place of contents. The driver leaves those that a fork refers to."""
    session._writer.record(SessionErased(upto=session.state.seq))
    await session.flush()
    outcome = await engine.call(_erase, engine, session)
    if not isinstance(outcome, Done):
        raise Fenced(session.id, fence=session.fence)
    await session._writer.reload()


def _erase(engine: Engine, session: Session) -> Outcome:
    driver, head = engine.driver, copy(session.state.facts.head)
    after = 0
    lines: dict[int, bytes] = {}
    while found := driver.read(session.id, after, READ_LINES):
        for data in found:
            line = parse(data, session.id)
            after = line.seq
            if line.kind in _SAID:
                lines[line.seq] = erase_line(data, session.id)
    head.title = ""
    return driver.erase(session.id, head.sum, lines, head)


async def delete(engine: Engine, session: Session) -> None:
    """Remove the session, as its holder: nobody can have taken it meanwhile."""
    await session.flush()
    await engine.call(settle_claims, engine, session)
    outcome = await engine.call(engine.driver.delete, session.id, session.state.facts.head.sum)
    if not isinstance(outcome, Done):
        raise Fenced(session.id, fence=session.fence)
    session._writer.mark_deleted()
