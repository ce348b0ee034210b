"""The work queue of a store: sessions that are due, and the workers."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ..core.head import Head
from ..drivers.contract import DueFilter, Tip
from ..engine.engine import Engine
from ..engine.heartbeat import Duty, read_heartbeat
from ..engine.journal import Journal
from ..errors import Corrupt, HoldfastError
from ..ids import HolderId, SessionId
from ..limits import PAGE_ROWS
from ..system.clock import boot_id, boot_s

log = logging.getLogger("holdfast")
_ALWAYS = datetime.max.replace(tzinfo=UTC)
_EARLIEST = datetime.min.replace(tzinfo=UTC)


class WorkerInfo(Struct, frozen=True, kw_only=True):
    """A worker, as it last described itself. `beat_age_s` is None if no clock is shared with it."""

    name: str
    holder: HolderId
    duty: Duty
    alive: bool
    beat_age_s: float | None
    sessions: tuple[SessionId, ...]
    """The sessions that it drives."""


def find_due(
    engine: Engine, agents: Collection[str], labels: Mapping[str, str], limit: int, *, orphans: bool
) -> list[Head]:
    """List sessions of these agents that are due and have no holder, the oldest first. Blocks.

    With `orphans`, also those of dead holders, those that this process failed to release, and those of other
    agents, or of none, to which a message for one of these agents was posted.
    """
    wanted = DueFilter(until=engine.now(), agents=agents, labels=labels)
    found = _heads(engine, wanted, limit)
    if orphans:
        found += _list_addressed(engine, wanted)
        for holder in _list_gone(engine):
            found += _heads(engine, replace(wanted, holder=holder), limit)
            found += _list_addressed(engine, replace(wanted, holder=holder))
        # Each holder's are in that order already, which makes sorting cheap.
        found.sort(key=lambda head: head.due or head.updated_at)
    return found[:limit]


def list_due(engine: Engine, limit: int) -> list[Head]:
    """List sessions of all agents that have something to do and no living holder, the oldest first.

    Those that were postponed are among them. Blocks.
    """
    wanted = DueFilter(until=_ALWAYS)
    found = _heads(engine, wanted, limit)
    for holder in _list_gone(engine):
        found += _heads(engine, replace(wanted, holder=holder), limit)
    return sorted(found, key=lambda head: head.due or head.updated_at)[:limit]


def _list_gone(engine: Engine) -> list[HolderId]:
    heartbeat = engine.heartbeat
    gone: list[HolderId] = []
    for holder, beat in engine.driver.list_holders():
        try:
            if holder == heartbeat.holder or not heartbeat.judge_by(holder, beat).alive:
                gone.append(holder)
        except Corrupt as error:
            log.warning("a holder is left out: %s", error)  # Opening one of its sessions raises the error.
    return gone


def _heads(engine: Engine, wanted: DueFilter, limit: int) -> list[Head]:
    tips = _whole(engine.driver.list_due(wanted, limit))
    heads = [head for tip in tips if (head := tip.head or _fold(engine, tip, wanted)) is not None]
    return [head for head in heads if not engine.is_open(head.session)]


def _whole(tips: Iterable[Tip]) -> list[Tip]:
    """Leave out damaged sessions."""
    found: list[Tip] = []
    for tip in tips:
        if tip.damage is None:
            found.append(tip)
        else:
            log.warning("session %s is left out: %s", tip.session, tip.damage)
    return found


def _list_addressed(engine: Engine, wanted: DueFilter) -> list[Head]:
    """List sessions whose head names none of the agents, while an item of their inbox does."""
    agents, all_agents = wanted.agents or (), replace(wanted, agents=None)
    found: list[Head] = []
    for tip in engine.driver.list_due(all_agents, PAGE_ROWS):
        head = tip.head or _fold(engine, tip, all_agents)
        if head is None or head.agent in agents or tip.posted <= head.taken:
            continue
        rows = engine.driver.read_inbox(head.session, head.taken, PAGE_ROWS)
        if head.session not in engine.channels and any(_agent_of(row.item) in agents for row in rows):
            found.append(head)
    return found


def _agent_of(item: bytes) -> str | None:
    """The agent that an inbox item names, if any."""
    try:
        return _decode_item(item).agent
    except msgspec.DecodeError:
        return None  # Opening the session raises the error.


class _AddressedItem(Struct):
    agent: str | None = None


_decode_item = msgspec.json.Decoder(_AddressedItem).decode


def _fold(engine: Engine, tip: Tip, wanted: DueFilter) -> Head | None:
    """Fold a session whose head the driver does not have; its head, if it is wanted."""
    try:
        head = Journal(engine.driver, tip.session).fold().facts.head
    except HoldfastError as error:
        log.warning("session %s is left out: %s", tip.session, error)
        return None
    return head if wanted.since(head, _EARLIEST if tip.posted > head.taken else None) else None


def list_workers(engine: Engine) -> list[WorkerInfo]:
    """List the workers, by name: the holders whose heartbeat has a duty. Blocks."""
    found: list[WorkerInfo] = []
    for holder, beat in engine.driver.list_holders():
        try:
            record = None if beat is None else read_heartbeat(holder, beat)
        except Corrupt as error:
            log.warning("a holder is left out: %s", error)
            continue
        if beat is None or record is None or record.duty is None:
            continue
        age_s = beat.age_s
        if age_s is None and record.boot is not None and record.boot == boot_id():
            age_s = max(0.0, boot_s() - record.beat_s)
        tips = engine.driver.list_due(DueFilter(until=_ALWAYS, holder=holder), PAGE_ROWS)
        mine = holder == engine.heartbeat.holder
        found.append(
            WorkerInfo(
                name=record.name,
                holder=holder,
                duty=record.duty,
                alive=mine or engine.heartbeat.judge_by(holder, beat).alive,
                beat_age_s=age_s,
                sessions=tuple(tip.session for tip in tips if tip.head is not None),
            )
        )
    return sorted(found, key=lambda one: one.name)
