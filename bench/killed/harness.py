"""An agent of pydantic-ai under the harness's `StepPersistence`, gone on with by `continue_run`."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from pydantic_ai.messages import ModelMessage
from pydantic_ai_harness.step_persistence import SqliteStepStore, StepPersistence, continue_run

from .pydantic_clerk import LIMITS, make_agent
from .stage import FINISHED, PROMPT, SESSION, Stage


async def work(stage: Stage) -> str:
    """From the latest snapshot that any run of the conversation has left, or from the start."""
    store = SqliteStepStore(database=str(stage.folder / "steps.db"))
    history: list[ModelMessage] | None = None
    for record in reversed(await store.list_runs(conversation_id=SESSION)):
        with suppress(LookupError):
            history = await continue_run(store, run_id=record.run_id, include_interrupted=True)
            break
    capability: Any = StepPersistence(store=store)
    await make_agent(stage, lambda name: None).run(
        None if history else PROMPT,
        message_history=history,
        conversation_id=SESSION,
        capabilities=[capability],
        usage_limits=LIMITS,
    )
    return FINISHED
