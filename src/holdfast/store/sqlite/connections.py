"""Connections to one database file: how they are opened, shared between threads, and made current."""

from __future__ import annotations

import ctypes
import os
import random
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.resources import files
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import quote

import apsw

from ...errors import BadUrl, Corrupt, HoldfastError, NewerFormat, NotFound, StoreBusy, StoreFailed
from ...ids import fresh_uid
from ...limits import BUSY_S

_A = TypeVar("_A")
_T = TypeVar("_T")

APPLICATION_ID: Final = 0x48464A31
"""`HFJ1`, in the header of the file: whose it is."""

_PAGE_BYTES: Final = 16384
"""A message of a kilobyte or two leaves up to a third of a 4 KB page unused, but little of this one."""

_LOG_PAGES_MAX: Final = 1000
"""How long the write-ahead log gets before it is folded into the file. SQLite's own default: long enough that
a page which changes with every commit is seldom copied, short enough to be over in milliseconds."""


def migrations() -> list[str]:
    """The scripts that make the schema, in order."""
    folder = files(__package__) / "migrations"
    return [file.read_text("utf-8") for file in sorted(folder.iterdir(), key=lambda file: file.name)]


class Connections:
    """One writer under a lock, and as many readers as there are threads that read."""

    def __init__(self, path: Path, *, create: bool) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._writer_lock = threading.Lock()
        self._closed = self._frozen = False
        self._idle: list[apsw.Connection] = []
        if not create and not path.exists():
            raise NotFound(f"there is no store at {path}")
        if path.is_dir():
            raise BadUrl(f"{path} is a directory; a sqlite: store is a file. Did you mean 'dir:{path}'?")
        try:
            if create:
                _make_directories(path.parent)
            self._writer = self._open_prepared(create=create)
        except (apsw.Error, OSError) as error:
            raise self._translated(error) from error
        self._wait = False
        self._set_wait(True)

    def _open_prepared(self, *, create: bool) -> apsw.Connection:
        try:
            return self._prepared(self._open(create=create))
        except (apsw.ReadOnlyError, apsw.CantOpenError):
            if not self.path.exists():
                raise
            # Nothing can be written beside the file, not even what readers of a log share.
            self._frozen = True
            return self._prepared(self._open())

    def _prepared(self, db: apsw.Connection) -> apsw.Connection:
        try:
            self._prepare(db)
        except BaseException:
            db.close()
            raise
        return db

    def _open(self, *, create: bool = False) -> apsw.Connection:
        if self._frozen:
            return self._open_frozen()
        flags = apsw.SQLITE_OPEN_READWRITE | (apsw.SQLITE_OPEN_CREATE if create else 0)
        db = apsw.Connection(str(self.path), flags=flags)
        db.set_busy_handler(_Patience())
        # Full sync on every commit; a write-ahead log, so that readers and the writer do not wait.
        db.execute("PRAGMA synchronous = FULL")
        # What the pages of a large INSERT were before: by default, in a file that takes longer than the rest.
        db.execute("PRAGMA temp_store = MEMORY")
        _open_connections.add(db)
        return db

    def _open_frozen(self) -> apsw.Connection:
        """To look at a store where nothing can be written: without locks, which need a file beside it."""
        log = self.path.with_name(f"{self.path.name}-wal")
        # A log that a killed process left must be read; where there is none, SQLite must not look for one.
        how = "vfs=unix-none" if log.exists() and log.stat().st_size else "immutable=1"
        address = f"file:{quote(str(self.path.absolute()))}?mode=ro&{how}"
        db = apsw.Connection(address, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
        # The index of the log is then kept in memory.
        db.pragma("locking_mode", "exclusive")
        _open_connections.add(db)
        return db

    def _prepare(self, db: apsw.Connection) -> None:
        """Make the schema, or bring it up to date, once, whoever comes first."""
        scripts = migrations()
        db.execute("BEGIN")
        # In one transaction: somebody else may be making the store this moment.
        owner, version = db.pragma("application_id"), db.pragma("user_version")
        is_empty = db.execute("SELECT 1 FROM sqlite_schema").get is None
        db.execute("COMMIT")
        if owner == APPLICATION_ID and version == len(scripts):
            return
        if owner != APPLICATION_ID and not is_empty:
            raise BadUrl(f"{self.path} is a SQLite database, but not one of holdfast's")
        self._refuse_newer(version, len(scripts))
        if self._frozen and not is_empty:
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
        deadline_s = time.monotonic() + BUSY_S
        while True:
            try:
                mode = db.pragma("journal_mode", "wal")
                break
            except apsw.BusyError:
                # Here SQLite refuses at once, without asking the busy handler.
                if time.monotonic() > deadline_s:
                    raise
                time.sleep(0.01)
        if mode != "wal":
            raise StoreFailed(
                f"{self.path}: SQLite cannot share memory between processes on this file system, which its "
                "write-ahead log needs; put the file on a local one"
            )

    @contextmanager
    def reading(self) -> Iterator[apsw.Connection]:
        """A connection of this thread's own, for as long as it reads."""
        with self._lock:
            self._refuse_closed()
            db = self._idle.pop() if self._idle else None
        try:
            db = db or self._open()
            yield db
        except (apsw.Error, OSError) as error:
            raise self._translated(error) from error
        finally:
            if db is not None:
                self._give_back(db)

    def _give_back(self, db: apsw.Connection) -> None:
        with self._lock:
            keep = not self._closed
            if keep:
                self._idle.append(db)
        if not keep:
            db.close()

    @contextmanager
    def writing(self) -> Iterator[apsw.Connection]:
        """A transaction that is durable when the block ends, or never was."""
        with self._writer_lock:
            try:
                self._prepare_to_write(wait=True)
                self._writer.execute("BEGIN IMMEDIATE")
                yield self._writer
                self._writer.execute("COMMIT")
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
                self._prepare_to_write(wait)
                if not transaction:
                    return change(self._writer, what)
                self._writer.execute("BEGIN IMMEDIATE")
                changed = change(self._writer, what)
                self._writer.execute("COMMIT")
                return changed
            except BaseException as error:
                self._undo(error, wait)
                raise

    def _prepare_to_write(self, wait: bool) -> None:
        self._refuse_closed()
        if self._frozen:
            raise StoreFailed(
                f"{self.path} cannot be written: the file or its directory is read-only. It can be "
                "looked at; to go on, copy it to where it can be written"
            )
        if self._writer.in_transaction:
            # Left by somebody whom a second signal met while the first one's work was rolled back. What is
            # written now would join it, and be rolled back with it some day.
            self._writer.execute("ROLLBACK")
        if wait != self._wait:
            self._set_wait(wait)
        if not wait:
            pages, folded = self._writer.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_NOOP)
            if pages >= _LOG_PAGES_MAX and folded < pages:
                raise StoreBusy(f"{self.path}: the log is to be folded into the file")

    def _undo(self, error: BaseException, wait: bool) -> None:
        """Roll back, and raise a foreign error as ours."""
        _roll_back(self._writer)
        if isinstance(error, apsw.Error | OSError):
            raise self._translated(error, wait) from error

    def _set_wait(self, wait: bool) -> None:
        """Whether the writer waits for others, and folds the log into the file when that is due.

        SQLite then folds it after a commit, which has landed by then: an error of it is no error of the
        commit's, and is met again by the next one.
        """
        self._wait = wait
        self._writer.set_busy_handler(_Patience() if wait else None)
        self._writer.wal_autocheckpoint(_LOG_PAGES_MAX if wait else 0)

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

    def close(self) -> None:
        """Close every connection; the last one out folds the write-ahead log into the file."""
        with self._writer_lock, self._lock:
            if self._closed:
                return
            self._closed = True
            for db in self._idle:
                db.close()
            with suppress(apsw.Error):
                self._writer.close()


class _Patience:
    """Waits for other writers in short, uneven naps: SQLite's own waits grow to 100 ms and are unfair."""

    def __init__(self) -> None:
        self._since = 0.0

    def __call__(self, tries: int) -> bool:
        now = time.monotonic()
        if tries == 0:
            self._since = now
        elif now - self._since > BUSY_S:
            return False
        time.sleep(random.uniform(0.0002, 0.003))
        return True


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


_open_connections: weakref.WeakSet[apsw.Connection] = weakref.WeakSet()


def _never_close_in_child() -> None:
    """A forked child must not even close what it inherited: SQLite would tidy up under the parent's feet."""
    for db in list(_open_connections):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(db))


os.register_at_fork(after_in_child=_never_close_in_child)
