"""holdfast's own sessions: two messages and a checkpoint that waits for the disk."""

from __future__ import annotations

from contextlib import AsyncExitStack

import holdfast
from bench.subjects.contract import Place


class Sessions:
    """On one of the drivers."""

    _sessions: list[holdfast.Session]

    def __init__(self, driver: str) -> None:
        self._driver = driver

    def _url(self, place: Place) -> str:
        return place.postgres if self._driver == "postgresql" else f"{self._driver}:{place.directory}/agents"

    async def open(self, place: Place, sessions: int) -> None:
        await self.reopen(place)
        self._sessions = [
            await self._opened.enter_async_context(self._store.session(self._name(number), wait_s=60))
            for number in range(sessions)
        ]

    async def reopen(self, place: Place) -> None:
        self._prefix = place.prefix
        self._opened = AsyncExitStack()
        self._store = await self._opened.enter_async_context(holdfast.open_store(self._url(place)))

    def _name(self, session: int) -> str:
        return f"{self._prefix}{session}"

    async def step(self, session: int, first: str, second: str) -> None:
        held = self._sessions[session]
        await held.add(first)
        await held.add(holdfast.messages.Message(role="assistant", blocks=(holdfast.messages.Text(second),)))
        await held.checkpoint()

    async def load(self, session: int) -> int:
        found = await self._store.load(self._name(session))
        return sum(1 for message in found.transcript if message.text)

    async def peek(self, session: int) -> None:
        found = await self._store.load(self._name(session))
        assert found.version
        assert found.status == "active"
        assert not found.in_doubt

    async def close(self) -> None:
        await self._opened.aclose()
