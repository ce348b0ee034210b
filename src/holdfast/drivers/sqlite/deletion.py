"""Erasing what was said and deleting sessions, each in the transaction of the caller."""

from __future__ import annotations

from collections.abc import Mapping

import apsw

from ...core.head import Head
from ...ids import SessionId
from ..contract import Conflict, Done, Erasure, Outcome, hidden_name
from .commit import find_tip, write_head


def erase(
    db: apsw.Connection, session: SessionId, after: str, chunks: Mapping[int, Erasure], head: Head
) -> Outcome:
    """Replace details and what was said, and the head; except in chunks that a fork needs."""
    sum, posted = find_tip(db, session) or (None, 0)
    if sum != after:
        return Conflict(sum)
    # Overwrite the bytes: unused parts of a page must not keep them.
    db.pragma("secure_delete", True)
    write_head(db, after, head)
    pinned = _last_pinned(db, head.uid) or 0
    db.executemany(
        """
        UPDATE chunks SET details = CAST(? AS TEXT), said = CAST(? AS TEXT)
        WHERE session = ? AND seq = ?
        """,
        [(left.details, left.said, session, seq) for seq, left in chunks.items() if seq > pinned],
    )
    db.execute("DELETE FROM keyframes WHERE session = ?", (session,))
    return Done(posted)


def delete(db: apsw.Connection, session: SessionId, after: str) -> Outcome:
    """Remove a session; the chunks that forks need stay, under a hidden name."""
    sum, posted = find_tip(db, session) or (None, 0)
    if sum != after:
        return Conflict(sum)
    uid = str(db.execute("SELECT uid FROM sessions WHERE session = ?", (session,)).get)
    for table in ("inbox", "keyframes", "run_chunks"):
        db.execute(f"DELETE FROM {table} WHERE session = ?", (session,))
    needed = _last_pinned(db, uid)
    if needed is None:
        _remove(db, session, uid)
    else:
        hidden = hidden_name(uid)
        db.execute("DELETE FROM chunks WHERE session = ? AND seq > ?", (session, needed))
        db.execute("UPDATE chunks SET session = ? WHERE session = ?", (hidden, session))
        # Hidden, it is in no listing.
        db.execute(
            """
            UPDATE sessions SET session = ?, due = NULL, posted_at = NULL, since = NULL
            WHERE session = ?
            """,
            (hidden, session),
        )
    return Done(posted)


def _last_pinned(db: apsw.Connection, uid: str) -> int | None:
    """The last entry of this journal that a fork needs."""
    found: int | None = db.execute("SELECT max(seq) FROM pins WHERE origin_uid = ?", (uid,)).get
    return found


def _remove(db: apsw.Connection, session: str, uid: str) -> None:
    """Remove a journal, and every hidden origin that only it still needed."""
    while True:
        origin_uid = db.execute("SELECT origin_uid FROM sessions WHERE session = ?", (session,)).get
        db.execute("DELETE FROM chunks WHERE session = ?", (session,))
        db.execute("DELETE FROM sessions WHERE session = ?", (session,))
        if origin_uid is None:
            return
        db.execute("DELETE FROM pins WHERE origin_uid = ? AND fork_uid = ?", (origin_uid, uid))
        session, uid = hidden_name(origin_uid), origin_uid
        if (
            _last_pinned(db, uid) is not None
            or not db.execute("SELECT 1 FROM sessions WHERE session = ?", (session,)).get
        ):
            return
