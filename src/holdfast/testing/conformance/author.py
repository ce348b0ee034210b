"""Writes true journals, the way a session's holder does."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

import msgspec

from ...core.codec import GENESIS, parse, seal
from ...core.entries import KIND_OF, Body, MessageAdded, SessionForked, SessionOpened
from ...core.head import Head
from ...drivers.contract import Append, ClaimChange, Done, Driver, Outcome, Pin
from ...ids import SessionId, fresh_uid
from ...messages import Message, Text, encode_message

Said: TypeAlias = tuple[Body, bytes]
"""A body with a content."""

_START = datetime(2026, 1, 1, tzinfo=UTC)


def at_second(number: float) -> datetime:
    """A moment of the suite's own time."""
    return _START + timedelta(seconds=number)


def say(text: str) -> Said:
    """A message of the user's."""
    return MessageAdded(role="user"), encode_message(Message(role="user", blocks=(Text(text),)))


class Author:
    """Knows where one session's journal ends, and makes what may follow.

    `write` only makes an item; `accept` moves on after it; `commit` does both, and hands it to the driver.
    """

    def __init__(self, session: str, *, pin: Pin | None = None, sum: str = GENESIS) -> None:
        self.session = SessionId(session)
        self.uid = fresh_uid()
        self.seq, self.sum = pin.seq if pin else 0, sum
        self.lines: list[bytes] = []
        self.sums: dict[int, str] = {}
        self._pin = pin
        self.head = Head(
            session=self.session,
            uid=self.uid,
            seq=self.seq,
            sum=self.sum,
            status="active",
            created_at=_START,
            updated_at=_START,
            origin=pin.origin if pin else None,
        )

    def write(
        self,
        *entries: Body | Said,
        run: str | None = None,
        at: datetime | None = None,
        keyframe: bytes | None = None,
        claims: Sequence[ClaimChange] = (),
        **head: object,
    ) -> Append:
        """An item that follows the last accepted one; `head` changes fields of the head."""
        seq, sum = self.seq, self.sum
        lines: list[bytes] = []
        kinds: list[str] = []
        for entry in entries:
            body, content = entry if isinstance(entry, tuple) else (entry, None)
            seq += 1
            sealed = seal(body, seq=seq, at=at or at_second(seq), run=run, step=0, after=sum, content=content)
            sum = sealed.sum
            lines.append(sealed.line)
            kinds.append(KIND_OF[type(body)])
        return Append(
            session=self.session,
            after=self.sum if self.lines else None,
            first_seq=self.seq + 1,
            lines=tuple(lines),
            kinds=tuple(kinds),
            head=msgspec.structs.replace(self.head, seq=seq, sum=sum, updated_at=at_second(seq), **head),
            keyframe=keyframe,
            claims=tuple(claims),
            pin=None if self.lines else self._pin,
        )

    def opening(self, *more: Body | Said, **options: Any) -> Append:
        """The item that begins the session."""
        first: Body
        if self._pin is None:
            first = SessionOpened(uid=self.uid)
        else:
            pin = self._pin
            first = SessionForked(uid=self.uid, origin=pin.origin, origin_uid=pin.uid, version=1)
        return self.write(first, *more, **options)

    def accept(self, item: Append) -> None:
        """The item landed: what is written next follows it."""
        self.seq, self.sum, self.head = item.head.seq, item.head.sum, item.head
        self.lines += item.lines
        for line in item.lines:
            parsed = parse(line, "the suite")
            self.sums[parsed.seq] = parsed.sum

    def begin(self, driver: Driver, *more: Body | Said, **options: Any) -> Append:
        """Create the session."""
        return self._land(driver, self.opening(*more, **options))

    def commit(self, driver: Driver, *entries: Body | Said, **options: Any) -> Append:
        """Write an item, which must land."""
        return self._land(driver, self.write(*entries, **options))

    def _land(self, driver: Driver, item: Append) -> Append:
        outcome = commit_one(driver, item)
        assert isinstance(outcome, Done), outcome
        self.accept(item)
        return item

    def fork(self, into: str, seq: int) -> Author:
        """The author of a fork, which is still to begin."""
        return Author(into, pin=Pin(origin=self.session, uid=self.uid, seq=seq), sum=self.sums[seq])

    def twin(self) -> Author:
        """Another writer that believes that the journal ends here."""
        twin = Author(self.session, pin=self._pin)
        twin.uid, twin.seq, twin.sum, twin.head = self.uid, self.seq, self.sum, self.head
        twin.lines, twin.sums = list(self.lines), dict(self.sums)
        return twin


def commit_one(driver: Driver, item: Append) -> Outcome:
    """The outcome of an item that is a batch by itself."""
    (outcome,) = driver.commit([item])
    return outcome


def read_all(driver: Driver, session: str) -> list[bytes]:
    """The whole journal, in one read."""
    return list(driver.read(SessionId(session), 0, 1_000_000))
