"""Taking the lease of a session: fold it, check its holder, and commit a `lease.taken` entry at its end.

That entry is the fence: an earlier holder names an older `sum` in its next commit, and the store refuses it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress

import anyio
from msgspec import Struct
from msgspec.structs import replace

from ..core.entries import Body, LeaseReleased, LeaseTaken, Parent, SessionOpened
from ..core.head import Head
from ..core.session_state import SessionState
from ..drivers.contract import Conflict, Done
from ..engine.committer import Channel, HomeLoop, make_append
from ..engine.engine import Engine
from ..engine.heartbeat import Life
from ..engine.journal import Journal
from ..errors import Corrupt, Fenced, HoldfastError, LeaseHeld, NotFound, ReadOnly
from ..ids import SessionId, fresh_uid
from ..limits import LEASE_POLL_S
from ..system.clock import boot_s
from .replica import refuse_replica

log = logging.getLogger("holdfast")
_QUICKER_S = 0.005


class Taken(Struct, frozen=True):
    """The lease was taken: the folded state, and the channel for further entries."""

    state: SessionState
    channel: Channel


class Held(Struct, frozen=True):
    """Another holder may be alive."""

    life: Life
    here: bool


class _Refused(Struct, frozen=True):
    """The commit was refused: the journal was read up to `after`, and the store's ends with `sum`."""

    after: str | None
    sum: str | None


async def take(
    engine: Engine,
    session: SessionId,
    *,
    wait_s: float,
    labels: Mapping[str, str],
    parent: Parent | None,
    create: bool,
) -> Taken:
    """Take the lease, waiting up to `wait_s` for another holder; then raise `LeaseHeld`."""
    deadline_s = boot_s() + wait_s
    refused: _Refused | None = None
    while True:
        left = engine.set_aside(session)
        if left is not None:
            with suppress(Fenced):
                await engine.committer.barrier(left)
            engine.left.pop(session, None)
        found = await engine.call_or_undo(
            _try, lambda late: _give_back(engine, late), engine, session, dict(labels), parent, create
        )
        if isinstance(found, Taken):
            found.channel.home = HomeLoop()
            return found
        if isinstance(found, Held):
            if boot_s() >= deadline_s:
                raise LeaseHeld(session, found.life.name, left_s=found.life.left_s, here=found.here)
            await anyio.sleep(min(LEASE_POLL_S, max(0.0, deadline_s - boot_s())))
            continue
        if found is not None and found == refused:
            # Another writer would have changed the end of the journal since the last attempt.
            raise Corrupt(
                f"session {session!r}",
                f"its entries end with the sum {found.after}, but the store says {found.sum}: entries are "
                "missing, or are those of another session",
            )
        refused = found
        await anyio.sleep(_QUICKER_S)  # Another writer was faster: try again.


def _try(
    engine: Engine, session: SessionId, labels: dict[str, str], parent: Parent | None, create: bool
) -> Taken | Held | _Refused | None:
    engine.heartbeat.begin()
    bodies: list[Body] = []
    try:
        state = Journal(engine.driver, session, engine.blobs).fold()
        state.transcript_fold  # noqa: B018 - Read here, in a thread: what is recorded next is folded into it.
    except NotFound:
        if not create:
            raise
        state = SessionState(session, engine.blobs)
        bodies.append(SessionOpened(id=session, uid=fresh_uid(), labels=labels, parent=parent))
    facts = state.facts
    if facts.unknown is not None:
        raise ReadOnly(session, *facts.unknown)
    if not bodies:
        refuse_replica(engine.driver, session, facts.head.uid)
    held = find_living_holder(engine, facts.head)
    if held is not None:
        return held
    bodies.append(LeaseTaken(holder=engine.heartbeat.holder, name=engine.heartbeat.name))
    return _commit(engine, state, bodies)


def find_living_holder(engine: Engine, head: Head) -> Held | None:
    """The holder of a session, if it may be alive. Blocks."""
    if head.lease is None:
        return None
    life = engine.heartbeat.judge(head.lease.holder)
    mine = head.lease.holder == engine.heartbeat.holder
    # A lease of this process without an open session is left over from a failed release.
    return Held(life, mine) if life.alive and not (mine and not engine.is_open(head.session)) else None


def _commit(engine: Engine, state: SessionState, bodies: list[Body]) -> Taken | Held | _Refused | None:
    """Commit the bodies, the last of which takes the lease. None if this process is opening or closing it."""
    head = state.facts.head
    after = head.sum or None
    entries = [state.append(body, engine.now()) for body in bodies]
    item = make_append(entries, after=after, head=replace(state.facts.head))
    head = item.head
    channel = Channel(head.session, head.sum)
    channel.head, channel.fence, channel.durable_seq = head, head.seq, head.seq
    # Registered first: other threads must not take the new lease for a leftover.
    with engine.registering:
        there = engine.channels.get(head.session)
        if there is not None and there.lost is None:
            if there.home is None or there.closed is not None or there.is_abandoned:
                return None
            # It is open here. Another process took its lease and released it, which it has not noticed.
            return Held(Life(True, engine.heartbeat.left_s, engine.heartbeat.name), True)
        engine.channels[head.session] = channel
    outcome = None
    try:
        outcome = engine.committer.commit_now(item)
    finally:
        if not isinstance(outcome, Done):
            del engine.channels[head.session]
    if isinstance(outcome, Conflict):
        return _Refused(after, outcome.sum)
    assert isinstance(outcome, Done), outcome
    channel.posted = outcome.posted
    return Taken(state, channel)


def _give_back(engine: Engine, found: Taken | Held | _Refused | None) -> None:
    """Release a lease whose caller was cancelled before it could know of it."""
    if not isinstance(found, Taken):
        return
    released = found.state.append(LeaseReleased(), engine.now())
    head = found.state.facts.head
    item = make_append([released], after=found.channel.sum, head=replace(head))
    try:
        engine.committer.commit_now(item)
    except HoldfastError as error:
        log.warning("session %s keeps its lease until the process ends: %s", head.session, error)
    finally:
        engine.channels.pop(head.session, None)
