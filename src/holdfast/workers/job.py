"""A job: one session in a worker's hands, how it is driven, and how its runs end."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from datetime import datetime, timedelta
from typing import Any, Literal, TypeAlias

import anyio
from msgspec import Struct
from msgspec.structs import replace

from ..agents.agent import Agent
from ..agents.loop import HANDED_OVER
from ..agents.outcome import Outcome
from ..core.entries import Body, RunCancelled, RunFailed, SessionPostponed
from ..core.head import Head
from ..errors import Corrupt, Fenced, HoldfastError, NotFound, StoreFailed
from ..ids import SessionId
from ..reprs import describe_error
from ..session.misuse import AsyncOnly
from ..session.session import Session
from ..store.store import Store
from ..system import randomness
from ..tools.retry import Retry

WorkKind: TypeAlias = Literal[
    "taken", "completed", "waiting", "failed", "cancelled", "postponed", "handed_over", "lost", "unusable"
]


class WorkEvent(Struct, frozen=True, kw_only=True):
    """What a worker did with a session.

    `taken` comes first. `postponed`: it failed, and is retried at `retry_at`. `handed_over`: the worker
    stops, and another one continues. `lost`: another process took the lease, or the store failed. `unusable`:
    the session could not be opened.
    """

    kind: WorkKind
    session: SessionId
    agent: str | None = None
    reason: str = ""
    error: str = ""
    retry_at: datetime | None = None
    took_s: float = 0.0


RETRIED = ("model_error", "error", "deps")
"""Reasons of failures that are retried, because they may pass. A spent budget does not."""


class Job:
    """A session that is being driven. As a `RunControl`, it decides how a run ends."""

    def __init__(
        self, id: SessionId, *, retry: Retry, began_s: float, now: Callable[[], datetime], is_stopping: bool
    ) -> None:
        self.id = id
        self.began_s = began_s
        self.agent: str | None = None
        self.session: Session | None = None
        self.scope = anyio.CancelScope()
        self.is_stopping = is_stopping
        self._retry, self._now = retry, now

    def end(self, end: Body, error: BaseException | None) -> Body | None:
        """Choose the end of a run: none if the worker only stops it, a retry if the failure may pass."""
        if isinstance(end, RunCancelled) and (error is not None or end.reason == HANDED_OVER):
            return None
        if isinstance(error, StoreFailed):
            return None
        if not isinstance(end, RunFailed) or end.reason not in RETRIED or self.session is None:
            return end
        failures = self.session.state.facts.head.failures + 1
        if failures >= self._retry.attempts:
            return give_up(failures, f"{end.reason}: {end.error}")
        return replace(end, retry_at=self.later(failures))

    def later(self, failures: int) -> datetime:
        """The time of the next attempt after so many failures in a row."""
        return self._now() + timedelta(seconds=self._retry.pause_s(failures, randomness.random()))


def give_up(failures: int, why: str) -> RunFailed:
    """The end of a run that is not retried any more."""
    return RunFailed(reason="gave_up", error=f"given up after {failures} failures in a row; the last: {why}")


MakeDeps: TypeAlias = Callable[[Session], Any]
"""Called with the open session. Returns the dependencies of its tools, an awaitable of them, or an async
context manager that is left when the worker is done with the session."""


@asynccontextmanager
async def _open_deps(make: MakeDeps | None, session: Session) -> AsyncIterator[Any]:
    """The dependencies of a session, for the block."""
    made = None if make is None else make(session)
    if inspect.isawaitable(made) and not isinstance(made, AsyncOnly):
        made = await made
    if isinstance(made, AbstractAsyncContextManager):
        async with made as deps:
            yield deps
    else:
        yield made


async def find_root(store: Store, head: Head) -> SessionId:
    """Find the session to drive: the root above a delegate, which drives it."""
    session, parent = head.session, head.parent
    seen = {session}
    while parent is not None:
        if parent in seen:
            raise Corrupt(f"session {head.session!r}", f"it works for {parent!r}, which works for it")
        seen.add(parent)
        try:
            above = (await store.load(parent)).facts
        except NotFound:
            return session
        if session not in above.delegates:
            return session
        session, parent = above.head.session, above.head.parent
    return session


class JobRunner:
    """Drives the sessions of some agents, and retries or gives up those that fail."""

    def __init__(
        self,
        agents: Mapping[str, Agent[Any, Any]],
        labels: Mapping[str, str],
        deps: MakeDeps | None,
        retry: Retry,
        say: Callable[[WorkEvent], None],
    ) -> None:
        self._agents, self._labels, self._deps, self._retry, self._say = agents, labels, deps, retry, say

    async def drive(self, session: Session, job: Job, *, answered: bool) -> WorkEvent | None:
        """Drive the session, if it is due; what became of it. `answered`: a delegate of it was answered."""
        facts = session.state.facts
        head = facts.head
        agent = self._agents.get(head.agent or "")
        due = head.due is not None and not (head.postponed and head.due > session._writer.engine.now())
        due = due or (answered and head.status == "waiting")
        if agent is None or not due or not self._labels.items() <= head.labels.items():
            return None  # Opening it took in the inbox; the rest is for other workers, if any.
        job.agent, job.session, session._writer.run_control = agent.name, session, job
        self._say(self._event(session, job, "taken"))
        if head.failures >= self._retry.attempts:
            return await self._end(session, job, give_up(head.failures, "its worker died"))
        if head.failures > max(1, facts.backed_off):
            # A worker may die for any reason. When a second one does, this session may be the reason.
            return await self._postpone(session, job, head.failures)
        return await self._resume(session, agent, job)

    async def _postpone(self, session: Session, job: Job, failures: int) -> WorkEvent:
        until = job.later(failures - 1)
        session._writer.record(SessionPostponed(until=until, reason="its worker died"))
        await session.flush()
        return self._event(session, job, "postponed", reason="its worker died", retry_at=until)

    async def _resume(self, session: Session, agent: Agent[Any, Any], job: Job) -> WorkEvent:
        before = session.state.facts.head.runs
        reason = "deps"
        try:
            async with AsyncExitStack() as stack:
                deps = await stack.enter_async_context(_open_deps(self._deps, session))
                reason = "error"
                outcome = await agent.resume(session, deps=deps)
        except (Fenced, StoreFailed):
            raise
        except Exception as error:
            if session.is_lost:
                raise
            if session.state.facts.head.runs == before:
                return await self._end(session, job, RunFailed(reason=reason, error=describe_error(error)))
            # The run has recorded the error.
            return self._after_failure(session, job, describe_error(error))
        if session.state.facts.head.runs == before:
            await self._set_aside(session)
        return self._conclude(session, job, outcome)

    async def _end(self, session: Session, job: Job, end: RunFailed) -> WorkEvent:
        """Record a failure outside of a run as a failed run."""
        async with session.run(agent=job.agent) as run:
            run.fail(end.reason, end.error)
        return self._after_failure(session, job, end.error)

    async def _set_aside(self, session: Session) -> None:
        """Clear the due time: the outcome was recorded already."""
        if session.state.facts.head.due is not None:
            session._writer.record(SessionPostponed(reason="there is nothing to do"))
            await session.flush()

    def _conclude(self, session: Session, job: Job, outcome: Outcome[Any]) -> WorkEvent:
        if outcome.status == "failed":
            return self._after_failure(session, job, outcome.error)
        kind = "handed_over" if outcome.reason == HANDED_OVER else outcome.status
        return self._event(session, job, kind, reason=outcome.reason)

    def _after_failure(self, session: Session, job: Job, error: str) -> WorkEvent:
        head = session.state.facts.head
        if head.status == "failed":
            return self._event(session, job, "failed", reason=head.reason, error=error)
        return self._event(session, job, "postponed", reason=head.reason, error=error, retry_at=head.due)

    def _event(self, session: Session, job: Job, kind: Any, **more: Any) -> WorkEvent:
        return WorkEvent(kind=kind, session=session.id, agent=job.agent, **more)


async def let_go(store: Store, delegate: SessionId) -> None:
    """Clear the due time of a delegate that was answered after its parent went on without it."""
    try:
        async with store.session(delegate, create=False) as session:
            if session.state.facts.head.due is not None:
                session._writer.record(SessionPostponed(reason="no session waits for it"))
    except HoldfastError:
        return  # Another process has it, and drives it.
