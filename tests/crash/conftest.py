"""What the crash suites share: a warm parent, a seed, and a place that is quick."""

import os
import random
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from .warm import Warm

_MEMORY = Path("/dev/shm")


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
    path = Path(tempfile.mkdtemp(prefix="holdfast-crash-", dir=place))
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


@pytest.fixture
def url(scheme: str, quick_path: Path) -> str:
    """A store that is not there yet."""
    return f"{scheme}:{quick_path}/store"
