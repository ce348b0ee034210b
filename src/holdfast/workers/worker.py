"""The worker: finds sessions that are due, drives several at once, and drains when it is stopped."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup
from msgspec.structs import replace

from ..agents.agent import Agent
from ..core.head import Head
from ..engine.heartbeat import Duty
from ..errors import BadInput, Fenced, HoldfastError, LeaseHeld, NotFound, StoreFailed
from ..ids import SessionId, check_labels, check_list
from ..limits import (
    WORK_AVOID_S,
    WORK_CONCURRENCY,
    WORK_DRAIN_S,
    WORK_LOOK_MIN_S,
    WORK_POLL_S,
)
from ..reprs import describe_error
from ..store.opening import AnyStore, find_open_store, use_store
from ..store.store import Store
from ..store.work_queue import find_due
from ..system import randomness
from ..system.clock import boot_s
from ..tools.retry import Retry
from .job import Job, JobRunner, MakeDeps, WorkEvent, find_root, let_go
from .notifier import Notifier, OnWaiting

log = logging.getLogger("holdfast")
RETRY = Retry(attempts=8, backoff_s=1.0, factor=3.0, backoff_max_s=900.0)


class Worker:
    """Drives the sessions of a store that are due: `await Worker(store, agent).run()`.

    `store` is an open store, or the URL or `Path` of one that `run` opens, and closes at its end.
    Any number of workers may run, on all machines that reach the store. A worker takes sessions of its
    `agents` (which need names) with a message in their inbox, an answered question, or a dead holder: the
    oldest first, up to `concurrency` at once, and only those with all of the `labels`.

    `deps`: called with each session; returns what its tools get as `ctx.deps`. `retry`: how often, and after
    which pauses, a session is driven again that fails before there is another reply; after that it is
    `failed` with the reason `gave_up`. `drain_s`: how long running sessions get when the worker stops.
    `tell`: called with each `WorkEvent`. `on_waiting`: called with each call of the store that waits for a
    person, by one of the workers; see `Notifier`.
    """

    def __init__(
        self,
        store: AnyStore,
        agents: Agent[Any, Any] | Iterable[Agent[Any, Any]],
        *,
        concurrency: int = WORK_CONCURRENCY,
        labels: Mapping[str, str] | None = None,
        deps: MakeDeps | None = None,
        retry: Retry = RETRY,
        drain_s: float = WORK_DRAIN_S,
        poll_s: float = WORK_POLL_S,
        tell: Callable[[WorkEvent], None] | None = None,
        on_waiting: OnWaiting | None = None,
    ) -> None:
        if concurrency < 1 or drain_s < 0 or poll_s <= 0:
            raise BadInput(
                f"{concurrency=} must be at least 1, {drain_s=} not negative and {poll_s=} positive"
            )
        self._given, self._tell, self._on_waiting = store, tell, on_waiting
        self._store: Store
        find_open_store(store)  # A wrong one is an error here.
        self._agents = _by_name([agents] if isinstance(agents, Agent) else agents)
        self._labels = check_labels(labels or {})
        self._concurrency, self._drain_s, self._poll_s = concurrency, drain_s, poll_s
        self._retry = retry
        self._runner = JobRunner(self._agents, self._labels, deps, retry, self._say)
        self.jobs: dict[SessionId, Job] = {}
        """The jobs under way, by the session that was found to be due."""
        self._avoided: dict[SessionId, float] = {}
        self._stopping = False
        self._telling: anyio.CancelScope | None = None
        self._wake = anyio.Event()

    # -- from outside --------------------------------------------------------------------------------

    def stop(self, *, now: bool = False) -> None:
        """Take no more sessions.

        Those under way end, or are handed over at the end of their step, or after `drain_s`; with `now`, at
        once. Nothing is lost either way.
        """
        self._stopping = True
        for job in self.jobs.values():
            job.is_stopping = True
            if now:
                job.scope.cancel()
        if now and self._telling is not None:
            self._telling.cancel()
        self._wake.set()

    async def run(self, *, until_idle: bool = False) -> None:
        """Work until `stop` is called; with `until_idle`, also until no session is due."""
        for agent in self._agents.values():
            _ = agent.loop_config  # A model that cannot be opened is an error before a session is taken.
        async with use_store(self._given) as self._store:
            await self._work(until_idle)

    async def _work(self, until_idle: bool) -> None:
        duty = Duty(
            agents=tuple(self._agents),
            concurrency=self._concurrency,
            since=self._store._engine.now(),
            labels=self._labels,
        )
        await self._announce(duty)
        try:
            async with self._notifying(), anyio.create_task_group() as tasks:
                tasks.start_soon(self._listen)
                await self._look(tasks, until_idle)
                await self._announce(replace(duty, draining=True))
                await self._drain()
                tasks.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True):
                await self._announce(None)

    @asynccontextmanager
    async def _notifying(self) -> AsyncIterator[None]:
        """Tell what waits for a person during the block, and what waits at its end."""
        if self._on_waiting is None:
            yield
            return
        notifier = Notifier(self._store, self._on_waiting)
        telling = self._telling = anyio.CancelScope()

        async def notify() -> None:
            with telling:
                await notifier.run()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(notify)
            yield
            notifier.finish()

    async def _announce(self, duty: Duty | None) -> None:
        engine = self._store._engine
        try:
            await engine.call(engine.heartbeat.announce, duty)
        except StoreFailed as error:
            log.warning("the store was not told about this worker: %s", error)

    # -- looking for work ----------------------------------------------------------------------------

    async def _listen(self) -> None:
        """Wait for the store's notice of work, or a random pause, so that workers do not poll all at once."""
        engine = self._store._engine
        limiter = anyio.CapacityLimiter(1)
        while True:
            pause_s = self._poll_s * randomness.uniform(0.5, 1.5)
            try:
                await anyio.to_thread.run_sync(
                    engine.driver.wait_for_work, pause_s, limiter=limiter, abandon_on_cancel=True
                )
            except HoldfastError as error:
                log.warning("a worker cannot be told of work: %s", error)
                await anyio.sleep(pause_s)
            self._wake.set()

    async def _look(self, tasks: TaskGroup, until_idle: bool) -> None:
        looked_s = orphans_s = 0.0
        while not self._stopping:
            self._wake = anyio.Event()
            now_s = boot_s()
            had_none = not self.jobs  # A job that ends during the search may be due again, and was not found.
            found: list[Head] | None = None
            if len(self.jobs) < self._concurrency:
                orphans = until_idle or now_s - orphans_s >= self._poll_s
                orphans_s = now_s if orphans else orphans_s
                found = await self._find(orphans=orphans)
                for head in found or ():
                    self._start(tasks, head)
            if until_idle and had_none and found == []:
                return
            looked_s = boot_s()
            await self._wake.wait()
            await anyio.sleep(max(0.0, looked_s + WORK_LOOK_MIN_S - boot_s()))

    async def _find(self, *, orphans: bool) -> list[Head] | None:
        """Find sessions to begin; None if the store failed."""
        now_s = boot_s()
        self._avoided = {id: until_s for id, until_s in self._avoided.items() if until_s > now_s}
        # Some of the oldest may be under way here, or avoided for now.
        limit = self._concurrency + len(self._avoided)
        engine = self._store._engine
        try:
            found = await engine.call(
                lambda: find_due(engine, tuple(self._agents), self._labels, limit, orphans=orphans)
            )
        except HoldfastError as error:
            log.warning("a worker cannot look for work: %s", error)
            return None
        ours = [head for head in found if head.session not in self.jobs and head.session not in self._avoided]
        return ours[: self._concurrency - len(self.jobs)]

    # -- sessions ------------------------------------------------------------------------------------

    def _start(self, tasks: TaskGroup, head: Head) -> None:
        engine = self._store._engine
        self.jobs[head.session] = job = Job(
            head.session, retry=self._retry, began_s=boot_s(), now=engine.now, is_stopping=self._stopping
        )
        tasks.start_soon(self._work_on, head, job)

    async def _work_on(self, head: Head, job: Job) -> None:
        try:
            with job.scope:
                event = await self._try(head, job)
            if job.scope.cancelled_caught:
                event = WorkEvent(kind="handed_over", session=head.session, agent=job.agent)
            if event is not None:
                self._say(replace(event, took_s=boot_s() - job.began_s))
        finally:
            del self.jobs[head.session]
            self._wake.set()

    async def _try(self, head: Head, job: Job) -> WorkEvent | None:
        try:
            return await self._drive(head, job)
        except (LeaseHeld, NotFound):
            # Another process was faster. A delegate stays due until its parent drives it again.
            if head.parent is not None:
                self._avoided[head.session] = boot_s() + self._poll_s
            return None
        except (Fenced, StoreFailed) as error:
            return WorkEvent(kind="lost", session=head.session, agent=job.agent, error=describe_error(error))
        except Exception as error:
            log.warning("session %s is left alone for now: %s", head.session, describe_error(error))
            self._avoided[head.session] = boot_s() + WORK_AVOID_S
            return WorkEvent(kind="unusable", session=head.session, error=describe_error(error))

    async def _drive(self, head: Head, job: Job) -> WorkEvent | None:
        root = await find_root(self._store, head)
        async with self._store.session(root, create=False) as session:
            event = await self._runner.drive(session, job, answered=root != head.session)
        if root != head.session:
            await let_go(self._store, head.session)
        return event

    def _say(self, event: WorkEvent) -> None:
        log.info("session %s: %s %s", event.session, event.kind, event.reason)
        if self._tell is not None:
            self._tell(event)

    # -- the end -------------------------------------------------------------------------------------

    async def _drain(self) -> None:
        """Wait for the jobs under way; after `drain_s`, hand over the rest where they are."""
        for job in self.jobs.values():
            job.is_stopping = True
        with anyio.move_on_after(self._drain_s):
            await self._done()
        for job in self.jobs.values():
            job.scope.cancel()
        await self._done()

    async def _done(self) -> None:
        while self.jobs:
            self._wake = anyio.Event()
            await self._wake.wait()


def _by_name(agents: Iterable[Agent[Any, Any]]) -> dict[str, Agent[Any, Any]]:
    found: dict[str, Agent[Any, Any]] = {}
    for agent in check_list("agents", agents):
        if agent.name is None:
            raise BadInput("an agent that a worker drives needs a name, by which sessions ask for it: name=…")
        if found.setdefault(agent.name, agent) is not agent:
            raise BadInput(f"two agents of this worker are called {agent.name!r}")
    if not found:
        raise BadInput("a worker needs an agent")
    return found
