"""Writes true journals, the way a session's holder does."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

import msgspec

from ...core.codec import GENESIS, Chunk, Page, encode_entry, erase
from ...core.entries import Body, CheckpointTaken, MessageAdded, SessionForked, SessionOpened, StateSet
from ...core.head import Head
from ...drivers.contract import Append, ClaimChange, Done, Driver, Erasure, Outcome, Pin
from ...engine.committer import make_append
from ...ids import SessionId, fresh_uid
from ...messages import Message, Text, encode_message

Said: TypeAlias = tuple[Body, bytes]
"""A body with a content."""

CHUNK_END = CheckpointTaken(version=1)
"""An entry that ends its chunk: what follows it in a commit is in the next one."""

_START = datetime(2026, 1, 1, tzinfo=UTC)


def at_second(number: float) -> datetime:
    """A moment of the suite's own time."""
    return _START + timedelta(seconds=number)


def say(text: str) -> Said:
    """A message of the user's."""
    return MessageAdded(role="user"), encode_message(Message(role="user", blocks=(Text(text),)))


def note(text: str) -> Body:
    """An entry with details and without a content."""
    return StateSet(key="note", value=msgspec.Raw(msgspec.json.encode(text)))


def erased(chunk: Chunk) -> Erasure:
    """What is left of a chunk when every detail and everything that was said is erased."""
    places = range(chunk.seq)  # No chunk has more entries than that.
    return Erasure(erase(chunk.details, places, "chunk"), erase(chunk.said, places, "chunk"))


def replaced(chunk: Chunk, left: Erasure | None) -> Chunk:
    """The chunk with what is left of it; None leaves it as it is."""
    return chunk if left is None else msgspec.structs.replace(chunk, details=left.details, said=left.said)


class Author:
    """Knows where one session's journal ends, and makes what may follow.

    `write` only makes an item; `accept` moves on after it; `commit` does both, and hands it to the driver.
    """

    def __init__(self, session: str, *, pin: Pin | None = None, sum: str = GENESIS) -> None:
        self.session = SessionId(session)
        self.uid = fresh_uid()
        self.seq, self.sum = pin.seq if pin else 0, sum
        self.chunks: list[Chunk] = []
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

    @property
    def page(self) -> Page:
        """The whole journal of its own chunks, as it is to be read."""
        return whole(self.chunks)

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
        new = []
        for seq, entry in enumerate(entries, self.seq + 1):
            body, content = entry if isinstance(entry, tuple) else (entry, None)
            new.append(encode_entry(body, seq, at or at_second(seq), run, 0, content))
        last = self.seq + len(new)
        return make_append(
            new,
            after=self.sum if self.chunks else None,
            origin_sum=self.sum,
            head=msgspec.structs.replace(self.head, seq=last, updated_at=at_second(last), **head),
            keyframe=keyframe,
            claims=tuple(claims),
            pin=None if self.chunks else self._pin,
        )

    def opening(self, *more: Body | Said, **options: Any) -> Append:
        """The item that begins the session."""
        first: Body
        if self._pin is None:
            first = SessionOpened(id=self.session, uid=self.uid)
        else:
            pin = self._pin
            first = SessionForked(
                id=self.session, uid=self.uid, origin=pin.origin, origin_uid=pin.uid, version=1
            )
        return self.write(first, *more, **options)

    def accept(self, item: Append) -> None:
        """The item landed: what is written next follows it."""
        self.seq, self.sum, self.head = item.head.seq, item.head.sum, item.head
        self.chunks += item.chunks
        self.sums.update((chunk.seq, chunk.sum) for chunk in item.chunks)

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
        twin.chunks, twin.sums = list(self.chunks), dict(self.sums)
        return twin


def commit_one(driver: Driver, item: Append) -> Outcome:
    """The outcome of an item that is a batch by itself."""
    (outcome,) = driver.commit([item])
    return outcome


def whole(chunks: Sequence[Chunk]) -> Page:
    """The page of these chunks, with what was said."""
    return Page.of(chunks, said=True)


def read_all(driver: Driver, session: str) -> Page:
    """The whole journal, in one read."""
    return driver.read(SessionId(session), 0, 1_000_000, said=True)
