"""Processes: which one this is, and what happens when it forks.

Use it as `processes.pid()`, not by importing single names: a simulator puts its own in their place.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple


def pid() -> int:
    """The number of this process. A forked child has another one than its parent."""
    return os.getpid()


def is_ending() -> bool:
    """True while the interpreter is torn down: daemon threads no longer run."""
    return sys.is_finalizing()


def host_name() -> str:
    """The name of this machine, for people."""
    return socket.gethostname()


def user_id() -> int | None:
    """The number of the user that this process runs as; None where users have none."""
    getuid: Callable[[], int] | None = getattr(os, "getuid", None)
    return None if getuid is None else getuid()


def register_at_fork(
    *,
    before: Callable[[], object] | None = None,
    after_in_parent: Callable[[], object] | None = None,
    after_in_child: Callable[[], object] | None = None,
) -> None:
    """Call these functions around every fork. Where processes cannot fork, they are never called."""
    register: Callable[..., None] | None = getattr(os, "register_at_fork", None)
    if register is not None:
        given = {"before": before, "after_in_parent": after_in_parent, "after_in_child": after_in_child}
        register(**{name: function for name, function in given.items() if function is not None})


def end_group(leader: int, *, kill: bool = False) -> None:
    """Ask the processes of a group to end, or kill them. One that has ended is no error."""
    import signal

    with suppress(ProcessLookupError, PermissionError):  # macOS refuses for processes that are no more.
        os.killpg(leader, signal.SIGKILL if kill else signal.SIGTERM)


class EndedProcess(NamedTuple):
    """How a program ended, and what it wrote."""

    status: int
    output: str
    errors: str


def run(command: Sequence[str], *, timeout_s: float) -> EndedProcess:
    """Run a program to its end, without input. `TimeoutError` if it takes longer; it is killed then."""
    import subprocess  # Few callers need it, and it takes a while to import.

    try:
        ended = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout_s,
            text=True,
            encoding="utf-8",
            errors="replace",
            env={**os.environ, "LC_ALL": "C"},
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise TimeoutError(f"{command[0]} did not end within {timeout_s:g} s") from error
    return EndedProcess(ended.returncode, ended.stdout, ended.stderr)
