"""A graph on `HoldfastSaver`, with `durable_tools`."""

from __future__ import annotations

from typing import Any

from langchain_core.tools import BaseTool

from holdfast import Landed, NotLanded, open_store
from holdfast.adapters.langgraph import HoldfastSaver, durable_tools, effects

from .graph import build, invoke, make_tools
from .stage import EFFECTS, Stage


async def work(stage: Stage) -> str:
    """On SQLite."""

    def declare(tool: BaseTool) -> Any:
        async def verify(number: int) -> Landed | NotLanded:
            return Landed(f"{tool.name} done") if stage.has_happened(tool.name) else NotLanded()

        if tool.name in EFFECTS:
            return effects(tool, side_effects={"mutate"}, verify=verify)
        return effects(tool, side_effects={"read"})

    async with open_store(f"sqlite:{stage.folder}/graphs.db", lease_s=stage.lease_s) as store:
        tools = durable_tools([declare(tool) for tool in make_tools(stage)], store=store)
        return await invoke(build(stage, tools, HoldfastSaver(store)))
