"""An agent of pydantic-ai under `Durable`: the very same `agent.run(…)`, the first time or not."""

from __future__ import annotations

from typing import Any

from holdfast import Landed, NotLanded, open_store
from holdfast.adapters.pydantic_ai import Durable, RunWaits, effects

from .pydantic_clerk import LIMITS, make_agent
from .stage import ASKED, EFFECTS, FINISHED, PROMPT, SESSION, Stage


async def work(stage: Stage) -> str:
    """On SQLite."""

    def declare(name: str) -> Any:
        async def verify(number: int) -> Landed | NotLanded:
            return Landed(f"{name} done") if stage.has_happened(name) else NotLanded()

        if name in EFFECTS:
            return effects(side_effects={"mutate"}, verify=verify)
        return effects(side_effects={"read"})

    async with open_store(f"sqlite:{stage.folder}/agents.db", lease_s=stage.lease_s) as store:
        durable = Durable(store, session=SESSION, once=True, wait_s=stage.wait_s)
        try:
            await make_agent(stage, declare).run(PROMPT, capabilities=[durable], usage_limits=LIMITS)
        except RunWaits:
            return ASKED
    return FINISHED
