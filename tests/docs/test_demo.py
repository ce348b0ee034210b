"""`python -m holdfast.demo` shows what it promises, wherever it is started."""

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from holdfast import blocking
from tests.docs.blocks import ROOT


def start(arguments: list[str], *, output: int, **environment: str) -> subprocess.Popen[bytes]:
    """The demo, which prints to `output`."""
    command = [sys.executable, "-m", "holdfast.demo", *arguments]
    path = {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])}
    names = ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "TERM")
    inherited = {name: value for name, value in os.environ.items() if name not in names}
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.PIPE,
        env={**inherited, **path, **environment},
    )


def play(database: Path, **environment: str) -> str:
    """All that it prints, without a terminal."""
    process = start([str(database)], output=subprocess.PIPE, **environment)
    printed, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, b"")
    return printed.decode()


def play_on_terminal(database: Path, columns: int, **environment: str) -> str:
    """All that it prints on a terminal of this width."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    process = start([str(database), "--pace", "0"], output=theirs, TERM="xterm-256color", **environment)
    os.close(theirs)
    printed = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # The other end was closed.
            part = b""
        if not part:
            break
        printed += part
    os.close(ours)
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, b"")
    return printed.decode()


def test_the_demo_kills_a_process_and_finishes_its_work(tmp_path: Path) -> None:
    """It really was killed, nothing was asked for twice, and the database that stays says so."""
    database = tmp_path / "demo.db"
    printed = play(database)
    assert "exit status -9" in printed
    assert "KILLED" in printed
    assert "3 replies in the journal, 3 requests" in printed
    assert len(database.with_suffix(".bill").read_text().splitlines()) == 3
    with blocking.open_store(database, create=False) as store:
        state = store.load("kelp")
        statuses = [run.status for run in store.runs(session="kelp")]
    assert statuses == ["interrupted", "completed"]
    assert state.continuable
    assert [one.version for one in state.checkpoints] == [1, 2, 3]
    assert state.facts.plan is not None
    assert {step.status for step in state.facts.plan.steps} == {"done"}


def test_without_a_terminal_there_is_no_colour(tmp_path: Path) -> None:
    """Nor anything else that only a terminal understands."""
    assert "\x1b" not in play(tmp_path / "demo.db")


def test_what_to_try_next_works(tmp_path: Path) -> None:
    """Each of the commands that it prints at the end."""
    database = tmp_path / "demo.db"
    printed = play(database, COLUMNS="200")
    queries = re.findall(r'\$db "(SELECT [^"]+)"', printed)
    assert len(queries) == 4
    for query in queries:
        shell = [sys.executable, "-m", "apsw", str(database), query]
        done = subprocess.run(shell, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        assert done.stdout.strip()
    code = re.search(r"(from holdfast import blocking.*?1, 3\)\))", printed, re.DOTALL)
    assert code is not None
    lines = [line.strip("│ \n").rstrip() for line in code[1].splitlines()]
    exec("\n".join([*lines[:2], *(f"    {line}" for line in lines[2:])]), {})


@pytest.mark.parametrize("columns", [40, 80])
def test_a_terminal_of_any_width_will_do(columns: int, tmp_path: Path) -> None:
    """No line is longer than the terminal is wide, and there is colour."""
    printed = play_on_terminal(tmp_path / "demo.db", columns)
    assert "\x1b[31m" in printed
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", printed)
    assert [line for line in plain.splitlines() if len(line) > columns] == []
    assert "KILLED" in plain


def test_no_color_is_respected(tmp_path: Path) -> None:
    """On a terminal, too: bold is all that is left."""
    printed = play_on_terminal(tmp_path / "demo.db", 80, NO_COLOR="1")
    styles = {style for found in re.findall(r"\x1b\[([0-9;]*)m", printed) for style in found.split(";")}
    assert styles <= {"", "0", "1", "2", "3", "4"}


def test_it_does_not_write_over_what_is_there(tmp_path: Path) -> None:
    """Somebody may have wanted to keep it."""
    database = tmp_path / "demo.db"
    database.write_text("mine")
    process = start([str(database)], output=subprocess.PIPE)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 2
    assert b"exists already" in errors
    assert database.read_text() == "mine"


def test_ctrl_c_ends_it_at_once(tmp_path: Path) -> None:
    """Without a traceback, and without leaving its own process behind."""
    process = start([str(tmp_path / "demo.db")], output=subprocess.PIPE, FORCE_COLOR="1")
    assert process.stdout is not None
    pid = None
    for line in process.stdout:
        if found := re.search(rb"process (\d+), store", line):
            pid = int(found[1])
        if b"search_library" in line:
            break
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert errors == b"\nstopped\n"
    assert pid is not None
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
