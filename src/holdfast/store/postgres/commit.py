"""A commit: one statement moves the heads that are where they should be, and writes what belongs to them.

It reads from its end: who has `landed` gets lines, keyframe, claims and pin. An item that has not landed
wrote nothing, and is looked at afterwards to say why. A statement that was lost on the way may be sent again:
it names the sums that it follows, so it lands once or finds itself there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
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

_GIVEN = """
    SELECT * FROM unnest(
        %(session)s, %(after)s, %(uid)s, %(origin)s, %(origin_uid)s, %(pinned)s, %(seq)s, %(sum)s,
        %(status)s, %(parent)s, %(open_run)s, %(in_doubt)s, %(labels)s, %(holder)s, %(due)s, %(agent)s,
        %(head)s, %(taken)s
    ) AS given (
        session, after, uid, origin, origin_uid, pinned, seq, sum,
        status, parent, open_run, in_doubt, labels, holder, due, agent,
        head, taken
    )
"""
# Claims first, then sessions, both in order: two commits never wait for each other in a circle.
_CHOSEN = """
    given AS MATERIALIZED ({given}),
    claim AS MATERIALIZED (
        SELECT * FROM unnest(%(claim_session)s, %(digest)s, %(key)s, %(expect)s, %(record)s)
            AS claim (session, digest, key, expect, record)
    ),
    held AS MATERIALIZED (
        SELECT digest, record FROM $schema.claims WHERE digest = ANY (%(digest)s)
        ORDER BY digest FOR UPDATE
    ),
    origin AS MATERIALIZED (
        SELECT uid FROM $schema.sessions
        WHERE (session, uid) IN (SELECT origin, origin_uid FROM given WHERE origin IS NOT NULL)
        ORDER BY session FOR KEY SHARE
    ),
    item AS MATERIALIZED (
        SELECT * FROM given
        WHERE (origin IS NULL OR origin_uid IN (SELECT uid FROM origin))
            AND session NOT IN (
                SELECT claim.session FROM claim LEFT JOIN held USING (digest)
                WHERE held.record IS DISTINCT FROM claim.expect
            )
    )
"""
SET_HEAD = """
    seq = {0}.seq, sum = {0}.sum, status = {0}.status, parent = {0}.parent, open_run = {0}.open_run,
    in_doubt = {0}.in_doubt, labels = string_to_array({0}.labels, chr(31)), holder = {0}.holder,
    due = {0}.due::timestamptz, agent = {0}.agent, head = {0}.head
"""
# What was posted by somebody whom this statement had to wait for is counted, but not yet to be seen.
_SET_POSTED_AT = """,
    posted_at = CASE
        WHEN item.taken = 0 THEN old.posted_at
        WHEN item.taken < old.posted THEN coalesce(
            (
                SELECT inbox.at FROM $schema.inbox
                WHERE inbox.session = item.session AND inbox.number > item.taken
                ORDER BY inbox.number LIMIT 1
            ),
            old.posted_at
        )
    END
"""
_MOVED = """
    UPDATE $schema.sessions AS old
    SET {head}
    FROM item {locked}
    WHERE old.session = item.session AND old.sum = item.after
    RETURNING old.session, old.posted
"""
_LOCKED = """
    JOIN (
        SELECT session FROM $schema.sessions WHERE session = ANY (%(session)s)
        ORDER BY session FOR NO KEY UPDATE
    ) AS locked USING (session)
"""
_CREATED = """
    INSERT INTO $schema.sessions
        (session, uid, origin_uid, seq, sum, status, parent, open_run, in_doubt,
        labels, holder, due, agent, head)
    SELECT
        session, uid, origin_uid, seq, sum, status, parent, open_run, in_doubt,
        string_to_array(labels, chr(31)), holder, due::timestamptz, agent, head
    FROM item WHERE after IS NULL
    ORDER BY session
    ON CONFLICT (session) DO NOTHING
    RETURNING session, posted
"""
_LINES = """
    INSERT INTO $schema.entries (session, seq, kind, line)
    SELECT line.* FROM unnest(%(line_session)s, %(line_seq)s, %(kind)s, %(line)s)
        AS line (session, seq, kind, line)
    WHERE line.session IN (SELECT session FROM landed)
"""
_KEYFRAMES = """
    INSERT INTO $schema.keyframes (session, body)
    SELECT frame.* FROM unnest(%(frame_session)s, %(frame)s) AS frame (session, body)
    WHERE frame.session IN (SELECT session FROM landed)
    ON CONFLICT (session) DO UPDATE SET body = excluded.body
