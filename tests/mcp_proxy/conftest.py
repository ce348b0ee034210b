"""A notes server for each test, and both eras of the protocol."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mcp_proxy.raw_client import LEGACY, MODERN, Notes


@pytest.fixture
def notes(tmp_path: Path) -> Notes:
    """A folder that a server works in."""
    return Notes(tmp_path)


@pytest.fixture(params=[LEGACY, MODERN])
def era(request: pytest.FixtureRequest) -> str:
    """Each era of the protocol."""
    found: str = request.param
    return found
