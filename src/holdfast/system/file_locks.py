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
        self._fd: int | None = None

    def __enter__(self) -> bool:
        try:
            return self._acquire()
        except BaseException:
            # Perhaps that of a signal's handler, which may raise just after the file was locked.
            self._release()
            raise

    def __exit__(self, *_: object) -> None:
        try:
            self._release()
        finally:
            self._release()  # If a signal's handler raised before the first one was done.

    def _acquire(self) -> bool:
        deadline_s = boot_s() + self._wait_s
        pause_s = _PAUSE_MIN_S
        while True:
            try:
                return self._try()
            except BlockingIOError as error:
                if boot_s() >= deadline_s:
                    raise StoreBusy(
                        f"{self._path}: another process has held this lock for {self._wait_s:g} s. "
                        "Find it (lsof names it) and end or continue it, then try again."
                    ) from error
            self._release()
            threads.sleep(randomness.uniform(pause_s / 2, pause_s))
            pause_s = min(pause_s * 2, _PAUSE_MAX_S)

    def _try(self) -> bool:
        """Open and lock the file. False if there is none; `BlockingIOError` if the lock is held elsewhere."""
        while True:
            try:
                # Kept before it is locked: from then on, `_release` unlocks it.
                self._fd = _open(
                    self._path, (files.O_RDONLY if self._shared else files.O_RDWR) | files.O_CLOEXEC
                )
            except (FileNotFoundError, NotADirectoryError):
                self._refuse_removed()
                return False
            files.lock(self._fd, shared=self._shared, wait=False)
            if files.is_same(self._path, self._fd):
                return True
            # The directory was deleted while we waited: this lock is no longer the one that counts.
            self._release()

    def _refuse_removed(self) -> None:
        if self._of is not None and files.exists(self._of):
            # Not made anew here: another process may hold the one that was removed.
            raise Corrupt(
                str(self._path),
                f"the lock of {self._of.name} is missing. Once no process has the store open, make an empty "
                "file there",
            )

    def _release(self) -> None:
        """Let go of the lock. In a child that was forked meanwhile, that was done already."""
        if self._fd is None:
            return
        with _opening:
            if self._fd in _opened:
                # Not left to the closing: a program that is just being started has this open file, too.
                files.unlock(self._fd)
                _opened.remove(self._fd)
                files.close(self._fd)
        self._fd = None


def _open(path: Path, flags: int) -> int:
    with _opening:
        fd = files.open(path, flags)
        _opened.add(fd)
        return fd


def _close_in_child() -> None:
    for fd in _opened:
        files.close(fd)
    _opened.clear()
    _opening.release()


processes.register_at_fork(
    before=_opening.acquire, after_in_parent=_opening.release, after_in_child=_close_in_child
)
