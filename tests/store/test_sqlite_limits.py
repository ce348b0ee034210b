"""SQLite takes up to a gigabyte as one value: here less, so that a test reaches it."""

from pathlib import Path

import apsw
import pytest

import holdfast
from holdfast.drivers.sqlite import SqliteDriver
from holdfast.drivers.sqlite.connections import SqliteConnections
from holdfast.errors import StoreFailed
from holdfast.ids import SessionId
from holdfast.testing.conformance.author import Author, read_all, say
from tests.internals import write_connection


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> int:
    """How much connections take from now on."""
    taken = 30_000
    # A limit is set on each connection; the one of SQLite takes gigabytes to reach.
    open_wide = SqliteConnections._open

    def open_narrow(self: SqliteConnections, *, create: bool = False) -> apsw.Connection:
        db = open_wide(self, create=create)
        db.limit(apsw.SQLITE_LIMIT_LENGTH, taken)
        return db

    monkeypatch.setattr(SqliteConnections, "_open", open_narrow)
    return taken


async def test_a_session_of_large_lines_can_be_opened(tmp_path: Path, narrow: int) -> None:
    """However much a page of them comes to."""
    texts = [f"{number}{'x' * (narrow // 7)}" for number in range(50)]
    async with holdfast.open_store(tmp_path / "agents.db") as store:
        async with store.session("a") as session:
            for text in texts:
                await session.add(text)
        async with store.session("a") as session:
            assert [message.text for message in session.transcript] == texts


def test_every_line_is_read_once_and_in_order(tmp_path: Path, narrow: int) -> None:
    """Also where the end of the journal is in the middle of a page."""
    driver = SqliteDriver(tmp_path / "agents.db")
    author = Author("a")
    lines = list(author.begin(driver).lines)
    for number in range(37):
        lines += author.commit(driver, say(f"{number}{'x' * (narrow // 7)}")).lines
    assert read_all(driver, "a") == lines
    assert list(driver.read(SessionId("a"), 3, 20)) == lines[3:23]
    driver.close()


def test_a_fork_is_read_from_its_own_first_line(tmp_path: Path, narrow: int) -> None:
    """Its journal does not begin with entry 1."""
    driver = SqliteDriver(tmp_path / "agents.db")
    origin = Author("a")
    origin.begin(driver)
    for number in range(9):
        origin.commit(driver, say(str(number)))
    fork = origin.fork("f", seq=10)
    lines = list(fork.begin(driver).lines)
    for number in range(20):
        lines += fork.commit(driver, say(f"{number}{'x' * (narrow // 7)}")).lines
    assert list(driver.read(SessionId("f"), 0, 1024)) == lines
    driver.close()


def test_a_line_that_is_too_large_by_itself_is_an_error(tmp_path: Path, narrow: int) -> None:
    """Not an endless search."""
    driver = SqliteDriver(tmp_path / "agents.db")
    Author("a").begin(driver, say("x" * (narrow * 2 // 3)))
    write_connection(driver).limit(apsw.SQLITE_LIMIT_LENGTH, narrow // 2)
    # The line was written under a wider limit than it is read under.
    for db in driver._db._idle:
        db.limit(apsw.SQLITE_LIMIT_LENGTH, narrow // 2)
    with pytest.raises(StoreFailed, match="too big"):
        driver.read(SessionId("a"), 0, 100)
    driver.close()
