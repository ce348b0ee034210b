"""The way of tests below the public surface.

Tests inject faults, set clocks and watch states where no public call reaches: in the engine of a store, in
the writer of a session, in the heartbeat, in a connection. They enter here, so that a change inside `src` is
followed in one place. A test that reaches into another private attribute says why, in a comment beside it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    import apsw
    import psycopg

    from holdfast import Session, Store
    from holdfast.drivers.postgres import PostgresDriver
    from holdfast.drivers.sqlite import SqliteDriver
    from holdfast.engine.engine import Engine
    from holdfast.session.writer import SessionWriter


def engine_of(store: Store) -> Engine:
    """The driver, clock, committer, heartbeat and blobs of an open store."""
    return store._engine


def writer_of(session: Session) -> SessionWriter:
    """What holdfast's own layers use of an open session."""
    return session._writer


def take_keyframes_after(entries: int) -> None:
    """Let sessions of this process take a keyframe after so many entries: for processes of tests."""
    writer = import_module("holdfast.session.writer")
    # Setting a name that is not there would go unnoticed.
    assert hasattr(writer, "KEYFRAME_ENTRIES_MIN")
    setattr(writer, "KEYFRAME_ENTRIES_MIN", entries)  # noqa: B010


def stop_heartbeat(store: Store) -> None:
    """Let the heartbeat fall silent, as in a process that hangs: its term runs out."""
    heartbeat = store._engine.heartbeat
    heartbeat._stop.set()
    if heartbeat._thread is not None:
        heartbeat._thread.join()  # One that is under way would make the term begin again.


def write_connection(driver: SqliteDriver) -> apsw.Connection:
    """The connection on which the driver commits; its settings and transactions are its own."""
    assert driver._db._writer is not None
    return driver._db._writer


def borrow_connection(driver: PostgresDriver) -> AbstractContextManager[psycopg.Connection[Any]]:
    """One of the driver's connections: what is set or prepared on it shows on no other."""
    return driver._db._source.borrow()
