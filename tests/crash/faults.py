"""Every write and sync of a process goes through here, to be counted, to kill the process, or to fail.

`install` puts itself between the drivers and the operating system: it wraps the functions of `os` that change
files, the files that `open` gives for writing, and, for SQLite, makes a VFS the default one. (What SQLite
changes in its shared memory is not seen; but a kill at any write or sync finds that in the state between
two of them.) What is sent to PostgreSQL counts as a write, too.
"""

from __future__ import annotations

import builtins
import errno
import io
import os
import signal
import threading
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, TypeAlias

import apsw

from tests.stores import POSTGRES

from .database_proxy import Send, Wire

Kind: TypeAlias = Literal["write", "sync", "truncate", "create", "rename", "unlink", "mkdir", "rmdir"]
When: TypeAlias = Literal["before", "half", "after"]
"""Half a write is the first half of its bytes; half of anything else is all of it."""


class Event(NamedTuple):
    """Something is about to change on the disk. A rename has a target."""

    number: int
    kind: Kind
    path: str
    target: str = ""


Rule: TypeAlias = Callable[[Event], "Kill | Fail | None"]


class Kill(NamedTuple):
    """End this process by SIGKILL."""

    when: When


class Fail(NamedTuple):
    """Raise this error instead of the answer."""

    error: int
    when: When = "before"


