"""Appending to journals: one call of `append`, a function in the database. It moves the heads that have the
expected sums, and writes their lines.

An item that did not land wrote nothing; a query afterwards tells why. A call whose connection was lost may be
sent again: it names the sums that it follows, so it lands once, or finds that it has landed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from ...core.head import Head
from ...ids import SessionId
from ..contract import Append, ClaimChange, Claimed, Conflict, Done, OriginGone, Outcome
from .binary_arrays import Text, TextArray, TextTable
from .claims import digest_of, escape, find_claim
from .connections import Connection
from .error_translation import RetryableConflict
from .statements import PreparedStatement, Statements

encode = msgspec.json.Encoder().encode

APPEND: Final = "SELECT $schema.append($1::text, $2::text[], $3::text[], $4::text[], $5::text[], $6::text[])"

_SEPARATOR = "\x1f"
"""Separates texts in one: no name holds it, and JSON escapes it."""


class Commit:
    """A batch of items to commit, and the outcomes that are known so far."""

    def __init__(self, sql: Statements, append: PreparedStatement, batch: Sequence[Append]) -> None:
        self._sql, self._append, self._batch = sql, append, batch
        self._outcomes: dict[int, Outcome] = {}
        """By the position in the batch."""
        self._tries = 0

    def run(self, connection: Connection) -> Sequence[Outcome]:
        """Commit the items without an outcome. After a lost connection, call it again with another one."""
        self._tries += 1
        for part in _split(self._batch):
            waiting = {self._batch[place].session: place for place in part if place not in self._outcomes}
            if not waiting:
                continue
            items = [self._batch[place] for place in waiting.values()]
            tables = [table.data for table in _tables(items)]
            given = self._append.run(connection, [self._sql.path.encode(), *tables])
            landed = given.split(_SEPARATOR) if given else []
            half = len(landed) // 2
            for session, posted in zip(landed[:half], landed[half:], strict=True):
                self._outcomes[waiting.pop(SessionId(session))] = Done(int(posted))
            if waiting:
                self._explain(connection, waiting.values())
        if len(self._outcomes) < len(self._batch):
            raise RetryableConflict("an item did not land, and would land now")
        return [self._outcomes[place] for place in range(len(self._batch))]

    def _explain(self, connection: Connection, places: Collection[int]) -> None:
        """Find out why items did not land. An item that would land now gets no outcome."""
        items = [self._batch[place] for place in places]
        find_tips = "SELECT session, sum, posted, uid FROM $schema.sessions WHERE session = ANY (%s)"
        names = {item.session for item in items} | {item.pin.origin for item in items if item.pin}
        tips = {row[0]: row[1:] for row in self._sql.rows(connection, find_tips, [TextArray(names)])}
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
            return Done(posted)  # An earlier attempt landed, and its answer was lost.
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
    """The columns of a head, its session first."""
    return (
        head.session,
        str(head.seq),
        head.sum,
        head.status,
        head.parent,
        head.open_run,
        str(head.in_doubt),
        _SEPARATOR.join(encode_labels(head.labels)) if head.labels else "",
        head.lease.holder if head.lease else None,
        head.due.isoformat() if head.due else None,
        None if head.agent is None else escape(head.agent),
        encode(head).decode(),
    )


def encode_labels(labels: Mapping[str, str]) -> list[str]:
    """The stored form of labels, which an index finds."""
    return [encode(label).decode() for label in labels.items()]


def _split(batch: Sequence[Append]) -> Iterable[Sequence[int]]:
    """Split a batch: a statement does not see its own writes, so items of one session, from two processes
    that both believe to hold it, or with the same claim go into statements of their own."""
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


def _tables(items: Sequence[Append]) -> tuple[TextTable | TextArray, ...]:
    """The arguments of `append` in migrations/: heads, places of lines, lines, keyframes, claims."""
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
        _transpose(heads),
        _transpose(places),
        TextArray(lines),
        _transpose([(item.session, item.keyframe) for item in items if item.keyframe is not None]),
        _transpose([_claim_row(item.session, change) for item in items for change in item.claims]),
    )


def _transpose(rows: Iterable[Sequence[Text]]) -> TextTable:
    return TextTable(zip(*rows, strict=True))


def _taken(item: Append) -> str | None:
    """The last inbox item that the commit takes in, if any."""
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
