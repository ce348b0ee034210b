"""Files below one directory, and nothing outside of it.

Every part of a path is opened relative to the directory before it, and no link is followed. A check of the
path as a whole could be outrun: somebody may put a link where a directory was a moment ago. What is open
stays what it is.
"""

from __future__ import annotations

import errno
import heapq
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from msgspec import Struct

from ...errors import BadInput, NotFound
from ...limits import SCRATCHPAD_DEPTH_MAX, SCRATCHPAD_FILE_BYTES_MAX
from ...system import files
from ...tools.outcome import NotDone

_RESERVED = ".holdfast"
_TEMPORARY = f"{_RESERVED}-new"
"""Only who has the lock writes, so one name is enough, and a leftover is replaced by the next one."""

_ENTER = files.O_RDONLY | files.O_DIRECTORY | files.O_NOFOLLOW
# Not blocking: somebody may put a pipe there between the look and the opening.
_READ = files.O_RDONLY | files.O_NOFOLLOW | files.O_NONBLOCK | files.O_NOCTTY
_CREATE = files.O_WRONLY | files.O_CREAT | files.O_EXCL | files.O_NOFOLLOW
_NAME_BYTES_MAX = 255
_KINDS = (
    (stat.S_ISREG, "a file"),
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISLNK, "a symbolic link"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
)


class ListedFile(Struct, frozen=True):
    """Something in the directory. Its path is for people: what cannot be read in it is escaped."""

    path: str
    kind: str
    bytes: int


def split_path(path: str) -> tuple[str, ...]:
    """The names in a relative path, if it can lead nowhere else; none for the directory itself."""
    if path.startswith("/"):
        raise BadInput(
            f"{path!r} is an absolute path: give one that begins in the scratchpad, like 'notes.md'"
        )
    parts = tuple(part for part in path.split("/") if part not in ("", "."))
    if ".." in parts:
        raise BadInput(f"{path!r} leads out with '..': give the path from the top of the scratchpad")
    if len(parts) > SCRATCHPAD_DEPTH_MAX:
        raise BadInput(f"{path!r} is too deep: at most {SCRATCHPAD_DEPTH_MAX} names in a path")
    for part in parts:
        odd = next((char for char in part if not char.isprintable()), None)
        if odd is not None:
            raise BadInput(f"{path!r} holds {odd!r}: use letters and signs that can be seen")
        if len(part.encode()) > _NAME_BYTES_MAX:
            raise BadInput(f"{part[:20]!r}… is too long for a name: at most {_NAME_BYTES_MAX} bytes")
        if part.startswith(_RESERVED):
            raise BadInput(f"names that begin with {_RESERVED!r} are taken: use another one")
    return parts


def split_file_path(path: str) -> tuple[str, ...]:
    """The same, of a path that names a file."""
    parts = split_path(path)
    if not parts:
        raise BadInput(f"{path!r} names no file: give a path like 'notes.md'")
    return parts


@contextmanager
def open_sandboxed_dir(path: Path) -> Iterator[SandboxedDir]:
    """The directory, for as long as the block runs."""
    try:
        fd = files.open(path, _ENTER)
    except OSError as error:
        if error.errno in (errno.ENOTDIR, errno.ELOOP):
            raise BadInput(
                f"the scratchpad {path} is a link or no directory: name the directory itself with "
                "session.set_scratchpad(…)"
            ) from error
        raise BadInput(f"the scratchpad {path} cannot be opened: {error.strerror}") from error
    try:
        yield SandboxedDir(fd)
    finally:
        files.close(fd)


