"""A commit that may not wait, because it runs on the thread of an event loop."""

import time
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from holdfast.drivers.contract import Append, Done
from holdfast.drivers.sqlite import SqliteDriver
from holdfast.errors import StoreBusy
from holdfast.limits import BUSY_S
from holdfast.testing.conformance.author import Author, read_all, say

LOG_BYTES_MAX = 24 << 20
"""A thousand pages, and the commits until the checkpoint."""
MUCH = "x" * 200_000


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[SqliteDriver]:
    """A store of its own."""
    driver = SqliteDriver(tmp_path / "store.db")
    yield driver
    driver.close()


@pytest.fixture
def author(driver: SqliteDriver) -> Author:
    """A session that has begun."""
    author = Author("a")
    author.begin(driver)
    return author


def _commit_at_once(driver: SqliteDriver, author: Author, item: Append) -> None:
    (outcome,) = driver.commit([item], wait=False)
    assert isinstance(outcome, Done)
    author.accept(item)


def _commit_until_busy(driver: SqliteDriver, author: Author) -> Append:
    """Commit until the log is due for a checkpoint; the refused item."""
    for _ in range(1000):
        item = author.write(say(MUCH))
        try:
            _commit_at_once(driver, author, item)
        except StoreBusy:
            return item
    raise AssertionError("the log grows and grows")


def test_it_lands_if_no_other_writer_is_in_the_way(driver: SqliteDriver, author: Author) -> None:
    """Like any other commit, and conflicts like any other."""
    item = author.write(say("hello"))
    _commit_at_once(driver, author, item)
    assert read_all(driver, "a") == author.page
    (outcome,) = driver.commit([item], wait=False)
    assert not isinstance(outcome, Done)


def test_it_is_refused_at_once_while_another_process_writes(
    driver: SqliteDriver, author: Author, tmp_path: Path
) -> None:
    """Nothing is written, and nothing is left behind: later, both kinds of commits work."""
    other = apsw.Connection(str(tmp_path / "store.db"))
    other.execute("BEGIN IMMEDIATE")
    item = author.write(say("hello"))
    began_s = time.monotonic()
    with pytest.raises(StoreBusy, match="is writing"):
        driver.commit([item], wait=False)
    assert time.monotonic() - began_s < BUSY_S / 2
    assert read_all(driver, "a") == author.page
    other.execute("COMMIT")
    other.close()
    _commit_at_once(driver, author, item)
    author.commit(driver, say("and again"))
    assert read_all(driver, "a") == author.page


def test_it_is_refused_at_once_while_another_thread_writes(driver: SqliteDriver, author: Author) -> None:
    """Also in the middle of that thread's transaction."""
    item = author.write(say("hello"))
    # A transaction stays open: through the contract, a commit begins and ends one in a single call.
    with driver._db.writing(), pytest.raises(StoreBusy, match="another thread"):
        driver.commit([item], wait=False)
    _commit_at_once(driver, author, item)


def test_it_is_refused_when_the_log_is_due_for_a_checkpoint(driver: SqliteDriver, author: Author) -> None:
    """A commit that may wait then does so, and others go on at once."""
    refused = _commit_until_busy(driver, author)
    with pytest.raises(StoreBusy, match="log"):
        driver.commit([refused], wait=False)
    assert read_all(driver, "a") == author.page
    assert driver.commit([refused]) == [Done(0)]
    author.accept(refused)
    _commit_at_once(driver, author, author.write(say("hello")))
    assert read_all(driver, "a") == author.page


def test_any_write_that_may_wait_checkpoints_the_log(driver: SqliteDriver, author: Author) -> None:
    """Not only a commit: a post, a heartbeat or a claim is enough."""
    refused = _commit_until_busy(driver, author)
    driver.post(author.session, b"{}")
    assert driver.commit([refused], wait=False) == [Done(1)]


def test_the_log_does_not_grow_without_bound(driver: SqliteDriver, author: Author, tmp_path: Path) -> None:
    """However the two kinds of commits alternate."""
    for _ in range(2):
        refused = _commit_until_busy(driver, author)
        assert driver.commit([refused]) == [Done(0)]
        author.accept(refused)
        for _ in range(30):
            author.commit(driver, say(MUCH))
    assert (tmp_path / "store.db-wal").stat().st_size < LOG_BYTES_MAX
