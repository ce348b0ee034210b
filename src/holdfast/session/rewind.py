"""Going back to a version: the journal keeps what is left behind, and the world does, unless it is undone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from ..core.effects import Effect, Undone
from ..core.entries import Body, MessageAdded, SessionRewound
from ..core.fold import Checkpoint
from ..engine.journal import Journal

if TYPE_CHECKING:
    from .session import Session


class Undoer(Protocol):
    """What can take effects back: a `Registry`."""

    async def undo(
        self, session: Session, effects: Sequence[Effect], *, deps: object
    ) -> Sequence[Undone]: ...


class Rewound(Struct, frozen=True):
    """The version that was gone back to; with `undo=True`, what became of each effect that came after it, the
    last first."""

    version: int
    undone: tuple[Undone, ...] = ()

    @property
    def still_done(self) -> tuple[Undone, ...]:
        """The effects that could not be taken back, or of which nobody knows whether they were."""
        return tuple(one for one in self.undone if one.status != "undone")


async def return_to(
    session: Session, target: Checkpoint, *, also: Sequence[tuple[Body, bytes | None]] = ()
) -> None:
    """Restore what the session was at a checkpoint; `also` comes after it in the same commit. Durable on
    return."""
    await session.flush()
    journal = await session._writer.engine.call(
        Journal, session._writer.engine.driver, session.id, session._writer.engine.blobs
    )
    then = await session._writer.engine.call(journal.fold, target.seq)
    transcript = session.state.transcript_fold
    there = {item.seq for item in then.transcript_fold.queued}
    waiting = [item for item in transcript.queued if item.seq not in there]
    # Messages that were left behind before this session was opened were never read here.
    transcript.learn(then.transcript_fold)
    rewound = SessionRewound(
        version=target.version,
        seq=target.seq,
        transcript=tuple(then.transcript_fold.spans),
        state=then.facts.values,
        plan=then.facts.plan,
        summary=then.facts.summary,
    )
    # What others sent and nobody has seen yet is not left behind.
    kept: list[tuple[Body, bytes | None]] = [
        (MessageAdded(role=item.role, parts=item.parts, format=item.format), item.encode())
        for item in waiting
    ]
    session._writer.record_all([(rewound, None), *also, *kept])
    await session.flush()
