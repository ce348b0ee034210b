"""An agent of the OpenAI Agents SDK under `DurableRunner`: the same call, the first time or not."""

from __future__ import annotations

from typing import Any

from agents import FunctionTool, set_tracing_disabled

from holdfast import Landed, NotLanded, open_store
from holdfast.adapters.openai_agents import DurableRunner, HoldfastSession, RunWaits, effects

from .openai_clerk import make_agent
from .stage import ASKED, EFFECTS, FINISHED, PROMPT, SESSION, STEPS_MAX, Stage


async def work(stage: Stage) -> str:
    """On SQLite."""
    set_tracing_disabled(True)

    def declare(tool: FunctionTool) -> FunctionTool:
        async def verify(number: int) -> Landed | NotLanded:
            return Landed(f"{tool.name} done") if stage.has_happened(tool.name) else NotLanded()

        if tool.name in EFFECTS:
            return effects(side_effects="mutate", verify=verify)(tool)
        return effects(side_effects="read")(tool)

    async with open_store(f"sqlite:{stage.folder}/agents.db", lease_s=stage.lease_s) as store:
        session = HoldfastSession(SESSION, store)
        runner: Any = DurableRunner.with_options(wait_s=stage.wait_s)
        try:
            await runner.run(
                make_agent(stage, declare), PROMPT, session=session, run_key=SESSION, max_turns=STEPS_MAX
            )
        except RunWaits:
            return ASKED
    return FINISHED
