"""Connections to one database file: how they are opened, shared between threads, and made current.

A process must never write to a log that other processes do not see. Locks of files belong to a process: when
any library in it closes the file, all locks of the process on that file are gone. Another program that opens
and closes the file then takes itself for the last user, folds the log into the file and deletes it. What is
written to the deleted log is lost. So:

- Where the system has locks that belong to an open file (Linux), those guard file and log.
- After every read and write, `stat` says whether the files at the paths are those that are open. Nothing is
  acknowledged, and no result given, unless they are. A look before it would leave a gap; there is one before
  writes all the same, since it is better to have written nothing.
- Connections to files that are not at their paths any more are closed without folding the log. Then new ones
  are opened, and the caller tries again.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import struct
import sys
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import wraps
from importlib.resources import files
from pathlib import Path
from typing import Concatenate, Final, NamedTuple, ParamSpec, TypeVar
from urllib.parse import quote

import apsw

from ...errors import BadUrl, Corrupt, HoldfastError, NewerFormat, NotFound, StoreBusy, StoreFailed
from ...ids import fresh_uid
from ...limits import BUSY_S
from ...system import randomness, threads
from ...system.clock import monotonic_s

_A = TypeVar("_A")
_P = ParamSpec("_P")
_S = TypeVar("_S")
_T = TypeVar("_T")

APPLICATION_ID: Final = 0x48464A31
"""`HFJ1`, in the header of the file: whose it is."""

_PAGE_BYTES: Final = 16384
"""A message of a kilobyte or two leaves up to a third of a 4 KB page unused, but little of this one."""

_LOG_PAGES_MAX: Final = 1000
"""How long the write-ahead log gets before it is folded into the file. SQLite's own default: long enough that
a page which changes with every commit is seldom copied, short enough to be over in milliseconds."""

_TRIES: Final = 5
"""How often a call is tried whose files are replaced under it. Each time another program must have come in
between."""

_OPENING_TRIES: Final = 100
"""How often opening is tried, every 10 ms, while a log is being deleted."""

_IN_USE: Final = (0x40000002, 510)
_INDEX_IN_USE: Final = (128, 1)
"""Bytes (first, count) that SQLite locks as long as it uses a file: of the database, and of the `-shm`."""

_OPEN_FILES: Final = {"linux": "/proc/self/fd", "darwin": "/dev/fd"}.get(sys.platform)
"""Where a process finds the numbers of its open files."""

_HAS_FILE_LOCKS: Final = sys.platform == "linux" and sys.maxsize > 2**32
"""Whether there are locks that belong to an open file, in the form that `_set_lock` knows."""


class LogLost(StoreFailed):
    """The files were replaced while they were in use: what was written may or may not be there."""


def repeated(method: Callable[Concatenate[_S, _P], _T]) -> Callable[Concatenate[_S, _P], _T]:
    """Call a method again if the files were replaced under it; for what may be done twice."""

    @wraps(method)
    def call(self: _S, /, *args: _P.args, **options: _P.kwargs) -> _T:
        for _ in range(_TRIES - 1):
            try:
                return method(self, *args, **options)
            except LogLost:
                continue
        return method(self, *args, **options)

    return call


def migrations() -> list[str]:
    """The scripts that make the schema, in order."""
    folder = files(__package__) / "migrations"
    return [file.read_text("utf-8") for file in sorted(folder.iterdir(), key=lambda file: file.name)]


_Identity = tuple[int, int] | None
"""Device and inode of a file, which no other file has while this one is open; None if there is no file."""


class _Files(NamedTuple):
    """The files at the paths. `frozen`: used without locks, and then every change of them counts."""

    db: _Identity
    log: _Identity
    shared: _Identity
    frozen: bool = False
    changed: tuple[tuple[int, int], ...] = ()
    """Size and time of each, of files that are frozen."""


class Connections:
    """One writer under a lock, and as many readers as there are threads that read."""

    def __init__(self, path: Path, *, create: bool) -> None:
        self.path = path
        # Also after a change of the working directory, or of a symbolic link.
        self._path = os.path.realpath(path)
        self._names = (self._path, f"{self._path}-wal", f"{self._path}-shm")
        self._lock = threads.Lock()
        self._writer_lock = threads.Lock()
        self._closed = False
        self._writer: apsw.Connection | None = None
        self._idle: list[apsw.Connection] = []
        self._generation = 0
        """Counts how often all connections were opened anew."""
        self._lent = self._lent_before = 0
        """Readers in use, of this generation and of earlier ones."""
        self._files = _Files(None, None, None)
        """What the connections of this generation have open."""
        self._is_lost = False
        """Whether that was seen not to be at its paths any more."""
        self._guarded: set[int] = set()
        self._wait = False
        if not create and not path.exists():
            raise NotFound(f"there is no store at {path}")
        if path.is_dir():
            raise BadUrl(f"{path} is a directory; a sqlite: store is a file. Did you mean 'dir:{path}'?")
        try:
            if create:
                _make_directories(path.parent)
            self._open_all(create=create)
        except (apsw.Error, OSError) as error:
            raise self._translated(error) from error
        self._origin = self._files.db
        """The file that this store is, whatever comes to be at its path."""
        _all_connections.add(self)

    # -- opening ------------------------------------------------------------------------------------

    def _open_all(self, *, create: bool = False) -> None:
        """Open the writer, and note which files it has open."""
        with _opening[self._path]:
            for left in reversed(range(_OPENING_TRIES)):
                self._release_others()
                try:
                    writer, frozen = self._open_prepared(create=create)
                except apsw.IOError:
                    # So it is when SQLite shares the index of a log that is deleted with this connection.
                    if not left or self._has_log_open():
                        raise
                    threads.sleep(0.01)
                    continue
                if frozen or writer.pragma("journal_mode") != "wal" or self._has_log_open():
                    break
                writer.close()
                if not left:
                    raise StoreFailed(
                        f"{self.path}: another connection of this process still uses a write-ahead log that "
                        "was deleted; close it, or restart the process"
                    )
                threads.sleep(0.01)
            with self._lock:
                self._writer, self._files, self._is_lost = writer, self._look(frozen), False
            if not frozen:
                self._guard()
        self._set_wait(True)

    def _has_log_open(self) -> bool:
        """Whether this process has the very log open that is at the path, and its index; as far as the system
        tells."""
        found = self._look()
        return _OPEN_FILES is None or bool(_find_open(found.log) and _find_open(found.shared))

    def _release_others(self) -> None:
        """Have all other connections of this process let go of a deleted log: SQLite would share its index
        with a new connection."""
        deadline_s = monotonic_s() + BUSY_S
        inode = self._look().db
        for other in list(_all_connections):
            while other is not self and other._has_lost(inode) and monotonic_s() < deadline_s:
                if other._writer_lock.acquire(blocking=False):
                    try:
                        other._let_go_all()
                    finally:
                        other._writer_lock.release()
                threads.sleep(0.001)

    def _has_lost(self, db: _Identity) -> bool:
        is_open = self._writer is not None or self._lent_before > 0
        return is_open and not self._files.frozen and self._files.db == db and not self._is_current()

    def _open_prepared(self, *, create: bool) -> tuple[apsw.Connection, bool]:
        try:
            return self._prepared(self._open(create=create), frozen=False), False
        except (apsw.ReadOnlyError, apsw.CantOpenError):
            if not os.path.exists(self._path):
                raise
            # Nothing can be written beside the file, not even what readers of a log share.
            return self._prepared(self._open_frozen(), frozen=True), True

    def _prepared(self, db: apsw.Connection, *, frozen: bool) -> apsw.Connection:
        try:
            self._prepare(db, frozen=frozen)
        except BaseException:
            db.close()
            raise
        return db

    def _open(self, *, create: bool = False) -> apsw.Connection:
        flags = apsw.SQLITE_OPEN_READWRITE | (apsw.SQLITE_OPEN_CREATE if create else 0)
        db = apsw.Connection(self._path, flags=flags)
        db.set_busy_handler(_Patience())
        # Full sync on every commit; a write-ahead log, so that readers and the writer do not wait.
        db.execute("PRAGMA synchronous = FULL")
        # On macOS, a plain sync does not reach the disk. Elsewhere, these change nothing.
        db.execute("PRAGMA fullfsync = ON")
        db.execute("PRAGMA checkpoint_fullfsync = ON")
        # What the pages of a large INSERT were before: by default, in a file that takes longer than the rest.
        db.execute("PRAGMA temp_store = MEMORY")
        # The log is folded into the file only after a look at the files, never by SQLite itself: not after
        # a commit, nor when the connection is closed, by whatever.
        db.wal_autocheckpoint(0)
        db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        _open_connections.add(db)
        return db

    def _open_frozen(self) -> apsw.Connection:
        """To look at a store where nothing can be written: without locks, which need a file beside it."""
        log = Path(f"{self._path}-wal")
        # A log that a killed process left must be read; where there is none, SQLite must not look for one.
        how = "vfs=unix-none" if log.exists() and log.stat().st_size else "immutable=1"
        address = f"file:{quote(self._path)}?mode=ro&{how}"
        db = apsw.Connection(address, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
        # The index of the log is then kept in memory.
        db.pragma("locking_mode", "exclusive")
        _open_connections.add(db)
        return db

    def _prepare(self, db: apsw.Connection, *, frozen: bool) -> None:
        """Make the schema, or bring it up to date, once, whoever comes first."""
        scripts = migrations()
        db.execute("BEGIN")
        # In one transaction: somebody else may be making the store this moment.
        owner, version = db.pragma("application_id"), db.pragma("user_version")
        is_empty = db.execute("SELECT 1 FROM sqlite_schema").get is None
        db.execute("COMMIT")
        if owner == APPLICATION_ID and version == len(scripts):
            # A copy by VACUUM INTO has another mode, and so has a file that another program changed.
            if not frozen and db.pragma("journal_mode") != "wal" and not db.readonly("main"):
                self._switch_to_wal(db)
            return
        if owner != APPLICATION_ID and not is_empty:
            raise BadUrl(f"{self.path} is a SQLite database, but not one of holdfast's")
        self._refuse_newer(version, len(scripts))
        if frozen and not is_empty:
            raise StoreFailed(
                f"{self.path} has schema {version}, this holdfast {len(scripts)}. It cannot be brought up to "
                "date where nothing can be written: copy it to where it can"
            )
        db.pragma("page_size", _PAGE_BYTES)  # Has an effect only while the file is empty.
        self._switch_to_wal(db)
        db.execute("BEGIN IMMEDIATE")
        try:
            version = db.pragma("user_version")
            self._refuse_newer(version, len(scripts))
            for script in scripts[version:]:
                db.execute(script)
            if version == 0:
                db.execute("INSERT INTO store (id) VALUES (?)", (fresh_uid(),))
                db.pragma("application_id", APPLICATION_ID)
            db.pragma("user_version", len(scripts))
            db.execute("COMMIT")
        except BaseException:
            _roll_back(db)
            raise

    def _refuse_newer(self, version: int, known: int) -> None:
        if version > known:
            raise NewerFormat(
                f"{self.path} has schema {version}; this holdfast knows {known}. Upgrade holdfast."
            )

    def _switch_to_wal(self, db: apsw.Connection) -> None:
        deadline_s = monotonic_s() + BUSY_S
        while True:
            try:
                mode = db.pragma("journal_mode", "wal")
                break
            except apsw.BusyError:
                # Here SQLite refuses at once, without asking the busy handler.
                if monotonic_s() > deadline_s:
                    raise
                threads.sleep(0.01)
        if mode != "wal":
            raise StoreFailed(
                f"{self.path}: SQLite cannot share memory between processes on this file system, which its "
                "write-ahead log needs; put the file on a local one"
            )
        db.execute("SELECT 1 FROM sqlite_schema").fetchone()  # Opens the log.

    # -- the files at the paths ---------------------------------------------------------------------

    def _look(self, frozen: bool = False) -> _Files:
        """What is at the paths."""
        db, log, shared = found = [_find_file(name) for name in self._names]
        changed = tuple((at.st_size, at.st_mtime_ns) for at in found if at) if frozen else ()
        return _Files(_identity(db), _identity(log), _identity(shared), frozen, changed)

    def _is_current(self) -> bool:
        """Whether the files at the paths are those that the connections have open."""
        return self._has(self._files)

    def _has(self, files: _Files) -> bool:
        """Whether these are the files at the paths. Asked for every call."""
        if not files.frozen:
            try:
                for name, file in zip(self._names, files, strict=False):
                    at = os.stat(name)
                    if (at.st_dev, at.st_ino) != file:
                        return False
                return True
            except (FileNotFoundError, NotADirectoryError):
                pass  # Which may be as it was.
        return self._look(files.frozen) == files

    def _check_before(self, *, wait: bool) -> None:
        """With the writer's lock: make sure that there are connections to what is at the paths."""
        if self._writer is not None and self._is_current():
            self._is_lost = False
            return
        found = self._look().db
        if found is None:
            raise StoreFailed(
                f"{self.path} is gone: it was removed or renamed while the store was open. Nothing can be "
                "written until the very file is back, with the -wal and -shm beside it"
            )
        if found != self._origin:
            raise StoreFailed(
                f"{self.path} is not the file any more that the store was opened on: it was replaced. "
                "Nothing is written to it; close the store, and open it again"
            )
        if not wait:
            raise StoreBusy(f"{self.path}: another program deleted the log; the file is to be opened again")
        self._let_go_all()
        deadline_s = monotonic_s() + BUSY_S
        while self._lent_before:
            if monotonic_s() > deadline_s:
                raise StoreBusy(f"{self.path}: a thread has been reading a deleted log for {BUSY_S:.0f} s")
            threads.sleep(0.001)
        self._open_all()

    def _check_after(self, files: _Files, cause: BaseException | None = None) -> None:
        """Refuse what was done with files that are not at their paths any more."""
        if self._has(files):
            return
        self._is_lost = True
        if files.frozen:
            raise LogLost(f"{self.path} was written while it was read; read it again") from cause
        raise LogLost(
            f"{self.path}: the file or its write-ahead log was removed or replaced while it was in use; what "
            "was being written may or may not be there. Does this process open the file with another SQLite "
            "library, or copy it? See 'Other programs' in docs/format.md"
        ) from cause

    def _guard(self) -> None:
        """Lock the files once more, so that no other program takes itself for the last user: with locks that
        another library in this process cannot drop."""
        if not _HAS_FILE_LOCKS:
            return
        for identity, where in ((self._files.db, _IN_USE), (self._files.shared, _INDEX_IN_USE)):
            for number in set(_find_open(identity)) - _inherited:
                with suppress(OSError):  # Not on every file system; and looking at the files is enough.
                    _set_lock(number, fcntl.F_RDLCK, where)
                    self._guarded.add(number)

    def _unguard(self) -> None:
        """Without it, SQLite can find that it is the last user."""
        theirs: set[int] = set()
        for other in list(_all_connections):
            if other is not self:
                theirs |= other._guarded
        guards = {self._files.db: _IN_USE, self._files.shared: _INDEX_IN_USE}
        for number in self._guarded - theirs:
            with suppress(OSError):
                where = guards.get(_identity(_find_file(number)))
                if where is not None:
                    _set_lock(number, fcntl.F_UNLCK, where)
        self._guarded = set()

    # -- reading ------------------------------------------------------------------------------------

    @contextmanager
    def reading(self) -> Iterator[apsw.Connection]:
        """A connection of this thread's own, for as long as it reads. `LogLost` if the files were replaced
        meanwhile: what was read may be wrong."""
        try:
            db, files, generation = self._take()
        except (apsw.Error, OSError) as error:
            raise self._translated(error) from error
        try:
            db = db or (self._open_frozen() if files.frozen else self._open())
            yield db
            self._check_after(files)
        except LogLost:
            raise
        except Exception as error:
            self._check_after(files, error)
            if isinstance(error, apsw.Error | OSError):
                raise self._translated(error) from error
            raise
        finally:
            self._give_back(db, files, generation)

    def is_lost(self) -> bool:
        """Whether who reads had better begin again: the files were replaced, or the store was closed."""
        return self._closed or not self._is_current()

    def _take(self) -> tuple[apsw.Connection | None, _Files, int]:
        while True:
            self._refuse_closed()
            if self._writer is None or self._is_lost:
                with self._writer_lock:
                    self._refuse_closed()
                    self._check_before(wait=True)
            with self._lock:
                if self._writer is not None:
                    self._lent += 1
                    return self._idle.pop() if self._idle else None, self._files, self._generation

    def _give_back(self, db: apsw.Connection | None, files: _Files, generation: int) -> None:
        with self._lock:
            keep = generation == self._generation and not self._closed
            if keep:
                self._lent -= 1
                if db is not None:
                    self._idle.append(db)
        if not keep:
            try:
                if db is not None:
                    self._let_go(db, files)
            finally:
                with self._lock:
                    self._lent_before -= 1

    # -- writing ------------------------------------------------------------------------------------

    @contextmanager
    def writing(self) -> Iterator[apsw.Connection]:
        """A transaction that is durable when the block ends, or never was."""
        with self._writer_lock:
            try:
                writer = self._prepare_to_write(wait=True)
                writer.execute("BEGIN IMMEDIATE")
                yield writer
                writer.execute("COMMIT")
                self._check_after(self._files)
                self._fold(writer)
            except BaseException as error:
                self._undo(error, wait=True)
                raise

    def write(
        self, change: Callable[[apsw.Connection, _A], _T], what: _A, *, wait: bool, transaction: bool = True
    ) -> _T:
        """The same around a call, for commits: the caches are cold after a sync, and a generator is costly.

        Without `wait` it is `StoreBusy` if somebody else is writing, or if the log is to be folded first.
        Without `transaction`, each statement is one.
        """
        if not wait and self._writer_lock.locked():
            raise StoreBusy(f"{self.path}: another thread is writing")
        with (
            self._writer_lock
        ):  # Not `acquire`: a signal's handler that raises after it would keep it for ever.
            try:
                writer = self._prepare_to_write(wait)
                if transaction:
                    writer.execute("BEGIN IMMEDIATE")
                changed = change(writer, what)
                if transaction:
                    writer.execute("COMMIT")
                self._check_after(self._files)
                if wait:
                    self._fold(writer)
                return changed
            except BaseException as error:
                self._undo(error, wait)
                raise

    def _prepare_to_write(self, wait: bool) -> apsw.Connection:
        self._refuse_closed()
        if self._writer is None or self._is_lost or not self._has(self._files):
            self._check_before(wait=wait)
        writer = self._writer
        assert writer is not None
        if self._files.frozen:
            raise StoreFailed(
                f"{self.path} cannot be written: the file or its directory is read-only. It can be "
                "looked at; to go on, copy it to where it can be written"
            )
        if writer.in_transaction:
            # Left by somebody whom a second signal met while the first one's work was rolled back. What is
            # written now would join it, and be rolled back with it some day.
            writer.execute("ROLLBACK")
        if wait != self._wait:
            self._set_wait(wait)
        if not wait and _is_long(writer):
            raise StoreBusy(f"{self.path}: the log is to be folded into the file")
        return writer

    def _fold(self, writer: apsw.Connection) -> None:
        """Fold the log into the file, if that is due. The commit before it has landed: an error here is none
        of the commit's, and is met again by the next one."""
        with suppress(apsw.Error):
            if _is_long(writer):
                writer.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)

    def _undo(self, error: BaseException, wait: bool) -> None:
        """Roll back, and raise a foreign error as ours."""
        if self._writer is not None:
            _roll_back(self._writer)
        if isinstance(error, apsw.Error | OSError):
            if self._writer is not None:
                self._check_after(self._files, error)
            raise self._translated(error, wait) from error

    def _set_wait(self, wait: bool) -> None:
        """Whether the writer waits for others."""
        assert self._writer is not None
        self._wait = wait
        self._writer.set_busy_handler(_Patience() if wait else None)

    def _refuse_closed(self) -> None:
        if self._closed:
            raise StoreFailed(f"{self.path} was closed")

    def _translated(self, error: apsw.Error | OSError, wait: bool = True) -> HoldfastError:
        """The one place where SQLite's errors become ours."""
        match error:
            case apsw.BusyError() if not wait:
                return StoreBusy(f"{self.path}: another process is writing")
            case apsw.BusyError():
                return StoreBusy(
                    f"{self.path}: another process kept the database locked for {BUSY_S:.0f} s; "
                    "is one of them stopped in the middle of a write?"
                )
            case apsw.NotADBError():
                return BadUrl(f"{self.path} is not a SQLite database")
            case apsw.CorruptError():
                return Corrupt(
                    str(self.path), f"the database is damaged ({error}); restore a copy, or recover what is "
                    "left with the sqlite3 shell's .recover",
                )  # fmt: skip
            case apsw.FullError():
                return StoreFailed(f"{self.path}: the disk is full; free some space and try again")
            case apsw.ReadOnlyError() | apsw.CantOpenError() | apsw.PermissionsError() | apsw.AuthError():
                return StoreFailed(
                    f"{self.path} cannot be opened for writing ({error}); check that the file and its "
                    "directory are writable"
                )
            case OSError():
                return StoreFailed(f"{self.path}: {error.strerror or error}")
        return StoreFailed(f"{self.path}: {error}")

    # -- the end ------------------------------------------------------------------------------------

    def _let_go_all(self) -> None:
        """With the writer's lock: close all connections that are not in use; the others when they are given
        back."""
        self._unguard()
        with self._lock:
            idle, self._idle = self._idle, []
            writer, self._writer = self._writer, None
            self._generation += 1
            self._lent_before, self._lent = self._lent_before + self._lent, 0
        for db in idle:
            self._let_go(db, self._files)
        if writer is not None:
            self._let_go(writer, self._files)

    def _let_go(self, db: apsw.Connection, files: _Files) -> None:
        """Close a connection. The last one out folds the log into the file, if it is still the file's."""
        with suppress(apsw.Error, OSError):
            if not files.frozen and self._has(files):
                db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0)
            db.close()

    def close(self) -> None:
        """Close every connection; the last one out folds the write-ahead log into the file."""
        with self._writer_lock:
            if not self._closed:
                self._closed = True
                self._let_go_all()

    def _end_in_child(self, *, idle: bool) -> None:
        self._closed, self._lock, self._writer_lock = True, threads.Lock(), threads.Lock()
        inherited = [*self._idle, *([self._writer] if self._writer is not None else [])]
        self._idle, self._writer, self._lent, self._lent_before, self._guarded = [], None, 0, 0, set()
        if idle:
            for db in inherited:
                db.close()
        else:
            _inherited.update(_find_open(self._files.db))


