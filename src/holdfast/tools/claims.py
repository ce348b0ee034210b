"""Claims of a session: on global operations, and on settling effects that forks share.

A claim is taken before the intent and keeps the result. A session that finds a claim without an intent takes
the owner's lease, looks again, and only then takes the claim over.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import anyio
from msgspec import Struct
from msgspec.structs import replace

from ..content.encode import Given
from ..core.effects import Effect
from ..core.entries import Verdict
from ..core.fold import Facts
from ..engine.engine import Engine
from ..engine.journal import Journal
from ..errors import LeaseHeld, NotFound, ReadOnlyReplica
from ..ids import SessionId
from ..limits import CLAIM_WAIT_S, LEASE_POLL_S
from ..session.effect_claims import (
    Behind,
    Claim,
    amend_own,
    change_claim,
    close_settlement,
    describe_gone,
    describe_time,
    effect_key,
    find_claim,
    find_issuer,
    find_row,
    free_generation,
    is_free,
    read_result,
    release_settlement,
    settle_key,
)
from ..session.session import Session
from ..system.clock import boot_s


class Mine(Struct, frozen=True):
    """The claim is this session's."""

    generation: int


class Theirs(Struct, frozen=True):
    """Another session has done it already."""

    claim: Claim


class Busy(Struct, frozen=True):
    """Another session works on it (`passing`: ask again soon), or what became of it is not known."""

    why: str
    passing: bool = False


Taking: TypeAlias = Mine | Theirs | Busy


class OperationClaims:
    """The claims of one session on global operations."""

    def __init__(self, session: Session) -> None:
        self._session, self._engine = session, session._writer.engine

    async def take(self, operation: str, call: str, wait_s: float) -> Taking:
        """Claim the operation, waiting up to `wait_s` for another session that has it."""
        deadline_s = boot_s() + wait_s
        while True:
            found = await self._try(operation, call)
            if not isinstance(found, Busy) or not found.passing or boot_s() >= deadline_s:
                return found
            await anyio.sleep(min(LEASE_POLL_S, max(0.0, deadline_s - boot_s())))

    async def _try(self, operation: str, call: str) -> Taking:
        head = self._session.state.facts.head
        claim, record = await self._engine.call(find_claim, self._engine, effect_key(operation))
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
        swapped = await self._engine.call(change_claim, self._engine, effect_key(operation), record, mine)
        return Mine(claim.generation) if swapped else Busy("another session was quicker", passing=True)

    async def _look(self, claim: Claim, record: str | None, operation: str, call: str) -> Taking:
        """Look what became of another session's claim, and take it over if possible."""
        assert claim.session is not None
        try:
            found = await self._engine.call(_find, self._engine, claim, operation)
            if found is not None:
                return found
            # Not begun, or it failed. While this session has the owner's lease, the owner cannot begin it.
            async with self._session.store.session(claim.session, create=False) as owner:
                facts = owner.state.facts
                if not claim.is_of(facts.head):
                    return await self._succeed(claim, record, operation, call)
                row = find_row(facts.effects, claim, operation)
                if not is_free(row):
                    return Busy(f"session {claim.session!r} worked on it just now", passing=True)
                # Under the owner's lease: once that is released, the owner might begin in the same moment.
                free = claim.freed(free_generation(claim, row))
                return await self._swap(free, record, operation, call)
        except LeaseHeld as held:
            return Busy(f"session {claim.session!r} has it ({held.holder})", passing=True)
        except ReadOnlyReplica as replica:
            return Busy(
                f"session {claim.session!r} has it, which is driven in another store (with the id "
                f"{replica.store}). What becomes of it there is not known here"
            )
        except NotFound:
            return await self._succeed(claim, record, operation, call)

    async def _succeed(self, claim: Claim, record: str | None, operation: str, call: str) -> Taking:
        """Take over the claim of a deleted owner, which has recorded there what it had issued."""
        if claim.doubt:
            return Busy(describe_gone(claim, operation))
        return await self._swap(claim, record, operation, call)

    async def finish(self, row: Effect, given: Given) -> None:
        """Keep the result with the claim."""
        await self._amend(row.operation, lambda claim: claim.finished(row, given))

    async def reopen(self, operation: str) -> None:
        """Reopen the claim before an undo: from now on the owner's journal says whether it is done."""
        await self._amend(operation, Claim.unfinished)

    async def free(self, row: Effect) -> None:
        """Give the claim back: surely nothing happened, or it was undone. It may be done with another key."""
        await self._amend(row.operation, lambda claim: claim.freed(row.generation + 1))

    async def _amend(self, operation: str, amend: Callable[[Claim], Claim]) -> None:
        head, fence = self._session.state.facts.head, self._session.fence
        await self._engine.call(amend_own, self._engine, head, fence, operation, amend)


