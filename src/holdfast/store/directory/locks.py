"""Locks between processes, and between the threads of one: `flock` on a file that is opened anew each time.

A lock belongs to the open file, so two openings exclude each other wherever they are. The kernel lets go
of it when its process dies.
"""

from __future__ import annotations

import fcntl
import os
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ...clock import boot_s
from ...errors import StoreBusy
from ...limits import BUSY_S

# A commit takes about a millisecond: look again often at first, seldom when somebody is slow.
_PAUSE_MIN_S = 0.0005
_PAUSE_MAX_S = 0.02


@contextmanager
def held(path: Path, *, shared: bool = False, wait_s: float | None = None) -> Iterator[bool]:
    """Hold the lock on the file. Yields False, and holds nothing, if there is no such file.

    `StoreBusy` after `wait_s`, by default the time after which somebody must be stuck.
    """
    fd = _acquire(path, shared, BUSY_S if wait_s is None else wait_s)
    if fd is None:
        yield False
        return
    try:
        yield True
    finally:
        # Not left to the closing: a forked child has this open file too, and would keep the lock.
        fcntl.flock(fd, fcntl.LOCK_UN)
        os.close(fd)


def _acquire(path: Path, shared: bool, wait_s: float) -> int | None:
    deadline_s = boot_s() + wait_s
    pause_s = _PAUSE_MIN_S
    while True:
        fd = _try(path, shared)
        if not isinstance(fd, BlockingIOError):
            return fd
        if boot_s() >= deadline_s:
            raise StoreBusy(
                f"{path}: another process has held this lock for {wait_s:g} s. "
                "Find it (lsof names it) and end or continue it, then try again."
            ) from fd
        time.sleep(random.uniform(pause_s / 2, pause_s))
        pause_s = min(pause_s * 2, _PAUSE_MAX_S)


def _try(path: Path, shared: bool) -> int | BlockingIOError | None:
    """The open, locked file; None if there is none; the error if somebody else has the lock."""
    while True:
        try:
            fd = os.open(path, (os.O_RDONLY if shared else os.O_RDWR) | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            return None
        try:
            fcntl.flock(fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
            if _is_at(path, fd):
                return fd
        except BlockingIOError as error:
            os.close(fd)
            return error
        except BaseException:
            os.close(fd)
            raise
        # The directory was deleted while we waited: this lock is no longer the one that counts.
        os.close(fd)


def _is_at(path: Path, fd: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(fd))
    except (FileNotFoundError, NotADirectoryError):
        return False
