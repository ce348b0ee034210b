"""The two examples about tools show what they promise."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def run(name: str, *arguments: str, directory: Path) -> list[str]:
    """The lines that it prints."""
    path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, str(ROOT / "examples" / name), *arguments]
    done = subprocess.run(
        command,
        cwd=directory,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


@pytest.mark.parametrize("store", [None, "dir:agents"])
def test_a_payment_that_landed_before_its_process_was_killed_is_made_once(
    store: str | None, tmp_path: Path
) -> None:
    """The second process finds it in doubt, asks the bank, and is given the result."""
    assert run("payment_with_verify.py", *([store] if store else []), directory=tmp_path) == [
        "the first process ended with SIGKILL",
        "in doubt: ['c1']; asking the bank …",
        "result: paid 42",
        "payments at the bank: 1",
    ]


def test_an_approval_comes_from_a_second_process(tmp_path: Path) -> None:
    """With other arguments; the third process goes on with them."""
    printed = run("approval_by_second_process.py", directory=tmp_path)
    assert printed[0].startswith("agent: waiting: refund: waits for a person's approval")
    assert printed[-1] == "agent: completed: refunded 4900 for 42"