"""
_TAKEN = """
    DELETE FROM $schema.inbox USING item
    WHERE inbox.session = item.session AND inbox.number <= item.taken
        AND item.session IN (SELECT session FROM landed)
"""
_CLAIMS = """
    added AS (
        INSERT INTO $schema.claims (digest, key, record)
        SELECT digest, key, record FROM claim
        WHERE expect IS NULL AND record IS NOT NULL AND session IN (SELECT session FROM landed)
    ),
    changed AS (
        UPDATE $schema.claims SET record = claim.record FROM claim
        WHERE claims.digest = claim.digest AND claim.expect IS NOT NULL AND claim.record IS NOT NULL
            AND claim.session IN (SELECT session FROM landed)
    ),
    freed AS (
        DELETE FROM $schema.claims USING claim
        WHERE claims.digest = claim.digest AND claim.record IS NULL
            AND claim.session IN (SELECT session FROM landed)
    )
"""
_PINS = """
    INSERT INTO $schema.pins (origin_uid, fork_uid, seq)
    SELECT origin_uid, uid, pinned FROM item
    WHERE origin IS NOT NULL AND session IN (SELECT session FROM landed)
"""
_LANDED = "SELECT session, posted, $durable FROM landed"


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
            for session, posted, _ in self._sql.rows(connection, *_statement(items)):
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


def _statement(items: Sequence[Append]) -> tuple[str, dict[str, Texts | Numbers]]:
    """Only the parts that these items need: the server plans it anew each time."""
    values = _columns(items)
    claims = [(item.session, change) for item in items for change in item.claims]
    pins = any(item.pin for item in items)
    if claims or pins:
        values |= {
            "claim_session": Texts(session for session, _ in claims),
            "digest": Texts(digest_of(change.key) for _, change in claims),
            "key": Texts(escape(change.key) for _, change in claims),
            "expect": Texts(_escape_any(change.expect) for _, change in claims),
            "record": Texts(_escape_any(change.record) for _, change in claims),
        }
        parts = [_CHOSEN.format(given=_GIVEN)]
    else:
        parts = [f"item AS MATERIALIZED ({_GIVEN})"]
    old, new = any(item.after is not None for item in items), any(item.after is None for item in items)
    takes = any(map(_taken, items))
    head = SET_HEAD.format("item") + (_SET_POSTED_AT if takes else "")
    moved = _MOVED.format(head=head, locked=_LOCKED if len(items) > 1 else "")
    if old and new:
        parts += [f"moved AS ({moved})", f"created AS ({_CREATED})"]
        parts.append("landed AS (SELECT * FROM moved UNION ALL SELECT * FROM created)")
    else:
        parts.append(f"landed AS ({moved if old else _CREATED})")
    parts.append(f"written AS ({_LINES})")
    frames = [item for item in items if item.keyframe is not None]
    if frames:
        values["frame_session"] = Texts(item.session for item in frames)
        values["frame"] = Texts(item.keyframe for item in frames)
        parts.append(f"kept AS ({_KEYFRAMES})")
    if takes:
        parts.append(f"emptied AS ({_TAKEN})")
    if claims:
        parts.append(_CLAIMS)
    if pins:
        parts.append(f"pinned AS ({_PINS})")
    return f"WITH {', '.join(parts)} {_LANDED}", values


def _escape_any(record: str | None) -> str | None:
    return None if record is None else escape(record)


def _taken(item: Append) -> int:
    """Up to which number inbox items are taken in with it; 0 if none is."""
    return item.head.taken if "inbox.taken" in item.kinds else 0


def _columns(items: Sequence[Append]) -> dict[str, Texts | Numbers]:
    lines = [
        (item.session, item.first_seq + place, kind, line)
        for item in items
        for place, (kind, line) in enumerate(zip(item.kinds, item.lines, strict=True))
    ]
    return head_columns([item.head for item in items]) | {
        "session": Texts(item.session for item in items),
        "after": Texts(item.after for item in items),
        "uid": Texts(item.head.uid for item in items),
        "origin": Texts(item.pin.origin if item.pin else None for item in items),
        "origin_uid": Texts(item.pin.uid if item.pin else None for item in items),
        "pinned": Numbers(item.pin.seq if item.pin else 0 for item in items),
        "taken": Numbers(map(_taken, items)),
        "line_session": Texts(session for session, _, _, _ in lines),
        "line_seq": Numbers(seq for _, seq, _, _ in lines),
        "kind": Texts(kind for _, _, kind, _ in lines),
        "line": Texts(line for _, _, _, line in lines),
    }
