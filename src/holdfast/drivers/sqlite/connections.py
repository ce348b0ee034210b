"""Connections to one database file: how they are opened, shared between threads, and kept current.

A process must never write to a write-ahead log that other processes do not see. SQLite's locks belong to a
process: when any library in it closes the file, all locks of the process on that file are dropped. Another
program that opens and closes the file then concludes that it is the last user: it checkpoints the log into
the file and deletes it. Whatever is written to the deleted log is lost. So:

- Where the system has locks that belong to an open file (Linux), `FileGuard` sets them on file and log.
- After every read and write, `stat` tells whether the files at the paths are those that are open. No write is
  acknowledged, and no result returned, unless they are. A check before the call alone would leave a gap.
  There is one before writes as well, since it is better to have written nothing; before a commit on an event
  loop's thread, only of the file itself, since what went to a deleted log is written again.
- Connections to files that are no longer at their paths are closed without a checkpoint of the log. Then new
  ones are opened, and the caller tries again.
"""

from __future__ import annotations

import ctypes
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import wraps
from pathlib import Path
from typing import Concatenate, Final, NamedTuple, ParamSpec, TypeVar
from urllib.parse import quote

import apsw

from ...errors import BadUrl, NotFound, StoreBusy, StoreFailed
from ...limits import BUSY_S
from ...system import files, processes, randomness, threads
from ...system.clock import monotonic_s
from .error_translation import LogLost, translate
from .file_guard import FileGuard, FileId, are_at, file_id, find_file, has_open, note_inherited
from .schema import prepare

_A = TypeVar("_A")
_P = ParamSpec("_P")
_S = TypeVar("_S")
_T = TypeVar("_T")

_LOG_PAGES_MAX: Final = 1000
"""Length of the write-ahead log from which it is checkpointed into the file. SQLite's own default: long
enough that a page which changes with every commit is seldom copied, short enough to take milliseconds."""

_COMMITS_BETWEEN_LOOKS: Final = 8
"""How many commits on an event loop's thread, which are small, are made between two looks at that length."""

_TRIES: Final = 5
"""Attempts of a call whose files are replaced while it runs. Each takes another program's interference."""

_FORK_WAITS_S: Final = 5.0
"""How long a fork waits for the commits and reads that are under way. They take milliseconds, unless another
process writes for long."""

_OPENING_TRIES: Final = 100
"""Attempts to open, every 10 ms, while another program deletes the log."""


def repeated(method: Callable[Concatenate[_S, _P], _T]) -> Callable[Concatenate[_S, _P], _T]:
    """Call a method again if the files were replaced while it ran; for calls that may be done twice."""

    @wraps(method)
    def call(self: _S, /, *args: _P.args, **options: _P.kwargs) -> _T:
        for _ in range(_TRIES - 1):
            try:
                return method(self, *args, **options)
            except LogLost:
                continue
        return method(self, *args, **options)

    return call


class _Files(NamedTuple):
    """The files at the paths. `frozen`: read without locks, so that every change of them counts."""

    db: FileId
    log: FileId
    shared: FileId
    frozen: bool = False
    changed: tuple[tuple[int, int], ...] = ()
    """Size and time of each, if frozen."""


