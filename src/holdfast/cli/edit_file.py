"""Change a file of another program: all or nothing, durable, and only if it is still what was read."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from ..ids import fresh_uid
from ..system import files
from .exit_codes import Exit, Stop


class ReadFile(NamedTuple):
    """A file as it was read. `path` leads through no link."""

    path: Path
    data: bytes
    found: os.stat_result


def read_file(path: Path) -> ReadFile:
    """Read the file, through links."""
    real = Path(os.path.realpath(path))
    with files.translated(real), open(real, "rb") as file:
        return ReadFile(real, file.read(), os.fstat(file.fileno()))


def replace_file(read: ReadFile, data: bytes) -> None:
    """Give the file these bytes, with the owner and the permissions that it has.

    A crash leaves the old file or the new one, whole. `Stop` if another program has changed the file since it
    was read; one that does so between the last look and the replacement, an instant later, is not noticed.
    """
    if read.found.st_nlink > 1:
        raise Stop(
            Exit.ERROR,
            f"{read.path} has another name as well (a hard link), which would go on to have the old text; "
            "nothing was done. Make it a symbolic link, or a file of its own",
        )
    with files.translated(read.path):
        temporary = _write_beside(read, data)
        try:
            now = read_file(read.path)
            if (now.data, now.found.st_ino) != (read.data, read.found.st_ino):
                raise Stop(
                    Exit.ERROR,
                    f"{read.path} was changed by another program meanwhile; nothing was done. Close the "
                    "program, and run this again",
                )
            os.rename(temporary, read.path)
        except BaseException:
            os.unlink(temporary)
            raise
        files.sync_directory(read.path.parent)


def back_up(read: ReadFile) -> Path:
    """Keep what was read in a file beside it, durably; the place. An earlier copy is never replaced."""
    with files.translated(read.path):
        for path in list_backups(read.path):
            if files.find_bytes(path) == read.data:
                return path
        path = _choose_backup(read.path)
        temporary = _write_beside(read, read.data)
        os.rename(temporary, path)
        files.sync_directory(path.parent)
        return path


def list_backups(path: Path) -> list[Path]:
    """The copies that `back_up` made of a file, the first one first."""
    found: list[Path] = []
    while os.path.lexists(following := _name_backup(path, len(found) + 1)):
        found.append(following)
    return found


def _choose_backup(path: Path) -> Path:
    return _name_backup(path, len(list_backups(path)) + 1)


def _name_backup(path: Path, number: int) -> Path:
    suffix = "" if number == 1 else f"-{number}"
    return path.with_name(f"{path.name}.before-holdfast{suffix}")


def _write_beside(read: ReadFile, data: bytes) -> Path:
    """A synced file with these bytes, and the owner and permissions of the one that was read."""
    path = read.path.with_name(f".{read.path.name}.{fresh_uid()}")
    # Not readable for others, as long as its permissions are not set: there may be secrets in it.
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | files.O_CLOEXEC, 0o600)
    try:
        files.write_all(fd, data)
        own = os.fstat(fd)
        if (own.st_uid, own.st_gid) != (read.found.st_uid, read.found.st_gid):
            os.fchown(fd, read.found.st_uid, read.found.st_gid)
        os.fchmod(fd, read.found.st_mode & 0o7777)
        files.sync(fd)
    except BaseException:
        os.unlink(path)
        raise
    finally:
        os.close(fd)
    return path
