"""Stores for the tests of agents of LangChain, which know asyncio only."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

import holdfast


@pytest.fixture
def anyio_backend() -> str:
    """LangChain knows asyncio only."""
    return "asyncio"


@pytest.fixture
async def store() -> AsyncIterator[holdfast.Store]:
    """An open store."""
    async with holdfast.open_store("memory:") as opened:
        yield opened
