"""The processes of the demo, seen from the one that starts and kills them."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from .process import Told

_decode_told = msgspec.json.Decoder(Told).decode
_ORDINALS = ("1st", "2nd", "3rd", "4th")
_STYLES = ("cyan", "magenta", "blue", "green")


class Child:
    """A process that works on the session, and what it tells."""

    def __init__(self, number: int, command: Sequence[str]) -> None:
        self.name, self.style = _ORDINALS[number], _STYLES[number]
        # Its own session: a Ctrl-C is for the parent alone, who then ends it.
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )
        self.pid = self._process.pid

    @property
    def status(self) -> int | None:
        """How it ended: by a signal if it is negative."""
        return self._process.returncode

    def listen(self) -> Iterator[Told]:
        """What it tells, until it ends."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            yield _decode_told(line)
        self._process.wait()

    def kill(self) -> None:
        """No goodbye, no cleaning up."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def close(self) -> None:
        """It is not left behind, whatever happened."""
        if self._process.poll() is None:
            self.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


class Children:
    """All of them, in the order in which they lived."""

    def __init__(self, database: Path, *, delay_s: float) -> None:
        self._command = [
            sys.executable,
            "-m",
            "holdfast.demo.process",
            str(database),
            "--delay-s",
            str(delay_s),
        ]
        self.born: list[Child] = []

    @contextmanager
    def start(self, *arguments: str) -> Iterator[Child]:
        """The next one. It does not outlive the block."""
        child = Child(len(self.born), [*self._command, *arguments])
        self.born.append(child)
        try:
            yield child
        finally:
            child.close()
