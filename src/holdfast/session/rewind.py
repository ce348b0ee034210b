"""Rewinding to a version. The journal keeps what is left behind; effects stay unless a tool undoes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from ..core.effects import Effect, Undone
from ..core.entries import Body, MessageAdded, PlanChanged, SessionRewound, SummaryChanged
from ..core.fold import Checkpoint
from ..engine.journal import Journal

if TYPE_CHECKING:
    from .session import Session


class Undoer(Protocol):
    """Undoes effects: a `Registry`."""

    async def undo(
        self, session: Session, effects: Sequence[Effect], *, deps: object
    ) -> Sequence[Undone]: ...


class Rewound(Struct, frozen=True):
    """The version after a rewind; with `undo=True`, what became of each effect after it, the last first."""

    version: int
    undone: tuple[Undone, ...] = ()

    @property
    def still_done(self) -> tuple[Undone, ...]:
        """The effects that were not undone, or whose undo is in doubt."""
        return tuple(one for one in self.undone if one.status != "undone")


async def return_to(
    session: Session, target: Checkpoint, *, also: Sequence[tuple[Body, bytes | None]] = ()
) -> None:
    """Restore the state at a checkpoint. `also` follows in the same commit. Durable on return."""
    await session.flush()
    journal = await session._writer.engine.call(
        Journal, session._writer.engine.driver, session.id, session._writer.engine.blobs
    )
    then = await session._writer.engine.call(journal.fold, target.seq)
    transcript = session.state.transcript_fold
    there = {item.seq for item in then.transcript_fold.queued}
    waiting = [item for item in transcript.queued if item.seq not in there]
    # Messages that were left behind before this session was opened have not been read yet.
    transcript.learn(then.transcript_fold)
    rewound = SessionRewound(
        version=target.version,
        seq=target.seq,
        transcript=tuple(then.transcript_fold.spans),
        state=then.facts.values,
    )
    # Entries of their own, because what they say can be erased, and user state cannot.
    before: list[tuple[Body, bytes | None]] = []
    if then.facts.plan != session.state.facts.plan:
        before.append((PlanChanged(plan=then.facts.plan), None))
    if then.facts.summary != session.state.facts.summary:
        before.append((SummaryChanged(summary=then.facts.summary), None))
    # Messages that were sent, and that the model has not seen, are not left behind.
    kept: list[tuple[Body, bytes | None]] = [
        (MessageAdded(role=item.role, parts=item.parts, format=item.format), item.encode())
        for item in waiting
    ]
    session._writer.record_all([*before, (rewound, None), *also, *kept])
    await session.flush()
