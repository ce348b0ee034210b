"""Every program in `examples/` does what it says, also when it is killed."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast import blocking
from tests.agent.provider_formats import Answer, Call
from tests.agent.provider_server import Asked, serve
from tests.cli.cli_processes import call
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


def clerk(asked: Asked) -> Answer:
    """What a model would reply: it looks the order up, refunds it, and says so."""
    results = [message for message in asked.body["messages"] if message["role"] == "tool"]
    calls = (
        Call(name="find_order", args={"order": "42"}, id="call_0"),
        Call(name="refund", args={"order": "42", "cents": 9900}, id="call_1"),
    )
    if len(results) == len(calls):
        return Answer(text=f"Done: {results[-1]['content']}.")
    return Answer(calls=[calls[len(results)]])


@pytest.mark.parametrize("replies", [2, pytest.param(1, marks=pytest.mark.long)])
def test_a_loop_of_ones_own_goes_on_after_a_kill_and_an_answer(replies: int, tmp_path: Path) -> None:
    """Killed after one of the model's replies, it asks for none of them again, waits for the person, and pays
    once. Started once more while it waits, it ends instead of spinning."""
    loop = ROOT / "examples" / "own_loop.py"
    url = f"sqlite:{tmp_path}/agents.db"
    with serve(clerk) as wire:
        environment = {**_environment(), "OPENAI_BASE_URL": f"{wire.url}/v1"}

        def start(role: str) -> subprocess.Popen[str]:
            command = [sys.executable, "-u", str(loop), "--as", role, url]
            return subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True)

        def finish(role: str) -> list[str]:
            with start(role) as process:
                printed, _ = process.communicate(timeout=300)
            assert process.returncode == 0
            return printed.splitlines()

        with start("agent") as killed:
            assert killed.stdout is not None
            for _ in range(replies):
                assert killed.stdout.readline() == "model: replied\n"
            killed.send_signal(signal.SIGKILL)
            assert killed.wait() == -signal.SIGKILL
        asked = len(wire.asked)
        waits = "waits: refund {'order': '42', 'cents': 9900} (approval)"
        assert finish("agent")[-1] == waits
        assert finish("agent") == [waits]
        assert len(wire.asked) <= max(asked, 2)
        # It passes the name of its agent and a model to its runs, as `Agent` does; it is none.
        shown = call(tmp_path, f"show order-42 --store {url}", COLUMNS="250").out
        assert "next: your program again: it goes on in session 'order-42' of" in shown
        assert "holdfast resume" not in shown
        with blocking.open_store(url) as store:
            store.approve("order-42", "call_1", by="ann")
        assert finish("agent") == ["model: replied", "answer: Done: refunded 9900 cents."]
        assert len(wire.asked) == 3
    assert (tmp_path / "refunds.txt").read_text().count("\n") == 1
    with blocking.open_store(url) as store:
        state = store.load("order-42")
        assert [message.role for message in state.transcript] == [
            "user",
            *("assistant", "tool") * 2,
            "assistant",
        ]
        assert state.budget.tokens == 3 * 120
