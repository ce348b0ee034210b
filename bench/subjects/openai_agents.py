"""Sessions of OpenAI's Agents SDK: `add_items` with both messages."""

from __future__ import annotations

from typing import Any

from agents import SQLiteSession

import holdfast
from bench.subjects.contract import Place
from holdfast.adapters.openai_agents import HoldfastSession


class Sqlite:
    """`SQLiteSession`, a connection for each thread."""

    _sessions: list[Any]

    async def open(self, place: Place, sessions: int) -> None:
        self._sessions = [
            SQLiteSession(f"s{number}", place.directory / "agents.db") for number in range(sessions)
        ]

    async def reopen(self, place: Place) -> None:
        await self.open(place, 1)

    async def step(self, session: int, first: str, second: str) -> None:
        await self._sessions[session].add_items(
            [{"role": "user", "content": first}, {"role": "assistant", "content": second}]
        )

    async def load(self, session: int) -> int:
        return len(await self._sessions[session].get_items())

    async def close(self) -> None:
        for session in self._sessions:
            session.close()


class SqlAlchemy(Sqlite):
    """`SQLAlchemySession`, on aiosqlite or on psycopg."""

    def __init__(self, store: str) -> None:
        self._store = store

    def _url(self, place: Place) -> str:
        if self._store == "postgresql":
            return place.postgres.replace("postgresql://", "postgresql+psycopg://")
        return f"sqlite+aiosqlite:///{place.directory}/agents.db"

    async def open(self, place: Place, sessions: int) -> None:
        self._connect(place, sessions)
        await self._sessions[0].get_items()

    async def reopen(self, place: Place) -> None:
        self._connect(place, 1)

    def _connect(self, place: Place, sessions: int) -> None:
        from agents.extensions.memory import SQLAlchemySession
        from sqlalchemy.ext.asyncio import create_async_engine

        self._engine = create_async_engine(self._url(place))
        self._sessions = [
            SQLAlchemySession(f"s{number}", engine=self._engine, create_tables=True)
            for number in range(sessions)
        ]

    async def close(self) -> None:
        await self._engine.dispose()


class Holdfast(Sqlite):
    """`HoldfastSession`, on one of the drivers: sessions of one store."""

    def __init__(self, driver: str) -> None:
        self._driver = driver

    async def open(self, place: Place, sessions: int) -> None:
        url = place.postgres if self._driver == "postgresql" else f"{self._driver}:{place.directory}/agents"
        self._opening = holdfast.open_store(url)
        self._store = await self._opening.__aenter__()
        self._sessions = [
            HoldfastSession(f"{place.prefix}{number}", self._store) for number in range(sessions)
        ]

    async def peek(self, session: int) -> None:
        """The state of the session, without an item."""
        found = await self._store.load(self._sessions[session].session_id)
        assert found.version

    async def close(self) -> None:
        await self._opening.__aexit__(None, None, None)
