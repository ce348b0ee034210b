"""Agents and workers for the tests of the fleet."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio

from holdfast import Agent, Store
from holdfast.core.head import Head
from holdfast.tools import Retry
from holdfast.workers import Worker, WorkEvent

QUICK = Retry(attempts=3, backoff_s=0.01, backoff_max_s=0.02)


class Log:
    """What a worker told."""

    def __init__(self) -> None:
        self.events: list[WorkEvent] = []

    def __call__(self, event: WorkEvent) -> None:
        self.events.append(event)

    @property
    def kinds(self) -> list[tuple[str, str]]:
        """Each session with what became of it."""
        return [(event.session, event.kind) for event in self.events]


def make_worker(store: Store, *agents: Agent[Any, Any], **options: Any) -> Worker:
    """A worker that does not wait long for anything."""
    return Worker(store, agents, **{"poll_s": 0.02, "drain_s": 5.0, "retry": QUICK, **options})


async def work(store: Store, *agents: Agent[Any, Any], **options: Any) -> list[tuple[str, str]]:
    """Work until there is nothing to do; what became of each session."""
    log = Log()
    await make_worker(store, *agents, tell=log, **options).run(until_idle=True)
    return log.kinds


@asynccontextmanager
async def working(store: Store, *agents: Agent[Any, Any], **options: Any) -> AsyncIterator[Worker]:
    """A worker for the length of the block."""
    worker = make_worker(store, *agents, **options)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(worker.run)
        try:
            yield worker
        finally:
            worker.stop()


async def until(store: Store, session: str, status: str, *, runs: int = 0) -> Head:
    """The head of a session once it has this status, after so many runs."""
    with anyio.fail_after(60):
        while True:
            head = await store.head(session)
            if head.status == status and head.lease is None and head.runs >= runs:
                return head
            await anyio.sleep(0.01)
