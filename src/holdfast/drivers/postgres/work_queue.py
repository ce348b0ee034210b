"""What workers ask for: sessions with something to do, and who has the lease of one."""

from __future__ import annotations

from typing import Any, Final

from ...ids import HolderId
from ..contract import Beat, DueFilter
from .binary_arrays import Texts
from .claims import escape
from .commit import encode_labels
from .connections import Connection
from .statements import Statements

TIP: Final = "SELECT session, seq, sum, posted, head FROM $schema.sessions"
AGE: Final = "extract(epoch FROM clock_timestamp() - beat_at)::float8"

# By its bytes, which no string in it can hold: PostgreSQL cannot read JSON with a NUL in a title.
_AT_ONCE: Final = """position('"postponed":true' in head) = 0"""
# `coalesce(holder, '')` and `least(due, posted_at)` word for word as in the index `sessions_due`.
_WANTED: Final = f"""
    (due IS NOT NULL OR posted_at IS NOT NULL) AND coalesce(holder, '') = %(holder)s
    AND (posted_at IS NOT NULL OR due <= %(until)s OR {_AT_ONCE})
"""
# Whoever has leases is found from one to the next, however many sessions each of them has.
_HOLDERS: Final = f"""
    WITH RECURSIVE lessees (holder) AS (
        SELECT min(coalesce(holder, '')) FROM $schema.sessions
        WHERE due IS NOT NULL OR posted_at IS NOT NULL
        UNION ALL
        SELECT (
            SELECT min(coalesce(sessions.holder, '')) FROM $schema.sessions AS sessions
            WHERE (due IS NOT NULL OR posted_at IS NOT NULL)
                AND coalesce(sessions.holder, '') > lessees.holder
        )
        FROM lessees WHERE lessees.holder IS NOT NULL
    ),
    named (holder) AS (
        SELECT holder FROM lessees WHERE holder <> '' UNION SELECT holder FROM $schema.holders
    )
    SELECT named.holder, record, {AGE} FROM named LEFT JOIN $schema.holders AS holders USING (holder)
    ORDER BY named.holder
"""


def find_due(sql: Statements, connection: Connection, wanted: DueFilter, limit: int) -> list[tuple[Any, ...]]:
    """The rows of the sessions, the longest due first."""
    where = [_WANTED]
    values: dict[str, Any] = {"holder": wanted.holder or "", "until": wanted.until, "limit": limit}
    if wanted.agents is not None:
        where.append("agent = ANY (%(agents)s)")
        values["agents"] = Texts(list(map(escape, wanted.agents)))
    if wanted.labels:
        where.append("labels @> %(labels)s")
        values["labels"] = Texts(encode_labels(wanted.labels))
    query = f"{TIP} WHERE {' AND '.join(where)} ORDER BY least(due, posted_at), session LIMIT %(limit)s"
    return sql.rows(connection, query, values)


def find_holders(sql: Statements, connection: Connection) -> list[tuple[HolderId, Beat | None]]:
    """Whoever has a heartbeat, or the lease of a session with something to do."""
    return [
        (HolderId(holder), None if record is None else Beat(record.encode(), max(0.0, age_s)))
        for holder, record, age_s in sql.rows(connection, _HOLDERS)
    ]
