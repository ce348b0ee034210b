"""What a subject of the benchmarks does: all that is asked of holdfast, of a peer and of the raw floor."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Protocol, runtime_checkable


class Place(NamedTuple):
    """Where a subject keeps what it is given."""

    directory: Path
    """Empty, and the subject's own."""
    postgres: str
    """An empty database of the subject's own; "" for those that need none."""
    prefix: str = "s"
    """Begins the names of sessions. Processes that share a place have different ones."""


class Recorder(Protocol):
    """Keeps two messages a step, in one session or in many."""

    async def open(self, place: Place, sessions: int) -> None:
        """Be ready for so many sessions, numbered from 0."""

    async def reopen(self, place: Place) -> None:
        """Be ready to load session 0, which another process keeps there, as a new process would.

        This recorder takes no step.
        """

    async def step(self, session: int, first: str, second: str) -> None:
        """Keep both messages: on return as durably as the subject can."""

    async def load(self, session: int) -> int:
        """Read what the next process would read to go on, and decode it; how many messages that were."""

    async def close(self) -> None:
        """Let go of everything."""


@runtime_checkable
class Batches(Recorder, Protocol):
    """Can keep one step of many sessions in one transaction: the limit for those that share commits."""

    async def step_all(self, pairs: Sequence[tuple[str, str]]) -> None:
        """One step of each session."""


@runtime_checkable
class Peeks(Recorder, Protocol):
    """Can open a session without its messages."""

    async def peek(self, session: int) -> None:
        """Read the state of the session, and no message."""