def _find(engine: Engine, claim: Claim, operation: str) -> Taking | None:
    """What the owner's journal says about the operation; None if the owner does not work on it, `NotFound` if
    the owner is gone."""
    assert claim.session is not None
    facts = Journal(engine.driver, claim.session).fold().facts
    if not claim.is_of(facts.head):
        raise NotFound(f"another session is called {claim.session!r} now")
    row = find_row(facts.effects, claim, operation)
    if row is None or is_free(row):
        return None
    lease = facts.head.lease
    holder = lease.name if lease is not None and engine.heartbeat.judge(lease.holder).alive else None
    undo = facts.effects.find_open_undo(row)
    if undo is not None:
        return _describe(claim, undo, f"{describe_time(row)} and then its undo", holder)
    if row.status == "completed":
        return Theirs(claim.finished(row, read_result(engine, claim.session, row)))
    return _describe(claim, row, describe_time(row), holder)


def _describe(claim: Claim, row: Effect, when: str, holder: str | None) -> Busy:
    if row.status == "running" and holder is not None:
        doing = "working on it" if row.undoes is None else "taking it back"
        return Busy(f"session {claim.session!r} is {doing} ({holder})", passing=True)
    return Busy(
        f"session {claim.session!r} issued it at {when}, and what became of it is not known. Settle it with "
        f"store.resolve({claim.session!r}, {row.issued}, …)"
    )


# -- settling ---------------------------------------------------------------------------------------------


class Acquired(Struct, frozen=True):
    """This session has the claim: no other one runs or settles the effect meanwhile.

    `behind` are bodies of other sessions that may still run; None if only the session's own row counts. Since
    `since_s` those sessions can begin no further ones.
    """

    behind: tuple[Behind, ...] | None
    since_s: float


class Known(Struct, frozen=True, kw_only=True):
    """Another session has settled it. `given` is what it gave, if it landed."""

    by: str
    verdict: Verdict
    given: Given = Given()
    void: bool = False


