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
        ("growth.py", ["--steps", "20", "--repeat", "1"], ["memory", "dir", "sqlite"]),
        (
            "concurrency.py",
            ["--quick", "--seconds", "0.1", "--sessions", "1", "100", "--processes", "2"],
            ["raw SQLite", "sqlite", "dir", "sqlite, 100 sessions / one"],
        ),
        (
            "postgres.py",
            ["--quick", "--seconds", "0.2", "--sessions", "1", "100", "--flat", "20"],
            ["raw INSERT", "100 sessions / one", "by tenths"],
        ),
        (
            "dispatch.py",
            ["--quick", "--rounds", "1"],
            ["pydantic alone", "two raw commits", "a sync body adds"],
        ),
        (
            "blobs.py",
            ["--steps", "20", "--megabytes", "2", "--homes", "dir", "sqlite", "s3"],
            ["dir", "sqlite", "s3", "peak", "beyond the bytes stored once"],
        ),
        long("fleet.py", ["--quick"], ["pick-up", "take-over, same machine", "expected below 20"]),
        long("steps.py", ["--steps", "10"], ["SqliteStepStore", "holdfast", "times faster", "times smaller"]),
        long(
            "pydantic_agents.py",
            ["--steps", "3", "--theirs"],
            ["no persistence", "Durable, a tool that mutates", "their step persistence"],
        ),
        long("graphs.py", ["--steps", "20"], ["AsyncSqliteSaver", "HoldfastSaver", "times smaller on disk"]),
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
