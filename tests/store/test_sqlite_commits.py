"""Commits to a SQLite file: after an open transaction, of any size, in any mix."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from holdfast.core.codec import Page
from holdfast.core.entries import Body, RunCompleted, RunStarted
from holdfast.drivers.contract import Conflict, Done
from holdfast.drivers.sqlite import SqliteDriver, commit, schema
from holdfast.errors import Corrupt, NewerFormat, StoreFailed
from holdfast.testing.conformance.author import CHUNK_END, Author, commit_one, read_all, say
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
    assert read_all(other, "a") == author.page
    other.close()


@pytest.mark.parametrize("neighbours", [[], [CHUNK_END]])
def test_a_large_chunk_takes_little_more_memory_than_itself(
    driver: SqliteDriver, neighbours: list[Body]
) -> None:
    """Also among others: SQLite need not copy it to insert it."""
    author, text = Author("a"), "x" * (32 << 20)
    author.begin(driver)
    item = author.write(*neighbours, say(text), *neighbours)
    assert len(item.chunks) == 1 + 2 * len(neighbours)
    before, _ = apsw.status(apsw.SQLITE_STATUS_MEMORY_USED, reset=True)
    assert commit_one(driver, item) == Done(0)
    author.accept(item)
    _, most = apsw.status(apsw.SQLITE_STATUS_MEMORY_USED)
    assert most - before < 3 * len(text)
    assert read_all(driver, "a") == author.page


@pytest.mark.parametrize("many", [False, True])
def test_a_commit_tells_the_newest_inbox_number(driver: SqliteDriver, many: bool) -> None:
    """Of one session by itself, and of each in a batch."""
    posted, other = Author("posted"), Author("other")
    for author in (posted, other):
        author.begin(driver)
    driver.post(posted.session, b"{}")
    driver.post(posted.session, b"{}")
    items = [posted.write(say("one")), other.write(say("two"))]
    assert driver.commit(items if many else items[:1]) == ([Done(2), Done(0)] if many else [Done(2)])


def test_a_batch_that_landed_is_done_although_the_inbox_cannot_be_read(
    driver: SqliteDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The inbox number is a hint, and comes with the next commit."""
    authors = [Author("a"), Author("b")]
    for author in authors:
        author.begin(driver)
        driver.post(author.session, b"{}")

    def fail(*_: object) -> None:
        raise apsw.IOError("out of order")

    with monkeypatch.context() as patched:
        # The moment between the statement that commits and the one that looks.
        patched.setattr(commit, "_list_posted", fail)
        items = [author.write(say("one")) for author in authors]
        assert driver.commit(items) == [Done(0), Done(0)]
    for author, item in zip(authors, items, strict=True):
        author.accept(item)
    assert driver.commit([author.write(say("two")) for author in authors]) == [Done(1), Done(1)]


@pytest.mark.parametrize("posted", ["'three'", "x'03'", "2.5"])
def test_an_inbox_number_that_is_none_does_not_fail_a_commit(driver: SqliteDriver, posted: str) -> None:
    """Reading the session reports the damage."""
    author = Author("a")
    author.begin(driver)
    write_connection(driver).execute(f"UPDATE sessions SET posted = {posted}")
    author.commit(driver, say("one"))
    with pytest.raises(Corrupt, match="posted"):
        driver.find_tip(author.session)


def test_runs_are_committed_with_the_chunks_in_one_statement(driver: SqliteDriver) -> None:
    """A run begins and ends with nearly every message of a chat."""
    author = Author("a")
    author.begin(driver)
    ran: list[str] = []
    db = write_connection(driver)
    db.trace_v2(apsw.SQLITE_TRACE_STMT, lambda traced: ran.append(traced["sql"]))
    author.commit(driver, RunStarted(agent="clerk"), say("hello"), run="r")
    author.commit(driver, say("bye"), RunCompleted(), run="r")
    db.trace_v2(0, None)
    assert [sql for sql in ran if "INSERT INTO feed" in sql and "BEGIN" not in sql] != []
    assert not any(sql.startswith("BEGIN") for sql in ran)
    (run,) = driver.list_runs(author.session, None, 10)
    assert (run.run, run.cursor.seq) == ("r", 2)
    assert run.started == Page.of(author.chunks[1:2], said=False)
    assert run.ended == Page.of(author.chunks[2:3], said=False)


def test_a_journal_that_has_moved_on_takes_no_run(driver: SqliteDriver) -> None:
    """Chunks, head and runs land together or not at all."""
    author = Author("a")
    author.begin(driver)
    late = author.write(RunStarted(), run="r")
    author.commit(driver, say("first"))
    assert commit_one(driver, late) == Conflict(author.sum)
    assert list(driver.list_runs(None, None, 10)) == []
    assert read_all(driver, "a") == author.page


def test_in_a_batch_of_all_kinds_each_item_gets_its_own_outcome(driver: SqliteDriver) -> None:
    """Plain ones, one that begins, one with a keyframe, one that has moved on: one transaction."""
    plain, framed, stale, fresh = (Author(name) for name in ("plain", "framed", "stale", "fresh"))
    for author in (plain, framed, stale):
        author.begin(driver)
    late = stale.write(say("too late"))
    stale.commit(driver, say("first"))
    items = [
        plain.write(*[CHUNK_END] * 1200),
        framed.write(say("and"), keyframe=b"{}"),
        late,
        fresh.opening(say("new")),
    ]
    assert driver.commit(items) == [Done(0), Done(0), Conflict(stale.sum), Done(0)]
    for author, item in zip((plain, framed, fresh), (items[0], items[1], items[3]), strict=True):
        author.accept(item)
        assert read_all(driver, author.session) == author.page
    assert read_all(driver, "stale") == stale.page
    assert driver.find_keyframe(framed.session) == b"{}"


@pytest.mark.parametrize(
    ("version", "error", "what"),
    [(0, StoreFailed, "has schema 0, .* or a copy of it"), (99, NewerFormat, "Upgrade holdfast")],
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
