"""The examples about tools show what they promise."""

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
    """The second process finds it in doubt, asks the bank, and goes on with the result."""
    assert run("payment_with_verify.py", *([store] if store else []), directory=tmp_path) == [
        "a process charges the card …",
        "  it ended with SIGKILL",
        "another one goes on …",
        "  in doubt: asking the bank …",
        "  completed: Order 42 is paid.",
        "payments at the bank: 1",
    ]


def test_an_approval_comes_from_a_second_process(tmp_path: Path) -> None:
    """With other arguments; the third process goes on with them."""
    assert run("approval_by_second_process.py", directory=tmp_path) == [
        "agent: waiting: approval",
        "ann: refund {'order': '42', 'cents': 9900}? Half of it is fair.",
        "agent: completed: Done: refunded 4900 cents for order 42.",
    ]


@pytest.mark.parametrize("store", [None, "dir:agents"])
def test_delegates_that_were_killed_go_on_where_they_were(store: str | None, tmp_path: Path) -> None:
    """No map is ordered twice, and the editor gets what both of them found."""
    printed = run("delegate_research.py", *([store] if store else []), directory=tmp_path)
    assert "  all of them ended with SIGKILL" in printed
    assert "  editor: Lyon has two rivers. Bern has one river and a moat of hills." in printed
    assert printed[-1] == "ordered: a map of Bern, a map of Lyon"
