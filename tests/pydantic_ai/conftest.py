"""pydantic-ai runs on asyncio."""

import pytest


@pytest.fixture
def anyio_backend() -> str:
    """The only one there is for it."""
    return "asyncio"
