"""A commit: one call of `append`, a function in the database. It moves the heads that are where they should
be, and writes what belongs to them.

An item that has not landed wrote nothing, and is looked at afterwards to say why. A call that was lost on the
way may be sent again: it names the sums that it follows, so it lands once or finds itself there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import msgspec

from ...head import Head
from ...ids import SessionId
from ..driver import Append, Claimed, Conflict, Done, OriginGone, Outcome
from .arrays import Numbers, Texts
from .claims import digest_of, escape, find_claim
from .connections import Connection
from .failures import Collided
from .statements import Statements

encode = msgspec.json.Encoder().encode

_LABEL_END = "\x1f"
"""Between encoded labels; within them, JSON escapes it."""


class Commit:
    """Items that are to be committed, and what became of them so far."""

    def __init__(self, sql: Statements, batch: Sequence[Append]) -> None:
        self._sql, self._batch = sql, batch
        self._outcomes: dict[int, Outcome] = {}
        """By the place in the batch."""
        self._tries = 0

    def run(self, connection: Connection) -> Sequence[Outcome]:
        """Commit what is not decided yet. After a lost connection, call it again with another one."""
        self._tries += 1
        for part in _apart(self._batch):
            waiting = {self._batch[place].session: place for place in part if place not in self._outcomes}
            if not waiting:
                continue
            items = [self._batch[place] for place in waiting.values()]
            values = {"path": self._sql.path, **_columns(items)}
            for session, posted in self._sql.rows(connection, _call(tuple(values)), values):
                self._outcomes[waiting.pop(SessionId(session))] = Done(posted)
            if waiting:
                self._explain(connection, waiting.values())
        if len(self._outcomes) < len(self._batch):
            raise Collided("what stood in the way is gone")
        return [self._outcomes[place] for place in range(len(self._batch))]

    def _explain(self, connection: Connection, places: Collection[int]) -> None:
        """Why items did not land; nothing, if one would land now."""
        items = [self._batch[place] for place in places]
        find_tips = "SELECT session, sum, posted, uid FROM $schema.sessions WHERE session = ANY (%s)"
        names = {item.session for item in items} | {item.pin.origin for item in items if item.pin}
        tips = {row[0]: row[1:] for row in self._sql.rows(connection, find_tips, [Texts(names)])}
        keys = {change.key for item in items for change in item.claims}
        claims = {key: find_claim(self._sql, connection, key) for key in keys}
        for place, item in zip(places, items, strict=True):
            outcome = self._decide(item, tips, claims)
            if outcome is not None:
                self._outcomes[place] = outcome

    def _decide(
        self, item: Append, tips: Mapping[str, Sequence[Any]], claims: Mapping[str, str | None]
    ) -> Outcome | None:
        sum, posted, _ = tips.get(item.session, (None, 0, None))
        if sum == item.head.sum and self._tries > 1:
            return Done(posted)  # An earlier try had landed, and its answer was lost.
        if sum != item.after:
            return Conflict(sum)
        for change in item.claims:
            record = claims[change.key]
            if record != change.expect:
                return Claimed(change.key, record)
        pin = item.pin
        if pin is not None and tips.get(pin.origin, (None, 0, None))[2] != pin.uid:
            return OriginGone()
        return None


def head_columns(heads: Sequence[Head]) -> dict[str, Texts | Numbers]:
    """What is kept of heads, each column a parameter."""
    return {
        "session": Texts(head.session for head in heads),
        "seq": Numbers(head.seq for head in heads),
        "sum": Texts(head.sum for head in heads),
        "status": Texts(head.status for head in heads),
        "parent": Texts(head.parent for head in heads),
        "open_run": Texts(head.open_run for head in heads),
        "in_doubt": Numbers(head.in_doubt for head in heads),
        "labels": Texts(_LABEL_END.join(encode_labels(head.labels)) for head in heads),
        "holder": Texts(head.lease.holder if head.lease else None for head in heads),
        "due": Texts(head.due.isoformat() if head.due else None for head in heads),
        "agent": Texts(None if head.agent is None else escape(head.agent) for head in heads),
        "head": Texts(encode(head) for head in heads),
    }


def encode_labels(labels: Mapping[str, str]) -> list[str]:
    """As they are stored, to be found by an index."""
    return [encode(label).decode() for label in labels.items()]


def _apart(batch: Sequence[Append]) -> Iterable[Sequence[int]]:
    """A statement does not see what it writes itself: items that want the same claim, or come from two who
    believe that a session is theirs, follow each other."""
    part: list[int] = []
    taken: set[str] = set()
    for place, item in enumerate(batch):
        wanted = {f"session:{item.session}", *(f"claim:{change.key}" for change in item.claims)}
        if taken & wanted:
            yield part
            part, taken = [], set()
        part.append(place)
        taken |= wanted
    yield part


def _escape_any(record: str | None) -> str | None:
    return None if record is None else escape(record)


def _taken(item: Append) -> int:
    """Up to which number inbox items are taken in with it; 0 if none is."""
    return item.head.taken if "inbox.taken" in item.kinds else 0


@cache
def _call(names: Sequence[str]) -> str:
    return f"SELECT * FROM $schema.append({', '.join(f'p_{name} => %({name})s' for name in names)})"


def _columns(items: Sequence[Append]) -> dict[str, Texts | Numbers]:
    """The parameters of `append` in migrations/: those that these items need."""
    lines = [
        (item.session, item.first_seq + place, kind, line)
        for item in items
        for place, (kind, line) in enumerate(zip(item.kinds, item.lines, strict=True))
    ]
    values = head_columns([item.head for item in items]) | {
        "after": Texts(item.after for item in items),
        "line_session": Texts(session for session, _, _, _ in lines),
        "line_seq": Numbers(seq for _, seq, _, _ in lines),
        "kind": Texts(kind for _, _, kind, _ in lines),
        "line": Texts(line for _, _, _, line in lines),
    }
    if any(item.after is None for item in items):
        values |= {
            "uid": Texts(item.head.uid for item in items),
            "origin": Texts(item.pin.origin if item.pin else None for item in items),
            "origin_uid": Texts(item.pin.uid if item.pin else None for item in items),
            "pinned": Numbers(item.pin.seq if item.pin else 0 for item in items),
        }
    if any(map(_taken, items)):
        values["taken"] = Numbers(map(_taken, items))
    frames = [item for item in items if item.keyframe is not None]
    if frames:
        values["frame_session"] = Texts(item.session for item in frames)
        values["frame"] = Texts(item.keyframe for item in frames)
    claims = [(item.session, change) for item in items for change in item.claims]
    if claims:
        values |= {
            "claim_session": Texts(session for session, _ in claims),
            "digest": Texts(digest_of(change.key) for _, change in claims),
            "key": Texts(escape(change.key) for _, change in claims),
            "expect": Texts(_escape_any(change.expect) for _, change in claims),
            "record": Texts(_escape_any(change.record) for _, change in claims),
        }
    return values
