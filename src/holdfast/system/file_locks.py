"""Locks between processes, and between the threads of one: `flock` on a file that is opened anew each time.

A lock belongs to the open file, so two openings exclude each other wherever they are. The kernel lets go
of it when its process dies. A forked child has every open file, too, and would outlive its parent in them:
so it closes them first of all.
"""

from __future__ import annotations

from pathlib import Path

from ..errors import Corrupt, StoreBusy
from ..limits import BUSY_S
from . import files, processes, randomness, threads
from .clock import boot_s

# A commit takes about a millisecond: look again often at first, seldom when the holder is slow.
_PAUSE_MIN_S = 0.0005
_PAUSE_MAX_S = 0.02

_opened: set[int] = set()
# Held at every fork: no process forks between the opening of a file and its being known here.
_opening = threads.RLock()


class FileLock:
    """Hold the lock on the file, for a block. False, and nothing is held, if there is no such file.

    `StoreBusy` after `wait_s`, by default the time after which its holder is stuck. `Corrupt` if the lock
    is missing and the file that it is for (`of`) is not.
    """

    def __init__(
        self, path: Path, *, shared: bool = False, wait_s: float | None = None, of: Path | None = None
    ) -> None:
        self._path, self._shared, self._wait_s = path, shared, BUSY_S if wait_s is None else wait_s
        self._of = of

    def __enter__(self) -> bool:
        self._fd = _acquire(self._path, self._shared, self._wait_s)
        if self._fd is None and self._of is not None and files.exists(self._of):
            # Not made anew here: another process may hold the one that was removed.
            raise Corrupt(
                str(self._path),
                f"the lock of {self._of.name} is missing. Once no process has the store open, make an empty "
                "file there",
            )
        return self._fd is not None

    def __exit__(self, *_: object) -> None:
        if self._fd is not None:
            _close(self._fd)


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
        threads.sleep(randomness.uniform(pause_s / 2, pause_s))
        pause_s = min(pause_s * 2, _PAUSE_MAX_S)


def _try(path: Path, shared: bool) -> int | BlockingIOError | None:
    """The open, locked file; None if there is none; the error if the lock is held elsewhere."""
    while True:
        try:
            fd = _open(path, (files.O_RDONLY if shared else files.O_RDWR) | files.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            return None
        try:
            files.lock(fd, shared=shared, wait=False)
            if files.is_same(path, fd):
                return fd
        except BlockingIOError as error:
            _close(fd)
            return error
        except BaseException:
            _close(fd)
            raise
        # The directory was deleted while we waited: this lock is no longer the one that counts.
        _close(fd)


def _open(path: Path, flags: int) -> int:
    with _opening:
        fd = files.open(path, flags)
        _opened.add(fd)
        return fd


def _close(fd: int) -> None:
    """Let go of the lock. In a child that was forked meanwhile, that was done already."""
    with _opening:
        if fd in _opened:
            _opened.remove(fd)
            # Not left to the closing: a program that is just being started has this open file, too.
            files.unlock(fd)
            files.close(fd)


def _close_in_child() -> None:
    for fd in _opened:
        files.close(fd)
    _opened.clear()
    _opening.release()


processes.register_at_fork(
    before=_opening.acquire, after_in_parent=_opening.release, after_in_child=_close_in_child
)
