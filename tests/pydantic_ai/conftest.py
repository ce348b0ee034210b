"""pydantic-ai runs on asyncio."""

import pytest

from tests.crash.fork_server import Warm


@pytest.fixture
def anyio_backend() -> str:
    """The only one there is for it."""
    return "asyncio"


@pytest.fixture(scope="session")
def warm(loaded_warm: Warm) -> Warm:
    """Children here import frameworks."""
    return loaded_warm
