"""A commit of several chunks that is torn anywhere is there whole or not at all; the next writer goes on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.core.codec import Page
from holdfast.core.entries import Body, CheckpointTaken, MessageAdded, SessionOpened, StateSet
from holdfast.core.session_state import SessionState
from holdfast.drivers.contract import Append, Conflict, Done, Driver
from holdfast.engine.committer import make_append
from holdfast.engine.journal import Journal
from holdfast.ids import SessionId
from holdfast.messages import Message, Text, encode_message
from holdfast.testing.conformance.author import commit_one, read_all, whole
from tests.stores import connect, on_every_driver, open_driver, schema_of

from . import faults
from .fork_server import Line, Warm, poll

_SESSION = SessionId("a")
_AT = datetime(2026, 1, 1, tzinfo=UTC)
_WORDS = 40_000
"""Characters of a message: a chunk is on several pages of a database."""
_STRIDE = 29
"""Every so many bytes, a writer goes on after a torn commit; readers look after each byte."""


class Writer:
    """Writes the journal of one session the way its holder does: every entry is folded, so heads are true."""

    def __init__(self) -> None:
        self.state = SessionState(_SESSION)
        self.items: list[Append] = []

    @classmethod
    def going_on(cls, driver: Driver) -> Writer:
        """One that comes later, and has read the journal."""
        writer = cls()
        writer.state = Journal(driver, _SESSION).fold()
        return writer

    def write(self, *entries: Body | tuple[Body, bytes]) -> Append:
        """An item that follows the last one; it counts as landed."""
        after = self.state.facts.head.sum or None
        new = []
        for entry in entries:
            body, content = entry if isinstance(entry, tuple) else (entry, None)
            new.append(self.state.append(body, _AT, content=content))
        item = make_append(new, after=after, head=self.state.facts.head)
        self.state.facts.head.sum = item.head.sum
        self.items.append(item)
        return item

    def opening(self) -> Append:
        return self.write(SessionOpened(id=_SESSION, uid="u" * 32), say("first"), CheckpointTaken(version=1))

    def several_chunks(self, size: int) -> Append:
        """Three chunks: with details and contents, with details alone, and at last with facts alone."""
        item = self.write(
            say("x" * size),
            CheckpointTaken(version=2),
            StateSet(key="basket", value=msgspec.Raw(b'"%b"' % (b"y" * size))),
            CheckpointTaken(version=3),
            CheckpointTaken(version=4),
        )
        assert len(item.chunks) == 3
        return item

    @property
    def page(self) -> Page:
        """All of it."""
        return whole([chunk for item in self.items for chunk in item.chunks])


def say(text: str) -> tuple[Body, bytes]:
    return MessageAdded(role="user"), encode_message(Message(role="user", blocks=(Text(text),)))


def _state_of(driver: Driver) -> bytes:
    """The whole state that a reader of the session gets, messages included."""
    state = Journal(driver, _SESSION).fold()
    texts = [message.text for message in state.transcript]
    return msgspec.json.encode((state.facts, texts))


@contextmanager
def _opened(url: str) -> Iterator[Driver]:
    driver = open_driver(url)
    try:
        yield driver
    finally:
        driver.close()


class Expected:
    """The two things that a reader may find."""

    def __init__(self, url: str) -> None:
        """Make the session at `url`, and what follows in a store of its own."""
        self.url = url
        writer = Writer()
        self.first = writer.opening()
        with _opened(url) as driver:
            assert commit_one(driver, self.first) == Done(0)
            self.before = read_all(driver, _SESSION), _state_of(driver)

    def follow(self, size: int) -> Append:
        """The commit that is to be torn."""
        with _opened(self.url) as driver:
            return Writer.going_on(driver).several_chunks(size)

    def check(self, item: Append) -> bool:
        """Look, then settle and go on; whether the item was there."""
        landed = self.look(item)
        self.go_on(item, landed)
        return landed

    def look(self, item: Append) -> bool:
        """Whether all of it is there; nothing of it is the other thing that may be."""
        with _opened(self.url) as driver:
            page, state = read_all(driver, _SESSION), _state_of(driver)
            landed = page != self.before[0]
            chunks = [*self.first.chunks, *(item.chunks if landed else ())]
            assert page == whole(chunks)
            assert landed or state == self.before[1]
            tip = driver.find_tip(_SESSION)
            assert tip is not None
            assert (tip.seq, tip.sum) == (chunks[-1].seq, chunks[-1].sum)
        return landed

    def go_on(self, item: Append, landed: bool) -> None:
        """Settle it by committing it again, and add something."""
        with _opened(self.url) as driver:
            outcome = commit_one(driver, item)
            assert outcome == (Conflict(item.head.sum) if landed else Done(0))
        with _opened(self.url) as driver:
            assert read_all(driver, _SESSION) == whole([*self.first.chunks, *item.chunks])
            writer = Writer.going_on(driver)
            assert writer.state.facts.head == item.head
            more = writer.write(say("and on"))
            assert commit_one(driver, more) == Done(0)
        with _opened(self.url) as driver:
            assert read_all(driver, _SESSION) == whole([*self.first.chunks, *item.chunks, *more.chunks])
            assert "and on" in _state_of(driver).decode()


# -- in children --------------------------------------------------------------------------------------


def commit_and_die(line: Line, url: str, item: str, number: int, when: faults.When) -> int:
    """Commit, and die at the `number`-th change from then on; how many there were, if it is less."""
    disk = faults.install()
    driver = open_driver(url)
    before = len(disk.events)
    disk.kill_at(before + number, when)
    assert commit_one(driver, _decode_item(item)) == Done(0)
    return len(disk.events) - before


def commit_and_wait(line: Line, url: str, item: str) -> None:
    """Commit; the server is kept from ending it."""
    with _opened(url) as driver:
        commit_one(driver, _decode_item(item))


def _encode_item(item: Append) -> str:
    return msgspec.json.encode(item).decode()


def _decode_item(item: str) -> Append:
    return msgspec.json.decode(item, type=Append)


# -- tests --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("when", ["before", "half"])
@on_every_driver
def test_a_kill_at_any_write_of_a_commit_leaves_all_of_its_chunks_or_none(
    warm: Warm, scheme: str, quick_path: Path, when: faults.When
) -> None:
    """Between the chunks, in the middle of one, before the sync and after it."""
    number, deaths, landed = 0, 0, set()
    while True:
        number += 1
        expected = Expected(f"{scheme}:{quick_path}/{number}")
        item = expected.follow(_WORDS)
        with warm.child(commit_and_die, expected.url, _encode_item(item), number, when) as child:
            outcome = child.outcome()
        if outcome is not None:
            assert isinstance(outcome, int), outcome
            assert outcome < number
            assert expected.check(item), "it was acknowledged"
            break
        deaths += 1
        landed.add(expected.check(item))
    print(f"{deaths} deaths")
    assert deaths >= 1
    assert False in landed


@pytest.mark.parametrize("head", ["that of the commit before", "none"])
def test_a_journal_cut_at_any_byte_of_its_last_commit_ends_with_the_one_before(
    quick_path: Path, head: str
) -> None:
    """In a directory, where nothing else says what is whole."""
    root = quick_path / "store"
    expected = Expected(f"dir:{root}")
    folder = root / "sessions" / _SESSION
    journal, cached = folder / "journal.jsonl", folder / "head.json"
    start, head_before = len(journal.read_bytes()), cached.read_bytes()
    item = expected.follow(40)
    with _opened(expected.url) as driver:
        assert commit_one(driver, item) == Done(0)
    stored = journal.read_bytes()
    assert stored[start:].count(b"\n") == 3
    landed = []
    for length in range(start, len(stored) + 1):
        journal.write_bytes(stored[:length])
        cached.unlink(missing_ok=True)
        if head != "none":
            cached.write_bytes(head_before)
        landed.append(expected.look(item))
        assert journal.read_bytes() == stored[:length], "reading changes nothing"
        if length % _STRIDE == start % _STRIDE or landed[-1]:
            expected.go_on(item, landed[-1])
            for left in folder.glob("torn-*"):
                left.unlink()
    assert landed == [False] * (len(stored) - start) + [True]


def test_a_commit_that_ends_on_the_server_in_its_middle_leaves_nothing(
    warm: Warm, postgres: str, quick_path: Path
) -> None:
    """The head was moved, and the chunks were about to follow, when client and server process died."""
    expected = Expected(f"postgresql:{quick_path}/store")
    schema = schema_of(quick_path / "store")
    item = expected.follow(_WORDS)
    with connect() as locker:
        with locker.transaction():
            # Readers are let in, writers are not: the head is moved before the chunks are written.
            locker.execute(f"LOCK TABLE {schema}.chunks IN SHARE MODE".encode())
            with warm.child(commit_and_wait, expected.url, _encode_item(item)) as child:
                poll(lambda: _list_waiting(schema) != [], "the commit to wait")
                child.kill()
                child.wait()
            for pid in _list_waiting(schema):
                locker.execute("SELECT pg_terminate_backend(%s)", (pid,))
            poll(lambda: _list_waiting(schema) == [], "the server's process to end")
    assert not expected.check(item)


def _list_waiting(schema: str) -> list[int]:
    """The server's processes that wait for a lock on the chunks of this schema."""
    query = """
        SELECT pid FROM pg_locks
        WHERE NOT granted AND relation = (%s || '.chunks')::regclass
    """
    with connect() as connection:
        rows: Any = connection.execute(query, (schema,)).fetchall()
    return [pid for (pid,) in rows]
