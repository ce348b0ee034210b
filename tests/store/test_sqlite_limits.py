"""SQLite takes up to a gigabyte as one value: here less, so that a test reaches it."""

from pathlib import Path

import apsw
import pytest

import holdfast
from holdfast.core.codec import Page
from holdfast.drivers.sqlite import SqliteDriver
from holdfast.drivers.sqlite.connections import SqliteConnections
from holdfast.errors import StoreFailed
from holdfast.ids import SessionId
from holdfast.testing.conformance.author import Author, note, read_all, say
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


async def test_a_session_of_large_chunks_can_be_opened(tmp_path: Path, narrow: int) -> None:
    """However much a page of them comes to."""
    texts = [f"{number}{'x' * (narrow // 7)}" for number in range(50)]
    async with holdfast.open_store(tmp_path / "agents.db") as store:
        async with store.session("a") as session:
            for text in texts:
                await session.add(text)
                await session.flush()
        async with store.session("a") as session:
            assert [message.text for message in session.transcript] == texts


def test_every_chunk_is_read_once_and_in_order(tmp_path: Path, narrow: int) -> None:
    """Also where the end of the journal is in the middle of a page."""
    driver = SqliteDriver(tmp_path / "agents.db")
    author = Author("a")
    author.begin(driver)
    for number in range(37):
        # Details as well: facts, details and what was said become too large together one by one.
        author.commit(driver, note(f"{number}{'y' * (narrow // 9)}"), say(f"{number}{'x' * (narrow // 7)}"))
    for said in (True, False):
        assert driver.read(SessionId("a"), 0, 1000, said=said) == Page.of(author.chunks, said=said)
        some = [chunk for chunk in author.chunks if chunk.seq > 6][:20]
        assert driver.read(SessionId("a"), 6, 20, said=said) == Page.of(some, said=said)
    driver.close()


def test_a_fork_is_read_from_its_own_first_chunk(tmp_path: Path, narrow: int) -> None:
    """Its journal does not begin with entry 1."""
    driver = SqliteDriver(tmp_path / "agents.db")
    origin = Author("a")
    origin.begin(driver)
    for number in range(9):
        origin.commit(driver, say(str(number)))
    fork = origin.fork("f", seq=10)
    fork.begin(driver)
    for number in range(20):
        fork.commit(driver, say(f"{number}{'x' * (narrow // 7)}"))
    assert read_all(driver, "f") == fork.page
    driver.close()


def test_a_chunk_that_is_too_large_by_itself_is_an_error(tmp_path: Path, narrow: int) -> None:
    """Not an endless search."""
    driver = SqliteDriver(tmp_path / "agents.db")
    Author("a").begin(driver, say("x" * (narrow * 2 // 3)))
    write_connection(driver).limit(apsw.SQLITE_LIMIT_LENGTH, narrow // 2)
    # The chunk was written under a wider limit than it is read under.
    for db in driver._db._idle:
        db.limit(apsw.SQLITE_LIMIT_LENGTH, narrow // 2)
    with pytest.raises(StoreFailed, match="too big"):
        driver.read(SessionId("a"), 0, 100, said=True)
    driver.close()


def _bytes_read() -> int:
    """How much this process has read from files so far."""
    counts = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(counts["rchar"])


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="only Linux tells what a process has read")
def test_a_reader_that_does_without_what_was_said_does_not_read_it(tmp_path: Path) -> None:
    """Opening a session folds facts and details only, however large its messages are."""
    path = tmp_path / "agents.db"
    driver = SqliteDriver(path)
    author = Author("a")
    author.begin(driver)
    for _ in range(8):
        author.commit(driver, note("n"), say("x" * (1 << 20)))
    driver.close()
    read: dict[bool, int] = {}
    for said in (False, True):
        driver = SqliteDriver(path)
        before = _bytes_read()
        assert driver.read(SessionId("a"), 0, 100, said=said) == Page.of(author.chunks, said=said)
        read[said] = _bytes_read() - before
        driver.close()
    assert read[True] > 8 << 20
    assert read[False] < 1 << 20
