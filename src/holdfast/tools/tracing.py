"""Spans of tool calls: from the first gate to the result."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, TypeVar

from ..core.effects import Effect
from ..core.entries import CallRef
from ..session.session import Session
from ..telemetry import active
from .outcome import Result

if TYPE_CHECKING:
    from ..telemetry.spans import CallSpan, Telemetry

T = TypeVar("T")


class TracedCall:
    """A call whose span has begun, and ends with its result."""

    def __init__(
        self, telemetry: Telemetry, session: Session | None, tool: str, ref: CallRef, *, known: bool
    ) -> None:
        self._session, self._ref = session, ref
        self._span: CallSpan = telemetry.start_call(
            tool=tool,
            known=known,
            call=ref.id,
            session=None if session is None else session.id,
            step=0 if session is None else session.state.facts.head.step + 1,
        )

    async def run(self, work: Awaitable[T]) -> T:
        """Do a part of the call's work, or all of it; the span is current meanwhile."""
        self._span.enter()
        try:
            done = await work
        except BaseException as error:
            self._span.fail(error)
            raise
        finally:
            self._span.leave()
        if isinstance(done, Result):
            self._span.end(done.status, replay_of=done.replay_of, attempt=self._count_attempts())
        return done

    def end(self) -> None:
        """End the span, if the call has no result: an earlier part failed, or another caller was quicker."""
        self._span.fail(None)

    def _count_attempts(self) -> int:
        tried = [] if self._session is None else self._session.state.facts.effects.find_call(self._ref)
        return tried[-1].attempt if tried else 0


async def trace(session: Session, row: Effect, work: Awaitable[Result | None]) -> Result | None:
    """Run a call once more, with a span if telemetry is configured."""
    telemetry = active()
    if telemetry is None:
        return await work
    traced = TracedCall(telemetry, session, row.tool, row.call, known=True)
    try:
        return await traced.run(work)
    finally:
        traced.end()
