"""The driver: each call is a statement, or a short transaction."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from ...core.codec import EMPTY_PAGE, Page
from ...core.head import Head
from ...errors import NotFound, StoreBusy
from ...ids import HolderId, SessionId
from ...limits import SERVER_CLOCK_S
from ...system.clock import boot_s
from ..contract import (
    Append,
    Beat,
    ClaimChange,
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
from . import address, claims, deletion
from .binary_arrays import TextArray
from .blobs import PostgresBlobs
from .commit import AppendStatements, Commit, encode_labels
from .connections import OwnConnections, PoolConnections, PostgresConnections
from .schema import prepare
from .statements import Statements
from .work_queue import AGE, TIP, PostgresListener, channel_of, find_due, find_holders

if TYPE_CHECKING:
    from psycopg_pool import ConnectionPool


# A large `said` is stored apart from its row, or compressed: it is read only where it is named.
_OF_SESSION: Final = "FROM $schema.chunks WHERE session = %s AND seq > %s ORDER BY seq LIMIT %s"
_READ_FACTS: Final = f"SELECT sum, facts, details {_OF_SESSION}"
_READ_ALL: Final = f"SELECT sum, facts, details, said {_OF_SESSION}"
_RUNS: Final = """
    SELECT
        run.run, run.at, run.session, run.seq::text,
        started.sum, started.facts, started.details, ended.sum, ended.facts, ended.details
    FROM (
        SELECT * FROM $schema.run_chunks
        WHERE {chosen} AND (at, session, seq) > (%(at)s, %(after)s, %(seq)s)
        ORDER BY at, session, seq LIMIT %(limit)s
    ) AS run
    JOIN $schema.chunks AS started ON started.session = run.session AND started.seq = run.started
    LEFT JOIN $schema.chunks AS ended ON ended.session = run.session AND ended.seq = run.ended
    ORDER BY run.at, run.session, run.seq
"""
_POST: Final = """
    WITH counted AS (
        UPDATE $schema.sessions SET posted = posted + 1, posted_at = coalesce(posted_at, clock_timestamp())
        WHERE session = %(session)s RETURNING posted
    ),
    posted AS (
        INSERT INTO $schema.inbox (session, number, item, at)
        SELECT %(session)s, posted, %(item)s, clock_timestamp() FROM counted
    )
    SELECT posted, $durable, pg_notify(%(channel)s, %(session)s) FROM counted
"""
_BEAT: Final = """
    WITH beaten AS (
        INSERT INTO $schema.holders AS holders (holder, record, beat_at)
        VALUES (%(holder)s, %(record)s, clock_timestamp())
        ON CONFLICT (holder) DO UPDATE SET record = excluded.record, beat_at = excluded.beat_at
        RETURNING $durable
    )
    SELECT session, posted, extract(epoch FROM clock_timestamp())::float8
    FROM beaten LEFT JOIN $schema.sessions ON session = ANY (%(sessions)s)
"""


_NULL: Final = b"null"


def _page(rows: Sequence[Sequence[bytes | None]], *, said: bool) -> Page:
    """The page of rows of sum, facts, details and, if wanted, said."""
    if not rows:
        return EMPTY_PAGE
    sums, facts, details, *rest = (
        b"\n".join([_NULL if part is None else part for part in column]) for column in zip(*rows, strict=True)
    )
    return Page(len(rows), sums, facts, details, rest[0] if said else None)


def _run_chunks(
    mark: Sequence[bytes | None], *, started: Sequence[bytes | None], ended: Sequence[bytes | None]
) -> RunChunks:
    run, at, session, seq = ((part or b"").decode() for part in mark)
    end = _page([ended], said=False) if ended[0] is not None else None
    cursor = RunCursor(at, SessionId(session), int(seq))
    return RunChunks(run, cursor, _page([started], said=False), end)


class _ServerClock:
    """The server's clock: how far it was ahead of this boot's clock when last read."""

    def __init__(self) -> None:
        self._ahead_s: float | None = None

    def learn(self, server_s: float, began_s: float) -> None:
        """Take the server's answer, which arrives now, to a query sent at `began_s`."""
        took_s = boot_s() - began_s
        if took_s <= SERVER_CLOCK_S:
            self._ahead_s = server_s - (began_s + took_s / 2)

    def now_s(self) -> float | None:
        """The server's time; None until an answer has come quickly enough."""
        return None if self._ahead_s is None else boot_s() + self._ahead_s


