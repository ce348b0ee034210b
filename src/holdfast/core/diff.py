"""What changed between two states of a session."""

from __future__ import annotations

from msgspec import Struct

from ..messages import AnyMessage, Json
from .plan import PlanStep
from .session_state import SessionState
from .transcript_items import Item


class Change(Struct, frozen=True):
    """A value before and after; `ABSENT` stands for none."""

    before: Json
    after: Json


class Absent(Struct, frozen=True):
    """Marks that there is no value."""

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT = Absent()


class Spending(Struct, frozen=True, kw_only=True):
    """What was spent between the two states."""

    usd: float
    tokens: int
    steps: int
    seconds: float


class Diff(Struct, frozen=True, kw_only=True):
    """The difference from state `a` to state `b`."""

    messages_removed: tuple[AnyMessage, ...]
    messages_added: tuple[AnyMessage, ...]
    state: dict[str, Change]
    plan: dict[str, tuple[PlanStep | None, PlanStep | None]]
    """Steps that differ, by their id."""
    summary: tuple[str, str] | None
    spending: Spending

    def __bool__(self) -> bool:
        return bool(
            self.messages_removed
            or self.messages_added
            or self.state
            or self.plan
            or self.summary is not None
        )


def compare(a: SessionState, b: SessionState) -> Diff:
    """The difference from `a` to `b`. Messages are identified by the entries that recorded them."""
    old, new = a.transcript_fold.items, b.transcript_fold.items
    common = 0
    for left, right in zip(old, new, strict=False):
        # A result may have been replaced when its call was settled.
        if (left.seq, left.role, _result_entries(left)) != (right.seq, right.role, _result_entries(right)):
            break
        common += 1
    return Diff(
        messages_removed=tuple(item.read() for item in old[common:]),
        messages_added=tuple(item.read() for item in new[common:]),
        state=_compare_values(a, b),
        plan=_compare_plans(a, b),
        summary=(a.facts.summary, b.facts.summary) if a.facts.summary != b.facts.summary else None,
        spending=Spending(
            usd=b.budget.usd - a.budget.usd,
            tokens=b.budget.tokens - a.budget.tokens,
            steps=b.budget.steps - a.budget.steps,
            seconds=b.budget.seconds - a.budget.seconds,
        ),
    )


def _result_entries(item: Item) -> dict[int, int] | None:
    """The entry of each result in a message of results."""
    return None if item.results is None else {index: one.seq for index, one in item.results.items()}


def _compare_values(a: SessionState, b: SessionState) -> dict[str, Change]:
    before, after = a.facts.values, b.facts.values
    return {
        key: Change(
            a.get(key) if key in before else ABSENT,
            b.get(key) if key in after else ABSENT,
        )
        for key in sorted(before.keys() | after.keys())
        if before.get(key) != after.get(key)
    }


def _compare_plans(a: SessionState, b: SessionState) -> dict[str, tuple[PlanStep | None, PlanStep | None]]:
    old = {step.id: step for step in a.facts.plan.steps} if a.facts.plan else {}
    new = {step.id: step for step in b.facts.plan.steps} if b.facts.plan else {}
    return {
        id: (old.get(id), new.get(id))
        for id in [*old, *(id for id in new if id not in old)]
        if old.get(id) != new.get(id)
    }
