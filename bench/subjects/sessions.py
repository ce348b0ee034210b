"""holdfast's own sessions: two messages and a checkpoint that waits for the disk."""

from __future__ import annotations

import os
from contextlib import AsyncExitStack

import holdfast
from bench.subjects.contract import Place


class Sessions:
    """On one of the drivers."""

    def __init__(self, driver: str) -> None:
        self._driver = driver

    def _url(self, place: Place) -> str:
        return place.postgres if self._driver == "postgresql" else f"{self._driver}:{place.directory}/agents"

    async def open(self, place: Place, sessions: int) -> None:
        self._opened = AsyncExitStack()
        self._store = await self._opened.enter_async_context(holdfast.open_store(self._url(place)))
        self._sessions = [
            # Several processes may share the place; each has sessions of its own.
            await self._opened.enter_async_context(self._store.session(f"s{os.getpid()}-{number}", wait_s=60))
            for number in range(sessions)
        ]

    async def step(self, session: int, first: str, second: str) -> None:
        held = self._sessions[session]
        await held.add(first)
        await held.add(holdfast.messages.Message(role="assistant", blocks=(holdfast.messages.Text(second),)))
        await held.checkpoint()

    async def load(self, session: int) -> int:
        found = await self._store.load(self._sessions[session].id)
        return sum(1 for message in found.transcript if message.text)

    async def close(self) -> None:
        await self._opened.aclose()
