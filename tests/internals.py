"""The way of tests below the public surface.

Tests inject faults, set clocks and watch states where no public call reaches: in the engine of a store, in
the writer of a session, in the heartbeat, in a connection. They enter here, so that a change inside `src` is
followed in one place. A test that reaches into another private attribute says why, in a comment beside it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast import Session, Store
    from holdfast.engine.engine import Engine
    from holdfast.session.writer import SessionWriter


def engine_of(store: Store) -> Engine:
    """The driver, clock, committer, heartbeat and blobs of an open store."""
    return store._engine


def writer_of(session: Session) -> SessionWriter:
    """What holdfast's own layers use of an open session."""
    return session._writer
