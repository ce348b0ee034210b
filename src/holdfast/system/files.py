"""Files that are there whole or not at all, and stay there when the power fails."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..errors import Corrupt, StoreFailed
from ..ids import fresh_uid

_ADVICE = {
    errno.ENOSPC: "Free some space there",
    errno.EDQUOT: "Raise the quota, or free some space there",
    errno.EFBIG: "Raise the limit on the size of files (ulimit -f)",
    errno.EROFS: "Mount it writable, or name another directory",
    errno.EACCES: "Let this user read and write it, or name another directory",
    errno.EPERM: "Let this user read and write it, or name another directory",
    errno.EMFILE: "Raise the limit on open files (ulimit -n)",
    errno.ENFILE: "Raise the system's limit on open files",
    errno.EIO: "Look into the kernel's log and check the disk",
    errno.ENOLCK: "Use a local file system: this one has no flock",
    errno.EOPNOTSUPP: "Use a local file system: this one cannot do what a store needs",
}


_NAME_BYTES_MAX = 255
"""The limit of file systems."""


@contextmanager
def translated(where: Path) -> Iterator[None]:
    """Turn the operating system's errors into `StoreFailed`, with the place and what to do about it."""
    try:
        yield
    except OSError as error:
        place = error.filename or where
        advice = _ADVICE.get(error.errno or 0, "See to the cause")
        why = error.strerror or str(error)
        raise StoreFailed(f"{place}: {why}. {advice}; then it is safe to try again.") from error


def sync_data(fd: int) -> None:
    """Wait until the file's bytes and length are on the disk."""
    if sys.platform == "darwin":
        # A plain fsync there stops at the drive's own cache.
        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
    else:
        os.fdatasync(fd)


def sync_directory(path: Path) -> None:
    """Wait until the directory's entries are on the disk: until then, a new name can be lost."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def make_directory(path: Path) -> None:
    """Make the directory and those above it, as far as they are missing. Durable."""
    if path.is_dir():
        return
    make_directory(path.parent)
    with suppress(FileExistsError):
        os.mkdir(path)
    sync_directory(path.parent)


def touch(path: Path) -> None:
    """Make an empty file if there is none. Durable only once its directory is synced."""
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666))


def write_all(fd: int, data: bytes) -> None:
    """Write every byte: a single write may stop early when the disk is nearly full."""
    left = memoryview(data)
    while left:
        left = left[os.write(fd, left) :]


def child_path(folder: Path, name: str, suffix: str = "") -> Path:
    """The file or directory of this name in the folder.

    Names that callers give were checked before. One that would lead out of the folder is from stored data.
    """
    try:
        size = len(os.fsencode(name)) + len(suffix)
    except UnicodeEncodeError:
        size = 0
    if not 0 < size <= _NAME_BYTES_MAX or name in ("", ".", "..") or "/" in name or "\0" in name:
        raise Corrupt(str(folder), f"something refers to {name[:_NAME_BYTES_MAX]!r} in it, which is no name")
    return folder / f"{name}{suffix}"


def find_bytes(path: Path) -> bytes | None:
    """What is in the file, or None if there is none."""
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None


def list_names(path: Path) -> list[str]:
    """The names in the directory, in no order; none if there is no directory."""
    try:
        return os.listdir(path)
    except (FileNotFoundError, NotADirectoryError):
        return []


@contextmanager
def written(scratch: Path, parts: Iterable[bytes]) -> Iterator[Path]:
    """A synced temporary file with these bytes, removed in the end unless it was moved to its place."""
    with translated(scratch):
        path, fd = _open_temporary(scratch)
    try:
        # Not around the loop: an error of where the parts come from is not the store's.
        for part in parts:
            with translated(path):
                write_all(fd, part)
        with translated(path):
            sync_data(fd)
        yield path
    finally:
        os.close(fd)
        path.unlink(missing_ok=True)


def put(path: Path, parts: Iterable[bytes], scratch: Path, *, sync_name: bool = True) -> None:
    """Make or replace the file, all or nothing. Durable, unless syncing its name is left to the caller."""
    with written(scratch, parts) as temporary:
        temporary.rename(path)
    if sync_name:
        sync_directory(path.parent)


def move(source: Path, target: Path) -> None:
    """Give a file or directory its new place. Durable."""
    source.rename(target)
    sync_directory(target.parent)
    sync_directory(source.parent)


def discard(path: Path) -> None:
    """Remove a file, or a directory and all that is in it. What cannot be removed stays."""
    with suppress(OSError):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink()


def clear_leftovers(scratch: Path) -> None:
    """Remove the temporary files of processes that are gone: nobody holds a lock on those."""
    for name in list_names(scratch):
        with suppress(OSError):
            fd = os.open(scratch / name, os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.unlink(scratch / name)
            finally:
                os.close(fd)


def _open_temporary(scratch: Path) -> tuple[Path, int]:
    while True:
        path = scratch / fresh_uid()
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Somebody who clears leftovers may have come between the two calls.
            if os.fstat(fd).st_nlink:
                return path, fd
        except BlockingIOError:
            pass
        except BaseException:
            os.close(fd)
            path.unlink(missing_ok=True)
            raise
        os.close(fd)
