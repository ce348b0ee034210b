"""The effect ledger, as a fold: what became of every call that was issued."""

from __future__ import annotations

from datetime import datetime
from typing import Literal, TypeAlias

from msgspec import Struct

from .entries import (
    ApprovalAsked,
    ApprovalGiven,
    ApprovalRefused,
    Body,
    CallRef,
    Entry,
    LeaseTaken,
    ToolAnnotated,
    ToolCompleted,
    ToolDiscarded,
    ToolFailed,
    ToolInDoubt,
    ToolIssued,
    ToolSettled,
    ToolUndone,
)
from .messages import Json

EffectStatus: TypeAlias = Literal[
    "running", "completed", "failed", "in_doubt", "not_landed", "gave_up", "discarded", "undone"
]


class Effect(Struct, kw_only=True, omit_defaults=True):
    """A row of the ledger. `issued` is the `seq` of its intent and names it; `outcome` that of its end."""

    issued: int
    at: datetime
    call: CallRef
    tool: str
    operation: str
    key: str
    side_effects: tuple[str, ...] = ()
    generation: int = 0
    attempt: int = 1
    status: EffectStatus = "running"
    why: str = ""
    outcome: int | None = None
    notes: dict[str, Json] = {}

    @property
    def changes_the_world(self) -> bool:
        """Whether running it again could do something twice."""
        return "write" in self.side_effects or "mutate" in self.side_effects


class Question(Struct, frozen=True, kw_only=True):
    """A call that waits for a person's approval."""

    asked: int
    at: datetime
    call: CallRef
    tool: str
    args: Json
    why: str = ""


class Effects(Struct, kw_only=True):
    """Every effect by the `seq` of its intent, and the questions that nobody has answered."""

    rows: dict[int, Effect] = {}
    questions: dict[int, Question] = {}

    @property
    def in_doubt(self) -> list[Effect]:
        """Issued, and nobody knows whether it happened."""
        return [row for row in self.rows.values() if row.status == "in_doubt"]

    def apply(self, entry: Entry) -> None:
        """Fold one entry; those that are not about tools change nothing."""
        match entry.body:
            case ToolIssued() as body:
                self.rows[entry.seq] = Effect(
                    issued=entry.seq,
                    at=entry.at,
                    call=body.call,
                    tool=body.tool,
                    operation=body.operation,
                    key=body.key,
                    side_effects=body.side_effects,
                    generation=body.generation,
                    attempt=body.attempt,
                )
            case ToolAnnotated() as body:
                row = self.rows[body.issued]
                row.notes = {**row.notes, **body.notes}
            case ToolCompleted(issued=int() as issued):
                self._end(issued, "completed", entry.seq)
            case ToolFailed() as body:
                self._end(body.issued, "failed", entry.seq, body.error)
            case ToolInDoubt() as body:
                self._end(body.issued, "in_doubt", None, body.why)
            case ToolDiscarded() as body:
                self._end(body.issued, "discarded", entry.seq)
            case ToolSettled() as body:
                status: EffectStatus = "completed" if body.verdict == "landed" else body.verdict
                self._end(body.issued, status, entry.seq, body.note)
            case ToolUndone() as body:
                self._end(body.issued, "undone", entry.seq)
            case ApprovalAsked() as body:
                self.questions[entry.seq] = Question(
                    asked=entry.seq,
                    at=entry.at,
                    call=body.call,
                    tool=body.tool,
                    args=body.args,
                    why=body.why,
                )
            case ApprovalGiven() | ApprovalRefused() as body:
                self.questions.pop(body.asked, None)
            case LeaseTaken():
                self._orphan()
            case _:
                pass

    def _end(self, issued: int, status: EffectStatus, outcome: int | None, why: str = "") -> None:
        row = self.rows[issued]
        row.status, row.outcome, row.why = status, outcome, why

    def _orphan(self) -> None:
        """A new holder: what was running under the old one is in doubt, or was harmless."""
        for row in self.rows.values():
            if row.status == "running":
                row.status = "in_doubt" if row.changes_the_world else "discarded"
                row.why = "the process that ran it is gone, and left no outcome"


LEDGER: frozenset[type[Body]] = frozenset(
    {
        ToolIssued,
        ToolAnnotated,
        ToolCompleted,
        ToolFailed,
        ToolInDoubt,
        ToolDiscarded,
        ToolSettled,
        ToolUndone,
        ApprovalAsked,
        ApprovalGiven,
        ApprovalRefused,
        LeaseTaken,
    }
)
"""What the ledger is folded from."""
