"""Savers on each kind of store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import holdfast
from holdfast.adapters.langgraph import HoldfastSaver
from tests.conftest import IN_LONG
from tests.stores import server_url

on_every_store = pytest.mark.parametrize("url", ["memory", "dir", "sqlite", "postgresql"], indirect=True)
"""In `make test`, too; other tests meet PostgreSQL in `make test-long` only."""


@pytest.fixture
def anyio_backend() -> str:
    """LangGraph knows asyncio only."""
    return "asyncio"


@pytest.fixture(params=["memory", "dir", "sqlite", IN_LONG])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store of each kind."""
    match request.param:
        case "memory":
            return "memory:"
        case "postgresql":
            return server_url(request.getfixturevalue("schema"))
        case scheme:
            return f"{scheme}:{tmp_path}/store"


@pytest.fixture
async def store(url: str) -> AsyncIterator[holdfast.Store]:
    """An open store of each kind."""
    async with holdfast.open_store(url) as opened:
        yield opened


@pytest.fixture
def saver(store: holdfast.Store) -> HoldfastSaver:
    """A saver on it."""
    return HoldfastSaver(store)
