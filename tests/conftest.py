"""What every test may ask for."""

import os
import random
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

from holdfast.store.driver import Driver
from holdfast.store.memory import MemoryDriver
from tests.crash.warm import Warm

_MEMORY = Path("/dev/shm")

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


# -- for processes that are killed -----------------------------------------------------------------------


@pytest.fixture(scope="session")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warm]:
    """The process that children are forked from."""
    if not hasattr(os, "pidfd_open"):
        pytest.skip("children are steered through process descriptors, which only Linux has")
    parent = Warm(tmp_path_factory.mktemp("warm"))
    yield parent
    parent.close()


@pytest.fixture
def quick_path() -> Iterator[Path]:
    """A directory in memory, where there is one: what a kill leaves in the page cache is there all the same,
    so a sync need not reach a disk."""
    place = _MEMORY if os.access(_MEMORY, os.W_OK) else None
    path = Path(tempfile.mkdtemp(prefix="holdfast-test-", dir=place))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def seed() -> int:
    """Printed with a failure; set HOLDFAST_SEED to it to make the same choices again."""
    chosen = int(os.environ.get("HOLDFAST_SEED") or random.randrange(10**6))
    print(f"HOLDFAST_SEED={chosen}")
    return chosen


@pytest.fixture(params=["dir", "sqlite"])
def scheme(request: pytest.FixtureRequest) -> str:
    """Every driver that outlives its process."""
    return str(request.param)
