"""Claims: records in the store that are changed by compare-and-swap."""

from __future__ import annotations

from collections.abc import Iterable

import apsw

from ..contract import ClaimChange, Claimed


def find_claim(db: apsw.Connection, key: str) -> str | None:
    found: str | None = db.execute("SELECT record FROM claims WHERE key = ?", (key,)).get
    return found


def find_refused(db: apsw.Connection, changes: Iterable[ClaimChange]) -> Claimed | None:
    """The first change that expects another record than there is."""
    for change in changes:
        record = find_claim(db, change.key)
        if record != change.expect:
            return Claimed(change.key, record)
    return None


def change_claim(db: apsw.Connection, change: ClaimChange) -> None:
    if change.record is None:
        db.execute("DELETE FROM claims WHERE key = ?", (change.key,))
    else:
        db.execute("INSERT OR REPLACE INTO claims VALUES (?, ?)", (change.key, change.record))
