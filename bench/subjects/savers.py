"""LangGraph's checkpointers and ours, opened as their documentation says."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from bench.subjects.contract import Place
from holdfast.adapters.langgraph import HoldfastSaver

POOL = 10
"""Connections of LangGraph's saver on PostgreSQL."""


@asynccontextmanager
async def holdfast_sqlite(place: Place) -> AsyncIterator[BaseCheckpointSaver[Any]]:
    """Ours, on SQLite."""
    async with HoldfastSaver.from_url(f"sqlite:{place.directory}/graphs.db") as saver:
        yield saver


@asynccontextmanager
async def holdfast_postgres(place: Place) -> AsyncIterator[BaseCheckpointSaver[Any]]:
    """Ours, on PostgreSQL."""
    async with HoldfastSaver.from_url(place.postgres) as saver:
        yield saver


@asynccontextmanager
async def stock_sqlite(place: Place) -> AsyncIterator[BaseCheckpointSaver[Any]]:
    """LangGraph's, on SQLite."""
    async with AsyncSqliteSaver.from_conn_string(f"{place.directory}/graphs.db") as saver:
        yield saver


@asynccontextmanager
async def stock_postgres(place: Place) -> AsyncIterator[BaseCheckpointSaver[Any]]:
    """LangGraph's, on PostgreSQL, with a pool."""
    from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
    from psycopg.rows import dict_row
    from psycopg_pool import AsyncConnectionPool

    options = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
    async with AsyncConnectionPool(place.postgres, kwargs=options, max_size=POOL, open=False) as pool:
        saver: BaseCheckpointSaver[Any] = AsyncPostgresSaver(pool)
        await AsyncPostgresSaver(pool).setup()
        yield saver
