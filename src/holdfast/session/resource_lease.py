"""Named leases on resources that sessions share."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import msgspec
from msgspec import Struct

from ..drivers.contract import ClaimChange, Claimed, Done
from ..engine.committer import HomeLoop
from ..engine.engine import Engine, HeldHere
from ..engine.heartbeat import Life
from ..errors import Corrupt, Fenced, HoldfastError, LeaseHeld
from ..ids import HolderId, SessionId
from ..limits import LEASE_POLL_S
from ..system.aio import run_to_end
from ..system.clock import boot_s

log = logging.getLogger("holdfast")


class _HoldRecord(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The holder of a resource; free if `holder` is None. The fence grows with every holder."""

    fence: int
    holder: HolderId | None = None
    session: SessionId | None = None


_encode = msgspec.json.encode
_decode = msgspec.json.Decoder(_HoldRecord).decode


class Hold:
    """A named lease that is held. Hand `fence` to services that can refuse an older one."""

    def __init__(self, engine: Engine, name: str, fence: int, record: str) -> None:
        self._engine = engine
        self.name, self.fence, self._record = name, fence, record

    async def check(self) -> None:
        """Raise `Fenced` if another holder has taken the resource meanwhile."""
        if await self._engine.call(self._engine.driver.find_claim, _key(self.name)) != self._record:
            raise Fenced(self.name, fence=self.fence)


def _key(name: str) -> str:
    return f"hold:{name}"


@asynccontextmanager
async def hold(engine: Engine, session: SessionId | None, name: str, wait_s: float) -> AsyncIterator[Hold]:
    """Take the resource, waiting up to `wait_s` for another holder; then raise `LeaseHeld`.

    `session` is told to others that want it; None for a holder that works for the whole store.
    """
    deadline_s, home = boot_s() + wait_s, HomeLoop()
    while True:
        found = await engine.call_or_undo(
            _try, lambda late: _release(engine, late), engine, session, name, home
        )
        if isinstance(found, Hold):
            break
        if boot_s() >= deadline_s:
            raise LeaseHeld(name, found.name, left_s=found.left_s)
        await anyio.sleep(min(LEASE_POLL_S, max(0.0, deadline_s - boot_s())))
    failed = True
    try:
        yield found
        failed = False
    finally:
        try:
            await run_to_end(lambda: engine.call(_release, engine, found))
        except HoldfastError as error:
            if not failed:
                raise
            log.warning("%r was not given back: %s", name, error)


def _release(engine: Engine, held: Hold | Life) -> None:
    if not isinstance(held, Hold):
        return
    free = _encode(_HoldRecord(fence=held.fence)).decode()
    change = ClaimChange(key=_key(held.name), expect=held._record, record=free)
    try:
        if isinstance(engine.driver.claim(change), Claimed):
            log.info("%r was taken over while it was held here, or was released already", held.name)
    finally:
        mine = engine.holds.get(held.name)
        if mine is not None and mine.fence == held.fence:
            engine.holds.pop(held.name, None)


def _is_held_here(engine: Engine, name: str) -> bool:
    """True if this process holds the resource, in an event loop that has not ended."""
    with engine.registering:
        held = engine.holds.get(name)
        if held is not None and held.home.has_ended:
            del engine.holds[name]
            held = None
        return held is not None


def _read(record: str, name: str) -> _HoldRecord:
    try:
        return _decode(record)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise Corrupt(f"claim {_key(name)!r}", f"its record cannot be read ({error})") from error


def _try(engine: Engine, session: SessionId | None, name: str, home: HomeLoop) -> Hold | Life:
    engine.heartbeat.begin()
    current = engine.driver.find_claim(_key(name))
    fence = 1
    if current is not None:
        record = _read(current, name)
        fence = record.fence + 1
        if record.holder is not None:
            life = engine.heartbeat.judge(record.holder)
            # A record of this process without a holder here is left over from a failed release.
            mine = record.holder == engine.heartbeat.holder
            if life.alive and not (mine and not _is_held_here(engine, name)):
                named = life.name if record.session is None else f"session {record.session} ({life.name})"
                return Life(True, life.left_s, named)
    wanted = _HoldRecord(fence=fence, holder=engine.heartbeat.holder, session=session)
    return _claim(engine, name, current, wanted, home)


def _claim(
    engine: Engine, name: str, current: str | None, wanted: _HoldRecord, home: HomeLoop
) -> Hold | Life:
    quicker = Life(True, None, "another session")
    # Registered first: other threads must not take the new record for a leftover.
    held = HeldHere(wanted.fence, home)
    if engine.holds.setdefault(name, held) is not held:
        return quicker
    record = _encode(wanted).decode()
    outcome = None
    try:
        outcome = engine.driver.claim(ClaimChange(key=_key(name), expect=current, record=record))
    finally:
        if not isinstance(outcome, Done):
            del engine.holds[name]
    return Hold(engine, name, wanted.fence, record) if isinstance(outcome, Done) else quicker
