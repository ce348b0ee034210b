"""A warm parent: a process that has imported everything, and has no thread, loop or connection of its own.

Children are forked from it in a few milliseconds, so thousands of them can be killed. The tests speak to it
through `Warm`, and to each child through a `Child`; the child's side is a `Line`. Whoever is still running
when the tests end is killed: children die with the warm parent, and that dies with the tests.

    python -m tests.crash.fork_server FD [MODULE …]    the warm parent; FD is its end of a socket to the tests
"""

from __future__ import annotations

import ctypes
import faulthandler
import gc
import importlib
import json
import os
import random
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, TypeAlias

Json: TypeAlias = Any

ROOT = Path(__file__).resolve().parents[2]
DEADLINE_S = 180.0
"""Beyond this, something hangs, also on a busy machine. On a quiet one, nothing takes a twentieth of it."""

_MESSAGE_BYTES_MAX = 1 << 17
_SUSPICIOUS_S = 120.0
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


class Line:
    """A child's way to speak to the test that started it."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end

    def say(self, message: Json) -> None:
        """Tell the test."""
        self._end.send(json.dumps({"said": message}).encode())

    def hear(self) -> Json:
        """Wait for what the test has to say; there is no more to do if it is gone."""
        data = self._end.recv(_MESSAGE_BYTES_MAX)
        if not data:
            os._exit(0)
        return json.loads(data)

    def wait_for_the_end(self) -> NoReturn:
        """Do nothing until the test is gone; what it says is for somebody else."""
        waiting = select.poll()
        waiting.register(self._end, 0)
        waiting.poll()
        os._exit(0)


class Failure(NamedTuple):
    """The exception that ended a child."""

    kind: str
    text: str
    trace: str

    def __repr__(self) -> str:
        return self.trace


class Child:
    """A running child, as the test sees it. Signals reach exactly this process, or nobody."""

    def __init__(self, pid: int, end: socket.socket, log: Path) -> None:
        self.pid = pid
        self._end, self._log = end, log
        self._pidfd = os.pidfd_open(pid)
        self._end.send(b'"go"')

    def say(self, message: Json) -> None:
        """Tell the child."""
        self._end.send(json.dumps(message).encode())

    def hear(self, timeout_s: float = DEADLINE_S) -> Json:
        """What the child says next. It is an error if it ends instead."""
        message = self._receive(timeout_s)
        assert "said" in message, f"the child ended: {message.get('trace', message)}"
        return message["said"]

    def result(self, timeout_s: float = DEADLINE_S) -> Json:
        """What the child's function returned; what it said before is passed over."""
        message = self._last(timeout_s)
        assert "result" in message, message.get("trace", message)
        return message["result"]

    def failure(self, timeout_s: float = DEADLINE_S) -> Failure:
        """The exception that the child's function raised."""
        message = self._last(timeout_s)
        assert "kind" in message, f"the child did not fail: {message}"
        return Failure(message["kind"], message["text"], message["trace"])

    def outcome(self, timeout_s: float = DEADLINE_S) -> Json | Failure | None:
        """What the function returned, the exception it raised, or None if the child was killed."""
        message = self._last(timeout_s)
        if "kind" in message:
            return Failure(message["kind"], message["text"], message["trace"])
        return message.get("result")

    def _last(self, timeout_s: float) -> dict[str, Json]:
        while True:
            message = self._receive(timeout_s)
            if "said" not in message:
                self.wait(timeout_s)
                return message

    def _receive(self, timeout_s: float) -> dict[str, Json]:
        ready, _, _ = select.select([self._end], [], [], timeout_s)
        if not ready:
            log = self._log.read_text(errors="replace")[-20_000:]
            raise AssertionError(f"child {self.pid} was silent for {timeout_s} s; the log ends with:\n{log}")
        try:
            data = self._end.recv(_MESSAGE_BYTES_MAX)
        except ConnectionResetError:  # It was killed before it had heard everything.
            data = b""
        return json.loads(data) if data else {"ended": True}

    def kill(self, signal_: int = signal.SIGKILL) -> None:
        """Send a signal; it may have ended already."""
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, signal_)

    def wait(self, timeout_s: float = DEADLINE_S) -> None:
        """Wait for its end."""
        assert self.has_ended(timeout_s), f"child {self.pid} did not end within {timeout_s} s"

    @property
    def is_running(self) -> bool:
        """Whether it has not ended."""
        return not self.has_ended(0)

    def has_ended(self, timeout_s: float) -> bool:
        """Whether it has, or does so within that time."""
        return bool(select.select([self._pidfd], [], [], timeout_s)[0])

    def wait_stopped(self) -> None:
        """Wait until every thread of it has stopped."""
        poll(lambda: all(state == "T" for state in _states(self.pid)), f"child {self.pid} to stop")

    def end(self) -> None:
        """Kill it if it is still there, and let go."""
        if self._pidfd < 0:
            return
        self.kill()
        self.wait()
        os.close(self._pidfd)
        self._pidfd = -1
        self._end.close()


