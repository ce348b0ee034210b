"""A commit: one call of `append`, a function in the database. It moves the heads that are where they should
be, and writes what belongs to them.

An item that has not landed wrote nothing, and is looked at afterwards to say why. A call that was lost on the
way may be sent again: it names the sums that it follows, so it lands once or finds itself there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from ...core.head import Head
from ...ids import SessionId
from ..contract import Append, ClaimChange, Claimed, Conflict, Done, OriginGone, Outcome
from .binary_arrays import Table, Text, Texts
from .claims import digest_of, escape, find_claim
from .connections import Connection
from .error_translation import Collided
from .prepared_statement import Call
from .statements import Statements

encode = msgspec.json.Encoder().encode

APPEND: Final = "SELECT $schema.append($1::text, $2::text[], $3::text[], $4::text[], $5::text[], $6::text[])"

_END = "\x1f"
"""Between texts in one: no name has it, and in JSON it is escaped."""


class Commit:
    """Items that are to be committed, and what became of them so far."""

    def __init__(self, sql: Statements, append: Call, batch: Sequence[Append]) -> None:
        self._sql, self._append, self._batch = sql, append, batch
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
            tables = [table.data for table in _tables(items)]
            given = self._append.run(connection, [self._sql.path.encode(), *tables])
            landed = given.split(_END) if given else []
            half = len(landed) // 2
            for session, posted in zip(landed[:half], landed[half:], strict=True):
                self._outcomes[waiting.pop(SessionId(session))] = Done(int(posted))
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


def head_row(head: Head) -> tuple[Text, ...]:
    """What is kept of a head, its session first."""
    return (
        head.session,
        str(head.seq),
        head.sum,
        head.status,
        head.parent,
        head.open_run,
        str(head.in_doubt),
        _END.join(encode_labels(head.labels)) if head.labels else "",
        head.lease.holder if head.lease else None,
        head.due.isoformat() if head.due else None,
        None if head.agent is None else escape(head.agent),
        encode(head).decode(),
    )


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


def _tables(items: Sequence[Append]) -> tuple[Table | Texts, ...]:
    """What `append` in migrations/ is given: heads, places of lines, lines, keyframes, claims."""
    some_are_new = any(item.after is None for item in items)
    heads: list[tuple[Text, ...]] = []
    places: list[tuple[Text, ...]] = []
    lines: list[bytes] = []
    for item in items:
        new = _new_row(item) if some_are_new else ()
        heads.append((*head_row(item.head), item.after, _taken(item), *new))
        for seq, (kind, line) in enumerate(zip(item.kinds, item.lines, strict=True), item.first_seq):
            places.append((item.session, str(seq), kind))
            lines.append(line)
    return (
        _turn(heads),
        _turn(places),
        Texts(lines),
        _turn([(item.session, item.keyframe) for item in items if item.keyframe is not None]),
        _turn([_claim_row(item.session, change) for item in items for change in item.claims]),
    )


def _turn(rows: Iterable[Sequence[Text]]) -> Table:
    return Table(zip(*rows, strict=True))


def _taken(item: Append) -> str | None:
    """Up to which number inbox items are taken in with it."""
    return str(item.head.taken) if "inbox.taken" in item.kinds else None


def _new_row(item: Append) -> tuple[Text, ...]:
    pin = item.pin
    return (item.head.uid, *((pin.origin, pin.uid, str(pin.seq)) if pin else (None, None, None)))


def _claim_row(session: SessionId, change: ClaimChange) -> tuple[Text, ...]:
    return (
        session,
        digest_of(change.key),
        escape(change.key),
        None if change.expect is None else escape(change.expect),
        None if change.record is None else escape(change.record),
    )
