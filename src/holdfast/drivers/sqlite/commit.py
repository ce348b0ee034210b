"""Appending to journals: in one statement if there are only lines, else in a transaction."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Sequence
from operator import attrgetter
from typing import Any, Final

import apsw
import msgspec

from ...core.head import Head
from ...ids import SessionId
from ...limits import BATCH_BYTES_MAX
from ..contract import Append, Conflict, Done, OriginGone, Outcome, Pin
from .claims import change_claim, find_refused
from .connections import SqliteConnections
from .work_queue import stamp

_encode = msgspec.json.Encoder().encode
_COLUMNS: Final = 7
_LINE: Final = 3
_session_of = attrgetter("session")

_FEED_ROWS_MAX: Final = 1000
"""Limit of rows in a statement: apsw keeps none prepared that is longer than 16 KB."""

_SIZES: Final = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, _FEED_ROWS_MAX)


def _feed_statement(rows: int) -> str:
    if rows == 1:
        return "INSERT INTO feed VALUES (?,?,?,?,?,?,?)"
    values = ",".join(["(?,?,?,?,?,?,?)"] * rows)
    return f"INSERT INTO feed SELECT * FROM (VALUES {values}) WHERE column1 IS NOT NULL"


_FEEDS: Final = [(rows, _feed_statement(rows)) for rows in _SIZES]
"""Statements for that many lines of any sessions; rows of NULLs fill up to the next size. Lines are bound as
bytes: SQLite would have to encode decoded ones again."""

_NEW_SESSION: Final = """
    INSERT INTO sessions (session, uid, origin_uid, seq, sum, status, in_doubt, head)
    VALUES (?, ?, ?, 0, '', ?, 0, '')
"""
_POSTED_AT: Final = """
    UPDATE sessions
    SET posted_at = (SELECT at FROM inbox WHERE session = ?1 ORDER BY number LIMIT 1)
    WHERE session = ?1