class Settlements:
    """The claims of one session on settling calls in doubt.

    Forks inherit effects in doubt with their keys. Every attempt after the first, and every verdict, is for
    one of them at a time; the others take over what it found.
    """

    @classmethod
    def of(cls, session: Session) -> Settlements:
        """The one object of a session."""
        found = session._writer.extensions.get(cls)
        if not isinstance(found, cls):
            found = session._writer.extensions[cls] = cls(session)
        return found

    def __init__(self, session: Session) -> None:
        self._session, self._engine = session, session._writer.engine
        self._held: set[str] = set()

    async def take(self, row: Effect, *, run: bool = False) -> Acquired | Known | Busy:
        """Claim to settle it, or (`run`) to run it again, waiting a while for a session that works on it."""
        deadline_s = boot_s() + CLAIM_WAIT_S
        while True:
            found = await self._try(row, run)
            if not isinstance(found, Busy) or not found.passing or boot_s() >= deadline_s:
                return found
            await anyio.sleep(min(LEASE_POLL_S, max(0.0, deadline_s - boot_s())))

    async def finish(self, row: Effect, given: Given) -> None:
        """Record with the claim that it happened, where this session's journal does not say so."""
        self._held.discard(row.key)
        await self._call(close_settlement, row, given)

    async def release(self, row: Effect) -> None:
        """Let other sessions settle it; what was found is on record here."""
        if row.key in self._held:
            self._held.discard(row.key)
            await self._call(release_settlement, row)

    def holds(self, row: Effect) -> bool:
        """Whether this session has the claim."""
        return row.key in self._held

    async def _call(self, function: Callable[..., None], row: Effect, *args: object) -> None:
        facts, fence = self._session.state.facts, self._session.fence
        await self._engine.call(lambda: function(self._engine, facts, fence, row, *args))

    async def _try(self, row: Effect, run: bool) -> Acquired | Known | Busy:
        facts = self._session.state.facts
        if facts.is_foreign(row):
            return Busy("a session of another store issued it, and settles it there")
        claim, record = await self._engine.call(find_claim, self._engine, settle_key(row.key))
        if claim.done:
            return Known(by=f"session {claim.session}", verdict="landed", given=claim.given)
        if claim.is_of(facts.head) or (record is not None and claim.session is None):
            return await self._swap(row, claim, record, claim.behind or None)
        if claim.session is not None:
            return await self._look(row, claim, record, claim.session, claim.uid, run)
        issuer = await self._engine.call(find_issuer, self._engine, facts, row)
        if issuer is None:
            return await self._swap(row, claim, record, None)
        return await self._look(row, replace(claim, idle=True), record, *issuer, run)

    async def _look(
        self, row: Effect, claim: Claim, record: str | None, owner: SessionId, uid: str, run: bool
    ) -> Acquired | Known | Busy:
        """What the session knows that settled it last or issued it; else take the claim."""
        busy = Busy(f"session {owner!r}, which shares this call, works on it", passing=True)
        try:
            theirs, held = await self._engine.call(_find_theirs, self._engine, owner, uid, row)
            if isinstance(theirs, Known) and theirs.verdict == "landed":
                return theirs
            if claim.idle and not _may_go_on(theirs):
                taken = await self._take_over(row, claim, record, theirs, run)
                if not isinstance(taken, Acquired):
                    return taken
                # It may have had the claim in between, and left no trace: look again.
                theirs, _ = await self._engine.call(_find_theirs, self._engine, owner, uid, row)
                if isinstance(theirs, Effect):
                    return replace(taken, behind=(*claim.behind, *Behind.list_of(theirs)))
                if isinstance(theirs, Known) and run and not theirs.void and theirs.verdict != "landed":
                    return taken
                await self.release(row)
                return theirs
            if held:
                return busy
            # Under its lease: from now on it begins nothing.
            async with self._session.store.session(owner, create=False) as opened:
                theirs = _judge(self._engine, opened.state.facts, uid, row)
                return await self._take_over(row, claim, record, theirs, run)
        except LeaseHeld:
            return busy
        except ReadOnlyReplica as replica:
            return Busy(
                f"session {owner!r}, which shares this call, is driven in another store (with the id "
                f"{replica.store})"
            )
        except NotFound:  # It was deleted, and the claim says what it knew.
            return await self._swap(row, claim, record, claim.behind or None)

    async def _take_over(
        self, row: Effect, claim: Claim, record: str | None, theirs: Effect | Known | Busy, run: bool
    ) -> Acquired | Known | Busy:
        if isinstance(theirs, Busy):
            return theirs
        if isinstance(theirs, Known):
            if not run or theirs.void or theirs.verdict == "landed":
                return theirs
            # This session knows that it may be run, also if another one has given it up.
            return await self._swap(row, claim, record, claim.behind)
        return await self._swap(row, claim, record, (*claim.behind, *Behind.list_of(theirs)))

    async def _swap(
        self, row: Effect, claim: Claim, record: str | None, behind: tuple[Behind, ...] | None
    ) -> Acquired | Busy:
        head, since_s = self._session.state.facts.head, boot_s()
        kept = tuple(dict.fromkeys(behind or ()))
        mine = Claim(
            session=head.session,
            uid=head.uid,
            fence=self._session.fence,
            call=row.call.id,
            said=claim.said,
            behind=kept,
        )
        if not await self._engine.call(change_claim, self._engine, settle_key(row.key), record, mine):
            return Busy("another session that shares this call was quicker", passing=True)
        self._held.add(row.key)
        return Acquired(behind if behind is None else kept, since_s)


def _find_theirs(
    engine: Engine, owner: SessionId, uid: str, row: Effect
) -> tuple[Effect | Known | Busy, bool]:
    """What another session's journal says about the effect, and whether the session is held; `NotFound` if it
    is gone."""
    facts = Journal(engine.driver, owner).fold().facts
    lease = facts.head.lease
    held = lease is not None and engine.heartbeat.judge(lease.holder).alive
    return _judge(engine, facts, uid, row), held


def _may_go_on(theirs: Effect | Known | Busy) -> bool:
    """Whether the session that issued it may begin another attempt without a claim: it runs it, or tries
    again what has failed."""
    if isinstance(theirs, Effect):
        return theirs.status == "running"
    return isinstance(theirs, Known) and theirs.void


def _judge(engine: Engine, facts: Facts, uid: str, row: Effect) -> Effect | Known | Busy:
    """What a session knows of the effect; its row, if it does not know, or works on it."""
    if facts.head.uid != uid:
        raise NotFound(f"another session is called {facts.head.session!r} now")
    effects, by = facts.effects, f"session {facts.head.session}"
    shared = next(one for one in effects.rows.values() if one.key == row.key)
    last = effects.attempts(shared)[-1]
    if last.status in ("failed", "undone"):
        # It may have done it anew since, with another key.
        latest = effects.find_last(row.operation)
        if latest is None or latest.generation == last.generation or is_free(latest):
            return Known(by=by, verdict="not_landed", void=True)
        last = latest
    if effects.find_open_undo(last) is not None:
        return Busy(f"{by} did it and began to take it back, and whether it was taken back is not known")
    if last.status == "completed":
        return Known(by=by, verdict="landed", given=read_result(engine, facts.head.session, last))
    if last.status in ("not_landed", "discarded"):
        return Known(by=by, verdict="not_landed")
    return Known(by=by, verdict="gave_up") if last.status == "gave_up" else last
