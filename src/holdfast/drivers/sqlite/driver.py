"""The driver: each call is a transaction or a query."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ...core.codec import Page
from ...core.head import Head
from ...errors import Corrupt, NotFound
from ...ids import HolderId, SessionId
from ...system.clock import utc_now
from ..contract import (
    Append,
    Beat,
    ClaimChange,
    Conflict,
    Done,
    DueFilter,
    Erasure,
    HeadFilter,
    InboxRow,
    Outcome,
    RunChunks,
    RunCursor,
    Tip,
    read_listed_tip,
    read_tip,
)
from . import deletion
from .blobs import SqliteBlobs
from .chunks import list_runs, read_page
from .claims import change_claim, find_claim, find_refused
from .commit import commit
from .connections import SqliteConnections, repeated
from .error_translation import LogLost
from .work_queue import HEAD, SqliteListener, find_due, find_holders, stamp

_encode = msgspec.json.Encoder().encode


class SqliteDriver:
    """A store in one SQLite file."""

    def __init__(self, path: Path, *, create: bool = True, read_only: bool = False) -> None:
        self._db = SqliteConnections(path, create=create, read_only=read_only)
        self._listener = SqliteListener(self._db)
        self._id = self._find_id()
        self.blobs = SqliteBlobs(self._db, self._id)

    @repeated
    def _find_id(self) -> str:
        with self._db.reading() as db:
            return str(db.execute("SELECT id FROM store").get)

    def store_id(self) -> str:
        return self._id

    def server_s(self) -> float | None:
        return None

    # -- journals -----------------------------------------------------------------------------------

    def commit(self, batch: Sequence[Append], *, wait: bool = True) -> Sequence[Outcome]:
        return commit(self._db, batch, wait=wait)

    @repeated
    def read(self, session: SessionId, after: int, limit: int, *, said: bool) -> Page:
        with self._db.reading() as db:
            return read_page(db, session, after, limit, said=said, where=str(self._db.path))

    @repeated
    def find_tip(self, session: SessionId) -> Tip | None:
        with self._db.reading() as db:
            row = db.execute(
                "SELECT session, seq, sum, posted, head FROM sessions WHERE session = ?", (session,)
            ).fetchone()
        return read_tip(row, str(self._db.path)) if row else None

    @repeated
    def list_tips(self, wanted: HeadFilter, after: SessionId | None, limit: int) -> Sequence[Tip]:
        where = ["session NOT LIKE '~%'", "session > ?"]
        bindings: list[Any] = [after or ""]
        if wanted.status is not None:
            where.append("status = ?")
            bindings.append(wanted.status)
            if wanted.status != "active":
                where.append("status <> 'active'")  # The condition of its index.
        if wanted.parent is not None:
            where.append("parent = ?")
            bindings.append(wanted.parent)
        if wanted.open_run or wanted.in_doubt:
            where.append("unfinished")  # The condition of its index.
        if wanted.open_run is not None:
            where.append("open_run IS NOT NULL" if wanted.open_run else "open_run IS NULL")
        if wanted.in_doubt is not None:
            where.append("in_doubt > 0" if wanted.in_doubt else "in_doubt = 0")
        for label in wanted.labels.items():
            where.append(f"EXISTS (SELECT 1 FROM json_each({HEAD}, '$.labels') WHERE key = ? AND value = ?)")
            bindings.extend(label)
        query = f"""
            SELECT session, seq, sum, posted, head FROM sessions
            WHERE {" AND ".join(where)} ORDER BY session LIMIT ?
        """
        with self._db.reading() as db:
            rows: list[Any] = db.execute(query, (*bindings, limit)).fetchall()
        return [read_listed_tip(row, str(self._db.path)) for row in rows]

    @repeated
    def list_due(self, wanted: DueFilter, limit: int) -> Sequence[Tip]:
        with self._db.reading() as db:
            rows = find_due(db, wanted, limit)
        return [read_listed_tip(row, str(self._db.path)) for row in rows]

    @repeated
    def list_runs(
        self, session: SessionId | None, after: RunCursor | None, limit: int
    ) -> Sequence[RunChunks]:
        with self._db.reading() as db:
            return list_runs(db, session, after, limit, where=str(self._db.path))

    @repeated
    def find_keyframe(self, session: SessionId) -> bytes | None:
        with self._db.reading() as db:
            found = db.execute("SELECT CAST(body AS BLOB) FROM keyframes WHERE session = ?", (session,)).get
        return found or None

    @repeated
    def erase(self, session: SessionId, after: str, chunks: Mapping[int, Erasure], head: Head) -> Outcome:
        with self._db.writing() as db:
            return deletion.erase(db, session, after, chunks, head)

    def delete(self, session: SessionId, after: str) -> Outcome:
        try:
            return self._delete(session, after)
        except LogLost:
            outcome = self._delete(session, after)
            return Done(0) if outcome == Conflict(None) else outcome  # The first attempt had landed.

    def _delete(self, session: SessionId, after: str) -> Outcome:
        with self._db.writing() as db:
            return deletion.delete(db, session, after)

    # -- inbox, holders, claims ---------------------------------------------------------------------

    def post(self, session: SessionId, item: bytes) -> int:
        with self._db.writing() as db:
            number = db.execute(
                "UPDATE sessions SET posted = posted + 1 WHERE session = ? RETURNING posted", (session,)
            ).get
            if number is None:
                raise NotFound(f"no session {session!r}")
            now = stamp(utc_now())
            db.execute("INSERT INTO inbox VALUES (?, ?, ?, ?)", (session, number, item.decode(), now))
            db.execute(
                """
                UPDATE sessions SET posted_at = ?1, since = min(coalesce(due, ?1), ?1)
                WHERE session = ?2 AND posted_at IS NULL
                """,
                (now, session),
            )
            db.execute("UPDATE store SET posts = posts + 1")
            return int(number)

    @repeated
    def read_inbox(self, session: SessionId, after: int, limit: int) -> Sequence[InboxRow]:
        query = """
            SELECT number, CAST(item AS BLOB) FROM inbox
            WHERE session = ? AND number > ? ORDER BY number LIMIT ?
        """
        with self._db.reading() as db:
            rows: list[Any] = db.execute(query, (session, after, limit)).fetchall()
        if not all(type(number) is int for number, _ in rows):
            raise Corrupt(f"{self._db.path}, session {session!r}", "an item of its inbox has no number")
        return [InboxRow(*row) for row in rows]

    @repeated
    def beat(
        self, holder: HolderId, record: bytes, sessions: Collection[SessionId]
    ) -> Mapping[SessionId, int]:
        with self._db.writing() as db:
            db.execute("INSERT OR REPLACE INTO holders VALUES (?, ?)", (holder, record.decode()))
            query = "SELECT session, posted FROM sessions WHERE session IN (SELECT value FROM json_each(?))"
            rows: list[Any] = db.execute(query, (_encode(list(sessions)).decode(),)).fetchall()
            return dict(rows)

    @repeated
    def find_beat(self, holder: HolderId) -> Beat | None:
        with self._db.reading() as db:
            found = db.execute("SELECT CAST(record AS BLOB) FROM holders WHERE holder = ?", (holder,)).get
        return Beat(found, None) if found is not None else None

    @repeated
    def list_holders(self) -> Sequence[tuple[HolderId, Beat | None]]:
        with self._db.reading() as db:
            rows = find_holders(db)
        return [
            (HolderId(str(name)), None if record is None else Beat(record, None)) for name, record in rows
        ]

    def wait_for_work(self, timeout_s: float) -> None:
        self._listener.wait(timeout_s)

    @repeated
    def retire(self, holder: HolderId) -> None:
        with self._db.writing() as db:
            db.execute("DELETE FROM holders WHERE holder = ?", (holder,))

    def claim(self, change: ClaimChange) -> Outcome:
        with self._db.writing() as db:
            refused = find_refused(db, (change,))
            if refused is None:
                change_claim(db, change)
            return refused or Done(0)

    @repeated
    def find_claim(self, key: str) -> str | None:
        with self._db.reading() as db:
            record = find_claim(db, key)
        if record is not None and not isinstance(record, str):
            raise Corrupt(f"{self._db.path}, claim {key!r}", "its record is no text")
        return record

    def close(self) -> None:
        self._db.close()
