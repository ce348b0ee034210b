"""What the ledger can say about an operation."""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct

from ..core.effects import Effect


class Replay(Struct, frozen=True):
    """It was done: give the outcome of that row again."""

    row: Effect


class Join(Struct, frozen=True):
    """It is being done right now: wait for that row."""

    row: Effect


class Blocked(Struct, frozen=True):
    """Nobody knows whether it was done: it must not be run."""

    row: Effect


class Issue(Struct, frozen=True, kw_only=True):
    """Run it. A row that is tried again keeps its generation and key."""

    generation: int = 0
    attempt: int = 1
    key: str | None = None
    row: Effect | None = None
    """What it tries again."""

    @classmethod
    def again(cls, row: Effect) -> Issue:
        """One more attempt at the same effect."""
        return cls(generation=row.generation, attempt=row.attempt + 1, key=row.key, row=row)


Decision: TypeAlias = Replay | Join | Blocked | Issue
