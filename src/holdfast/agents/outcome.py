"""The outcome of a run, and the events that a stream yields on the way to it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, Literal, TypeAlias

from msgspec import Struct
from typing_extensions import TypeVar

from ..core.budget import Usage
from ..core.fold import Checkpoint
from ..core.session_state import SessionState
from ..ids import RunId, SessionId
from ..messages import Json, ToolCall
from ..session.session import Session
from ..tools.outcome import Result
from .model import TextDelta

OutputT = TypeVar("OutputT", default=str)

OutcomeStatus: TypeAlias = Literal["completed", "waiting", "failed", "cancelled"]


class Waiting(Struct, frozen=True, kw_only=True):
    """A call that waits for a person's answer: `store.approve`, `refuse` or `resolve`."""

    session: SessionId
    call: str
    tool: str
    kind: Literal["approval", "in_doubt"]
    why: str = ""
    args: Json = None


class Outcome(Struct, Generic[OutputT], frozen=True, kw_only=True):
    """How a run ended.

    `reason` says why it is not `completed`: `budget_spent`, `step_limit`, `model_error`, `no_output`, or what
    it waits for; `error` has the details. `usage` and `cost_usd` are those of the whole session with its
    delegates.
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
    """Make the outcome of a run, with the totals of its session."""
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
    """The model gave no reply and is asked again after `pause_s`. Text deltas since the last whole reply are
    void."""

    error: str
    attempt: int
    pause_s: float


Event: TypeAlias = TextDelta | Retrying | ToolCall | Result | Checkpoint | Outcome[OutputT]
"""What `Agent.stream` yields; the outcome comes last."""


def list_waiting(session: SessionId, state: SessionState) -> Iterator[Waiting]:
    """The calls of a session that wait for a person, without those of its delegates."""
    effects = state.facts.effects
    for question in effects.questions.values():
        yield Waiting(
            session=session,
            call=question.call.id,
            tool=question.tool,
            kind="approval",
            why=question.why,
            args=question.args,
        )
    for row in effects.in_doubt:
        yield Waiting(
            session=session, call=row.call.id, tool=row.tool, kind="in_doubt", why=row.why, args=row.args
        )
