"""A plan: steps with postconditions, and evidence that they hold."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from ..errors import BadInput, NotFound

StepStatus: TypeAlias = Literal["todo", "doing", "done", "dropped"]


class PlanStep(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing to do. It is done only with evidence that its postcondition holds."""

    id: str
    what: str
    postcondition: str = ""
    status: StepStatus = "todo"
    evidence: str = ""

    def __post_init__(self) -> None:
        if self.status == "done" and not self.evidence.strip():
            raise BadInput(f"plan step {self.id!r} is marked done without evidence")


class Plan(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The steps, in order."""

    steps: tuple[PlanStep, ...] = ()
    goal: str = ""

    def __post_init__(self) -> None:
        ids = [step.id for step in self.steps]
        if len(set(ids)) != len(ids):
            raise BadInput(f"plan steps need different ids, got {ids}")

    def step(self, id: str) -> PlanStep:
        """The step with this id, or `NotFound`."""
        for step in self.steps:
            if step.id == id:
                return step
        raise NotFound(f"the plan has no step {id!r}; it has {[step.id for step in self.steps]}")

    def update(self, id: str, *, status: StepStatus, evidence: str = "") -> Plan:
        """The plan with one step changed; the evidence stays unless new evidence is given."""
        old = self.step(id)
        new = replace(old, status=status, evidence=evidence or old.evidence)
        return replace(self, steps=tuple(new if step.id == id else step for step in self.steps))
