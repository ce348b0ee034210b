"""A graph on LangGraph's `AsyncSqliteSaver`."""

from __future__ import annotations

from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from .graph import build, invoke, make_tools
from .stage import Stage


async def work(stage: Stage) -> str:
    """Begin, or go on."""
    async with AsyncSqliteSaver.from_conn_string(str(stage.folder / "graph.db")) as saver:
        return await invoke(build(stage, make_tools(stage), saver))
