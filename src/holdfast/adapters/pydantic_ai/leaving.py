"""Leaving an unfinished step behind, so that something new can begin."""

from __future__ import annotations

from pydantic_ai.messages import ModelRequest, ToolReturnPart

from ...errors import NotFound
from ...session.session import Session
from .history import add

_SAID = "No result: the run was cut off before this call had one, and nobody went on with it."


async def go_back(session: Session) -> int:
    """Return to the last point from which a model can be asked; its version.

    Before the first one, the calls that have no result are answered instead: nothing is known of them.
    """
    try:
        return await session.continue_()
    except NotFound:
        parts = [
            ToolReturnPart(one.name, _SAID, one.call_id, outcome="interrupted")
            for one in session.problems
            if one.kind == "missing"
        ]
        await add(session, [ModelRequest(parts=parts)])
        return await session.checkpoint()
