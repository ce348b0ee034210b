"""Files: calls of the operating system, and files that are whole or not there at all, even after a power cut.

Use the calls as `files.open(…)`, not by importing single names: a simulator puts its own in their place. They
find the functions of `os` when they are called, so that tests can inject faults there.

What a platform lacks is handled here: a flag of `open` that it does not know is 0, and without `fcntl` there
are no locks between processes (`has_locks`).
"""

from __future__ import annotations

import builtins
import errno
import os
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import BinaryIO, Final, TypeAlias, cast

from ..errors import BadUrl, Corrupt, StoreFailed
from ..ids import fresh_uid

try:
    import fcntl
except ImportError:  # Only POSIX systems have it.
    _has_fcntl = False
else:
    _has_fcntl = True

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

AnyPath: TypeAlias = str | os.PathLike[str]
StatResult: TypeAlias = os.stat_result

O_RDONLY, O_WRONLY, O_RDWR = os.O_RDONLY, os.O_WRONLY, os.O_RDWR
O_CREAT, O_EXCL, O_APPEND = os.O_CREAT, os.O_EXCL, os.O_APPEND
O_CLOEXEC: int = getattr(os, "O_CLOEXEC", 0)
O_DIRECTORY: int = getattr(os, "O_DIRECTORY", 0)
O_NOCTTY: int = getattr(os, "O_NOCTTY", 0)
O_NOFOLLOW: int = getattr(os, "O_NOFOLLOW", 0)
O_NONBLOCK: int = getattr(os, "O_NONBLOCK", 0)


# -- calls --------------------------------------------------------------------------------------------


