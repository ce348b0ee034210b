"""What the suites of the effect ledger share: a warm parent, a seed, and a place that is quick."""

import os
import random
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ..crash.warm import Warm

_MEMORY = Path("/dev/shm")


@pytest.fixture(scope="session")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warm]:
    """The process that children are forked from."""
    parent = Warm(tmp_path_factory.mktemp("warm"))
    yield parent
    parent.close()


@pytest.fixture
def quick_path() -> Iterator[Path]:
    """A directory in memory, where there is one: a kill leaves the page cache alone, so that a sync need not
    reach a disk."""
    place = _MEMORY if os.access(_MEMORY, os.W_OK) else None
    path = Path(tempfile.mkdtemp(prefix="holdfast-matrix-", dir=place))
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
