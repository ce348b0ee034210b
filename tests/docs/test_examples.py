"""Every program in `examples/` does what it says, also when it is killed."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast import blocking
from tests.docs.blocks import ROOT

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def run(example: Path, *arguments: str, directory: Path) -> str:
    """What it prints; it must end well."""
    command = [sys.executable, str(example), *arguments]
    done = subprocess.run(
        command, cwd=directory, env=_environment(), capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def _environment() -> dict[str, str]:
    path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "PYTHONPATH": path, "PYTHONWARNINGS": "error"}


@pytest.mark.parametrize(
    "store",
    [None, *(pytest.param(url, marks=pytest.mark.long) for url in ("memory:", "dir:a", "sqlite:a.db"))],
)
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.stem)
def test_an_example_runs(example: Path, store: str | None, tmp_path: Path) -> None:
    """With its own store and with any other; whatever it makes is in the current directory."""
    assert run(example, *([store] if store else []), directory=tmp_path)


def test_the_two_agents_never_tear_a_paragraph(tmp_path: Path) -> None:
    """One of them is in at a time."""
    printed = run(ROOT / "examples" / "two_agents_one_resource.py", directory=tmp_path)
    assert printed.splitlines()[-1] == "6 paragraphs, none of them torn"


def test_the_blocking_script_files_each_ticket_once(tmp_path: Path) -> None:
    """The second run finds them there."""
    script = ROOT / "examples" / "blocking_script.py"
    assert run(script, directory=tmp_path) == run(script, directory=tmp_path)


@pytest.mark.parametrize("replies", [1, 2, 3, 4])
def test_the_plain_loop_survives_being_killed(replies: int, tmp_path: Path) -> None:
    """Killed after some of the model's replies, it asks only for the others, and ends just the same."""
    loop = ROOT / "examples" / "plain_loop.py"
    run(loop, "sqlite:whole.db", directory=tmp_path)
    command = [sys.executable, "-u", str(loop), "sqlite:killed.db"]
    process = subprocess.Popen(command, cwd=tmp_path, env=_environment(), stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process.stdout:
        for line in process.stdout:
            replies -= line.startswith("  model: ")
            if not replies:
                process.send_signal(signal.SIGKILL)
                break
        assert process.wait() == -signal.SIGKILL
    run(loop, "sqlite:killed.db", directory=tmp_path)
    with blocking.open_store(tmp_path / "whole.db") as store:
        whole = store.load("zoo")
    with blocking.open_store(tmp_path / "killed.db") as store:
        killed = store.load("zoo")
        runs = [one.status for one in store.runs(session="zoo")]
    assert [message.text for message in killed.transcript] == [message.text for message in whole.transcript]
    assert (killed.budget.usd, killed.budget.tokens) == (whole.budget.usd, whole.budget.tokens)
    assert runs == ["interrupted", "completed"]
