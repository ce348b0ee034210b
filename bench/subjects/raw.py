"""The floor: the same bytes, and nothing around them."""

from __future__ import annotations

import os
from collections.abc import Sequence

import apsw
import psycopg

from bench.subjects.contract import Place


class Append:
    """One file, appended to and synced."""

    async def open(self, place: Place, sessions: int) -> None:
        self._path = place.directory / "raw.jsonl"
        self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    async def reopen(self, place: Place) -> None:
        await self.open(place, 1)

    async def step(self, session: int, first: str, second: str) -> None:
        os.write(self._file, f"{first}\0{second}\0".encode())
        os.fdatasync(self._file)

    async def load(self, session: int) -> int:
        return self._path.read_bytes().decode().count("\0")

    async def close(self) -> None:
        os.close(self._file)


class Sqlite:
    """One transaction, write-ahead log and full sync."""

    async def open(self, place: Place, sessions: int) -> None:
        self._db = apsw.Connection(str(place.directory / "raw.db"))
        self._db.set_busy_timeout(60_000)
        self._db.pragma("journal_mode", "wal")
        self._db.pragma("synchronous", "full")
        self._db.execute(
            "CREATE TABLE IF NOT EXISTS messages"
            " (id INTEGER PRIMARY KEY, session INTEGER NOT NULL, body TEXT NOT NULL)"
        )

    async def reopen(self, place: Place) -> None:
        await self.open(place, 1)

    async def step(self, session: int, first: str, second: str) -> None:
        self._insert([(session, first), (session, second)])

    async def step_all(self, pairs: Sequence[tuple[str, str]]) -> None:
        self._insert([(session, text) for session, pair in enumerate(pairs) for text in pair])

    def _insert(self, rows: Sequence[tuple[int, str]]) -> None:
        self._db.execute("BEGIN IMMEDIATE")
        self._db.executemany("INSERT INTO messages (session, body) VALUES (?, ?)", rows)
        self._db.execute("COMMIT")

    async def load(self, session: int) -> int:
        return len(self._db.execute("SELECT body FROM messages WHERE session = ?", (session,)).fetchall())

    async def close(self) -> None:
        self._db.close()


class Postgres:
    """One INSERT, one round trip."""

    async def open(self, place: Place, sessions: int) -> None:
        self._db = psycopg.connect(place.postgres, autocommit=True)
        self._db.execute(
            "CREATE TABLE IF NOT EXISTS messages"
            " (id bigserial PRIMARY KEY, session integer NOT NULL, body text NOT NULL)"
        )

    async def reopen(self, place: Place) -> None:
        await self.open(place, 1)

    async def step(self, session: int, first: str, second: str) -> None:
        self._insert([session, session], [first, second])

    async def step_all(self, pairs: Sequence[tuple[str, str]]) -> None:
        sessions = [session for session in range(len(pairs)) for _ in range(2)]
        self._insert(sessions, [text for pair in pairs for text in pair])

    def _insert(self, sessions: list[int], bodies: list[str]) -> None:
        self._db.execute(
            "INSERT INTO messages (session, body) SELECT * FROM unnest(%s::int[], %s::text[])",
            (sessions, bodies),
        )

    async def load(self, session: int) -> int:
        found = self._db.execute("SELECT body FROM messages WHERE session = %s ORDER BY id", (session,))
        return len(found.fetchall())

    async def close(self) -> None:
        self._db.close()
