"""The plug is pulled: nothing that was acknowledged is lost."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.stores import on_every_driver

from .power_cut import ToolMissing, Unavailable, pull_the_plug


def _pull_the_plug(scheme: str, temporary: Path, *, trials: int, seconds: float) -> None:
    worker = "tests.crash.power_worker"
    try:
        results = pull_the_plug(worker, [scheme], temporary, trials=trials, seconds=seconds)
    except Unavailable as error:
        if not isinstance(error, ToolMissing) and os.environ.get("CI") == "true" and os.geteuid() == 0:
            pytest.fail(f"power cuts must be possible in CI: {error}")
        pytest.skip(f"power cuts cannot be made here: {error}")
    print(results)
    assert [result["lost"] for result in results] == [0] * trials, results
    assert min(result["acknowledged"] for result in results) > 3, "too little was done to show anything"


@pytest.fixture
def place() -> Iterator[Path]:
    """Where others get in, too: a server of the tests' own runs as nobody."""
    with tempfile.TemporaryDirectory(prefix="holdfast-power-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@on_every_driver
def test_a_power_cut_loses_nothing(scheme: str, place: Path) -> None:
    """A real one, on a file system of its own that forgets whatever was not synced."""
    _pull_the_plug(scheme, place, trials=1, seconds=1.0)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_many_power_cuts_lose_nothing(scheme: str, place: Path) -> None:
    """Several, each after a different amount of work."""
    for seconds in (0.05, 0.3, 0.8, 1.5, 2.5):
        _pull_the_plug(scheme, place, trials=2, seconds=seconds)
