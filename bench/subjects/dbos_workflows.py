"""DBOS: a workflow for each session, whose steps return both messages, which DBOS keeps."""

from __future__ import annotations

import asyncio
from typing import Any

from dbos import DBOS, DBOSClient, SetWorkflowID

from bench.subjects.contract import Place


class Workflows:
    """Workflows that wait for what to keep."""

    def __init__(self, store: str) -> None:
        self._store = store
        self._client: DBOSClient | None = None

    def _url(self, place: Place) -> str:
        """SQLite is the default."""
        return place.postgres if self._store == "postgresql" else f"sqlite:///{place.directory}/dbos.sqlite"

    async def open(self, place: Place, sessions: int) -> None:
        self._inboxes: list[asyncio.Queue[Any]] = [asyncio.Queue() for _ in range(sessions)]
        DBOS(config={"name": "bench", "system_database_url": self._url(place), "log_level": "ERROR"})

        async def keep(first: str, second: str) -> tuple[str, str]:
            return first, second

        kept_step: Any = DBOS.step()(keep)

        async def talk(number: int) -> None:
            while (given := await self._inboxes[number].get()) is not None:
                first, second, kept = given
                await kept_step(first, second)
                kept.set_result(None)

        workflow: Any = DBOS.workflow()(talk)
        DBOS.launch()
        self._running = []
        for number in range(sessions):
            with SetWorkflowID(f"w{number}"):
                self._running.append(await DBOS.start_workflow_async(workflow, number))

    async def reopen(self, place: Place) -> None:
        # A second `launch` would recover, and so run, the workflow that the first process has.
        self._client = DBOSClient(system_database_url=self._url(place))

    async def step(self, session: int, first: str, second: str) -> None:
        kept: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._inboxes[session].put_nowait((first, second, kept))
        await kept

    async def load(self, session: int) -> int:
        reader: Any = self._client or DBOS
        return 2 * len(await reader.list_workflow_steps_async(f"w{session}"))

    async def close(self) -> None:
        if self._client is not None:
            self._client.destroy()
            return
        for inbox in self._inboxes:
            inbox.put_nowait(None)
        for handle in self._running:
            await handle.get_result()
        DBOS.destroy()
