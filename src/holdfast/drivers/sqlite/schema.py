"""Create the tables of a file, or bring them up to date: once, by the first process that opens it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import apsw

from ...errors import BadUrl, NewerFormat, NotFound, StoreFailed
from ...ids import fresh_uid
from ...limits import BUSY_S
from ...system import files, threads
from ...system.clock import monotonic_s

APPLICATION_ID: Final = 0x48464A32
"""`HFJ2`, in the header of the file: it is a store of holdfast's."""

_FIRST_FORMAT: Final = 0x48464A31
"""`HFJ1`: a store of the format before this one, which was never released."""

_PAGE_BYTES: Final = 8192
"""Measured with steps of two messages of a kilobyte: a 4 KB page holds one of them and leaves a third unused;
with 16 KB pages, a commit writes twice as much to the log."""


def migrations() -> list[str]:
    """The scripts that make the schema, in order."""
    # Not by `importlib.resources`, which imports much more than opening a store needs.
    folder = Path(__file__).parent / "migrations"
    return [files.read_bytes(folder / name).decode() for name in sorted(files.list_names(folder))]


def prepare(db: apsw.Connection, path: Path, *, frozen: bool) -> None:
    """Make sure that the schema and the journal mode are current. `frozen`: nothing can be written.

    After an error, the caller closes the connection, which rolls back.
    """
    scripts = migrations()
    db.execute("BEGIN")
    # In one transaction: another process may be creating the store at this moment.
    owner, version = db.pragma("application_id"), db.pragma("user_version")
    is_empty = db.execute("SELECT 1 FROM sqlite_schema").get is None
    db.execute("COMMIT")
    if owner == APPLICATION_ID and version == len(scripts):
        # A copy by VACUUM INTO has another mode, and so has a file that another program changed.
        if not frozen and db.pragma("journal_mode") != "wal" and not db.readonly("main"):
            _switch_to_wal(db, path)
        return
    if owner == _FIRST_FORMAT:
        raise BadUrl(
            f"{path} is a store of format 1, which only development versions of holdfast wrote; this one "
            "reads format 2. Give another path for a new store; to read this file, use the version that "
            "wrote it"
        )
    if owner != APPLICATION_ID and not is_empty:
        raise BadUrl(f"{path} is a SQLite database, but not one of holdfast's")
    _refuse_newer(path, version, len(scripts))
    if frozen and is_empty:
        raise NotFound(f"there is no store at {path}: the file is empty")
    if frozen:
        raise StoreFailed(
            f"{path} has schema {version}, this holdfast {len(scripts)}. It cannot be brought up to "
            "date where nothing can be written: open it once to write, or a copy of it"
        )
    db.pragma("page_size", _PAGE_BYTES)  # Has an effect only while the file is empty.
    _switch_to_wal(db, path)
    db.execute("BEGIN IMMEDIATE")
    version = db.pragma("user_version")
    _refuse_newer(path, version, len(scripts))
    for script in scripts[version:]:
        db.execute(script)
    if version == 0:
        db.execute("INSERT INTO store (id) VALUES (?)", (fresh_uid(),))
        db.pragma("application_id", APPLICATION_ID)
    db.pragma("user_version", len(scripts))
    db.execute("COMMIT")


def _refuse_newer(path: Path, version: int, known: int) -> None:
    if version > known:
        raise NewerFormat(f"{path} has schema {version}; this holdfast knows {known}. Upgrade holdfast.")


def _switch_to_wal(db: apsw.Connection, path: Path) -> None:
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
            f"{path}: SQLite cannot share memory between processes on this file system, which its "
            "write-ahead log needs; put the file on a local one"
        )
    db.execute("SELECT 1 FROM sqlite_schema").fetchone()  # Opens the log.
