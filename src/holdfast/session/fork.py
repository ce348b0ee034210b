"""Forks: journals that begin with a reference to the history of another."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from ..core.effects import Effect, Effects
from ..core.entries import (
    LeaseReleased,
    LeaseRenewed,
    LeaseTaken,
    LeftBehind,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunPaused,
    RunStarted,
    SessionClosed,
    SessionCopied,
    SessionForked,
    SessionPostponed,
)
from ..core.fold import Checkpoint
from ..core.session_state import SessionState
from ..drivers.contract import Conflict, OriginGone, Pin
from ..engine.committer import make_append
from ..engine.engine import Engine
from ..engine.journal import Journal
from ..errors import BadInput, NotFound, ReadOnly
from ..ids import SessionId, fresh_uid
from .replica import find_replica

_SINCE_MAX: Final = 100
"""Entries after the last version that are looked at one by one."""


def fork(
    engine: Engine, origin: SessionId, version: int | None, into: SessionId | None, labels: dict[str, str]
) -> SessionId:
    """Create the fork and pin what it shares, in one commit. Takes no lease on the origin. Blocks."""
    journal = Journal(engine.driver, origin)
    latest = journal.fold()
    if latest.facts.unknown is not None:
        raise ReadOnly(origin, *latest.facts.unknown)
    if version is None:
        path = latest.path()
        if not path:
            raise NotFound(f"session {origin!r} has no version to fork from; take a checkpoint first")
        version = path[-1].version
    point = latest.get_checkpoint(version)
    state = _at_latest_version(journal, latest, point) or journal.fold(point.seq)
    name = into or SessionId(f"{origin[:180]}-fork-{fresh_uid()[:8]}")
    behind = tuple(
        LeftBehind(issued=row.issued, tool=row.tool, call=row.call.id, status=row.status)
        for row in _changed_since(state.facts.effects, latest.facts.effects, point.seq)
    )
    return _begin(engine, journal, state, name, version, labels, behind)


_NOTHING_OF_A_FORK: Final = frozenset(
    {
        LeaseTaken,
        LeaseRenewed,
        LeaseReleased,
        RunStarted,
        RunCompleted,
        RunFailed,
        RunCancelled,
        RunPaused,
        SessionClosed,
        SessionPostponed,
    }
)
"""What a fork does not inherit: with such entries after a version, a state is as good as the version's."""


def _at_latest_version(journal: Journal, latest: SessionState, point: Checkpoint) -> SessionState | None:
    """The latest state as that of its version, if nothing has happened since; else None.

    The keyframe that is written when a session is closed stands after the last version: folding up to that
    one would read the journal from its beginning.
    """
    since = latest.seq - point.seq
    if point.version != latest.version or latest.facts.changed or since > _SINCE_MAX:
        return None
    entries = journal.entries(point.seq, latest.seq, said=False)
    sum = journal.find_sum(point.seq)
    if sum is None or not all(type(entry.body) in _NOTHING_OF_A_FORK for entry in entries):
        return None
    latest.facts.head.seq, latest.facts.head.sum = point.seq, sum
    return latest


def fork_end(engine: Engine, origin: SessionId, into: SessionId, labels: dict[str, str]) -> SessionId:
    """Fork a journal at its end, for adapters whose journals have no checkpoints. Blocks."""
    journal = Journal(engine.driver, origin)
    return _begin(engine, journal, journal.fold(), into, 0, labels, ())


def _begin(
    engine: Engine,
    journal: Journal,
    state: SessionState,
    name: SessionId,
    version: int,
    labels: dict[str, str],
    left_behind: tuple[LeftBehind, ...],
) -> SessionId:
    """Commit the entry that continues `state`, and the pin of what it shares. A fork of a replica is told
    that what it inherits belongs to another store."""
    origin, seq, sum, uid = journal.session, state.seq, state.facts.head.sum, fresh_uid()
    if name == origin:
        raise BadInput(f"a fork needs an id of its own, not {origin!r}")
    # The journal that stores the entry: the version may be inherited.
    owner = journal.find_owner(seq)
    state.facts.head.session = name
    forked = SessionForked(
        id=name,
        uid=uid,
        origin=owner.id,
        origin_uid=owner.uid,
        version=version,
        labels=labels,
        left_behind=left_behind,
    )
    entries = [state.append(forked, engine.now())]
    replica = find_replica(engine.driver, origin, journal.segments[-1].uid)
    if replica is not None:
        entries.append(state.append(SessionCopied(store=replica.store), engine.now()))
    pin = Pin(origin=owner.name, uid=owner.uid, seq=seq)
    item = make_append(entries, after=None, origin_sum=sum, head=replace(state.facts.head), pin=pin)
    outcome = engine.committer.commit_now(item)
    if isinstance(outcome, OriginGone):
        raise NotFound(f"session {origin!r} was deleted")
    if isinstance(outcome, Conflict):
        raise BadInput(f"session {name!r} exists already; a fork needs a new id")
    return name


def _changed_since(then: Effects, now: Effects, seq: int) -> list[Effect]:
    """List the effects of the origin after an entry, and the earlier ones that it has undone since."""
    undone = [
        now.rows[row.issued]
        for row in then.rows.values()
        if row.status == "completed" and now.rows[row.issued].status == "undone"
    ]
    return [*undone, *now.since(seq)]
