"""The plug is pulled: nothing that was acknowledged is lost."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.stores import on_every_driver

from .warm import ROOT


def _find_tool() -> Path:
    shared = Path(os.environ.get("HOLDFAST_SHARED") or ROOT.parent / "shared")
    tool = shared / "tools" / "power_cut.py"
    if not tool.exists():
        pytest.skip(f"{tool} is missing; HOLDFAST_SHARED names the folder that has tools/power_cut.py")
    return tool


def _pull_the_plug(scheme: str, temporary: Path, *, trials: int, seconds: float) -> None:
    command = [sys.executable, str(_find_tool()), "--trials", str(trials), "--seconds", str(seconds)]
    worker = [sys.executable, "-m", "tests.crash.power_worker", scheme]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TMPDIR": str(temporary)}
    done = subprocess.run(
        [*command, "--", *worker], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=240
    )
    print(done.stdout, done.stderr)
    results = [json.loads(line) for line in done.stdout.splitlines()]
    if done.returncode == 2:
        why = results[-1]["unavailable"] if results else done.stderr
        if os.environ.get("CI") == "true" and os.geteuid() == 0:
            pytest.fail(f"power cuts must be possible in CI: {why}")
        pytest.skip(f"power cuts cannot be made here: {why}")
    assert done.returncode == 0, f"{results}\n{done.stderr}"
    assert [result["lost"] for result in results] == [0] * trials
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
