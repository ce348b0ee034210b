"""Global operations: once ever, over all sessions and machines of a store.

A claim is taken before the intent and keeps the result. Who finds a claim without an intent takes the owner's
lease, looks again, and only then takes it over.
"""

from __future__ import annotations

from typing import TypeAlias

import anyio
import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ..clock import boot_s
from ..effects import Effect
from ..entries import ResultContent
from ..errors import LeaseHeld, NotFound
from ..ids import SessionId
from ..limits import LEASE_POLL_S
from ..messages import Json
from ..session.session import Session
from ..store.driver import ClaimChange, Claimed
from ..store.engine import Engine
from ..store.journal import Journal


class Claim(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Who does the operation, or did it. Free if `session` is None; `generation` grows with every failure."""

    generation: int = 0
    session: SessionId | None = None
    uid: str = ""
    call: str = ""
    done: bool = False
    text: str = ""
    value: Json = None


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


def _key(operation: str) -> str:
    return f"effect:{operation}"


def _encode(claim: Claim) -> str:
    return msgspec.json.encode(claim).decode()


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
        record = await self._engine.call(self._engine.driver.find_claim, _key(operation))
        claim = Claim() if record is None else msgspec.json.decode(record, type=Claim)
        if claim.done:
            mine = claim.session == head.session and claim.uid == head.uid
            return Mine(claim.generation) if mine else Theirs(claim)
        if claim.session is not None:
            if claim.session == head.session and claim.uid == head.uid:
                return Mine(claim.generation)
            return await self._look(claim, record, operation, call)
        return await self._swap(claim, record, operation, call)

    async def _swap(self, claim: Claim, record: str | None, operation: str, call: str) -> Taking:
        head = self._session.state.facts.head
        mine = Claim(generation=claim.generation, session=head.session, uid=head.uid, call=call)
        swapped = await self._change(operation, record, _encode(mine))
        return Mine(claim.generation) if swapped else Busy("somebody else was quicker", passing=True)

    async def _look(self, claim: Claim, record: str | None, operation: str, call: str) -> Taking:
        """What became of somebody else's claim; ours now, if it can be taken over."""
        assert claim.session is not None
        found = await self._engine.call(_find, self._engine, claim, operation)
        if isinstance(found, Taking):
            return found
        # Not begun, or it failed. If we get the owner's lease, it can begin no more.
        try:
            async with Session.existing(self._engine, claim.session) as owner:
                if owner.state.facts.head.uid != claim.uid:
                    return _gone(claim)
                row = owner.state.facts.effects.find_last(operation)
                if not _is_free(row):
                    return Busy(f"session {claim.session!r} was at it just now", passing=True)
                # While we hold the owner's lease: given back, it might begin in the same moment.
                return await self._swap(_after(claim, row), record, operation, call)
        except LeaseHeld as held:
            return Busy(f"session {claim.session!r} has it ({held.holder})", passing=True)
        except NotFound:
            return _gone(claim)

    async def finish(self, operation: str, text: str, value: Json) -> None:
        """Keep the result with the claim."""
        await self._replace(operation, done=True, text=text, value=value)

    async def reopen(self, operation: str) -> None:
        """It is about to be undone: from now on the owner's journal says whether it is done."""
        await self._replace(operation, done=False, text="", value=None)

    async def free(self, row: Effect) -> None:
        """Surely nothing happened, or it was undone: anybody may do it, with another key."""
        await self._replace(
            row.operation,
            generation=row.generation + 1,
            session=None,
            uid="",
            call="",
            done=False,
            text="",
            value=None,
        )

    async def _replace(self, operation: str, **changes: Json) -> None:
        record = await self._engine.call(self._engine.driver.find_claim, _key(operation))
        claim = Claim() if record is None else msgspec.json.decode(record, type=Claim)
        head = self._session.state.facts.head
        if claim.session == head.session and claim.uid == head.uid:
            await self._change(operation, record, _encode(replace(claim, **changes)))

    async def _change(self, operation: str, expect: str | None, record: str) -> bool:
        change = ClaimChange(key=_key(operation), expect=expect, record=record)
        return not isinstance(await self._engine.call(self._engine.driver.claim, change), Claimed)


def _find(engine: Engine, claim: Claim, operation: str) -> Taking | None:
    """What the owner's journal says about the operation; None if the owner is not at it."""
    assert claim.session is not None
    try:
        facts = Journal(engine.driver, claim.session).fold().facts
    except NotFound:
        return _gone(claim)
    if facts.head.uid != claim.uid:
        return _gone(claim)
    row = facts.effects.find_last(operation)
    if _is_free(row):
        return None
    assert row is not None
    if row.status == "completed":
        said = _read(engine, claim.session, row)
        return Theirs(replace(claim, done=True, text=said.text, value=said.value))
    lease = facts.head.lease
    if row.status == "running" and lease is not None and engine.presence.judge(lease.holder).alive:
        return Busy(f"session {claim.session!r} is at it ({lease.name})", passing=True)
    return _unknown(claim, row)


def _is_free(row: Effect | None) -> bool:
    return row is None or row.status in ("failed", "not_landed", "discarded", "undone")


def _after(claim: Claim, row: Effect | None) -> Claim:
    """The claim as its owner would have given it back, had it not been interrupted."""
    if row is None:
        return claim
    used = row.status in ("failed", "undone")
    return replace(claim, generation=max(claim.generation, row.generation + used))


def _unknown(claim: Claim, row: Effect) -> Busy:
    at = f"{row.at:%Y-%m-%d %H:%M:%S} UTC"
    return Busy(f"session {claim.session!r} issued it at {at}, and nobody knows what became of it")


def _gone(claim: Claim) -> Busy:
    return Busy(f"session {claim.session!r} had it and was deleted; nobody can tell whether it happened")


def _read(engine: Engine, session: SessionId, row: Effect) -> ResultContent:
    assert row.outcome is not None
    for entry in Journal(engine.driver, session).entries(row.outcome - 1, row.outcome):
        if entry.content is not None:
            return msgspec.json.decode(entry.content, type=ResultContent)
    return ResultContent(text="[erased]")