class SandboxedDir:
    """An open directory. Paths are checked; bytes are there whole or not at all.

    Raises `BadInput` and `NotFound`, and `NotDone` if the operating system did not do it. An `OSError` of a
    change means that it was done and may not outlive a power cut.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Nobody else changes it through here meanwhile, in no thread and no process."""
        with _translate_errors("the scratchpad", "cannot be locked"):
            if files.has_locks():
                files.lock(self._fd)
        try:
            yield
        finally:
            # By hand: a process that was forked meanwhile would keep it.
            files.unlock(self._fd)

    def read(self, path: str) -> bytes:
        """What is in the file."""
        parts = split_file_path(path)
        with _translate_errors(path, "cannot be read"), self._above(parts) as above:
            _expect_file(path, files.stat(parts[-1], dir_fd=above, follow_symlinks=False))
            with files.open_binary(files.open(parts[-1], _READ, dir_fd=above), "rb") as file:
                # Once more: it may be another one by now.
                info = files.stat(file.fileno())
                _expect_file(path, info)
                data = file.read(SCRATCHPAD_FILE_BYTES_MAX + 1)
        if len(data) > SCRATCHPAD_FILE_BYTES_MAX:
            raise BadInput(
                f"{path}: {info.st_size} bytes are too many to be read here; "
                f"the limit is {SCRATCHPAD_FILE_BYTES_MAX}"
            )
        return data

    def find(self, path: str) -> bytes | None:
        """What is in the file; None if there is none."""
        try:
            return self.read(path)
        except NotFound:
            return None

    def replace(self, path: str, data: bytes) -> None:
        """Make or replace the file, and the directories above it. Durable. Needs the lock."""
        if len(data) > SCRATCHPAD_FILE_BYTES_MAX:
            raise BadInput(
                f"{path}: {len(data)} bytes are too many; the limit is {SCRATCHPAD_FILE_BYTES_MAX}. "
                "Split it into several files"
            )
        parts = split_file_path(path)
        with self._above(parts, make=True) as above:
            with _translate_errors(path, "was not written"):
                self._write_new(data, _mode_of(path, above, parts[-1]))
                try:
                    files.rename(_TEMPORARY, parts[-1], source_fd=self._fd, target_fd=above)
                except OSError:
                    self._drop_new()
                    raise
            # A rename is durable only once the directory is synced, too.
            files.sync(above)

    def delete(self, path: str) -> bool:
        """Remove a file, a link or an empty directory; False if there is none. Durable. Needs the lock."""
        parts = split_file_path(path)
        try:
            with self._above(parts) as above:
                was_there = _remove(path, above, parts[-1])
                # Also if somebody removed it before, and died before it was durable.
                files.sync(above)
                return was_there
        except NotFound:
            return False

    def entries(self, path: str, limit: int) -> list[ListedFile]:
        """What is in a directory and those below it, by name, links not followed; at most `limit`."""
        parts = split_path(path)
        found: list[ListedFile] = []
        with _translate_errors(path or "the scratchpad", "cannot be listed"), self._above((*parts, "")) as fd:
            self._collect(fd, parts, limit, found)
        return found

    def _collect(self, fd: int, parts: tuple[str, ...], limit: int, found: list[ListedFile]) -> None:
        with files.scan(fd) as inside:
            names = heapq.nsmallest(limit + 1, (entry.name for entry in inside))
        for name in names:
            if len(found) >= limit:
                return
            if name == _TEMPORARY:
                continue
            with suppress(FileNotFoundError):
                info = files.stat(name, dir_fd=fd, follow_symlinks=False)
                found.append(ListedFile(_shown("/".join((*parts, name))), _kind_of(info), info.st_size))
                if stat.S_ISDIR(info.st_mode) and len(parts) < SCRATCHPAD_DEPTH_MAX:
                    self._descend(fd, (*parts, name), limit, found)

    def _descend(self, fd: int, parts: tuple[str, ...], limit: int, found: list[ListedFile]) -> None:
        try:
            inner = files.open(parts[-1], _ENTER, dir_fd=fd)
        except OSError:  # It is no directory any more, or may not be looked into.
            return
        try:
            self._collect(inner, parts, limit, found)
        finally:
            files.close(inner)

    @contextmanager
    def _above(self, parts: tuple[str, ...], *, make: bool = False) -> Iterator[int]:
        """The directory that the last part is in."""
        fd = files.dup(self._fd)
        try:
            for number, name in enumerate(parts[:-1], start=1):
                with _translate_errors("/".join(parts[:number]), "cannot be opened"):
                    inner = _enter(fd, name, make=make)
                files.close(fd)
                fd = inner
            yield fd
        finally:
            files.close(fd)

    def _write_new(self, data: bytes, mode: int | None) -> None:
        self._drop_new()
        fd = files.open(_TEMPORARY, _CREATE, 0o666, dir_fd=self._fd)
        try:
            if mode is not None:
                files.set_mode(fd, mode)
            files.write_all(fd, data)
            files.sync(fd)
        except OSError:
            self._drop_new()
            raise
        finally:
            files.close(fd)

    def _drop_new(self) -> None:
        with suppress(FileNotFoundError):
            files.remove(_TEMPORARY, dir_fd=self._fd)


@contextmanager
def _translate_errors(path: str, what: str) -> Iterator[None]:
    """Turn the operating system's errors into ours. They mean that nothing was done."""
    try:
        yield
    except FileNotFoundError as error:
        raise NotFound(f"there is no {path!r} in the scratchpad") from error
    except OSError as error:
        if error.errno in (errno.ENOTDIR, errno.ELOOP):
            raise BadInput(
                f"{path} {what}: it is a link or not a directory; links are not followed here"
            ) from error
        raise NotDone(f"{path} {what}: {error.strerror}") from error


def _enter(fd: int, name: str, *, make: bool) -> int:
    if make:
        with suppress(FileExistsError):
            files.mkdir(name, dir_fd=fd)
        # Also if it is there: who made it may have died before its name was durable.
        files.sync(fd)
    return files.open(name, _ENTER, dir_fd=fd)


def _mode_of(path: str, above: int, name: str) -> int | None:
    """The permissions of the file that will be replaced."""
    try:
        info = files.stat(name, dir_fd=above, follow_symlinks=False)
    except FileNotFoundError:
        return None
    _expect_file(path, info)
    return stat.S_IMODE(info.st_mode) & 0o777


def _remove(path: str, above: int, name: str) -> bool:
    with _translate_errors(path, "was not deleted"):
        info = files.stat(name, dir_fd=above, follow_symlinks=False)
        if not stat.S_ISDIR(info.st_mode):
            files.remove(name, dir_fd=above)
            return True
        try:
            files.rmdir(name, dir_fd=above)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            raise BadInput(f"{path} is a directory with files in it: delete those first") from error
    return True


def _kind_of(info: files.StatResult) -> str:
    return next((kind for is_one, kind in _KINDS if is_one(info.st_mode)), "a device")


def _expect_file(path: str, info: files.StatResult) -> None:
    if stat.S_ISDIR(info.st_mode):
        raise BadInput(f"{path} is a directory: name a file in it")
    if not stat.S_ISREG(info.st_mode):
        raise BadInput(f"{path} is {_kind_of(info)}: only plain files are read and written here")


def _shown(path: str) -> str:
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in path
    )
