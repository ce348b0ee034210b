"""Erasing lines and deleting sessions, each in the transaction of the caller."""

from __future__ import annotations

from collections.abc import Mapping

import apsw

from ...core.head import Head
from ...ids import SessionId
from ..contract import Conflict, Done, Outcome, hidden_name
from .commit import find_tip, write_head


def erase(
    db: apsw.Connection, session: SessionId, after: str, lines: Mapping[int, bytes], head: Head
) -> Outcome:
    """Replace lines and the head, except lines that a fork needs."""
    sum, posted = find_tip(db, session) or (None, 0)
    if sum != after:
        return Conflict(sum)
    # Overwrite the bytes: unused parts of a page must not keep them.
    db.pragma("secure_delete", True)
    write_head(db, after, head)
    pinned = _last_pinned(db, head.uid) or 0
    db.executemany(
        "UPDATE entries SET line = ? WHERE session = ? AND seq = ?",
        [(line.decode(), session, seq) for seq, line in lines.items() if seq > pinned],
    )
    db.execute("DELETE FROM keyframes WHERE session = ?", (session,))
    return Done(posted)


def delete(db: apsw.Connection, session: SessionId, after: str) -> Outcome:
    """Remove a session; the lines that forks need stay, under a hidden name."""
    sum, posted = find_tip(db, session) or (None, 0)
    if sum != after:
        return Conflict(sum)
    uid = str(db.execute("SELECT uid FROM sessions WHERE session = ?", (session,)).get)
    db.execute("DELETE FROM inbox WHERE session = ?", (session,))
    db.execute("DELETE FROM keyframes WHERE session = ?", (session,))
    needed = _last_pinned(db, uid)
    if needed is None:
        _remove(db, session, uid)
    else:
        hidden = hidden_name(uid)
        db.execute("DELETE FROM entries WHERE session = ? AND seq > ?", (session, needed))
        db.execute("UPDATE entries SET session = ? WHERE session = ?", (hidden, session))
        db.execute(
            "UPDATE sessions SET session = ?, due = NULL, posted_at = NULL WHERE session = ?",
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
        db.execute("DELETE FROM entries WHERE session = ?", (session,))
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
