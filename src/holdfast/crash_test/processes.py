"""The harness's side of the processes that are killed."""

from __future__ import annotations

import base64
import json
import os
import pickle
import select
import signal
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from types import FunctionType
from typing import Any, Final, NamedTuple

from ..errors import BadInput
from .worlds import CrashWorld

START_S: Final = 180.0
"""For a process to start, and for the undisturbed run: beyond this, something hangs on any machine."""


class Named(NamedTuple):
    """A function at the top of a module, as another process finds it."""

    module: str
    file: str
    function: str
    line: int

    @classmethod
    def of(cls, function: Any, role: str) -> Named:
        """Where the function is, or `BadInput` if another process cannot find it."""
        if not isinstance(function, FunctionType):
            raise BadInput(f"{role}={function!r} is not a function")
        name, module = function.__qualname__, sys.modules.get(function.__module__)
        file = getattr(module, "__file__", None)
        if "<" in name or file is None:
            raise BadInput(
                f"{role}={name} is run in processes of its own, which import it: define it at the top of a "
                "module, not in a test or as a lambda"
            )
        return cls(function.__module__, os.path.abspath(file), name, function.__code__.co_firstlineno)


class Gone(Exception):
    """The process ended without a word."""


class Process:
    """A process that runs the user's code. Signals reach exactly this one."""

    def __init__(self, pid: int, end: socket.socket, popen: subprocess.Popen[bytes] | None) -> None:
        self._end, self._popen, self._unread = end, popen, b""
        self._pid = pid
        self._pidfd = os.pidfd_open(pid) if popen is None else -1

    def tell(self, message: Any) -> None:
        """Send a message; it may be gone already."""
        try:
            self._end.sendall(json.dumps(message).encode() + b"\n")
        except OSError as error:
            raise Gone from error

    def hear(self, timeout_s: float) -> dict[str, Any]:
        """Its next message; `TimeoutError` if none comes, `Gone` if it ended."""
        while b"\n" not in self._unread:
            if not select.select([self._end], [], [], timeout_s)[0]:
                raise TimeoutError
            try:
                data = self._end.recv(1 << 16)
            except ConnectionResetError:
                data = b""
            if not data:
                raise Gone
            self._unread += data
        line, _, self._unread = self._unread.partition(b"\n")
        heard: dict[str, Any] = json.loads(line)
        return heard

    def kill(self) -> None:
        """Kill it with all that it started, as a container is killed, and return when they are gone."""
        self._send(signal.SIGSTOP)  # It starts nothing more while its children are looked for.
        children = _open_descendants(self._pid)
        try:
            self._send(signal.SIGKILL)
            if self._popen is not None:
                self._popen.wait(START_S)
            else:
                _wait_for_end(self._pidfd)
            for child in children:
                with suppress(ProcessLookupError):
                    signal.pidfd_send_signal(child, signal.SIGKILL)
                _wait_for_end(child)
        finally:
            for child in children:
                os.close(child)

    def _send(self, number: int) -> None:
        if self._popen is not None:
            self._popen.send_signal(number)
            return
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, number)

    def close(self) -> None:
        """Kill it if it is still there, and let go."""
        self.kill()
        if self._pidfd >= 0:
            os.close(self._pidfd)
        self._end.close()


def _wait_for_end(pidfd: int) -> None:
    if not select.select([pidfd], [], [], START_S)[0]:
        raise RuntimeError("a killed process did not end")


def _open_descendants(pid: int) -> list[int]:
    """Descriptors of the processes that it has started, and of those that they have; only on Linux."""
    found: list[int] = []
    # It may end at any moment: then there is no such folder, or nothing to be read.
    threads: list[str] = []
    with suppress(OSError):
        threads = os.listdir(f"/proc/{pid}/task")
    for thread in threads:
        with suppress(OSError):
            listed = Path(f"/proc/{pid}/task/{thread}/children").read_text()
            for child in map(int, listed.split()):
                with suppress(ProcessLookupError):
                    found.append(os.pidfd_open(child))
                    found += _open_descendants(child)
    return found


class Launcher:
    """Starts processes that run the user's code, by forking a warm one or afresh. Used by several threads."""

    def __init__(self, folder: Path, functions: list[Named], *, fork: bool) -> None:
        self._folder, self._functions = folder, functions
        self._lock = threading.Lock()
        self._server: subprocess.Popen[bytes] | None = None
        self.why_not_forked = "" if fork else "asked for"
        if fork and not (sys.platform == "linux" and hasattr(os, "pidfd_open")):
            self.why_not_forked = "this platform cannot fork safely"
        elif fork:
            self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs:
                self._server = self._python("serve", theirs)
            try:
                self.preload([])
            except BaseException:
                self.close()
                raise

    def _python(self, function: str, end: socket.socket) -> subprocess.Popen[bytes]:
        path = [one for one in sys.path if one] + [os.getcwd()]
        environment = {"PYTHONHASHSEED": "0", **os.environ, "PYTHONPATH": os.pathsep.join(path)}
        code = f"from holdfast.crash_test.child import {function}; {function}({end.fileno()})"
        with open(self._folder / "output.txt", "ab") as log:
            return subprocess.Popen(
                [sys.executable, "-c", code],
                env=environment,
                pass_fds=[end.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def output(self) -> str:
        """The end of what the processes printed."""
        return (self._folder / "output.txt").read_text(errors="replace")[-4000:]

    def preload(self, modules: list[str]) -> None:
        """Import the user's modules and these before processes are forked, if that is safe."""
        if self._server is None:
            return
        for named in self._functions:
            order = {"load": [named.module, named.file], "modules": modules}
            with self._lock:
                self._requests.send(json.dumps(order).encode())
                answer = self._requests.recv(1000)
            if not answer:
                raise BadInput(f"{named.file} cannot be imported in a process of its own:\n{self.output()}")
            threads = json.loads(answer)["threads"]
            if threads > 1:
                self.why_not_forked = f"importing {named.module} starts {threads - 1} threads"
                self._close_server()
                return

    def start(self, named: Named, world: CrashWorld, folder: Path, *, first: bool = False) -> Process:
        """A process that calls the function with the world."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        with theirs:
            if self._server is None:
                popen = self._python("run_one", theirs)
                process = Process(popen.pid, ours, popen)
            else:
                with self._lock:
                    socket.send_fds(self._requests, [b'{"fork": true}'], [theirs.fileno()])
                    answer = self._requests.recv(1000)
                if not answer:
                    raise RuntimeError(f"the server of processes is gone:\n{self.output()}")
                process = Process(json.loads(answer)["pid"], ours, None)
        order = {
            "module": named.module,
            "file": named.file,
            "function": named.function,
            "folder": str(folder),
            "first": first,
            "world": base64.b64encode(pickle.dumps(world)).decode(),
        }
        process.tell(order)
        return process

    def _close_server(self) -> None:
        if self._server is not None:
            self._requests.close()
            self._server.wait(START_S)
            self._server = None

    def close(self) -> None:
        """End the server; what is left of its children ends with it."""
        self._close_server()
