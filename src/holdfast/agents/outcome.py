"""What a drive of the loop came to, and what it tells on the way."""

from __future__ import annotations

from typing import Generic, Literal, TypeAlias

from msgspec import Struct
from typing_extensions import TypeVar

from ..core.budget import Usage
from ..core.fold import Checkpoint
from ..ids import RunId, SessionId
from ..messages import ToolCall
from ..session.session import Session
from ..store.approvals import Waiting
from ..tools.outcome import Result
from .model import TextDelta

OutputT = TypeVar("OutputT", default=str)

OutcomeStatus: TypeAlias = Literal["completed", "waiting", "failed", "cancelled"]


class Outcome(Struct, Generic[OutputT], frozen=True, kw_only=True):
    """What a drive of the loop came to.

    `reason` says why it is not `completed`: `budget_spent`, `step_limit`, `model_error`, `no_output`, or what
    it waits for; `error` says it in full. `usage` and `cost_usd` are the whole session's, delegates included.
    """

    status: OutcomeStatus
    session: SessionId
    run: RunId
    output: OutputT | None = None
    reason: str = ""
    error: str = ""
    usage: Usage = Usage()
    cost_usd: float = 0.0
    waiting: tuple[Waiting, ...] = ()


def conclude(
    session: Session,
    run: RunId,
    status: OutcomeStatus,
    *,
    output: OutputT | None = None,
    reason: str = "",
    error: str = "",
    waiting: tuple[Waiting, ...] = (),
) -> Outcome[OutputT]:
    """The outcome of a session as it stands."""
    head = session.state.facts.head
    return Outcome(
        status=status,
        session=session.id,
        run=run,
        output=output,
        reason=reason,
        error=error,
        usage=head.usage,
        cost_usd=head.usd,
        waiting=waiting,
    )


class Retrying(Struct, frozen=True, kw_only=True):
    """The model gave no reply and is asked again after `pause_s`; text deltas since the last whole reply
    count for nothing."""

    error: str
    attempt: int
    pause_s: float


Event: TypeAlias = TextDelta | Retrying | ToolCall | Result | Checkpoint | Outcome[OutputT]
"""What `Agent.stream` yields; the outcome comes last."""