class PostgresDriver:
    """A store in one schema of a PostgreSQL database, by URL or through an application's own pool."""

    def __init__(
        self,
        where: str | ConnectionPool[Any],
        *,
        schema: str | None = None,
        create: bool = True,
        read_only: bool = False,
    ) -> None:
        if isinstance(where, str):
            found = address.parse(where, schema=schema)
            conninfo = found.conninfo
            self._db = PostgresConnections(OwnConnections(found), found.schema)
        else:
            source = PoolConnections(where)
            conninfo = source.conninfo
            self._db = PostgresConnections(source, address.check_schema(schema or address.SCHEMA))
        self._where = f"schema {self._db.schema!r}"
        self._sql = Statements(self._db.schema)
        self._append = AppendStatements(self._sql)
        self._listener = PostgresListener(conninfo, self._db.schema)
        self._clock = _ServerClock()
        try:
            self._id = prepare(self._db, create=create, read_only=read_only)
            self.blobs = PostgresBlobs(self._db, self._sql, self._id)
            if isinstance(where, str):  # An application's own connections are left as they are.
                self._db.again(self._append.prepare)
                self._db.on_connect = self._append.prepare
        except BaseException:
            self._db.close()
            raise

    def store_id(self) -> str:
        return self._id

    def server_s(self) -> float | None:
        return self._clock.now_s()

    # -- journals -----------------------------------------------------------------------------------

    def commit(self, batch: Sequence[Append], *, wait: bool = True) -> Sequence[Outcome]:
        if not wait:
            raise StoreBusy("a server may take any time to answer")
        return self._db.again(Commit(self._sql, self._append, batch).run) if batch else []

    def read(self, session: SessionId, after: int, limit: int, *, said: bool) -> Page:
        query = _READ_ALL if said else _READ_FACTS
        return _page(self._query_raw(query, [session, after, limit]), said=said)

    def find_tip(self, session: SessionId) -> Tip | None:
        rows = self._query(f"{TIP} WHERE session = %s", [session])
        return read_tip(rows[0], self._where) if rows else None

    def list_tips(self, wanted: HeadFilter, after: SessionId | None, limit: int) -> Sequence[Tip]:
        where = ["session NOT LIKE '~%%'", "session > %(after)s"]
        values: dict[str, Any] = {"after": after or "", "limit": limit}
        if wanted.status is not None:
            where.append("status = %(status)s")
            values["status"] = wanted.status
        if wanted.parent is not None:
            where.append("parent = %(parent)s")
            values["parent"] = wanted.parent
        if wanted.open_run is not None:
            where.append("open_run IS NOT NULL AND unfinished" if wanted.open_run else "open_run IS NULL")
        if wanted.in_doubt is not None:
            where.append("in_doubt > 0 AND unfinished" if wanted.in_doubt else "in_doubt = 0")
        if wanted.labels:
            # With the index's own condition, or PostgreSQL would not use it.
            where.append("labels @> %(labels)s AND labels <> '{}'")
            values["labels"] = TextArray(encode_labels(wanted.labels))
        query = f"{TIP} WHERE {' AND '.join(where)} ORDER BY session LIMIT %(limit)s"
        return [read_listed_tip(row, self._where) for row in self._query(query, values)]

    def list_due(self, wanted: DueFilter, limit: int) -> Sequence[Tip]:
        return [
            read_listed_tip(row, self._where)
            for row in self._db.again(lambda connection: find_due(self._sql, connection, wanted, limit))
        ]

    def list_runs(
        self, session: SessionId | None, after: RunCursor | None, limit: int
    ) -> Sequence[RunChunks]:
        at, name, seq = after or ("", "", 0)
        values = {"session": session, "at": at, "after": name, "seq": seq, "limit": limit}
        chosen = "TRUE" if session is None else "session = %(session)s"
        rows = self._query_raw(_RUNS.format(chosen=chosen), values)
        return [_run_chunks(row[:4], started=row[4:7], ended=row[7:]) for row in rows]

    def find_keyframe(self, session: SessionId) -> bytes | None:
        rows = self._query("SELECT body FROM $schema.keyframes WHERE session = %s", [session])
        return rows[0][0].encode() if rows else None

    def erase(self, session: SessionId, after: str, chunks: Mapping[int, Erasure], head: Head) -> Outcome:
        return self._db.once(
            lambda connection: deletion.erase(self._sql, connection, session, after, chunks, head),
            patient=True,
        )

    def delete(self, session: SessionId, after: str) -> Outcome:
        return self._db.once(
            lambda connection: deletion.delete(self._sql, connection, session, after), patient=True
        )

    # -- inbox, holders, claims ---------------------------------------------------------------------

    def post(self, session: SessionId, item: bytes) -> int:
        values = {"session": session, "item": item.decode(), "channel": channel_of(self._db.schema)}
        row = self._db.once(lambda connection: self._sql.row(connection, _POST, values))
        if row is None:
            raise NotFound(f"no session {session!r}")
        return int(row[0])

    def read_inbox(self, session: SessionId, after: int, limit: int) -> Sequence[InboxRow]:
        query = """
            SELECT number, item FROM $schema.inbox
            WHERE session = %s AND number > %s ORDER BY number LIMIT %s
        """
        return [
            InboxRow(number, item.encode()) for number, item in self._query(query, [session, after, limit])
        ]

    def beat(
        self, holder: HolderId, record: bytes, sessions: Collection[SessionId]
    ) -> Mapping[SessionId, int]:
        values = {"holder": holder, "record": record.decode(), "sessions": TextArray(sessions)}
        began_s = boot_s()
        rows = self._query(_BEAT, values)
        if rows:
            self._clock.learn(rows[0][2], began_s)
        return {SessionId(session): posted for session, posted, _ in rows if session is not None}

    def find_beat(self, holder: HolderId) -> Beat | None:
        rows = self._query(f"SELECT record, {AGE} FROM $schema.holders WHERE holder = %s", [holder])
        return Beat(rows[0][0].encode(), max(0.0, rows[0][1])) if rows else None

    def list_holders(self) -> Sequence[tuple[HolderId, Beat | None]]:
        return self._db.again(lambda connection: find_holders(self._sql, connection))

    def retire(self, holder: HolderId) -> None:
        self._query("DELETE FROM $schema.holders WHERE holder = %s RETURNING $durable", [holder])

    def wait_for_work(self, timeout_s: float) -> None:
        self._listener.wait(timeout_s)

    def claim(self, change: ClaimChange) -> Outcome:
        return self._db.once(lambda connection: claims.change_claim(self._sql, connection, change))

    def find_claim(self, key: str) -> str | None:
        return self._db.again(lambda connection: claims.find_claim(self._sql, connection, key))

    def close(self) -> None:
        self._listener.close()
        self._db.close()

    def _query(self, statement: str, values: Sequence[Any] | Mapping[str, Any]) -> list[tuple[Any, ...]]:
        """Run one statement that may be done twice."""
        return self._db.again(lambda connection: self._sql.rows(connection, statement, values))

    def _query_raw(
        self, statement: str, values: Sequence[Any] | Mapping[str, Any]
    ) -> list[tuple[bytes | None, ...]]:
        """The same, with texts as bytes: psycopg would decode them, only for them to be encoded again."""
        return self._db.again(lambda connection: self._sql.raw_rows(connection, statement, values))
