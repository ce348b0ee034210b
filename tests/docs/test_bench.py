"""The benchmarks run and print their table. What they measure is for people to judge: no times here."""

import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT

long = partial(pytest.param, marks=pytest.mark.long)


@pytest.mark.parametrize(
    ("script", "options", "expected"),
    [
        (
            "dispatch.py",
            ["--quick", "--rounds", "1"],
            ["pydantic alone", "two raw commits", "a sync body / a bare hop"],
        ),
        (
            "blobs.py",
            ["--steps", "20", "--megabytes", "2", "--rounds", "2", "--homes", "dir", "sqlite", "s3"],
            ["dir", "sqlite", "s3", "peak", "beyond the bytes stored once"],
        ),
        long("fleet.py", ["--quick"], ["pick-up", "take-over, same machine", "expected below 20"]),
        long(
            "crashes.py",
            ["--quick", "--only", "langgraph-sqlite", "step-persistence"],
            ["charge twice", "mail twice", "both ended"],
        ),
    ],
)
def test_a_benchmark_prints_its_table(
    script: str, options: list[str], expected: list[str], quick_path: Path
) -> None:
    """And leaves nothing behind."""
    quick_path.chmod(0o755)  # PostgreSQL does not run as root, and must get there.
    command = [sys.executable, str(ROOT / "bench" / script), *options, "--directory", str(quick_path)]
    path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=110
    )
    assert done.returncode == 0, done.stderr
    assert all(word in done.stdout for word in expected)
    assert list(quick_path.iterdir()) == []
