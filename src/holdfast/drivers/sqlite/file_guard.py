"""Locks on the files of a store that no other library in this process can drop.

POSIX locks belong to a process: when any library in it closes a file, all locks of the process on that file
are dropped. Linux also has locks that belong to an open file (OFD locks). A guard sets them on the bytes that
SQLite locks while it uses a file, so that another program does not conclude that it is the last user.

Where the system has no `fcntl`, or no such locks, a guard does nothing. Leases and commits work without it:
`SqliteConnections` compares the files at the paths with the open ones on every call.
"""

from __future__ import annotations

import errno
import os
import struct
import sys
import weakref
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, TypeAlias

try:
    from fcntl import F_OFD_SETLK, F_RDLCK, F_UNLCK, fcntl

    _HAS_LOCKS = sys.platform == "linux" and sys.maxsize > 2**32  # Where `_set_lock` knows the structure.
except ImportError:
    _HAS_LOCKS = False

_OPEN_FILES: Final = {"linux": "/proc/self/fd", "darwin": "/dev/fd"}.get(sys.platform)
"""Directory with the numbers of the open files of a process."""

_IN_USE: Final = (0x40000002, 510)
_INDEX_IN_USE: Final = (128, 1)
"""Bytes (first, count) that SQLite locks as long as it uses a file: of the database, and of the `-shm`."""

FileId: TypeAlias = "tuple[int, int] | None"
"""Device and inode of a file, unique while the file is open; None if there is no file."""


class FileGuard:
    """Read locks on the open files of one store."""

    def __init__(self) -> None:
        self._numbers: set[int] = set()
        _guards.add(self)

    def lock(self, db: FileId, shared: FileId) -> None:
        """Lock the database and its `-shm` under every number that this process has them open."""
        if not _HAS_LOCKS:
            return
        for file, where in ((db, _IN_USE), (shared, _INDEX_IN_USE)):
            for number in set(_find_open(file)) - _inherited:
                with suppress(OSError):  # Not every file system has them. Comparing the files is enough.
                    _set_lock(number, F_RDLCK, where)
                    self._numbers.add(number)

    def unlock(self, db: FileId, shared: FileId) -> None:
        """Drop the locks that no other guard needs, so that SQLite can see that it is the last user."""
        others: set[int] = set()
        for guard in list(_guards):
            if guard is not self:
                others |= guard._numbers
        guarded = {db: _IN_USE, shared: _INDEX_IN_USE}
        for number in self._numbers - others:
            with suppress(OSError):
                where = guarded.get(file_id(find_file(number)))
                if where is not None:
                    _set_lock(number, F_UNLCK, where)
        self._numbers = set()

    def forget(self) -> None:
        """In a forked child: leave the locks to the parent."""
        self._numbers = set()


def find_file(at: str | int) -> os.stat_result | None:
    """Stat a path, or the number of an open file; None if there is none."""
    try:
        return os.stat(at)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        if error.errno == errno.EBADF:
            return None
        raise


def file_id(at: os.stat_result | None) -> FileId:
    return None if at is None else (at.st_dev, at.st_ino)


def are_at(names: Sequence[str], files: Sequence[FileId]) -> bool:
    """True if these paths name these files. Runs before and after every write, so it does nothing else."""
    for name, file in zip(names, files, strict=True):
        _, inode, device, *_ = os.stat(name)
        if (device, inode) != file:
            return False
    return True


def has_open(*files: FileId) -> bool:
    """True if this process has all of the files open, or if the system does not tell."""
    return _OPEN_FILES is None or all(map(_find_open, files))


def note_inherited(file: FileId) -> None:
    """In a forked child: remember the numbers of a file that stays open; its locks are the parent's, too."""
    _inherited.update(_find_open(file))


def _find_open(file: FileId) -> list[int]:
    """The numbers under which this process has the file open. Opening it to look would not do: closing it
    again drops the locks."""
    if file is None or _OPEN_FILES is None:
        return []
    return [number for number in map(int, os.listdir(_OPEN_FILES)) if file_id(find_file(number)) == file]


def _set_lock(number: int, kind: int, where: tuple[int, int]) -> None:
    """Set or drop a lock that belongs to the open file, not to the process."""
    fcntl(number, F_OFD_SETLK, struct.pack("hhqqi4x", kind, os.SEEK_SET, *where, 0))


_guards: weakref.WeakSet[FileGuard] = weakref.WeakSet()
_inherited: set[int] = set()
"""Numbers of open files that belong to the parent of this process as well."""
