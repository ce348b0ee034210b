"""What the crash suites share."""

from pathlib import Path

import pytest


@pytest.fixture
def url(scheme: str, quick_path: Path) -> str:
    """A store that is not there yet."""
    return f"{scheme}:{quick_path}/store"