"""


def commit(db: SqliteConnections, batch: Sequence[Append], *, wait: bool) -> Sequence[Outcome]:
    """Commit a batch; the outcome of each item."""
    if _is_plain(batch):
        outcomes = db.write(_feed_all, batch, wait=wait, transaction=False)
        if outcomes is not None:
            return outcomes
    return db.write(_commit_all, batch, wait=wait)


def _is_plain(batch: Sequence[Append]) -> bool:
    """True if there are only lines to append, to sessions that exist; as almost always."""
    rows = size = 0
    for item in batch:
        if item.after is None or item.keyframe is not None or item.claims or item.pin is not None:
            return False
        if "inbox.taken" in item.kinds:
            return False
        rows += len(item.lines)
        size += sum(map(len, item.lines))
    return rows <= _FEED_ROWS_MAX and size <= BATCH_BYTES_MAX


def _feed_all(db: apsw.Connection, batch: Sequence[Append]) -> Sequence[Outcome] | None:
    """Append everything in one statement, which is a transaction of its own. None if one of the journals has
    moved on: then nothing was written.

    apsw releases the interpreter lock for every statement, and getting it back takes time beside a busy event
    loop.
    """
    # In the order of the indices, so that neighbours change the same page.
    values = [value for item in sorted(batch, key=_session_of) for value in _rows(item)]
    try:
        _feed(db, values)
    except apsw.ConstraintError:
        return None
    try:
        posted = _list_posted(db, batch)
    except apsw.Error:  # The lines have landed. The next commit tells of new inbox items.
        posted = {}
    return [Done(posted.get(item.session, 0)) for item in batch]


def _rows(item: Append) -> list[Any]:
    """Rows of the view `feed`: the lines, the last with the head."""
    session, seq = item.session, item.first_seq
    values: list[Any] = []
    for kind, line in zip(item.kinds, item.lines, strict=True):
        values += (session, seq, kind, line, None, None, None)
        seq += 1
    assert values, "a commit without lines"
    values[-3:] = _head(item.after, item.head)
    return values


def _head(after: str | None, head: Head) -> tuple[str, str | None, str]:
    return after or "", None if head.due is None else stamp(head.due), _encode(head).decode()


def write_head(db: apsw.Connection, after: str, head: Head) -> None:
    """Write a head without a line."""
    _feed(db, [head.session, head.seq, None, None, *_head(after, head)])


def _feed(db: apsw.Connection, values: list[Any], *, keep: bool = True) -> None:
    """Insert rows. The statement stays prepared, with its values, unless `keep` is false: for large ones."""
    rows, statement = _FEEDS[bisect_left(_FEEDS, (len(values) // _COLUMNS,))]
    db.execute(statement, values + [None] * (rows * _COLUMNS - len(values)), can_cache=keep)


def _feed_in_parts(db: apsw.Connection, values: list[Any]) -> None:
    """Insert as many rows at a time as a statement takes. A large line is inserted alone: SQLite copies
    several rows before it inserts them, but not a single one."""
    start = size = 0
    for place in range(0, len(values), _COLUMNS):
        line = len(values[place + _LINE])
        if size + line > BATCH_BYTES_MAX or place - start == _FEED_ROWS_MAX * _COLUMNS:
            if place > start:
                _feed(db, values[start:place], keep=size <= BATCH_BYTES_MAX)
            start, size = place, 0
        size += line
    _feed(db, values[start:], keep=size <= BATCH_BYTES_MAX)


def _list_posted(db: apsw.Connection, batch: Sequence[Append]) -> dict[str, int]:
    """The newest inbox number of each session that ever had one, in one query."""
    if len(batch) == 1:
        tip = find_tip(db, batch[0].session)
        return {} if tip is None else {batch[0].session: _number(tip[1])}
    query = """
        SELECT json_group_object(session, posted) FROM sessions
        WHERE session IN (SELECT value FROM json_each(?)) AND posted > 0
    """
    sessions = _encode([item.session for item in batch]).decode()
    posted: dict[str, Any] = json.loads(str(db.execute(query, (sessions,)).get))
    return {session: _number(number) for session, number in posted.items()}


def _number(posted: Any) -> int:
    """As a hint: reading the session reports a cell that holds no number."""
    return posted if type(posted) is int else 0


def find_tip(db: apsw.Connection, session: SessionId) -> tuple[str, int] | None:
    """The last sum and the newest inbox number."""
    found: tuple[str, int] | None = db.execute(
        "SELECT sum, posted FROM sessions WHERE session = ?", (session,)
    ).get
    return found


# -- in a transaction -----------------------------------------------------------------------------------


def _commit_all(db: apsw.Connection, batch: Sequence[Append]) -> Sequence[Outcome]:
    tips = _list_tips(db, batch)
    outcomes = [_decide(db, item, tips.get(item.session)) for item in batch]
    landed = [item for item, outcome in zip(batch, outcomes, strict=True) if isinstance(outcome, Done)]
    landed.sort(key=_session_of)
    for item in landed:
        _create(db, item)
    if landed:
        _feed_in_parts(db, [value for item in landed for value in _rows(item)])
    for item in landed:
        _write_extras(db, item)
    return outcomes


def _list_tips(db: apsw.Connection, batch: Sequence[Append]) -> dict[str, tuple[str, int]]:
    """`find_tip` for each session that exists, in one query."""
    query = """
        SELECT json_group_array(json_array(session, sum, posted)) FROM sessions
        WHERE session IN (SELECT value FROM json_each(?))
    """
    sessions = _encode([item.session for item in batch]).decode()
    rows = json.loads(str(db.execute(query, (sessions,)).get))
    return {session: (sum, _number(posted)) for session, sum, posted in rows}


def _decide(db: apsw.Connection, item: Append, tip: tuple[str, int] | None) -> Outcome:
    sum, posted = tip or (None, 0)
    if sum != item.after:
        return Conflict(sum)
    refused = find_refused(db, item.claims)
    if refused is not None:
        return refused
    if item.pin is not None and not _has(db, item.pin):
        return OriginGone()
    # Not with the rest: another item of the batch may want the same claim.
    for change in item.claims:
        change_claim(db, change)
    return Done(posted)


def _has(db: apsw.Connection, pin: Pin) -> bool:
    query = "SELECT 1 FROM sessions WHERE session = ? AND uid = ?"
    return db.execute(query, (pin.origin, pin.uid)).get is not None


def _create(db: apsw.Connection, item: Append) -> None:
    """Insert the session and its pin, which must exist before its lines."""
    if item.after is None:
        made = (item.session, item.head.uid, item.pin.uid if item.pin else None, item.head.status)
        db.execute(_NEW_SESSION, made)
    if item.pin is not None:
        db.execute("INSERT INTO pins VALUES (?, ?, ?)", (item.pin.uid, item.head.uid, item.pin.seq))


def _write_extras(db: apsw.Connection, item: Append) -> None:
    if item.keyframe is not None:
        db.execute("INSERT OR REPLACE INTO keyframes VALUES (?, ?)", (item.session, item.keyframe.decode()))
    if item.head.taken and "inbox.taken" in item.kinds:
        db.execute("DELETE FROM inbox WHERE session = ? AND number <= ?", (item.session, item.head.taken))
        db.execute(_POSTED_AT, (item.session,))
