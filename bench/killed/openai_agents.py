"""An agent of the OpenAI Agents SDK with a `SQLiteSession`: run again with the same session."""

from __future__ import annotations

from agents import Runner, SQLiteSession, set_tracing_disabled

from .openai_clerk import make_agent
from .stage import FINISHED, GO_ON, PROMPT, SESSION, STEPS_MAX, Stage


async def work(stage: Stage) -> str:
    """Begin with the order; with a session that has something in it, ask to go on."""
    set_tracing_disabled(True)
    session = SQLiteSession(SESSION, stage.folder / "session.db")
    prompt = GO_ON if await session.get_items() else PROMPT
    await Runner.run(make_agent(stage), prompt, session=session, max_turns=STEPS_MAX)
    return FINISHED
