"""A service outside: every effect is one row, and a holder older than one that it has seen is refused.

It knows nothing of holdfast, so it is what the ledger is held to.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import apsw

from holdfast import NotDone


class Deed(NamedTuple):
    """An effect that happened."""

    session: str
    what: str
    key: str
    fence: int
    pid: int


class World:
    """The service's own database, in one file, for all processes."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def make(self) -> World:
        """Once, before anybody comes."""
        with self._open() as db:
            db.pragma("journal_mode", "wal")
            db.execute(
                "CREATE TABLE deeds (session, what, key, fence, pid);"
                "CREATE TABLE fences (session PRIMARY KEY, fence) WITHOUT ROWID;"
                "CREATE TABLE refusals (session, what, fence)"
            )
        return self

    @contextmanager
    def _open(self) -> Iterator[apsw.Connection]:
        db = apsw.Connection(str(self._path))
        try:
            db.set_busy_timeout(60_000)
            db.execute("PRAGMA synchronous = OFF")
            yield db
        finally:
            db.close()

    def do(self, deed: Deed) -> None:
        """It happens now, unless somebody newer was here: then nothing is done."""
        with self._open() as db, db:
            db.execute("INSERT OR IGNORE INTO fences VALUES (?, 0)", (deed.session,))
            seen = db.execute("SELECT fence FROM fences WHERE session = ?", (deed.session,)).get
            late = int(seen) > deed.fence
            if late:
                db.execute("INSERT INTO refusals VALUES (?, ?, ?)", (deed.session, deed.what, deed.fence))
            else:
                db.execute("UPDATE fences SET fence = ? WHERE session = ?", (deed.fence, deed.session))
                db.execute("INSERT INTO deeds VALUES (?, ?, ?, ?, ?)", deed)
        if late:
            raise NotDone(f"{deed.session} is in newer hands than {deed.fence}")

    def look(self, session: str, key: str, fence: int) -> bool:
        """Whether it happened; from now on, nobody older than who asks can make it happen."""
        with self._open() as db, db:
            db.execute("INSERT OR IGNORE INTO fences VALUES (?, 0)", (session,))
            db.execute("UPDATE fences SET fence = max(fence, ?) WHERE session = ?", (fence, session))
            found = db.execute("SELECT 1 FROM deeds WHERE key = ?", (key,)).get
        return found is not None

    def deeds(self) -> list[Deed]:
        """Everything that happened, in order."""
        with self._open() as db:
            rows: list[Any] = db.execute("SELECT * FROM deeds ORDER BY rowid").fetchall()
        return [Deed(*row) for row in rows]

    def count_refusals(self) -> int:
        """How often somebody came too late."""
        with self._open() as db:
            return int(db.execute("SELECT count(*) FROM refusals").get)
