"""Appending to journals: one statement where there are only chunks and runs, else a transaction."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Sequence
from operator import attrgetter
from typing import Any, Final

import apsw
import msgspec

from ...core.codec import Chunk
from ...core.head import Head
from ...ids import SessionId
from ...limits import BATCH_BYTES_MAX
from ..contract import Append, Conflict, Done, OriginGone, Outcome, Pin
from .claims import change_claim, find_refused
from .connections import SqliteConnections
from .work_queue import stamp

_encode = msgspec.json.Encoder().encode
_session_of = attrgetter("session")

_CHUNK: Final = ("session", "seq", "sum", "facts", "details", "said")
_HEAD: Final = ("after", "head", "status", "parent", "open_run", "in_doubt", "holder", "due")
_RUN: Final = ("run", "at", "chunk")
"""The columns of the view `feed`, in three groups. Parts of chunks and heads are bound as bytes: SQLite would
have to encode decoded ones again."""

_NO_HEAD: Final = (None,) * len(_HEAD)
_NO_RUN: Final = (None,) * len(_RUN)
_COLUMNS: Final = len(_CHUNK + _HEAD + _RUN)

_FEED_ONE: Final = f"""
    INSERT INTO feed ({", ".join(_CHUNK + _HEAD)}) VALUES (?1{",?" * (len(_CHUNK + _HEAD) - 1)})
    RETURNING (SELECT posted FROM sessions WHERE session = ?1)
"""
"""For a chunk with its head; gives the newest inbox number."""

_FEED_ROWS_MAX: Final = 400
"""Limit of rows in a statement: apsw keeps none prepared that is longer than 16 KB."""

_SIZES: Final = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, _FEED_ROWS_MAX)


def _feed_statement(rows: int) -> str:
    row = f"({','.join('?' * _COLUMNS)})"
    if rows == 1:
        return f"INSERT INTO feed VALUES {row}"
    return f"INSERT INTO feed SELECT * FROM (VALUES {','.join([row] * rows)}) WHERE column1 IS NOT NULL"


_FEEDS: Final = [(rows, _feed_statement(rows)) for rows in _SIZES]
"""Statements for that many rows of any sessions; rows of NULLs fill up to the next size."""

_NEW_SESSION: Final = """
    INSERT INTO sessions (session, uid, origin_uid, seq, sum, status, head) VALUES (?, ?, ?, 0, '', ?, '')
"""
_POSTED_AT: Final = """
    UPDATE sessions
    SET posted_at = oldest.at, since = min(coalesce(due, oldest.at), coalesce(oldest.at, due))
    FROM (SELECT (SELECT at FROM inbox WHERE session = ?1 ORDER BY number LIMIT 1) AS at) AS oldest
    WHERE session = ?1
