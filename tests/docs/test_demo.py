"""`python -m holdfast.demo` shows what it promises, wherever it is started."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from holdfast import blocking
from holdfast.demo.agent import SCRIPT, SESSION
from holdfast.demo.world import World
from holdfast.messages import Message
from tests.docs.blocks import ROOT

_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def make_environment(**changes: str) -> dict[str, str]:
    """Ours, without what would change how it looks."""
    path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    names = ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "TERM")
    inherited = {name: value for name, value in os.environ.items() if name not in names}
    return {**inherited, "PYTHONPATH": path, **changes}


def start(arguments: list[str], *, output: int, **environment: str) -> subprocess.Popen[bytes]:
    """The demo, which prints to `output`."""
    return subprocess.Popen(
        [sys.executable, "-m", "holdfast.demo", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.PIPE,
        env=make_environment(**environment),
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
    process = start([str(database), "--fast"], output=theirs, TERM="xterm-256color", **environment)
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


def play_up_to(process: subprocess.Popen[bytes], words: bytes) -> int:
    """Read until a line has these words; the process that was at work then."""
    assert process.stdout is not None
    pid = None
    for line in process.stdout:
        if found := re.search(rb"process (?:begins|resumes).*\(pid (\d+)\)", line):
            pid = int(found[1])
        if words in line:
            break
    assert pid is not None
    return pid


def expect_end(pid: int) -> None:
    """The process ends, or has ended."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    ended, _, _ = select.select([handle], [], [], 60)
    os.close(handle)
    assert ended


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The database after a performance without a terminal, and what was printed."""
    database = tmp_path_factory.mktemp("demo") / "demo.db"
    return database, play(database)


def test_the_world_has_one_payment_and_one_letter(played: tuple[Path, str]) -> None:
    """By its own books, which holdfast never writes; each was caused by a process that was killed then."""
    database, printed = played
    world = World(database)
    (payment,), (letter,) = world.bank.read(), world.post.read()
    killed = re.findall(r"process is gone \(pid (\d+), exit status -9\)", printed)
    assert [str(payment.by), str(letter.by)] == killed
    assert "1 payment, 1 letter." in printed


def test_the_work_is_finished(played: tuple[Path, str]) -> None:
    """Two runs were cut off, one waited for a person, one ended; the transcript has all of it."""
    database, printed = played
    with blocking.open_store(database, create=False) as store:
        state = store.load(SESSION)
        statuses = [run.status for run in store.runs(session=SESSION)]
        entries = list(store.tail(SESSION, follow=False))
        assert list(store.in_doubt()) == []
    assert statuses == ["interrupted", "interrupted", "paused", "completed"]
    assert state.continuable
    messages = [message for message in state.transcript if isinstance(message, Message)]
    assert [message.role for message in messages].count("assistant") == len(SCRIPT)
    assert messages[-1].text == SCRIPT[-1]
    # Whitespace aside: the answer is broken into lines.
    assert str(SCRIPT[-1]).split()[:4] == printed.partition("★ completed")[2].partition("│")[2].split()[:4]
    assert [entry.kind for entry in entries].count("model.replied") == len(SCRIPT)


def test_the_deeds_are_settled_by_verify_and_by_a_person(played: tuple[Path, str]) -> None:
    """Each was issued once, and the timeline tells who said that it landed."""
    database, printed = played
    with blocking.open_store(database, create=False) as store:
        effects = store.load(SESSION).facts.effects.rows.values()
    assert [(effect.tool, effect.attempt) for effect in effects if effect.changes_the_world] == [
        ("pay_refund", 1),
        ("send_letter", 1),
        ("close_ticket", 1),
    ]
    told = " ".join(printed.partition("The journal")[2].split())
    assert "call refund settled by verify landed" in told
    assert "call letter settled by you landed" in told
    assert told.count("is gone and did not release its lease") == 2
    assert told.count("run begins") == 4
    assert printed.count("✗ SIGKILL") == 2


def test_without_a_terminal_there_is_no_colour(played: tuple[Path, str]) -> None:
    """Nor anything else that only a terminal understands."""
    assert "\x1b" not in played[1]


def test_what_to_try_next_works(played: tuple[Path, str]) -> None:
    """All of the commands that it prints at the end, as they stand; and they pay nothing."""
    database, printed = played
    script = printed.partition("The database stays. Try:")[2].partition("\n")[2]
    done = subprocess.run(
        ["bash", "-euc", script], capture_output=True, text=True, timeout=60, env=make_environment()
    )
    assert done.returncode == 0
    told = [line.split()[3] for line in done.stderr.splitlines()]  # The fork says what it cannot take back.
    assert told == ["pay_refund", "send_letter", "close_ticket"]
    for words in ('"what":"refund"', "pay_refund|1|landed", str(SCRIPT[-1]), "no end", '"kind":"completed"'):
        assert words in done.stdout
    assert "is gone and did not release its lease" in done.stdout
    with blocking.open_store(f"sqlite:{database}", create=False) as store:
        what_if = store.load(done.stdout.splitlines()[-1])
    assert [message.role for message in what_if.transcript] == ["user", "assistant", "tool"]
    world = World(database)
    assert (len(world.bank.read()), len(world.post.read())) == (1, 1)


def expect_width(printed: str, columns: int) -> None:
    """No line but those to be copied is longer than the terminal is wide."""
    shown, _, to_copy = _ESCAPE.sub("", printed).partition("The database stays.")
    assert to_copy
    assert [line for line in shown.splitlines() if len(line) > columns] == []
    assert "✗ SIGKILL" in shown


@pytest.mark.parametrize("columns", [40, 120])
def test_a_terminal_of_any_width_will_do(columns: int, tmp_path: Path) -> None:
    """All of it fits, and there is colour."""
    printed = play_on_terminal(tmp_path / "demo.db", columns)
    expect_width(printed, columns)
    assert "\x1b[1;31m" in printed


def test_no_color_is_respected(tmp_path: Path) -> None:
    """On a terminal, too: bold is all that is left."""
    printed = play_on_terminal(tmp_path / "demo.db", 80, NO_COLOR="1")
    expect_width(printed, 80)
    styles = {style for found in re.findall(r"\x1b\[([0-9;]*)m", printed) for style in found.split(";")}
    assert styles <= {"", "0", "1", "2", "3", "4"}


@pytest.mark.parametrize("name", ["demo.db", "demo.bank.jsonl", "demo.post.jsonl"])
def test_it_does_not_write_over_what_is_there(name: str, tmp_path: Path) -> None:
    """The file may be of use to its owner."""
    (tmp_path / name).write_text("mine")
    process = start([str(tmp_path / "demo.db")], output=subprocess.PIPE)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 2
    assert b"exists already" in errors
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == "mine"


def test_ctrl_c_ends_it_at_once(tmp_path: Path) -> None:
    """Without a traceback, and without leaving its own process behind."""
    process = start([str(tmp_path / "demo.db")], output=subprocess.PIPE, FORCE_COLOR="1")
    pid = play_up_to(process, b"lookup_order")
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert errors == b"\nstopped\n"
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_demo_that_is_killed_leaves_no_process_behind(tmp_path: Path) -> None:
    """Not even the one that waits to be killed by it."""
    process = start([str(tmp_path / "demo.db")], output=subprocess.PIPE, FORCE_COLOR="1")
    pid = play_up_to(process, b"the world: ")
    process.kill()
    process.communicate(timeout=60)
    expect_end(pid)
