"""LangGraph's checkpointers and ours, opened as their documentation says."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from bench.subjects.contract import Place
from holdfast.adapters.langgraph import HoldfastSaver

POOL = 10
"""Connections of LangGraph's saver on PostgreSQL."""


@asynccontextmanager
async def _holdfast(url: str) -> AsyncIterator[BaseCheckpointSaver[Any]]:
    async with HoldfastSaver.from_url(url) as saver:
        yield saver


@asynccontextmanager
async def _stock_sqlite(place: Place) -> AsyncIterator[BaseCheckpointSaver[Any]]:
    async with AsyncSqliteSaver.from_conn_string(f"{place.directory}/graphs.db") as saver:
        yield saver


@asynccontextmanager
async def _stock_postgres(place: Place) -> AsyncIterator[BaseCheckpointSaver[Any]]:
    from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
    from psycopg.rows import dict_row
    from psycopg_pool import AsyncConnectionPool

    options = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
    async with AsyncConnectionPool(place.postgres, kwargs=options, max_size=POOL, open=False) as pool:
        yield AsyncPostgresSaver(pool)


OPENERS: Final[dict[str, Callable[[Place], AbstractAsyncContextManager[BaseCheckpointSaver[Any]]]]] = {
    "holdfast_sqlite": lambda place: _holdfast(f"sqlite:{place.directory}/graphs.db"),
    "holdfast_postgresql": lambda place: _holdfast(place.postgres),
    "stock_sqlite": _stock_sqlite,
    "stock_postgresql": _stock_postgres,
}


async def set_up(saver: BaseCheckpointSaver[Any]) -> None:
    """What LangGraph's documentation asks for when a database is used for the first time."""
    if not isinstance(saver, HoldfastSaver):
        await saver.setup()  # type: ignore[attr-defined]
