"""What the user, the plan and the budget say, and where the state is whole."""

from __future__ import annotations

from ..budget import Budget
from ..plan import Plan
from .base import Body, kind


@kind("state.set")
class StateSet(Body, frozen=True):
    """A value of the user's: the content, encoded by `values.py`."""

    key: str


@kind("state.unset")
class StateUnset(Body, frozen=True):
    """The key is gone."""

    key: str


@kind("plan.changed")
class PlanChanged(Body, frozen=True):
    """The whole new plan."""

    plan: Plan | None


@kind("summary.changed")
class SummaryChanged(Body, frozen=True):
    """The running summary."""

    summary: str


@kind("budget.changed")
class BudgetChanged(Body, frozen=True):
    """New caps; what was spent stays spent."""

    budget: Budget


@kind("checkpoint.taken")
class CheckpointTaken(Body, frozen=True):
    """The state is whole here. `why` lists what keeps it from being continuable."""

    version: int
    why: tuple[str, ...] = ()
    name: str | None = None


@kind("checkpoint.dropped")
class CheckpointDropped(Body, frozen=True):
    """The version is no longer offered; the journal is untouched."""

    version: int
