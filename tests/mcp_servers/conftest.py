"""MCP servers that tests may ask for."""

import os

import pytest

from tests.mcp_servers.servers import why_missing


@pytest.fixture(scope="session", autouse=True)
def servers() -> None:
    """Servers of others are installed."""
    if why := why_missing():
        if os.environ.get("CI") == "true":
            pytest.fail(why)
        pytest.skip(why)