class _Patience:
    """Waits for other writers in short, uneven naps: SQLite's own waits grow to 100 ms and are unfair."""

    def __init__(self) -> None:
        self._since = 0.0

    def __call__(self, tries: int) -> bool:
        now = monotonic_s()
        if tries == 0:
            self._since = now
        elif now - self._since > BUSY_S:
            return False
        threads.sleep(randomness.uniform(0.0002, 0.003))
        return True


def _is_long(db: apsw.Connection) -> bool:
    """Whether the log is to be folded into the file."""
    pages, folded = db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_NOOP)
    return pages >= _LOG_PAGES_MAX and folded < pages


def _roll_back(db: apsw.Connection) -> None:
    # A failed COMMIT may have rolled back by itself.
    with suppress(apsw.Error):
        if db.in_transaction:
            db.execute("ROLLBACK")


def _make_directories(directory: Path) -> None:
    """Make the directory durable, too: a new file is lost with a parent that was never synced."""
    made = []
    while not directory.exists():
        made.append(directory)
        directory = directory.parent
    for missing in reversed(made):
        missing.mkdir(exist_ok=True)
        handle = os.open(missing.parent, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


# -- files that this process has open -------------------------------------------------------------------


def _find_file(at: str | int) -> os.stat_result | None:
    """What is at a path, or under the number of an open file."""
    try:
        return os.stat(at)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        if error.errno == errno.EBADF:
            return None
        raise


def _identity(at: os.stat_result | None) -> _Identity:
    return None if at is None else (at.st_dev, at.st_ino)


def _find_open(file: _Identity) -> list[int]:
    """The numbers under which this process has the file open. Opening it anew is no way to look: closing it
    again would drop the locks."""
    if file is None or _OPEN_FILES is None:
        return []
    return [number for number in map(int, os.listdir(_OPEN_FILES)) if _identity(_find_file(number)) == file]


def _set_lock(number: int, kind: int, where: tuple[int, int]) -> None:
    """Set or drop a lock that belongs to the open file, not to the process."""
    fcntl.fcntl(number, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", kind, os.SEEK_SET, *where, 0))


_opening: defaultdict[str, threads.Lock] = defaultdict(threads.Lock)
"""By path: one store of a process at a time, or they could not see which of them keeps a deleted log open."""
_all_connections: weakref.WeakSet[Connections] = weakref.WeakSet()
_open_connections: weakref.WeakSet[apsw.Connection] = weakref.WeakSet()
_inherited: set[int] = set()
"""Numbers of open files that belong to the parent of this process as well."""


def _end_in_child() -> None:
    """A forked child has no locks. SQLite must forget what it inherited, or a store that is opened here would
    be without them: it counts the locks of a process in memory.

    If another thread was using a connection at the fork, a mutex may be held for ever: then all of them stay
    open, and are never closed.
    """
    _opening.clear()
    for db in list(_open_connections):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(db))
    inherited = list(_all_connections)
    idle = all(not one._writer_lock.locked() and not one._lent and not one._lent_before for one in inherited)
    for connections in inherited:
        connections._end_in_child(idle=idle)


os.register_at_fork(after_in_child=_end_in_child)
