"""Commits to a SQLite file: after an open transaction, of any size, in any mix."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from holdfast.drivers.contract import Conflict, Done
from holdfast.drivers.sqlite import SqliteDriver, commit, schema
from holdfast.errors import NewerFormat, StoreFailed
from holdfast.testing.conformance.author import Author, commit_one, read_all, say
from tests.internals import write_connection


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[SqliteDriver]:
    driver = SqliteDriver(tmp_path / "agents.db")
    yield driver
    driver.close()


@pytest.mark.parametrize("wait", [True, False])
def test_a_commit_does_not_join_a_transaction_that_was_left_open(
    driver: SqliteDriver, wait: bool, tmp_path: Path
) -> None:
    """A call that is interrupted twice may leave one. Commits in it would be rolled back with it."""
    author = Author("a")
    author.begin(driver)
    write_connection(driver).execute("BEGIN IMMEDIATE")
    item = author.write(say("kept"))
    assert driver.commit([item], wait=wait) == [Done(0)]
    author.accept(item)
    other = SqliteDriver(tmp_path / "agents.db")
    assert read_all(other, "a") == author.lines
    other.close()


def test_a_large_line_takes_little_more_memory_than_itself(driver: SqliteDriver) -> None:
    """Also among others: SQLite need not copy it to insert it."""
    author, text = Author("a"), "x" * (32 << 20)
    author.begin(driver)
    item = author.write(say("before"), say(text), say("after"))
    before, _ = apsw.status(apsw.SQLITE_STATUS_MEMORY_USED, reset=True)
    assert commit_one(driver, item) == Done(0)
    author.accept(item)
    _, most = apsw.status(apsw.SQLITE_STATUS_MEMORY_USED)
    assert most - before < 3 * len(text)
    assert read_all(driver, "a") == author.lines


def test_a_commit_that_landed_is_done_although_the_inbox_cannot_be_read(
    driver: SqliteDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The inbox number is a hint, and comes with the next commit."""
    author = Author("a")
    author.begin(driver)
    driver.post(author.session, b"{}")

    def fail(*_: object) -> None:
        raise apsw.IOError("out of order")

    with monkeypatch.context() as patched:
        patched.setattr(commit, "find_tip", fail)
        item = author.write(say("one"))
        assert commit_one(driver, item) == Done(0)
    author.accept(item)
    assert commit_one(driver, author.write(say("two"))) == Done(1)


def test_in_a_batch_of_all_kinds_each_item_gets_its_own_outcome(driver: SqliteDriver) -> None:
    """Plain ones, one that begins, one with a keyframe, one that has moved on: one transaction."""
    plain, framed, stale, fresh = (Author(name) for name in ("plain", "framed", "stale", "fresh"))
    for author in (plain, framed, stale):
        author.begin(driver)
    late = stale.write(say("too late"))
    stale.commit(driver, say("first"))
    items = [
        plain.write(*(say(str(number)) for number in range(1200))),
        framed.write(say("and"), keyframe=b"{}"),
        late,
        fresh.opening(say("new")),
    ]
    assert driver.commit(items) == [Done(0), Done(0), Conflict(stale.sum), Done(0)]
    for author, item in zip((plain, framed, fresh), (items[0], items[1], items[3]), strict=True):
        author.accept(item)
        assert read_all(driver, author.session) == author.lines
    assert read_all(driver, "stale") == stale.lines
    assert driver.find_keyframe(framed.session) == b"{}"


@pytest.mark.parametrize(
    ("version", "error", "what"),
    [(3, StoreFailed, "has schema 3, .* copy it"), (99, NewerFormat, "Upgrade holdfast")],
)
def test_a_file_of_another_schema_where_nothing_can_be_written_is_refused_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int, error: type[Exception], what: str
) -> None:
    """The error does not blame the file system."""
    path = tmp_path / "agents.db"
    SqliteDriver(path).close()
    db = apsw.Connection(str(path))
    db.pragma("user_version", version)
    db.close()

    def refuse(*_: object) -> None:
        raise apsw.ReadOnlyError("attempt to write a readonly database")

    # Root may write everywhere, so the file is only said to be read-only.
    monkeypatch.setattr(schema, "_switch_to_wal", refuse)
    with pytest.raises(error, match=what):
        SqliteDriver(path)
