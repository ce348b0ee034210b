"""Savers on each kind of store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import holdfast
from holdfast.adapters.langgraph import HoldfastSaver

SCHEMES = ("memory", "dir", "sqlite")


@pytest.fixture
def anyio_backend() -> str:
    """LangGraph knows asyncio only."""
    return "asyncio"


@pytest.fixture(params=SCHEMES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store of each kind."""
    return {"memory": "memory:", "dir": f"dir:{tmp_path}/store", "sqlite": f"sqlite:{tmp_path}/store.db"}[
        request.param
    ]


@pytest.fixture
async def store(url: str) -> AsyncIterator[holdfast.Store]:
    """An open store of each kind."""
    async with holdfast.open_store(url) as opened:
        yield opened


@pytest.fixture
def saver(store: holdfast.Store) -> HoldfastSaver:
    """A saver on it."""
    return HoldfastSaver(store)