def _states(pid: int) -> list[str]:
    tasks = Path(f"/proc/{pid}/task")
    return [(task / "stat").read_text().rpartition(")")[2].split()[0] for task in tasks.iterdir()]


def poll(
    ready: Callable[[], bool], what: str, *, timeout_s: float = DEADLINE_S, pause_s: float = 0.005
) -> None:
    """Wait until it is so, and fail after `timeout_s`."""
    deadline_s = time.monotonic() + timeout_s
    while not ready():
        assert time.monotonic() < deadline_s, f"waited {timeout_s} s for {what}"
        time.sleep(pause_s)


class Warm:
    """The tests' side of the warm parent. Used by several threads at once.

    Modules of the functions that are called are imported there, and `imports` before all others.
    """

    def __init__(self, folder: Path, imports: Sequence[str] = ()) -> None:
        self._lock = threading.Lock()
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.log = folder / "warm.log"
        # The locks of holders are made beneath it, and are gone with it.
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TMPDIR": str(folder)}
        with theirs, open(self.log, "wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.crash.fork_server", str(theirs.fileno()), *imports],
                cwd=ROOT,
                env=environment,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def start(self, function: Callable[..., Json], /, *args: Json, **options: Json) -> Child:
        """Fork a child that calls the function (of a module) with a `Line`, these arguments and options."""
        name = f"{function.__module__}:{function.__qualname__}"
        order = json.dumps({"call": name, "args": args, "options": options}).encode()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs, self._lock:
            socket.send_fds(self._requests, [order], [theirs.fileno()])
            answer = self._requests.recv(100)
        assert answer, f"the warm parent is gone: {self.log.read_text()[-2000:]}"
        return Child(int(answer), ours, self.log)

    @contextmanager
    def child(self, function: Callable[..., Json], /, *args: Json, **options: Json) -> Iterator[Child]:
        """A child for the length of the block."""
        child = self.start(function, *args, **options)
        try:
            yield child
        finally:
            child.end()

    def call(self, function: Callable[..., Json], /, *args: Json, **options: Json) -> Json:
        """What the function returns, called in a child of its own."""
        with self.child(function, *args, **options) as child:
            return child.result()

    def close(self) -> None:
        """End it; what is left of its children ends with it."""
        self._requests.close()
        self._process.wait(DEADLINE_S)


def die_with_parent() -> None:
    """Whatever ends the parent ends this process, too."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


# -- the warm parent's side ---------------------------------------------------------------------------


def _serve(requests: socket.socket, imports: Sequence[str]) -> None:
    for module in imports:
        importlib.import_module(module)
    # Nobody waits for children or orphans here: each is gone as soon as it has ended.
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        order, fds, _, _ = socket.recv_fds(requests, _MESSAGE_BYTES_MAX, 1)
        if not order:
            return
        found = json.loads(order)
        # Imported here, not in each child.
        importlib.import_module("anyio._backends._asyncio")
        importlib.import_module(found["call"].partition(":")[0])
        # What no child collects stays shared.
        gc.freeze()
        assert threading.active_count() == 1
        pid = os.fork()
        if pid == 0:
            requests.close()
            _run(found, socket.socket(fileno=fds[0]))
        os.close(fds[0])
        requests.send(str(pid).encode())


def _run(order: dict[str, Json], end: socket.socket) -> NoReturn:
    die_with_parent()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    # Into the log, so that it can be seen where somebody hangs.
    faulthandler.enable()
    faulthandler.dump_traceback_later(_SUSPICIOUS_S)
    random.seed()
    line = Line(end)
    # Once the test has a hold on this very process.
    line.hear()
    try:
        module, _, name = order["call"].partition(":")
        function = getattr(importlib.import_module(module), name)
        answer = {"result": function(line, *order["args"], **order["options"])}
    except BaseException as error:
        answer = {"kind": type(error).__name__, "text": str(error), "trace": traceback.format_exc()[-20_000:]}
    end.send(json.dumps(answer).encode())
    os._exit(0)


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])), sys.argv[2:])
