"""Erasing what was said and deleting sessions, each in a transaction: lock the session's row, then read it.

A fork takes a shared lock on its origin's row when it pins it; this takes an exclusive one. So no fork pins a
session while it is removed, and a fork that waited sees the result.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...core.head import Head
from ...ids import SessionId
from ..contract import Conflict, Done, Erasure, Outcome, hidden_name
from .binary_arrays import IntArray, TextArray
from .commit import head_row
from .connections import Connection
from .statements import Statements, transaction

_REPLACE_HEAD = """
    UPDATE $schema.sessions
    SET seq = %s::bigint, sum = %s, status = %s, parent = %s, open_run = %s, in_doubt = %s::bigint,
        labels = string_to_array(%s, chr(31)), holder = %s, due = %s::timestamptz, agent = %s, head = %s
    WHERE session = %s
"""
_REPLACE_PARTS = """
    UPDATE $schema.chunks SET details = new.details, said = new.said
    FROM unnest(%(seq)s, %(details)s, %(said)s) AS new (seq, details, said)
    WHERE chunks.session = %(session)s AND chunks.seq = new.seq
"""


def erase(
    sql: Statements,
    connection: Connection,
    session: SessionId,
    after: str,
    chunks: Mapping[int, Erasure],
    head: Head,
) -> Outcome:
    """Replace details, what was said, and the head, except in chunks that a fork needs."""
    with transaction(sql, connection):
        sum, posted, uid = _lock(sql, connection, session)
        if sum != after:
            return Conflict(sum)
        pinned = _last_pinned(sql, connection, uid) or 0
        _, *kept = head_row(head)
        sql.do(connection, _REPLACE_HEAD, [*kept, session])
        chosen = {seq: left for seq, left in chunks.items() if seq > pinned}
        values = {
            "session": session,
            "seq": IntArray(chosen),
            "details": TextArray([left.details for left in chosen.values()]),
            "said": TextArray([left.said for left in chosen.values()]),
        }
        sql.do(connection, _REPLACE_PARTS, values)
        sql.do(connection, "DELETE FROM $schema.keyframes WHERE session = %s", [session])
    return Done(posted)


def delete(sql: Statements, connection: Connection, session: SessionId, after: str) -> Outcome:
    """Remove a session; the chunks that forks need stay, under a hidden name."""
    with transaction(sql, connection):
        sum, posted, uid = _lock(sql, connection, session)
        if sum != after:
            return Conflict(sum)
        sql.do(connection, "DELETE FROM $schema.inbox WHERE session = %s", [session])
        sql.do(connection, "DELETE FROM $schema.keyframes WHERE session = %s", [session])
        sql.do(connection, "DELETE FROM $schema.run_chunks WHERE session = %s", [session])
        needed = _last_pinned(sql, connection, uid)
        if needed is None:
            _remove(sql, connection, session, uid)
        else:
            hidden = hidden_name(uid)
            cut = "DELETE FROM $schema.chunks WHERE session = %s AND seq > %s"
            sql.do(connection, cut, [session, needed])
            move = "UPDATE $schema.chunks SET session = %s WHERE session = %s"
            sql.do(connection, move, [hidden, session])
            hide = """
                UPDATE $schema.sessions SET session = %s, due = NULL, posted_at = NULL WHERE session = %s
            """
            sql.do(connection, hide, [hidden, session])
    return Done(posted)


def _lock(sql: Statements, connection: Connection, session: SessionId) -> tuple[Any, ...]:
    query = "SELECT sum, posted, uid FROM $schema.sessions WHERE session = %s FOR UPDATE"
    return sql.row(connection, query, [session]) or (None, 0, None)


def _last_pinned(sql: Statements, connection: Connection, uid: str) -> int | None:
    """The last entry of this journal that a fork needs."""
    found = sql.row(connection, "SELECT max(seq) FROM $schema.pins WHERE origin_uid = %s", [uid])
    return found[0] if found else None


def _remove(sql: Statements, connection: Connection, session: str, uid: str) -> None:
    """Remove a locked journal, and every hidden origin that only it still needed."""
    while True:
        sql.do(connection, "DELETE FROM $schema.chunks WHERE session = %s", [session])
        gone = "DELETE FROM $schema.sessions WHERE session = %s RETURNING origin_uid"
        (origin_uid,) = sql.row(connection, gone, [session]) or (None,)
        if origin_uid is None:
            return
        # Lock it first, under whatever name: another fork, or the origin itself, may be removed at this
        # moment.
        find = "SELECT session FROM $schema.sessions WHERE uid = %s FOR UPDATE"
        origin = sql.row(connection, find, [origin_uid])
        unpin = "DELETE FROM $schema.pins WHERE origin_uid = %s AND fork_uid = %s"
        sql.do(connection, unpin, [origin_uid, uid])
        session, uid = hidden_name(origin_uid), origin_uid
        if origin is None or origin[0] != session or _last_pinned(sql, connection, uid) is not None:
            return
