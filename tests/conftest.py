"""What every test may ask for."""

import signal
from pathlib import Path

import hypothesis
import pytest

from holdfast.store.driver import Driver
from holdfast.store.memory import MemoryDriver

# Whoever starts the tests in the background has Ctrl-C ignored, and so would every process they start.
signal.signal(signal.SIGINT, signal.default_int_handler)

# A busy machine is no failure.
hypothesis.settings.register_profile("holdfast", deadline=None, print_blob=True)
hypothesis.settings.load_profile("holdfast")


@pytest.fixture(params=["memory", "dir", "sqlite"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str | Driver:
    """A store of each kind. Opened again by the same test, it is the same store."""
    where: dict[str, str | Driver] = {
        "memory": MemoryDriver(),
        "dir": f"dir:{tmp_path}/store",
        "sqlite": f"sqlite:{tmp_path}/store.db",
    }
    return where[request.param]