class SqliteConnections:
    """One writer under a lock, and as many readers as there are threads that read."""

    def __init__(self, path: Path, *, create: bool, read_only: bool = False) -> None:
        self.path, self._read_only = path, read_only
        # Stays valid after a change of the working directory, or of a symbolic link.
        self._path = files.real_path(path)
        self._names = (self._path, f"{self._path}-wal", f"{self._path}-shm")
        self._lock = threads.Lock()
        self._writer_lock = threads.Lock()
        self._closed = False
        self._writer: apsw.Connection | None = None
        self._idle: list[apsw.Connection] = []
        self._generation = 0
        """Counts how often all connections were reopened."""
        self._lent = self._lent_before = 0
        """Readers in use, of this generation and of earlier ones."""
        self._files = _Files(None, None, None)
        """What the connections of this generation have open."""
        self._is_lost = False
        """True once those files were found not to be at their paths any more."""
        self._guard = FileGuard()
        self._wait = False
        self._since_look = 0
        """Commits on an event loop's thread since the length of the log was last looked at."""
        if not create and not files.exists(path):
            raise NotFound(f"there is no store at {path}")
        if files.is_dir(path):
            raise BadUrl(f"{path} is a directory; a sqlite: store is a file. Did you mean 'dir:{path}'?")
        try:
            if create:
                files.make_directory(path.parent)
            self._open_all(create=create)
        except (apsw.Error, OSError) as error:
            raise translate(error, self.path) from error
        self._origin = self._files.db
        """The file of this store, even if another one takes its path."""
        _all_stores.add(self)

    # -- opening ------------------------------------------------------------------------------------

    def _open_all(self, *, create: bool = False) -> None:
        """Open the writer, and note which files it has open."""
        with _opening[self._path]:
            for left in reversed(range(_OPENING_TRIES)):
                self._release_others()
                try:
                    writer, frozen = self._open_prepared(create=create)
                except apsw.IOError:
                    # SQLite fails so if it shares the index of a deleted log with this connection.
                    if not left or self._has_log_open():
                        raise
                    threads.sleep(0.01)
                    continue
                # Looked up once: an id names a file only as long as it is open here.
                found = self._find_files(frozen)
                if frozen or writer.pragma("journal_mode") != "wal" or has_open(found.log, found.shared):
                    break
                writer.close()
                if not left:
                    raise StoreFailed(
                        f"{self.path}: another connection of this process still uses a write-ahead log that "
                        "was deleted; close it, or restart the process"
                    )
                threads.sleep(0.01)
            with self._lock:
                self._writer, self._files, self._is_lost = writer, found, False
            if not frozen:
                self._guard.lock(self._files.db, self._files.shared)
        self._set_wait(True)

    def _has_log_open(self) -> bool:
        """True if this process has the log at the path and its index open; as far as the system tells."""
        found = self._find_files()
        return has_open(found.log, found.shared)

    def _release_others(self) -> None:
        """Have all other stores of this process close a deleted log: SQLite would share its index with a new
        connection."""
        deadline_s = monotonic_s() + BUSY_S
        file = self._find_files().db
        for other in list(_all_stores):
            while other is not self and other._has_lost(file) and monotonic_s() < deadline_s:
                if other._writer_lock.acquire(blocking=False):
                    try:
                        other._close_all()
                    finally:
                        other._writer_lock.release()
                threads.sleep(0.001)

    def _has_lost(self, db: FileId) -> bool:
        """True if it has this file open, and its log is no longer at its path."""
        is_open = self._writer is not None or self._lent_before > 0
        return is_open and not self._files.frozen and self._files.db == db and not self._is_current()

    def _open_prepared(self, *, create: bool) -> tuple[apsw.Connection, bool]:
        try:
            return self._prepare_or_close(self._open(create=create), frozen=False), False
        except (apsw.ReadOnlyError, apsw.CantOpenError):
            if not files.exists(Path(self._path)):
                raise
            # No file can be created beside it, not even the index that readers of a log share.
            return self._prepare_or_close(self._open_frozen(), frozen=True), True

    def _prepare_or_close(self, db: apsw.Connection, *, frozen: bool) -> apsw.Connection:
        try:
            prepare(db, self.path, frozen=frozen or self._read_only)
        except BaseException:
            db.close()
            raise
        return db

    def _open(self, *, create: bool = False) -> apsw.Connection:
        flags = apsw.SQLITE_OPEN_READWRITE | (apsw.SQLITE_OPEN_CREATE if create else 0)
        db = apsw.Connection(self._path, flags=flags)
        db.set_busy_handler(_BusyHandler())
        # Full sync on every commit; a write-ahead log, so that readers and the writer do not wait.
        db.execute("PRAGMA synchronous = FULL")
        # On macOS, a plain sync does not reach the disk. Elsewhere, these change nothing.
        db.execute("PRAGMA fullfsync = ON")
        db.execute("PRAGMA checkpoint_fullfsync = ON")
        # The statement journal of a large INSERT: by default a file, which takes longer than the rest.
        db.execute("PRAGMA temp_store = MEMORY")
        # The log is checkpointed only after a check of the files, never by SQLite itself: neither after a
        # commit nor when a connection is closed, or garbage-collected.
        db.wal_autocheckpoint(0)
        db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        if self._read_only:
            db.execute("PRAGMA query_only = ON")
        _open_connections.add(db)
        return db

    def _open_frozen(self) -> apsw.Connection:
        """Open a store where nothing can be written: without locks, which need a file beside it."""
        log = Path(f"{self._path}-wal")
        # A log that a killed process left must be read; where there is none, SQLite must not look for one.
        how = "vfs=unix-none" if files.exists(log) and files.stat(log).st_size else "immutable=1"
        address = f"file:{quote(self._path)}?mode=ro&{how}"
        db = apsw.Connection(address, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
        # The index of the log is then kept in memory.
        db.pragma("locking_mode", "exclusive")
        _open_connections.add(db)
        return db

    # -- the files at the paths ---------------------------------------------------------------------

    def _find_files(self, frozen: bool = False) -> _Files:
        db, log, shared = found = [find_file(name) for name in self._names]
        changed = tuple((at.st_size, at.st_mtime_ns) for at in found if at) if frozen else ()
        return _Files(file_id(db), file_id(log), file_id(shared), frozen, changed)

    def _is_current(self) -> bool:
        """True if the files at the paths are those that the connections have open."""
        return self._are_at_paths(self._files)

    def _are_at_paths(self, found: _Files, paths: int = 3) -> bool:
        """True if these are the files at the first so many paths. Runs once or twice in every call."""
        if not found.frozen:
            wanted = (found.db, found.log, found.shared)
            try:
                return are_at(self._names[:paths], wanted[:paths])
            except (FileNotFoundError, NotADirectoryError):
                pass  # A file may have been missing before.
        return self._find_files(found.frozen) == found

    def _check_before(self, *, wait: bool) -> None:
        """Under the writer's lock: make sure that the connections have the files at the paths open."""
        if self._writer is not None and self._is_current():
            self._is_lost = False
            return
        found = self._find_files().db
        if found is None:
            raise StoreFailed(
                f"{self.path} is gone: it was removed or renamed while the store was open. Nothing can be "
                "written until the same file is back, with the -wal and -shm beside it"
            )
        if found != self._origin:
            raise StoreFailed(
                f"{self.path} is no longer the file that the store was opened on: it was replaced. "
                "Nothing is written to it; close the store, and open it again"
            )
        if not wait:
            raise StoreBusy(
                f"{self.path}: another program deleted the write-ahead log; the file must be reopened"
            )
        self._close_all()
        deadline_s = monotonic_s() + BUSY_S
        while self._lent_before:
            if monotonic_s() > deadline_s:
                raise StoreBusy(f"{self.path}: a thread has been reading a deleted log for {BUSY_S:.0f} s")
            threads.sleep(0.001)
        self._open_all()

    def _check_after(self, files: _Files, cause: BaseException | None = None) -> None:
        """Raise if the files that were used are no longer at their paths."""
        if self._are_at_paths(files):
            return
        self._is_lost = True
        if files.frozen:
            raise LogLost(f"{self.path} was written while it was read; read it again") from cause
        raise LogLost(
            f"{self.path}: the file or its write-ahead log was removed or replaced while it was in use; what "
            "was being written may or may not be there. Does this process open the file with another SQLite "
            "library, or copy it? See 'Other programs' in docs/format.md"
        ) from cause

    # -- reading ------------------------------------------------------------------------------------

    @contextmanager
    def reading(self) -> Iterator[apsw.Connection]:
        """Lend a connection to this thread. `LogLost` if the files were replaced meanwhile: the result may be
        wrong."""
        try:
            db, files, generation = self._take()
        except (apsw.Error, OSError) as error:
            raise translate(error, self.path) from error
        try:
            db = db or (self._open_frozen() if files.frozen else self._open())
            yield db
            self._check_after(files)
        except LogLost:
            raise
        except Exception as error:
            self._check_after(files, error)
            if isinstance(error, apsw.ReadOnlyError) and not files.frozen:
                self._let_go(generation)
                raise LogLost(
                    f"{self.path}: the index of its log was being written; read it again"
                ) from error
            if isinstance(error, apsw.Error | OSError):
                raise translate(error, self.path) from error
            raise
        finally:
            self._give_back(db, files, generation)

    def _let_go(self, generation: int) -> None:
        """Close the connections of a generation; the next call opens new ones, without locks if need be.

        A reader without the right to write cannot make the index of a log good, which another process was
        writing, or has left half written.
        """
        with self._writer_lock:
            if generation == self._generation and not self._closed:
                self._close_all()

    def is_lost(self) -> bool:
        """True if a reader must begin again: the files were replaced, or the store was closed."""
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
                    self._close_one(db, files)
            finally:
                with self._lock:
                    self._lent_before -= 1

    # -- writing ------------------------------------------------------------------------------------

    @contextmanager
    def writing(self) -> Iterator[apsw.Connection]:
        """A transaction: durable when the block ends, or rolled back."""
        with self._writer_lock:
            try:
                writer = self._prepare_to_write(wait=True)
                writer.execute("BEGIN IMMEDIATE")
                yield writer
                writer.execute("COMMIT")
                self._check_after(self._files)
                self._checkpoint_log(writer)
            except BaseException as error:
                self._roll_back(error, wait=True)
                raise

    def write(
        self, change: Callable[[apsw.Connection, _A], _T], what: _A, *, wait: bool, transaction: bool = True
    ) -> _T:
        """Run `change` as `writing` runs a block; for commits, where a generator costs too much: the caches
        are cold after a sync.

        Without `wait`: `StoreBusy` if another thread or process is writing, or if the log is due for a
        checkpoint. Without `transaction`, each statement is a transaction of its own.
        """
        if not wait and self._writer_lock.locked():
            raise StoreBusy(f"{self.path}: another thread is writing")
        # Not `acquire`: if a signal handler raised after it, the lock would never be released.
        with self._writer_lock:
            try:
                writer = self._prepare_to_write(wait)
                if transaction:
                    writer.execute("BEGIN IMMEDIATE")
                changed = change(writer, what)
                if transaction:
                    writer.execute("COMMIT")
                self._check_after(self._files)
                if wait:
                    self._checkpoint_log(writer)
                return changed
            except BaseException as error:
                self._roll_back(error, wait)
                raise

    def _prepare_to_write(self, wait: bool) -> apsw.Connection:
        self._refuse_closed()
        # On an event loop's thread, only the file is looked for: what goes to a deleted log is found missing
        # by the check after the write, and written again.
        paths = 3 if wait else 1
        if self._writer is None or self._is_lost or not self._are_at_paths(self._files, paths):
            self._check_before(wait=wait)
        writer = self._writer
        assert writer is not None
        if self._files.frozen:
            raise StoreFailed(
                f"{self.path} cannot be written: the file or its directory is read-only. It can be "
                "looked at; to go on, copy it to where it can be written"
            )
        if writer.in_transaction:
            # A second signal interrupted the rollback of an earlier call. Writes would join that transaction,
            # and be rolled back with it.
            writer.execute("ROLLBACK")
        if wait != self._wait:
            self._set_wait(wait)
        if not wait:
            self._since_look += 1
            if self._since_look > _COMMITS_BETWEEN_LOOKS:
                if _is_checkpoint_due(writer):
                    raise StoreBusy(f"{self.path}: the write-ahead log is due for a checkpoint")
                self._since_look = 0
        return writer

    def _checkpoint_log(self, writer: apsw.Connection) -> None:
        """Checkpoint the log into the file, if that is due. The commit before it has landed: an error here is
        not the commit's, and the next checkpoint meets it again."""
        with suppress(apsw.Error):
            if _is_checkpoint_due(writer):
                writer.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)

    def _roll_back(self, error: BaseException, wait: bool) -> None:
        """Roll back, and translate an error of SQLite's or of the system."""
        if self._writer is not None:
            with suppress(apsw.Error):  # A failed COMMIT may have rolled back by itself.
                if self._writer.in_transaction:
                    self._writer.execute("ROLLBACK")
        if isinstance(error, apsw.Error | OSError):
            if self._writer is not None:
                self._check_after(self._files, error)
            raise translate(error, self.path, wait=wait) from error

    def _set_wait(self, wait: bool) -> None:
        """Set whether the writer waits for other writers."""
        assert self._writer is not None
        self._wait = wait
        self._writer.set_busy_handler(_BusyHandler() if wait else None)

    def _refuse_closed(self) -> None:
        if self._closed:
            raise StoreFailed(f"{self.path} was closed")

    # -- closing ------------------------------------------------------------------------------------

    def _close_all(self) -> None:
        """Under the writer's lock: close all idle connections. Those in use are closed when they are given
        back."""
        self._guard.unlock(self._files.db, self._files.shared)
        with self._lock:
            idle, self._idle = self._idle, []
            writer, self._writer = self._writer, None
            self._generation += 1
            self._lent_before, self._lent = self._lent_before + self._lent, 0
        for db in idle:
            self._close_one(db, self._files)
        if writer is not None:
            self._close_one(writer, self._files)

    def _close_one(self, db: apsw.Connection, files: _Files) -> None:
        """Close a connection. The last one checkpoints the log into the file, if it is still the file's
        log."""
        with suppress(apsw.Error, OSError):
            if not files.frozen and self._are_at_paths(files) and not self._leaves_log():
                db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0)
            db.close()

    def _leaves_log(self) -> bool:
        """True if the log is not to be checkpointed: it holds commits, and nothing is to be written."""
        if not self._read_only:
            return False
        log = Path(self._names[1])
        return files.exists(log) and files.stat(log).st_size > 0

    def close(self) -> None:
        """Close every connection; the last one checkpoints the write-ahead log into the file."""
        with self._writer_lock:
            if not self._closed:
                self._closed = True
                self._close_all()

    # -- forks --------------------------------------------------------------------------------------

    def _hold_still(self, until_s: float) -> bool:
        """Keep every thread out of SQLite until `_move_on`; False if one is still in it by then."""
        if not self._writer_lock.acquire(timeout=max(0.0, until_s - monotonic_s())):
            return False
        while True:
            self._lock.acquire()
            if not (self._lent or self._lent_before):
                return True
            self._lock.release()
            if monotonic_s() > until_s:
                self._writer_lock.release()
                return False
            threads.sleep(0.0005)

    def _move_on(self) -> None:
        self._lock.release()
        self._writer_lock.release()

    def _end_in_child(self, *, idle: bool) -> None:
        self._closed, self._lock, self._writer_lock = True, threads.Lock(), threads.Lock()
        inherited = [*self._idle, *([self._writer] if self._writer is not None else [])]
        self._idle, self._writer, self._lent, self._lent_before = [], None, 0, 0
        self._guard.forget()
        if idle:
            for db in inherited:
                db.close()
        else:
            note_inherited(self._files.db)