class Disk:
    """What goes to the disk, in order. `rule` says what becomes of it; nothing else happens by default."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.done: list[Event] = []
        """Those that came to their end."""
        self.rule: Rule = lambda event: None
        self._count = 0
        self._lock = threading.Lock()

    def kill_at(self, number: int, when: When) -> None:
        """Die at the event with this number, counted from 1."""
        self.rule = lambda event: Kill(when) if event.number == number else None

    def fail(self, error: int, *kinds: Kind, when: When = "before", path: str = "") -> None:
        """From now on, things of these kinds fail for files whose path holds `path`."""
        self.rule = lambda event: Fail(error, when) if event.kind in kinds and path in event.path else None

    def heal(self) -> None:
        """From now on, everything works again."""
        self.rule = lambda event: None

    def do(
        self,
        kind: Kind,
        path: object,
        act: Callable[[], Any],
        half: Callable[[], Any] | None = None,
        *,
        target: object = "",
    ) -> Any:
        """Do it, or what the rule says."""
        with self._lock:
            self._count += 1
            event = Event(self._count, kind, str(path), str(target))
            self.events.append(event)
            fault = self.rule(event)
        if fault is None:
            answer = act()
            self.done.append(event)
            return answer
        if fault.when == "half":
            (half or act)()
        elif fault.when == "after":
            act()
        if isinstance(fault, Kill):
            os.kill(os.getpid(), signal.SIGKILL)
        assert isinstance(fault, Fail)
        raise OSError(fault.error, os.strerror(fault.error))


def install() -> Disk:
    """Put a disk between this process and its files, for the rest of its life."""
    disk = Disk()
    if POSTGRES in os.environ:
        os.environ[POSTGRES] = _wire_to(disk).url
    _wrap_os(disk)
    _wrap_open(disk)
    _Vfs(disk)
    return disk


def _wire_to(disk: Disk) -> Wire:
    def send_or_not(piece: bytes, send: Send) -> None:
        disk.do("write", "the server", lambda: send(piece), lambda: send(piece[: len(piece) // 2]))

    return Wire(send_or_not)


def _path_of(fd: int) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    except OSError:
        return "?"


def _wrap_os(disk: Disk) -> None:
    real_write, real_open, real_truncate = os.write, os.open, os.ftruncate
    here: Any = os

    def write(fd: int, data: Any, /) -> int:
        half = memoryview(data)[: len(data) // 2]
        written: int = disk.do(
            "write", _path_of(fd), lambda: real_write(fd, data), lambda: real_write(fd, half)
        )
        return written

    def open_(path: Any, flags: int, *args: Any, **options: Any) -> int:
        def act() -> int:
            return real_open(path, flags, *args, **options)

        if flags & os.O_CREAT and not os.path.lexists(path):
            fd: int = disk.do("create", path, act)
            return fd
        return act()

    def ftruncate(fd: int, length: int) -> None:
        disk.do("truncate", _path_of(fd), lambda: real_truncate(fd, length))

    here.write, here.open, here.ftruncate = write, open_, ftruncate
    for name in ("fsync", "fdatasync"):
        setattr(os, name, _sync(disk, getattr(os, name)))
    by_name: dict[str, Kind] = {
        "rename": "rename",
        "replace": "rename",
        "unlink": "unlink",
        "remove": "unlink",
        "mkdir": "mkdir",
        "rmdir": "rmdir",
    }
    for name, kind in by_name.items():
        setattr(os, name, _by_path(disk, kind, getattr(os, name)))


def _sync(disk: Disk, real: Callable[[int], None]) -> Callable[[int], None]:
    return lambda fd: disk.do("sync", _path_of(fd), lambda: real(fd))


def _by_path(disk: Disk, kind: Kind, real: Callable[..., None]) -> Callable[..., None]:
    def call(path: Any, *args: Any, **options: Any) -> None:
        target = args[0] if kind == "rename" else ""
        disk.do(kind, path, lambda: real(path, *args, **options), target=target)

    return call


def _wrap_open(disk: Disk) -> None:
    real = io.open

    class Raw(io.FileIO):
        def write(self, data: Any, /) -> int:
            whole = bytes(data)
            half = whole[: len(whole) // 2]
            written: int = disk.do(
                "write",
                self.name,
                lambda: super(Raw, self).write(whole),
                lambda: super(Raw, self).write(half),
            )
            return written

    def open_(file: Any, mode: str = "r", *args: Any, **options: Any) -> Any:
        if not set(mode) & set("wxa+"):
            return real(file, mode, *args, **options)
        assert "b" in mode, "no driver writes text"
        raw: Raw = disk.do("create", file, lambda: Raw(file, mode.replace("b", "")))
        return io.BufferedWriter(raw)

    builtins.open = io.open = open_


# -- SQLite -------------------------------------------------------------------------------------------


class _Vfs(apsw.VFS):
    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        super().__init__("holdfast-faults", "unix", makedefault=True)
        _vfs.append(self)

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
        # A temporary file of SQLite's own is nobody's to lose.
        return _File(self._disk, name, flags) if name else apsw.VFSFile("unix", name, flags)

    def xDelete(self, name: str, syncdir: bool) -> None:  # noqa: N802
        _translated(lambda: self._disk.do("unlink", name, lambda: super(_Vfs, self).xDelete(name, syncdir)))

    def excepthook(self, kind: Any, error: Any, trace: Any) -> bool:
        """Every error is also given to SQLite, which is what the tests look at."""
        return True


_vfs: list[_Vfs] = []
"""SQLite has only a pointer to it."""


class _File(apsw.VFSFile):
    def __init__(self, disk: Disk, name: Any, flags: list[int]) -> None:
        self._disk = disk
        self._path = name.filename() if isinstance(name, apsw.URIFilename) else name
        super().__init__("unix", name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        write = super().xWrite
        half = bytes(data)[: len(data) // 2]
        self._do("write", lambda: write(data, offset), lambda: write(half, offset))

    def xSync(self, flags: int) -> None:  # noqa: N802
        sync = super().xSync
        self._do("sync", lambda: sync(flags))

    def xTruncate(self, size: int) -> None:  # noqa: N802
        truncate = super().xTruncate
        self._do("truncate", lambda: truncate(size))

    def excepthook(self, kind: Any, error: Any, trace: Any) -> bool:
        """As above."""
        return True

    def _do(self, kind: Kind, act: Callable[[], None], half: Callable[[], None] | None = None) -> None:
        _translated(lambda: self._disk.do(kind, self._path, act, half), kind)


_IO_ERRORS: dict[Kind, int] = {
    "write": apsw.SQLITE_IOERR_WRITE,
    "sync": apsw.SQLITE_IOERR_FSYNC,
    "truncate": apsw.SQLITE_IOERR_TRUNCATE,
    "unlink": apsw.SQLITE_IOERR_DELETE,
}


def _translated(act: Callable[[], None], kind: Kind = "unlink") -> None:
    try:
        act()
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise apsw.FullError(str(error)) from error
        failed: Any = apsw.IOError(str(error))
        failed.extendedresult = _IO_ERRORS[kind]
        raise failed from error
