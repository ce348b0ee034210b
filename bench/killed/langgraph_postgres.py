"""A graph on LangGraph's `AsyncPostgresSaver`."""

from __future__ import annotations

from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver

from .graph import build, invoke, make_tools
from .stage import Stage


async def work(stage: Stage) -> str:
    """Begin, or go on."""
    async with AsyncPostgresSaver.from_conn_string(stage.database) as saver:
        await saver.setup()
        return await invoke(build(stage, make_tools(stage), saver))
