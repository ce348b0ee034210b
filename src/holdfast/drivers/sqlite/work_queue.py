"""What workers ask for: sessions with something to do, and who has the lease of one."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

import apsw

from ..contract import DueFilter

HEAD: Final = "iif(json_valid(head), head, '{}')"
"""Of a damaged head nothing can be asked; SQLite would refuse the whole query."""

_SINCE: Final = "min(coalesce(due, posted_at), coalesce(posted_at, due))"
"""Word for word as in the index `sessions_due`, or it would not be used."""

_WANTED: Final = f"""
    (due IS NOT NULL OR posted_at IS NOT NULL) AND holder IS :holder
    AND (posted_at IS NOT NULL OR {_SINCE} <= :until OR head ->> '$.postponed' IS NULL)
"""
_HOLDERS: Final = """
    WITH RECURSIVE
        -- From one to the next, however many sessions each of them has.
        lessees (holder) AS (
            SELECT min(holder) FROM sessions WHERE due IS NOT NULL OR posted_at IS NOT NULL
            UNION ALL
            SELECT (
                SELECT min(sessions.holder) FROM sessions
                WHERE (due IS NOT NULL OR posted_at IS NOT NULL) AND sessions.holder > lessees.holder
            )
            FROM lessees WHERE lessees.holder IS NOT NULL
        ),
        named (holder) AS (
            SELECT holder FROM lessees WHERE holder IS NOT NULL UNION SELECT holder FROM holders
        )
    SELECT holder, CAST(record AS BLOB) FROM named LEFT JOIN holders USING (holder) ORDER BY holder
"""


def stamp(at: datetime) -> str:
    """A time as text that sorts as time does."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def find_due(db: apsw.Connection, wanted: DueFilter, limit: int) -> list[Any]:
    """The rows of the sessions, the longest due first."""
    where = [_WANTED]
    bindings: dict[str, Any] = {"holder": wanted.holder, "until": stamp(wanted.until), "limit": limit}
    if wanted.agents is not None:
        names = [f"agent{number}" for number in range(len(wanted.agents))]
        where.append(f"{HEAD} ->> '$.agent' IN ({', '.join(f':{name}' for name in names)})")
        bindings |= zip(names, wanted.agents, strict=True)
    for number, (label, value) in enumerate(wanted.labels.items()):
        where.append(
            f"EXISTS (SELECT 1 FROM json_each({HEAD}, '$.labels') "
            f"WHERE key = :label{number} AND value = :value{number})"
        )
        bindings |= {f"label{number}": label, f"value{number}": value}
    query = f"""
        SELECT session, seq, sum, posted, head FROM sessions
        WHERE {" AND ".join(where)} ORDER BY {_SINCE}, session LIMIT :limit
    """
    return db.execute(query, bindings).fetchall()


def find_holders(db: apsw.Connection) -> list[Any]:
    """Whoever has a heartbeat, which is the second column, or the lease of a session with something to do."""
    return db.execute(_HOLDERS).fetchall()
