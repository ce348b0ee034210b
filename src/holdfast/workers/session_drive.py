"""What a worker does with a session that it has opened."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from typing import Any

from ..agents.agent import Agent
from ..agents.loop import HANDED_OVER
from ..agents.outcome import Outcome
from ..core.entries import RunFailed, SessionPostponed
from ..core.head import Head
from ..errors import Corrupt, Fenced, HoldfastError, NotFound, StoreFailed
from ..ids import SessionId
from ..reprs import describe_error
from ..session.session import Session
from ..store.store import Store
from ..tools.declaration import Retry
from .deps import MakeDeps, opened
from .job import Job, WorkEvent, give_up


async def find_root(store: Store, head: Head) -> SessionId:
    """The session to drive: a delegate is driven by the one that it works for, and so on up to the root."""
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


class Driver:
    """Drives the sessions of some agents, and decides what becomes of those that fail."""

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
        """Drive it, if there is something to do; what became of it. `answered`: a delegate of it was."""
        facts = session.state.facts
        head = facts.head
        agent = self._agents.get(head.agent or "")
        due = head.due is not None and not (head.postponed and head.due > session._writer.engine.now())
        due = due or (answered and head.status == "waiting")
        if agent is None or not due or not self._labels.items() <= head.labels.items():
            return None  # What was in the inbox is taken in; the rest is somebody else's, or nobody's.
        job.agent, job.session, session._writer.run_control = agent.name, session, job
        self._say(self._event(session, job, "taken"))
        if head.failures >= self._retry.attempts:
            return await self._end(session, job, give_up(head.failures, "its worker died"))
        if head.failures > max(1, facts.backed_off):
            # One may die for any reason; when another one does, it may be for this session.
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
                deps = await stack.enter_async_context(opened(self._deps, session))
                reason = "error"
                outcome = await agent.resume(session, deps=deps)
        except (Fenced, StoreFailed):
            raise
        except Exception as error:
            if session.is_lost:
                raise
            if session.state.facts.head.runs == before:
                return await self._end(session, job, RunFailed(reason=reason, error=describe_error(error)))
            # The run has recorded it.
            return self._after_failure(session, job, describe_error(error))
        if session.state.facts.head.runs == before:
            await self._set_aside(session)
        return self._conclude(session, job, outcome)

    async def _end(self, session: Session, job: Job, end: RunFailed) -> WorkEvent:
        """Record a failure outside of any run as a run that failed."""
        async with session.run(agent=job.agent) as run:
            run.fail(end.reason, end.error)
        return self._after_failure(session, job, end.error)

    async def _set_aside(self, session: Session) -> None:
        """There was nothing to do after all: the outcome was on record."""
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
    """A delegate was answered, and whoever it works for went on without it, or not at all: it is not due."""
    try:
        async with store.session(delegate, create=False) as session:
            if session.state.facts.head.due is not None:
                session._writer.record(SessionPostponed(reason="nobody waits for it"))
    except HoldfastError:
        return  # Somebody has it: it goes on.
