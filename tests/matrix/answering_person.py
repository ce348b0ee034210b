"""In a child: the person who is asked when nobody else knows. Most look at the world and tell the truth."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.ids import SessionId
from holdfast.records import Doubt

from ..crash.fork_server import Line
from .matrix_process import Life, Report, run
from .scenarios import SCENARIOS, Persona


def answer(
    line: Line, folder: str, scheme: str, scenario: str, target: Sequence[Any] | None = None
) -> Report:
    """Say what became of every call in doubt, and answer every question. Dies at the target."""
    persona: Persona = SCENARIOS[scenario].persona if scenario in SCENARIOS else "truthful"

    async def act(life: Life) -> str:
        async for doubt in life.store.in_doubt():
            await _resolve(life, doubt, persona)
        async for head in life.store.sessions():
            state = await life.store.load(head.session)
            for asked in list(state.facts.effects.questions):
                await _decide(life, head.session, asked, persona)
        return "answered"

    return run(folder, scheme, target, act)


async def _resolve(life: Life, doubt: Doubt, persona: Persona) -> None:
    row, deed = doubt.effect, life.world.find(doubt.effect.key)
    if persona == "gives up":
        await life.store.resolve(doubt.session, row.issued, "gave_up", by="ann")
    elif deed is None:
        await life.store.resolve(doubt.session, row.issued, "not_landed", by="ann", note="I looked")
    else:
        await life.store.resolve(doubt.session, row.issued, "landed", by="ann", result=deed.result)


async def _decide(life: Life, session: SessionId, asked: int, persona: Persona) -> None:
    if persona == "refuses":
        await life.store.refuse(session, asked, by="bob", reason="I'd rather not know")
    elif persona == "corrects":
        await life.store.approve(session, asked, by="bob", args={"what": "2"})
    else:
        await life.store.approve(session, asked, by="bob")