def open(path: AnyPath, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
    """Open a file; its descriptor."""
    return os.open(path, flags, mode, dir_fd=dir_fd)


def open_binary(path: AnyPath | int, mode: str = "rb", buffering: int = -1) -> BinaryIO:
    """A file object of bytes; `mode` has a `b`."""
    assert "b" in mode, mode
    return cast(BinaryIO, builtins.open(path, mode, buffering))


def pipe() -> tuple[int, int]:
    """A pipe: the descriptor to read from, without waiting, and the one to write to."""
    source, sink = os.pipe()
    os.set_blocking(source, False)
    return source, sink


def close(fd: int) -> None:
    """Close the descriptor."""
    os.close(fd)


def dup(fd: int) -> int:
    """Another descriptor of the same open file."""
    return os.dup(fd)


def read(fd: int, size: int) -> bytes:
    """Up to `size` bytes from where the file was read to."""
    return os.read(fd, size)


def read_at(fd: int, size: int, offset: int) -> bytes:
    """Up to `size` bytes from the offset."""
    return os.pread(fd, size, offset)


def write(fd: int, data: bytes | memoryview) -> int:
    """Write what fits; how many bytes that were."""
    return os.write(fd, data)


def write_all(fd: int, data: bytes) -> None:
    """Write every byte: a single write may stop early when the disk is nearly full."""
    left = memoryview(data)
    while left:
        left = left[os.write(fd, left) :]


def truncate(fd: int, size: int) -> None:
    """Cut the file to so many bytes."""
    os.ftruncate(fd, size)


def sync(fd: int) -> None:
    """Wait until the file is on the disk, with all that is known of it."""
    os.fsync(fd)


def sync_data(fd: int) -> None:
    """Wait until the file's bytes and length are on the disk."""
    if sys.platform == "darwin":
        # A plain fsync there stops at the drive's own cache.
        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
    else:
        getattr(os, "fdatasync", os.fsync)(fd)  # Not every platform has the first.


def stat(path: AnyPath | int, *, dir_fd: int | None = None, follow_symlinks: bool = True) -> StatResult:
    """What the file system knows of the file."""
    return os.stat(path, dir_fd=dir_fd, follow_symlinks=follow_symlinks)


def is_same(path: AnyPath, fd: int) -> bool:
    """Whether the path names the open file."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(fd))
    except (FileNotFoundError, NotADirectoryError):
        return False


def exists(path: Path) -> bool:
    """Whether there is a file or directory; a link that leads nowhere does not count."""
    return path.exists()


def lexists(path: AnyPath) -> bool:
    """Whether there is anything under the name."""
    return os.path.lexists(path)


def is_dir(path: Path) -> bool:
    """Whether there is a directory."""
    return path.is_dir()


def real_path(path: AnyPath) -> str:
    """The path without links."""
    return os.path.realpath(path)


def scan(fd: int) -> AbstractContextManager[Iterator[os.DirEntry[str]]]:
    """What is in the open directory."""
    return os.scandir(fd)


def list_names(path: Path) -> list[str]:
    """The names in the directory, in no order; none if there is no directory."""
    try:
        return os.listdir(path)
    except (FileNotFoundError, NotADirectoryError):
        return []


def mkdir(path: AnyPath, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
    """Make a directory."""
    os.mkdir(path, mode, dir_fd=dir_fd)


def rename(
    source: AnyPath, target: AnyPath, *, source_fd: int | None = None, target_fd: int | None = None
) -> None:
    """Give a file its name, which may be another file's so far. Both may be relative to open directories."""
    os.rename(source, target, src_dir_fd=source_fd, dst_dir_fd=target_fd)


def remove(path: AnyPath, *, missing_ok: bool = False, dir_fd: int | None = None) -> None:
    """Remove a file."""
    try:
        os.unlink(path, dir_fd=dir_fd)
    except FileNotFoundError:
        if not missing_ok:
            raise


def rmdir(path: AnyPath, *, dir_fd: int | None = None) -> None:
    """Remove an empty directory."""
    os.rmdir(path, dir_fd=dir_fd)


def set_mode(fd: int, mode: int) -> None:
    """Set the permissions of the open file."""
    os.fchmod(fd, mode)


def make_tree(path: Path) -> None:
    """Make the directory and those above it, as far as they are missing. Not synced."""
    path.mkdir(parents=True, exist_ok=True)


def read_bytes(path: Path) -> bytes:
    """What is in the file."""
    return path.read_bytes()


def set_changed_at(path: AnyPath, at: datetime) -> None:
    """Set when the file was last changed: the file system's clock may be some milliseconds behind ours."""
    at_ns = (at - _EPOCH) // timedelta(microseconds=1) * 1000
    os.utime(path, ns=(at_ns, at_ns))


def changed_at(path: AnyPath) -> datetime:
    """When the file was last changed, in UTC."""
    return _EPOCH + timedelta(microseconds=os.stat(path).st_mtime_ns // 1000)


def temporary_file() -> BinaryIO:
    """A file without a name, gone when it is closed."""
    return cast(BinaryIO, tempfile.TemporaryFile())


def temporary_directory() -> Path:
    """Where this system has its temporary files."""
    return Path(tempfile.gettempdir())


# -- locks between processes --------------------------------------------------------------------------


def has_locks() -> bool:
    """Whether this platform has locks that the kernel releases when their process ends."""
    return _has_fcntl


def lock(fd: int, *, shared: bool = False, wait: bool = True) -> None:
    """Lock the open file. Without `wait`, `BlockingIOError` if another open file has the lock.

    `OSError` on a platform without locks: a lock that excludes nothing would prove what is not so.
    """
    if not _has_fcntl:
        raise OSError(errno.ENOTSUP, "this platform has no locks between processes")
    fcntl.flock(fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))


def unlock(fd: int) -> None:
    """Release the lock, if the platform has locks."""
    if _has_fcntl:
        fcntl.flock(fd, fcntl.LOCK_UN)


def require_locks(what: str) -> None:
    """Refuse what needs locks between processes on a platform without them."""
    if not _has_fcntl:
        raise BadUrl(
            f"{what} needs locks between processes (flock), and this platform has none: "
            "use a sqlite: or postgresql: store, and keep blobs in it or in an object store"
        )


_REMOTE = ("nfs", "cifs", "smb", "9p", "afs", "ceph", "gluster", "lustre", "fuse.", "virtiofs")


def is_remote(directory: Path) -> bool:
    """Whether the directory is on a network file system, where a lock may be one machine's only.

    `OSError` where the system does not say.
    """
    best, kind = "", ""
    for line in Path("/proc/self/mountinfo").read_text("utf-8", "surrogateescape").splitlines():
        fields = line.split(" ")
        point = fields[4].encode("utf-8", "surrogateescape").decode("unicode_escape")
        inside = point == "/" or str(directory) == point or str(directory).startswith(point + "/")
        if inside and len(point) >= len(best):
            best, kind = point, fields[fields.index("-") + 1]
    return kind.startswith(_REMOTE)


# -- durable files ------------------------------------------------------------------------------------


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


def sync_directory(path: Path) -> None:
    """Wait until the directory's entries are on the disk: until then, a new name can be lost."""
    fd = open(path, O_RDONLY | O_DIRECTORY)
    try:
        sync(fd)
    finally:
        close(fd)


def make_directory(path: Path) -> None:
    """Make the directory and those above it, as far as they are missing. Durable."""
    if is_dir(path):
        return
    make_directory(path.parent)
    with suppress(FileExistsError):
        mkdir(path)
    sync_directory(path.parent)


def touch(path: Path) -> None:
    """Make an empty file if there is none. Durable only once its directory is synced."""
    close(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0o666))


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
        close(fd)
        remove(path, missing_ok=True)


def put(path: Path, parts: Iterable[bytes], scratch: Path, *, sync_name: bool = True) -> None:
    """Make or replace the file, all or nothing. Durable, unless syncing its name is left to the caller."""
    with written(scratch, parts) as temporary:
        rename(temporary, path)
    if sync_name:
        sync_directory(path.parent)


def move(source: Path, target: Path) -> None:
    """Give a file or directory its new place. Durable."""
    rename(source, target)
    sync_directory(target.parent)
    sync_directory(source.parent)


def discard(path: Path) -> None:
    """Remove a file, or a directory and all that is in it. What cannot be removed stays."""
    with suppress(OSError):
        if is_dir(path):
            shutil.rmtree(path, ignore_errors=True)
        else:
            remove(path)


def clear_leftovers(scratch: Path) -> None:
    """Remove the temporary files of processes that have ended: those are not locked."""
    for name in list_names(scratch):
        with suppress(OSError):
            fd = open(scratch / name, O_RDWR | O_CLOEXEC)
            try:
                lock(fd, wait=False)
                remove(scratch / name)
            finally:
                close(fd)


def _open_temporary(scratch: Path) -> tuple[Path, int]:
    while True:
        path = scratch / fresh_uid()
        fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0o666)
        try:
            lock(fd, wait=False)
            # A process that clears leftovers may have come between the two calls.
            if os.fstat(fd).st_nlink:
                return path, fd
        except BlockingIOError:
            pass
        except BaseException:
            close(fd)
            remove(path, missing_ok=True)
            raise
        close(fd)