class _BusyHandler:
    """Waits for other writers in short random sleeps: SQLite's own grow to 100 ms and are unfair."""

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


def _is_checkpoint_due(db: apsw.Connection) -> bool:
    """True if the log is long enough, and not all of it is in the file yet."""
    pages, done = db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_NOOP)
    return pages >= _LOG_PAGES_MAX and done < pages


_opening: defaultdict[str, threads.Lock] = defaultdict(threads.Lock)
"""By path: stores of a process open one at a time, or they could not see which of them keeps a deleted log
open."""
_all_stores: weakref.WeakSet[SqliteConnections] = weakref.WeakSet()
_open_connections: weakref.WeakSet[apsw.Connection] = weakref.WeakSet()

_forking = threads.RLock()
_held_still: list[SqliteConnections] = []
"""Those that no thread is in during the fork that is under way."""


def _begin_fork() -> None:
    """Wait until no thread is in SQLite: its own locks would stay locked in the child, which could then open
    no file."""
    _forking.acquire()
    until_s = monotonic_s() + _FORK_WAITS_S
    _held_still[:] = [one for one in list(_all_stores) if one._hold_still(until_s)]


def _end_in_parent() -> None:
    for connections in _held_still:
        connections._move_on()
    _held_still.clear()
    _forking.release()


def _end_in_child() -> None:
    """Close inherited connections in a forked child. The child has no locks, but SQLite counts the locks of a
    process in memory: a store that is opened here would be without them.

    If another thread was using a connection at the fork all the same, a mutex may stay locked: then all
    connections stay open, and are never closed.
    """
    _opening.clear()
    for db in list(_open_connections):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(db))
    inherited = list(_all_stores)
    idle = len(_held_still) == len(inherited)
    for connections in inherited:
        connections._end_in_child(idle=idle)
    _held_still.clear()
    _forking.release()


processes.register_at_fork(before=_begin_fork, after_in_parent=_end_in_parent, after_in_child=_end_in_child)
