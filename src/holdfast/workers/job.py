"""One session in a worker's hands, what is told of it, and the rules by which its runs end."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Literal, TypeAlias

import anyio
from msgspec import Struct
from msgspec.structs import replace

from ..agents.loop import HANDED_OVER
from ..core.entries import Body, RunCancelled, RunFailed
from ..errors import StoreFailed
from ..ids import SessionId
from ..session.session import Session
from ..system import randomness
from ..tools.declaration import Retry

WorkKind: TypeAlias = Literal[
    "taken", "completed", "waiting", "failed", "cancelled", "postponed", "handed_over", "lost", "unusable"
]


class WorkEvent(Struct, frozen=True, kw_only=True):
    """What became of a session in a worker's hands.

    `taken` comes first. `postponed`: it failed, and is tried again at `retry_at`. `handed_over`: the worker
    stops, and another one goes on. `lost`: somebody took it over, or the store failed. `unusable`: it could
    not even be opened.
    """

    kind: WorkKind
    session: SessionId
    agent: str | None = None
    reason: str = ""
    error: str = ""
    retry_at: datetime | None = None
    took_s: float = 0.0


RETRIED = ("model_error", "error", "deps")
"""Reasons for which a run is tried again: they may be gone by then. A spent budget is not."""


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
        """A run that this worker only stops has no end; one that failed for a reason that may pass is tried
        again, up to a point."""
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
        """When to try again after so many failures in a row."""
        return self._now() + timedelta(seconds=self._retry.pause_s(failures, randomness.random()))


def give_up(failures: int, why: str) -> RunFailed:
    """The end of a run of a session that nobody tries again."""
    return RunFailed(reason="gave_up", error=f"given up after {failures} failures in a row; the last: {why}")
