"""A notes server for each test, and both eras of the protocol."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.fork_server import Warm
from tests.mcp_proxy.raw_client import LEGACY, MODERN, Notes


@pytest.fixture
def notes(quick_path: Path, loaded_warm: Warm) -> Notes:
    """A folder that a server works in, with proxies that start in no time."""
    return Notes(quick_path, loaded_warm)


@pytest.fixture
def real_notes(tmp_path: Path) -> Notes:
    """The same with proxies that are started as clients start them."""
    return Notes(tmp_path)


@pytest.fixture(params=[LEGACY, MODERN])
def era(request: pytest.FixtureRequest) -> str:
    """Each era of the protocol."""
    found: str = request.param
    return found
