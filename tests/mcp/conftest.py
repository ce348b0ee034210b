"""Servers for the tests of tools from MCP servers."""

from collections.abc import Iterator

import pytest

from tests.crash.fork_server import Warm

from .office import Office, serve


@pytest.fixture(scope="session")
def warm(loaded_warm: Warm) -> Warm:
    """Children here import a framework."""
    return loaded_warm


@pytest.fixture(params=["in process", "in process, legacy", "http", "http, legacy"])
def office(request: pytest.FixtureRequest) -> Iterator[Office]:
    """A server made with the `mcp` package, reached in each way and each era."""
    way, _, era = str(request.param).partition(", ")
    made = Office(protocol=era or "auto")
    if way == "in process":
        yield made
    else:
        with serve(made.mcp) as url:
            made.server = url
            yield made
