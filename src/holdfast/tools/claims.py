"""Global operations: once ever, over all sessions and machines of a store.

A claim is taken before the intent and keeps the result. Who finds a claim without an intent takes the owner's
lease, looks again, and only then takes it over.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import anyio
from msgspec import Struct
from msgspec.structs import replace

from ..clock import boot_s
from ..content.packing import Given
from ..effects import Effect
from ..errors import LeaseHeld, NotFound
from ..limits import LEASE_POLL_S
from ..session.claim import (
    Claim,
    amend_own,
    change_claim,
    describe_gone,
    describe_time,
    find_claim,
    find_row,
    free_generation,
    is_free,
    read_result,
)
from ..session.session import Session
from ..store.engine import Engine
from ..store.journal import Journal


class Mine(Struct, frozen=True):
    """The claim is this session's."""

    generation: int


class Theirs(Struct, frozen=True):
    """It was done already, elsewhere."""

    claim: Claim


class Busy(Struct, frozen=True):
    """Somebody else is at it (`passing`: ask again soon), or nobody knows what became of it."""

    why: str
    passing: bool = False


Taking: TypeAlias = Mine | Theirs | Busy


class Claims:
    """The claims of one session."""

    def __init__(self, session: Session) -> None:
        self._session, self._engine = session, session.engine

    async def take(self, operation: str, call: str, wait_s: float) -> Taking:
        """Claim the operation, waiting a while for whoever has it."""
        deadline_s = boot_s() + wait_s
        while True:
            found = await self._try(operation, call)
            if not isinstance(found, Busy) or not found.passing or boot_s() >= deadline_s:
                return found
            await anyio.sleep(min(LEASE_POLL_S, max(0.0, deadline_s - boot_s())))

    async def _try(self, operation: str, call: str) -> Taking:
        head = self._session.state.facts.head
        claim, record = await self._engine.call(find_claim, self._engine, operation)
        if claim.is_of(head) and (claim.done or claim.fence == self._session.fence):
            return Mine(claim.generation)
        if claim.done:
            return Theirs(claim)
        if claim.session is not None and not claim.is_of(head):
            return await self._look(claim, record, operation, call)
        # Ours from before: a holder that is out must no longer give it back.
        return await self._swap(claim, record, operation, call)

    async def _swap(self, claim: Claim, record: str | None, operation: str, call: str) -> Taking:
        head, fence = self._session.state.facts.head, self._session.fence
        mine = replace(
            claim.freed(claim.generation), session=head.session, uid=head.uid, fence=fence, call=call
        )
        swapped = await self._engine.call(change_claim, self._engine, operation, record, mine)
        return Mine(claim.generation) if swapped else Busy("somebody else was quicker", passing=True)

    async def _look(self, claim: Claim, record: str | None, operation: str, call: str) -> Taking:
        """What became of somebody else's claim; ours now, if it can be taken over."""
        assert claim.session is not None
        try:
            found = await self._engine.call(_find, self._engine, claim, operation)
            if found is not None:
                return found
            # Not begun, or it failed. If we get the owner's lease, it can begin no more.
            async with Session.existing(self._engine, claim.session) as owner:
                facts = owner.state.facts
                if not claim.is_of(facts.head):
                    return await self._succeed(claim, record, operation, call)
                row = find_row(facts.effects, claim, operation)
                if not is_free(row):
                    return Busy(f"session {claim.session!r} was at it just now", passing=True)
                # While we hold the owner's lease: given back, it might begin in the same moment.
                free = claim.freed(free_generation(claim, row))
                return await self._swap(free, record, operation, call)
        except LeaseHeld as held:
            return Busy(f"session {claim.session!r} has it ({held.holder})", passing=True)
        except NotFound:
            return await self._succeed(claim, record, operation, call)

    async def _succeed(self, claim: Claim, record: str | None, operation: str, call: str) -> Taking:
        """The owner was deleted. What it had issued, it left word of."""
        if claim.doubt:
            return Busy(describe_gone(claim, operation))
        return await self._swap(claim, record, operation, call)

    async def finish(self, row: Effect, given: Given) -> None:
        """Keep the result with the claim."""
        await self._amend(row.operation, lambda claim: claim.finished(row, given))

    async def reopen(self, operation: str) -> None:
        """It is about to be undone: from now on the owner's journal says whether it is done."""
        await self._amend(operation, Claim.unfinished)

    async def free(self, row: Effect) -> None:
        """Surely nothing happened, or it was undone: anybody may do it, with another key."""
        await self._amend(row.operation, lambda claim: claim.freed(row.generation + 1))

    async def _amend(self, operation: str, amend: Callable[[Claim], Claim]) -> None:
        await self._engine.call(amend_own, self._engine, self._session, operation, amend)


def _find(engine: Engine, claim: Claim, operation: str) -> Taking | None:
    """What the owner's journal says about the operation; None if the owner is not at it, `NotFound` if the
    owner is gone."""
    assert claim.session is not None
    facts = Journal(engine.driver, claim.session).fold().facts
    if not claim.is_of(facts.head):
        raise NotFound(f"another session is called {claim.session!r} now")
    row = find_row(facts.effects, claim, operation)
    if row is None or is_free(row):
        return None
    lease = facts.head.lease
    holder = lease.name if lease is not None and engine.presence.judge(lease.holder).alive else None
    undo = facts.effects.find_open_undo(row)
    if undo is not None:
        return _describe(claim, undo, f"{describe_time(row)} and then its undo", holder)
    if row.status == "completed":
        return Theirs(claim.finished(row, read_result(engine, claim.session, row)))
    return _describe(claim, row, describe_time(row), holder)


def _describe(claim: Claim, row: Effect, when: str, holder: str | None) -> Busy:
    if row.status == "running" and holder is not None:
        doing = "at it" if row.undoes is None else "taking it back"
        return Busy(f"session {claim.session!r} is {doing} ({holder})", passing=True)
    return Busy(
        f"session {claim.session!r} issued it at {when}, and nobody knows what became of it. Who finds out "
        f"says so with store.resolve({claim.session!r}, {row.issued}, …)"
    )
