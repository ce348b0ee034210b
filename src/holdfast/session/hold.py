"""Named leases on resources that agents share."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import msgspec
from msgspec import Struct

from ..clock import boot_s
from ..errors import Fenced, LeaseHeld
from ..ids import HolderId, SessionId
from ..limits import LEASE_POLL_S
from ..store.driver import ClaimChange, Claimed
from ..store.engine import Engine
from ..store.presence import Life

log = logging.getLogger("holdfast")


class _Record(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Who has the resource; nobody, if `holder` is None. The fence grows with every holder."""

    fence: int
    holder: HolderId | None = None
    session: SessionId | None = None


_encode = msgspec.json.encode
_decode = msgspec.json.Decoder(_Record).decode


class Hold:
    """A resource that is held. Hand `fence` to whatever can refuse an older one."""

    def __init__(self, engine: Engine, name: str, fence: int, record: str) -> None:
        self._engine = engine
        self.name, self.fence, self._record = name, fence, record

    async def check(self) -> None:
        """Raise `Fenced` if somebody else has taken it over meanwhile."""
        if await self._engine.call(self._engine.driver.find_claim, _key(self.name)) != self._record:
            raise Fenced(self.name, fence=self.fence)


def _key(name: str) -> str:
    return f"hold:{name}"


@asynccontextmanager
async def hold(engine: Engine, session: SessionId, name: str, wait_s: float) -> AsyncIterator[Hold]:
    """Take the resource, waiting up to `wait_s` for whoever has it; else `LeaseHeld`."""
    deadline_s = boot_s() + wait_s
    while True:
        found = await engine.call(_try, engine, session, name)
        if isinstance(found, Hold):
            break
        if boot_s() >= deadline_s:
            raise LeaseHeld(name, found.name, left_s=found.left_s)
        await anyio.sleep(min(LEASE_POLL_S, max(0.0, deadline_s - boot_s())))
    try:
        yield found
    finally:
        with anyio.CancelScope(shield=True):
            free = _encode(_Record(fence=found.fence)).decode()
            change = ClaimChange(key=_key(name), expect=found._record, record=free)
            outcome = await engine.call(engine.driver.claim, change)
            if isinstance(outcome, Claimed):
                log.warning("%r was taken over while session %s held it", name, session)


def _try(engine: Engine, session: SessionId, name: str) -> Hold | Life:
    engine.presence.begin()
    current = engine.driver.find_claim(_key(name))
    fence = 1
    if current is not None:
        record = _decode(current)
        fence = record.fence + 1
        if record.holder is not None:
            life = engine.presence.judge(record.holder)
            if life.alive:
                return Life(True, life.left_s, f"session {record.session} ({life.name})")
    mine = _encode(_Record(fence=fence, holder=engine.presence.holder, session=session)).decode()
    outcome = engine.driver.claim(ClaimChange(key=_key(name), expect=current, record=mine))
    if isinstance(outcome, Claimed):
        return Life(True, None, "somebody who was quicker")
    return Hold(engine, name, fence, mine)
