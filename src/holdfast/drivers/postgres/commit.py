"""Appending to journals: one call of a function in the database. It moves the heads that have the expected
sums, and writes their chunks. `append` takes any batch, `append_chunk` what most commits are.

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
from .statements import PreparedStatement, Statements, is_direct

encode = msgspec.json.Encoder().encode

_TABLES: Final = 6
_COLUMNS: Final = 16
"""The parameters of the two functions, beside the search path."""

_SEPARATOR = "\x1f"
"""Separates texts in one: no name holds it, and JSON escapes it."""


class AppendStatements:
    """The calls of both functions. They are prepared on the driver's own connections."""

    def __init__(self, sql: Statements) -> None:
        columns = [f"${number}::text" for number in range(2, _COLUMNS + 2)]
        tables = [f"{column}[]" for column in columns[:_TABLES]]
        self.batch = PreparedStatement(f"SELECT {sql.schema}.append($1::text, {', '.join(tables)})")
        self.chunk = PreparedStatement(f"SELECT {sql.schema}.append_chunk($1::text, {', '.join(columns)})")

    def prepare(self, connection: Connection) -> None:
        """Prepare them there, unless there is a pooler."""
        if is_direct(connection):
            self.batch.prepare(connection)
            self.chunk.prepare(connection)


class Commit:
    """A batch of items to commit, and the outcomes that are known so far."""

    def __init__(self, sql: Statements, append: AppendStatements, batch: Sequence[Append]) -> None:
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
            for session, posted in self._call(connection, items):
                self._outcomes[waiting.pop(session)] = Done(posted)
            if waiting:
                self._explain(connection, waiting.values())
        if len(self._outcomes) < len(self._batch):
            raise RetryableConflict("an item did not land, and would land now")
        return [self._outcomes[place] for place in range(len(self._batch))]

    def _call(self, connection: Connection, items: Sequence[Append]) -> Iterable[tuple[SessionId, int]]:
        """The sessions that have landed, and how much was ever posted to each."""
        path = self._sql.path.encode()
        if len(items) == 1 and _is_one_chunk(items[0]):
            posted = self._append.chunk.run(connection, [path, *_chunk_row(items[0])])
            return [(items[0].session, int(posted))] if posted else []
        given = self._append.batch.run(connection, [path, *(table.data for table in _tables(items))])
        landed = given.split(_SEPARATOR) if given else []
        half = len(landed) // 2
        return zip(map(SessionId, landed[:half]), map(int, landed[half:]), strict=True)

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
        head.due.isoformat() if head.due and not head.replica else None,
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


def _is_one_chunk(item: Append) -> bool:
    """Whether a session goes on by one chunk, and nothing else changes."""
    return (
        len(item.chunks) == 1
        and item.after is not None
        and not (item.takes_inbox or item.claims or item.runs)
        and item.keyframe is None
    )


def _chunk_row(item: Append) -> Iterable[bytes | None]:
    """The arguments of `append_chunk` in migrations/."""
    (chunk,) = item.chunks
    texts = (*head_row(item.head), item.after, chunk.facts, chunk.details, chunk.said)
    return [text.encode() if isinstance(text, str) else text for text in texts]


def _tables(items: Sequence[Append]) -> tuple[TextTable | TextArray, ...]:
    """The arguments of `append` in migrations/: heads, chunks, what was said, runs, keyframes, claims."""
    some_are_new = any(item.after is None for item in items)
    heads: list[tuple[Text, ...]] = []
    chunks: list[tuple[Text, ...]] = []
    said: list[Text] = []
    for item in items:
        new = _new_row(item) if some_are_new else ()
        heads.append((*head_row(item.head), item.after, _taken(item), *new))
        for chunk in item.chunks:
            chunks.append((item.session, str(chunk.seq), chunk.sum, chunk.facts, chunk.details))
            said.append(chunk.said)
    return (
        _transpose(heads),
        _transpose(chunks),
        TextArray(said),
        _transpose([row for item in items for row in _run_rows(item)]),
        _transpose([(item.session, item.keyframe) for item in items if item.keyframe is not None]),
        _transpose([_claim_row(item.session, change) for item in items for change in item.claims]),
    )


def _transpose(rows: Iterable[Sequence[Text]]) -> TextTable:
    return TextTable(zip(*rows, strict=True))


def _taken(item: Append) -> str | None:
    """The last inbox item that the commit takes in, if any."""
    return str(item.head.taken) if item.takes_inbox else None


def _run_rows(item: Append) -> Iterable[tuple[Text, ...]]:
    """A row for each run that begins or ends; the columns of its beginning are NULL if it only ends."""
    rows: dict[str, tuple[Text, ...]] = {}
    for mark in item.runs:
        if mark.ended:
            known = rows.get(mark.run, (item.session, mark.run, None, None, None, None))
            rows[mark.run] = (*known[:-1], str(mark.chunk))
        else:
            rows[mark.run] = (item.session, mark.run, mark.at, str(mark.seq), str(mark.chunk), None)
    return rows.values()


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
