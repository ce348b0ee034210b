"""In children: a holder in the middle of a step, and a person elsewhere who says what became of a call."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from holdfast.core.entries import InboxTaken, ToolSettled, Verdict

from ..crash.fork_server import Line
from . import boundaries
from . import matrix_tools as toolbox
from .boundaries import Point
from .matrix_process import Life, Report, open_life
from .scenarios import calls


def step(line: Line, folder: str, scheme: str, tools: Sequence[str], target: Sequence[Any] | None) -> Report:
    """Take one step with these tools, twice if a call is still in doubt: a person may have spoken meanwhile.

    The test is told when a tool waits for it. Dies at the target, or tells the boundaries.
    """
    toolbox.keep_gates(line, Path(folder))
    boundaries.path.arm(Point(*target) if target else None)

    async def act(life: Life) -> Report:
        async with life.store.session("s", wait_s=5) as session:
            first = await life.drive(session, {"step": calls(*(f"{tool} 1" for tool in tools))})
            done = first or await life.drive(session, {"step": calls(*(f"{tool} 1" for tool in tools))})
            last = session.transcript[-1]
            results = [
                {"text": block.content, "is_error": block.is_error}
                for block in getattr(last, "blocks", ())
                if hasattr(block, "is_error")
            ]
            return {
                "done": done,
                "results": results,
                "statuses": [row.status for row in session.state.facts.effects.rows.values()],
                "problems": [*life.problems, *map(str, session.problems)],
                "points": boundaries.path.passed,
            }

    return open_life(folder, scheme, act)


def say(line: Line, folder: str, scheme: str, verdict: Verdict, result: str | None) -> str:
    """Say what became of the first call, whoever holds the session."""

    async def act(life: Life) -> str:
        return await life.store.resolve("s", "call_0", verdict, by="ann", note="I looked", result=result)

    return open_life(folder, scheme, act)


def count(line: Line, folder: str, scheme: str) -> Report:
    """How often a verdict was taken in, was too late, and settled something."""

    async def act(life: Life) -> Report:
        found = {"taken": 0, "late": 0, "by a person": 0, "by verify": 0}
        async for entry in life.store.tail("s", follow=False):
            body = entry.body
            if isinstance(body, InboxTaken):
                found["late" if body.late else "taken"] += 1
            elif isinstance(body, ToolSettled):
                found["by a person" if body.by == "ann" else "by verify"] += 1
        return found

    return open_life(folder, scheme, act)
