"""Starts measurements, each in a process of its own, and hears what they say."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Final, TypeAlias, TypeVar

import msgspec

from bench.figures import Rate, Ready, Size, Times
from bench.plan import Plan
from bench.server import Server
from bench.subjects.catalogue import Subject
from bench.subjects.contract import Place

ROOT: Final = Path(__file__).resolve().parents[1]
Said: TypeAlias = Rate | Ready | Size | Times
_DECODER: Final = msgspec.json.Decoder(Said)
_RAISED: Final = re.compile(r"(?: *\| |(?:│ )*)([\w.]+: .*?|[\w.]*[A-Z]\w*)[ │]*")
"""An error in a traceback: at the margin, which groups draw with bars and rich with boxes."""
Found = TypeVar("Found")


class Failed(Exception):
    """A measurement ended otherwise than it should. Says why, in one line."""


def last_error(errors: bytes) -> str:
    """Of the last traceback what was raised, in one line; or else the last words.

    Where things are on this machine is left out.
    """
    lines = [line for line in errors.decode(errors="replace").splitlines() if re.search(r"\w", line)]
    tracebacks = [at for at, line in enumerate(lines) if "Traceback (most recent call last)" in line]
    raised = map(_RAISED.fullmatch, lines[tracebacks[-1] + 1 :] if tracebacks else ())
    said = next((found[1] for found in raised if found), lines[-1] if lines else "")
    return re.sub(r"(/[\w.@-]+){2,}/", "…/", said)[:200]


class Child:
    """A running `bench.child`. An answer that takes longer than `limit_s` ends it."""

    def __init__(self, process: subprocess.Popen[bytes], errors: IO[bytes], limit_s: float) -> None:
        self._process, self._errors = process, errors
        self._limit_s, self._over = limit_s, False

    def end(self) -> None:
        """With all it started."""
        self._kill()
        self._process.communicate()

    def _end_late(self) -> None:
        self._over = True
        self._kill()

    def _kill(self) -> None:
        if self._process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def hear(self, kind: type[Found]) -> Found:
        """The next line it says."""
        assert self._process.stdout is not None
        timer = threading.Timer(self._limit_s, self._end_late)
        timer.start()
        try:
            line = self._process.stdout.readline()
        finally:
            timer.cancel()
        if not line:
            raise Failed(self._reason())
        said: Said = _DECODER.decode(line)
        assert isinstance(said, kind)
        return said

    def tell(self, *words: object) -> None:
        """What to do next."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(" ".join(map(str, words)).encode() + b"\n")
            self._process.stdin.flush()

    def ask(self, *words: object) -> list[float]:
        """Tell it what to do, and hear how long that took."""
        self.tell(*words)
        return self.hear(Times).ms

    def _reason(self) -> str:
        status = self._process.wait()
        if self._over:
            return f"ended after {self._limit_s:g} s"
        self._errors.seek(0)
        return last_error(self._errors.read()) or f"ended with status {status}"


@contextmanager
def run_child(arguments: Sequence[str], limit_s: float, *, under: Sequence[str] = ()) -> Iterator[Child]:
    """A process that measures; ended when the block is left, or when it takes too long to answer."""
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            [*under, sys.executable, "-m", "bench.child", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            cwd=ROOT,
            start_new_session=True,
        )
        child = Child(process, errors, limit_s)
        try:
            yield child
        finally:
            child.end()


def run_module(module: str, given: Sequence[str], kind: type[Found], *, limit_s: float) -> Found:
    """What a module finds in a process of its own, and says as JSON."""
    command = [sys.executable, "-m", module, *given]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, timeout=limit_s)
    except subprocess.TimeoutExpired as error:
        raise Failed(f"ended after {limit_s:g} s") from error
    if done.returncode:
        raise Failed(last_error(done.stderr) or f"ended with status {done.returncode}")
    return msgspec.json.decode(done.stdout, type=kind)


class Runner(msgspec.Struct, frozen=True):
    """What every section needs."""

    plan: Plan
    directory: Path
    """Where everything is written."""
    server: Server | None
    """None where none could be started."""
    subjects: tuple[Subject, ...]

    @contextmanager
    def place(self, subject: Subject) -> Iterator[Place]:
        """An empty one, removed afterwards."""
        with ExitStack() as opened:
            folder = Path(tempfile.mkdtemp(prefix="subject-", dir=self.directory))
            opened.callback(shutil.rmtree, folder, ignore_errors=True)
            url = ""
            if subject.store == "PostgreSQL":
                if self.server is None:
                    raise Failed("no PostgreSQL")
                url = opened.enter_context(self.server.database())
            yield Place(folder, url)


def arguments(what: str, subject: Subject, place: Place, **options: object) -> list[str]:
    """The command line of a child."""
    named = [what, subject.name, "--directory", str(place.directory), "--prefix", place.prefix]
    named += ["--postgres", place.postgres]
    for name, value in options.items():
        if value is True:
            named += [f"--{name}"]
        elif value is not False:
            named += [f"--{name}", str(value)]
    return named