"""


def commit(db: SqliteConnections, batch: Sequence[Append], *, wait: bool) -> Sequence[Outcome]:
    """Commit a batch; the outcome of each item."""
    outcomes: Sequence[Outcome] | None = None
    if len(batch) == 1 and len(batch[0].chunks) == 1 and not batch[0].runs:
        if _is_plain(batch[0]):
            outcomes = db.write(_feed_one, batch[0], wait=wait, transaction=False)
    elif all(map(_is_plain, batch)) and _fits(batch):
        outcomes = db.write(_feed_all, batch, wait=wait, transaction=False)
    return db.write(_commit_all, batch, wait=wait) if outcomes is None else outcomes


def _is_plain(item: Append) -> bool:
    """True if there are only chunks and runs to append, to a session that exists; as almost always."""
    return (
        item.after is not None
        and item.keyframe is None
        and not item.claims
        and not item.takes_inbox
        and item.pin is None
    )


def _fits(batch: Sequence[Append]) -> bool:
    """True if one statement takes it."""
    rows = sum(len(item.chunks) + len(item.runs) for item in batch)
    size = sum(chunk.size for item in batch for chunk in item.chunks)
    return rows <= _FEED_ROWS_MAX and size <= BATCH_BYTES_MAX


# apsw releases the interpreter lock for every step of a statement, and getting it back takes time beside a
# busy event loop. So a commit is one statement, which is a transaction of its own, wherever that is enough.


def _feed_one(db: apsw.Connection, item: Append) -> Sequence[Outcome] | None:
    """Append one chunk. None if the journal has moved on: then nothing was written."""
    (chunk,) = item.chunks
    keep = chunk.size <= BATCH_BYTES_MAX
    try:
        posted = db.execute(_FEED_ONE, _chunk_with_head(item, chunk), can_cache=keep).get
    except apsw.ConstraintError:
        return None
    return [Done(_number(posted))]


def _feed_all(db: apsw.Connection, batch: Sequence[Append]) -> Sequence[Outcome] | None:
    """Append everything. None if one of the journals has moved on: then nothing was written."""
    # In the order of the indices, so that neighbours change the same page.
    values = [value for item in sorted(batch, key=_session_of) for value in _rows(item)]
    try:
        _feed(db, values)
    except apsw.ConstraintError:
        return None
    try:
        posted = _list_posted(db, batch)
    except apsw.Error:  # The chunks have landed. The next commit tells of new inbox items.
        posted = {}
    return [Done(posted.get(item.session, 0)) for item in batch]


def _chunk_with_head(item: Append, chunk: Chunk) -> tuple[Any, ...]:
    """The last chunk of a commit, and the head that it comes to."""
    return (
        item.session,
        chunk.seq,
        chunk.sum,
        chunk.facts,
        chunk.details,
        chunk.said,
        *_head(item.after, item.head),
    )


def _head(after: str | None, head: Head) -> tuple[Any, ...]:
    lease, due = head.lease, None if head.replica else head.due
    return (
        after or "",
        _encode(head),
        head.status,
        head.parent,
        head.open_run,
        head.in_doubt,
        None if lease is None else lease.holder,
        None if due is None else stamp(due),
    )


def _rows(item: Append) -> list[Any]:
    """Rows of the view `feed`: the chunks, the last with the head; then the runs."""
    session = item.session
    *before, last = item.chunks
    values: list[Any] = []
    for chunk in before:
        values += (session, chunk.seq, chunk.sum, chunk.facts, chunk.details, chunk.said, *_NO_HEAD, *_NO_RUN)
    values += (*_chunk_with_head(item, last), *_NO_RUN)
    for mark in item.runs:
        at = None if mark.ended else mark.at
        values += (session, mark.seq, None, None, None, None, *_NO_HEAD, mark.run, at, mark.chunk)
    return values


def write_head(db: apsw.Connection, after: str, head: Head) -> None:
    """Write a head without a chunk."""
    _feed(db, [head.session, head.seq, head.sum, None, None, None, *_head(after, head), *_NO_RUN])


def _feed(db: apsw.Connection, values: list[Any], *, keep: bool = True) -> None:
    """Insert rows. The statement stays prepared, with its values, unless `keep` is false: for large ones."""
    rows, statement = _FEEDS[bisect_left(_FEEDS, (len(values) // _COLUMNS,))]
    db.execute(statement, values + [None] * (rows * _COLUMNS - len(values)), can_cache=keep)


def _feed_in_parts(db: apsw.Connection, values: list[Any]) -> None:
    """Insert as many rows at a time as a statement takes. A large chunk is inserted alone: SQLite copies
    several rows before it inserts them, but not a single one."""
    start = size = 0
    for place in range(0, len(values), _COLUMNS):
        row = sum(len(part) for part in values[place + 3 : place + len(_CHUNK)] if part)
        if size + row > BATCH_BYTES_MAX or place - start == _FEED_ROWS_MAX * _COLUMNS:
            if place > start:
                _feed(db, values[start:place], keep=size <= BATCH_BYTES_MAX)
            start, size = place, 0
        size += row
    _feed(db, values[start:], keep=size <= BATCH_BYTES_MAX)


def _list_posted(db: apsw.Connection, batch: Sequence[Append]) -> dict[str, int]:
    """The newest inbox number of each session that ever had one, in one query."""
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
    """Insert the session and its pin, which must exist before its chunks."""
    if item.after is None:
        made = (item.session, item.head.uid, item.pin.uid if item.pin else None, item.head.status)
        db.execute(_NEW_SESSION, made)
    if item.pin is not None:
        db.execute("INSERT INTO pins VALUES (?, ?, ?)", (item.pin.uid, item.head.uid, item.pin.seq))


def _write_extras(db: apsw.Connection, item: Append) -> None:
    if item.keyframe is not None:
        db.execute("INSERT OR REPLACE INTO keyframes VALUES (?, ?)", (item.session, item.keyframe.decode()))
    if item.takes_inbox:
        db.execute("DELETE FROM inbox WHERE session = ? AND number <= ?", (item.session, item.head.taken))
        db.execute(_POSTED_AT, (item.session,))
