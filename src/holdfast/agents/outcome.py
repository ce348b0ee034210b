"""The outcome of a run, and the events that a stream yields on the way to it."""

from __future__ import annotations

from typing import Final, Generic, Literal, TypeAlias

from msgspec import Struct
from typing_extensions import TypeVar

from ..core.budget import Usage
from ..core.fold import Checkpoint
from ..drawing.card import draw_outcome_card
from ..drawing.from_state import draw_state
from ..formatting import count, short_args, shorten, usd
from ..ids import RunId, SessionId
from ..messages import ToolCall
from ..reprs import attempt
from ..session.session import Session
from ..store.approvals import Waiting
from ..tools.outcome import Result
from .model import TextDelta

OutputT = TypeVar("OutputT", default=str)

OutcomeStatus: TypeAlias = Literal["completed", "waiting", "failed", "cancelled"]


class Outcome(Struct, Generic[OutputT], frozen=True, kw_only=True, dict=True):
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

    def _repr_html_(self) -> str:
        """The outcome in a notebook, with the calls and replies of the run if it ran in this process."""
        facts = [
            self.reason,
            self.error,
            count(self.usage.tokens, "token") if self.usage.tokens else "",
            usd(self.cost_usd) if self.cost_usd else "",
        ]
        return draw_outcome_card(
            session=self.session,
            run=self.run,
            status=self.status,
            facts=facts,
            output=self.output,
            waiting=[_describe_waiting(one) for one in self.waiting],
            drawing=vars(self).get(_DRAWING),
        )


_DRAWING: Final = "drawing"
"""Where an outcome keeps the drawing of its run: beside its fields, so it is neither compared nor stored."""


def _describe_waiting(one: Waiting) -> str:
    kind = "waits for approval" if one.kind == "approval" else "is in doubt"
    why = f": {one.why}" if one.why else ""
    return shorten(f"{one.tool}({short_args(one.args)}) {kind}{why}", 300)


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
    made: Outcome[OutputT] = Outcome(
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
    vars(made)[_DRAWING] = attempt(lambda: draw_state(session.state, run=run), lambda: None)
    return made


class Retrying(Struct, frozen=True, kw_only=True):
    """The model gave no reply and is asked again after `pause_s`. Text deltas since the last whole reply are
    void."""

    error: str
    attempt: int
    pause_s: float


Event: TypeAlias = TextDelta | Retrying | ToolCall | Result | Checkpoint | Outcome[OutputT]
"""What `Agent.stream` yields; the outcome comes last."""
