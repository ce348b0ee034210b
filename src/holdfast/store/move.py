"""Moving sessions into another store.

The order is such that no kill leaves two stores that drive a session:

1. In the source, `session.moving` and the claim that makes the session a replica, in one commit: nothing is
   driven there any more, and nothing is posted.
2. It is copied into the target, as a replica, and compared.
3. In the target, `session.arrived`, and the claim of the replica is removed, in one commit.

What is left in the source is a replica that says where the session is. A move that was killed is finished by
the next one; until then, neither store drives what it had begun with.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import msgspec
from msgspec.structs import replace

from ..core.entries import Body, LeaseReleased, LeaseTaken, SessionArrived, SessionMoving
from ..drivers.contract import ClaimChange, Done, HeadFilter
from ..engine.committer import make_append
from ..engine.engine import Engine
from ..engine.journal import Journal
from ..errors import BadInput, LeaseHeld, ReadOnly
from ..ids import HolderId, SessionId
from ..session.lease import find_living_holder
from ..session.replica import ReplicaRecord, find_replica, replica_key
from .copy import Copied, Copier, TellProgress
from .copy_source import SourceSession, StoreSource, list_sessions


async def move(
    source: Engine,
    target: Engine,
    names: Sequence[SessionId] | None,
    *,
    address: str,
    dry_run: bool,
    tell: TellProgress | None,
) -> Copied:
    """Move sessions with their families. `address` is what people are told of the target."""
    found = await source.call(StoreSource, source, names)
    to = target.driver.store_id()
    moving = [
        one
        for one in found.sessions
        if not one.is_hidden and (one.store == found.store_id or (one.moved and one.store == to))
    ]
    await source.call(_refuse_stranded_forks, source, found.sessions)
    # Everything in the target is looked at before anything is changed.
    planned = await Copier(found, target, dry_run=True).run()
    if dry_run:
        return replace(planned, moved=tuple(one.id for one in moving))
    holders: list[HolderId] = []
    for session in moving:
        await source.call(_begin_moving, source, session.id, to, address)
        holders += await source.call(_list_holders, source, session.id)
    found = await source.call(StoreSource, source, names)
    copied = await Copier(found, target, tell=tell, holders=holders).run()
    # Delegates before the sessions that resume them.
    for session in reversed(moving):
        await target.call(partial(_arrive, target, session, found.store_id))
    return replace(copied, moved=tuple(one.id for one in moving))


def _refuse_stranded_forks(engine: Engine, sessions: Sequence[SourceSession]) -> None:
    """A fork that stayed would share calls in doubt with a session of another store."""
    uids = {one.uid for one in sessions}
    stranded: list[str] = []
    for name in list_sessions(engine.driver, HeadFilter()):
        *origins, own = Journal(engine.driver, name).segments
        if own.uid not in uids and any(one.uid in uids for one in origins):
            stranded.append(name)
    if stranded:
        raise BadInput(
            f"forks share history with what is to be moved: {', '.join(stranded)}. Name them as well, or "
            "copy instead of moving; nothing was changed"
        )


def _begin_moving(engine: Engine, session: SessionId, to: str, address: str) -> None:
    """Make the session one that only the other store drives. `LeaseHeld` if it may be driven here now."""
    while True:
        state = Journal(engine.driver, session, engine.blobs).fold()
        head = state.facts.head
        if find_replica(engine.driver, session, head.uid) is not None:
            return  # An earlier move has begun.
        if state.facts.unknown is not None:
            raise ReadOnly(session, *state.facts.unknown)
        held = find_living_holder(engine, head)
        if held is not None:
            raise LeaseHeld(session, held.life.name, left_s=held.life.left_s, here=held.here)
        key, after = replica_key(session), head.sum
        record = ReplicaRecord(uid=head.uid, store=to, address=address)
        change = ClaimChange(
            key=key, expect=engine.driver.find_claim(key), record=msgspec.json.encode(record).decode()
        )
        holder = engine.heartbeat.holder
        bodies: list[Body] = [
            LeaseTaken(holder=holder, name=engine.heartbeat.name),
            SessionMoving(store=to),
            LeaseReleased(),
        ]
        entries = [state.append(body, engine.now()) for body in bodies]
        left = replace(state.facts.head, replica=True)
        item = make_append(entries, after=after, head=left, claims=(change,))
        if isinstance(engine.committer.commit_now(item), Done):
            return


def _list_holders(engine: Engine, session: SessionId) -> list[HolderId]:
    """The holders whose bodies may still run: the target must not take them for ended."""
    effects = Journal(engine.driver, session).fold().facts.effects
    rows = [effects.rows[issued] for issued in effects.open]
    return [HolderId(row.holder) for row in rows if row.holder is not None]


def _arrive(engine: Engine, session: SourceSession, source: str) -> None:
    """Let the target drive the session, unless an earlier move has done so."""
    while True:
        state = Journal(engine.driver, session.id, engine.blobs).fold()
        head = state.facts.head
        if find_replica(engine.driver, session.id, session.uid) is None:
            return
        key, after = replica_key(session.id), head.sum
        change = ClaimChange(key=key, expect=engine.driver.find_claim(key), record=None)
        entry = state.append(SessionArrived(store=source), engine.now())
        item = make_append([entry], after=after, head=replace(state.facts.head), claims=(change,))
        # Items of the inbox make it due from now on.
        if isinstance(engine.committer.commit_now(replace(item, takes_inbox=True)), Done):
            return
