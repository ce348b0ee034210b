"""Processes for the tests of the command line: with pipes, and on a terminal of their own."""

from __future__ import annotations

import codecs
import fcntl
import json
import os
import pty
import re
import select
import shlex
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
_OURS = {"NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES", "TERM", "HOLDFAST_STORE", "CLERK_DIES_IN"}
_PATIENCE_S = 60


def environment(**more: str) -> dict[str, str]:
    """Nothing of the one who runs the tests shows through."""
    inherited = {name: value for name, value in os.environ.items() if name not in _OURS}
    path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    return {**inherited, "PYTHONPATH": path, "LOGNAME": "ann", "TZ": "UTC", **more}


class Done(NamedTuple):
    """A command that has ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Its one object."""
        return json.loads(self.out)


def start(shop: Path, *arguments: str, stdin: int = subprocess.DEVNULL, **more: str) -> subprocess.Popen[str]:
    """A command that goes on by itself."""
    return subprocess.Popen(
        [sys.executable, "-m", "holdfast", *arguments],
        cwd=shop,
        env=environment(**more),
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def end(process: subprocess.Popen[str], given: str | None = None) -> Done:
    """Wait for its end."""
    out, err = process.communicate(given, timeout=_PATIENCE_S)
    return Done(process.returncode, out, err)


def call(shop: Path, line: str, given: str | None = None, **more: str) -> Done:
    """A command as one would type it, without the word `holdfast`."""
    stdin = subprocess.DEVNULL if given is None else subprocess.PIPE
    return end(start(shop, *shlex.split(line), stdin=stdin, **more), given)


@contextmanager
def held(shop: Path, session: str) -> Iterator[subprocess.Popen[str]]:
    """Another process holds the session, and takes in what comes."""
    process = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("holder.py")), "sqlite:holdfast.db", session],
        cwd=shop,
        env=environment(),
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def list_long(shown: str, columns: int) -> list[str]:
    """The lines that a terminal of this width would break, but for those that are there to be copied."""
    copied = ("  holdfast ", "  then: ", "next: ", "+ ", "- ")
    long = [line for line in shown.splitlines() if len(line.rstrip()) > columns]
    return [line for line in long if not line.startswith(copied)]


class Terminal:
    """A command on a terminal of its own, with a reader and a typist."""

    def __init__(self, shop: Path, arguments: Sequence[str], *, columns: int = 100, **more: str) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "holdfast", *arguments],
            cwd=shop,
            env=environment(**{"TERM": "xterm-256color", **more}),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            # Its own session with this terminal: Ctrl-C is a key here, not a signal that we send.
            preexec_fn=_take_terminal,
            start_new_session=True,
        )
        os.close(theirs)
        self.screen = ""
        # What is read at once may end in the middle of a character.
        self._decode = codecs.getincrementaldecoder("utf-8")(errors="replace").decode

    def __enter__(self) -> Terminal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
        os.close(self._ours)

    def read_until(self, text: str) -> None:
        """Go on when this is on the screen."""
        deadline_s = time.monotonic() + _PATIENCE_S
        while text not in self.plain:
            assert time.monotonic() < deadline_s, self.plain
            assert self._read(1.0) or text in self.plain, self.plain

    def type(self, keys: str) -> None:
        """As a person would."""
        os.write(self._ours, keys.encode())

    def finish(self) -> int:
        """Read to the end; the exit code."""
        while self._read(_PATIENCE_S):
            pass
        return self.process.wait(_PATIENCE_S)

    def _read(self, timeout_s: float) -> bool:
        """Whether there may be more."""
        if not select.select([self._ours], [], [], timeout_s)[0]:
            return True
        try:
            part = os.read(self._ours, 65536)
        except OSError:  # The other end was closed.
            part = b""
        self.screen += self._decode(part, final=not part)
        return bool(part)

    @property
    def plain(self) -> str:
        """What is on the screen, colours aside."""
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.screen).replace("\r\n", "\n")

    @property
    def styles(self) -> set[str]:
        """All that was asked of the terminal's colours."""
        return {one for found in re.findall(r"\x1b\[([0-9;]*)m", self.screen) for one in found.split(";")}


def _take_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
