"""A SQLite store is three files: what happens if they are changed, moved or deleted while it is open."""

from __future__ import annotations

import hashlib
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import apsw
import pytest

from holdfast import open_store
from holdfast.blobs.home import BlobContext
from holdfast.drivers.contract import ClaimChange, Conflict, Done
from holdfast.drivers.sqlite import SqliteDriver
from holdfast.drivers.sqlite.chunks import read_page
from holdfast.drivers.sqlite.connections import SqliteConnections
from holdfast.drivers.sqlite.file_guard import FileGuard
from holdfast.errors import StoreFailed
from holdfast.ids import HolderId
from holdfast.testing.conformance.author import Author, commit_one, erased, read_all, replaced, say, whole
from tests.internals import write_connection

MUCH = b"a picture" * 200_000
DIGEST = hashlib.sha256(MUCH).hexdigest()
FAR = datetime(2999, 1, 1, tzinfo=UTC)
ME = HolderId("me")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the store is."""
    return tmp_path / "agents.db"


@pytest.fixture
def driver(path: Path) -> Iterator[SqliteDriver]:
    """A store."""
    driver = SqliteDriver(path)
    yield driver
    driver.close()


@pytest.fixture
def author(driver: SqliteDriver) -> Author:
    """A session that has begun."""
    author = Author("a")
    author.begin(driver, say("one"))
    return author


def _delete_log(path: Path) -> None:
    """As another library in this process does, where nothing guards the files."""
    db = sqlite3.connect(path)
    db.execute("SELECT count(*) FROM chunks")
    db.close()
    assert not Path(f"{path}-wal").exists()


# -- every kind of write ------------------------------------------------------------------------------


def _beat(driver: SqliteDriver, author: Author) -> None:
    assert driver.beat(ME, b"{}", [author.session]) == {author.session: 0}
    assert driver.find_beat(ME) is not None


def _retire(driver: SqliteDriver, author: Author) -> None:
    driver.retire(ME)
    assert driver.find_beat(ME) is None


def _erase(driver: SqliteDriver, author: Author) -> None:
    (chunk,) = author.chunks
    left = erased(chunk)
    assert driver.erase(author.session, author.sum, {chunk.seq: left}, author.head) == Done(0)
    assert read_all(driver, "a") == whole([replaced(chunk, left)])


def _delete(driver: SqliteDriver, author: Author) -> None:
    assert driver.delete(author.session, author.sum) == Done(0)
    assert driver.find_tip(author.session) is None


def _put_blob(driver: SqliteDriver, author: Author) -> None:
    driver.blobs.put(DIGEST, [MUCH], BlobContext(), owner=driver.store_id())
    found = driver.blobs.find(DIGEST)
    assert found is not None
    assert b"".join(found.parts) == MUCH
    assert driver.blobs.sweep(begun_before=FAR) == 0


def _remove_blob(driver: SqliteDriver, author: Author) -> None:
    driver.blobs.remove(DIGEST, put_before=FAR)
    assert driver.blobs.find(DIGEST) is None


def _commit(driver: SqliteDriver, author: Author) -> None:
    author.commit(driver, say("two"))
    assert read_all(driver, "a") == author.page


def _post(driver: SqliteDriver, author: Author) -> None:
    number = driver.post(author.session, b"{}")
    assert driver.read_inbox(author.session, number - 1, 9)[0].item == b"{}"


def _claim(driver: SqliteDriver, author: Author) -> None:
    assert driver.claim(ClaimChange(key="k", expect=None, record="mine")) == Done(0)
    assert driver.find_claim("k") == "mine"


SETTLED = [_beat, _retire, _erase, _delete, _put_blob, _remove_blob]
"""Calls that may be done twice, which the driver repeats."""
ALL = [*SETTLED, _commit, _post, _claim]

Act = Callable[[SqliteDriver, Author], None]


@pytest.fixture
def unguarded(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a system without locks that belong to an open file."""
    monkeypatch.setattr(FileGuard, "lock", lambda self, db, shared: None)


@pytest.mark.parametrize("act", ALL)
def test_after_its_log_was_deleted_a_store_writes_to_the_new_one(
    unguarded: None, driver: SqliteDriver, author: Author, path: Path, act: Act
) -> None:
    """Whatever is written first, other processes see it."""
    _delete_log(path)
    act(driver, author)
    at = [os.stat(f"{path}{end}") for end in ("", "-wal", "-shm")]
    # Which files its connections are at shows from outside on some systems only.
    assert list(driver._db._files[:3]) == [(one.st_dev, one.st_ino) for one in at]


@pytest.mark.parametrize("act", ALL)
@pytest.mark.parametrize("moment", ["before the commit", "after the commit"])
def test_a_write_whose_log_is_deleted_in_the_middle_is_done_again_or_an_error(
    unguarded: None,
    driver: SqliteDriver,
    author: Author,
    path: Path,
    act: Act,
    moment: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No write is acknowledged into a log that no process reads."""
    driver.beat(ME, b"{}", [])
    # The moments between the steps of one write: an outsider meets them by chance only.
    prepare, check = SqliteConnections._prepare_to_write, SqliteConnections._check_after
    sprung: list[bool] = []

    def spring() -> None:
        if not sprung:
            sprung.append(True)
            _delete_log(path)

    def prepare_and_spring(db: SqliteConnections, wait: bool) -> apsw.Connection:
        writer = prepare(db, wait)
        if moment == "before the commit":
            spring()
        return writer

    def spring_and_check(db: SqliteConnections, *args: Any) -> None:
        # A reader checks its files, too; only a writer has the lock.
        if moment == "after the commit" and db._writer_lock.locked():
            spring()
        check(db, *args)

    monkeypatch.setattr(SqliteConnections, "_prepare_to_write", prepare_and_spring)
    monkeypatch.setattr(SqliteConnections, "_check_after", spring_and_check)
    if act in SETTLED:
        act(driver, author)
    else:
        with pytest.raises(StoreFailed, match="may or may not be there"):
            act(driver, author)
    assert sprung
    item = author.write(say("said after it"))
    if act not in (_delete, _commit):
        assert commit_one(driver, item) == Done(1 if act is _post and moment == "after the commit" else 0)


# -- other connections of the process -----------------------------------------------------------------


def test_a_connection_that_keeps_a_deleted_log_open_is_named(
    unguarded: None, driver: SqliteDriver, author: Author, path: Path
) -> None:
    """SQLite would share its index with new connections. Once it is closed, the store goes on."""
    own = apsw.Connection(str(path))
    own.execute("SELECT count(*) FROM chunks").fetchall()
    own.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    _delete_log(path)
    item = author.write(say("two"))
    with pytest.raises(StoreFailed, match="still uses a write-ahead log that was deleted"):
        driver.commit([item])
    own.close()
    assert commit_one(driver, item) == Done(0)


def test_a_connection_by_apsw_does_no_harm(driver: SqliteDriver, author: Author, path: Path) -> None:
    """It is the same library."""
    for number in range(3):
        own = apsw.Connection(str(path))
        own.execute("SELECT count(*) FROM chunks").fetchall()
        own.close()
        author.commit(driver, say(str(number)))
    assert read_all(driver, "a") == author.page


def test_the_working_directory_may_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A path without a root means what it meant when the store was opened, for every connection."""
    monkeypatch.chdir(tmp_path)
    driver = SqliteDriver(Path("agents.db"))
    author = Author("a")
    author.begin(driver)
    (tmp_path / "deeper").mkdir()
    monkeypatch.chdir(tmp_path / "deeper")
    with driver._db.reading():  # Takes the idle connection, so the next reader is a new one.
        assert read_all(driver, "a") == author.page
    driver.close()
    assert list((tmp_path / "deeper").iterdir()) == []


# -- the journal mode ---------------------------------------------------------------------------------


def _mode(path: Path) -> str:
    return {1: "delete", 2: "wal"}[path.read_bytes()[18]]


def _copy_by_vacuum(path: Path, copy: Path) -> None:
    own = apsw.Connection(str(path))
    own.execute("VACUUM INTO ?", (str(copy),))
    own.close()


def test_a_copy_by_vacuum_is_brought_to_wal_mode_when_it_is_opened(
    driver: SqliteDriver, author: Author, path: Path, tmp_path: Path
) -> None:
    """In another mode, a power cut may take what was acknowledged."""
    copy = tmp_path / "copy.db"
    _copy_by_vacuum(path, copy)
    assert _mode(copy) == "delete"
    other = SqliteDriver(copy)
    assert read_all(other, "a") == author.page
    author.twin().commit(other, say("two"))
    other.close()
    assert _mode(copy) == "wal"


def test_a_mode_that_another_program_sets_while_the_store_is_open_is_set_back(
    unguarded: None, driver: SqliteDriver, author: Author, path: Path
) -> None:
    """Which it can only if the locks were dropped."""
    outsider = sqlite3.connect(path)
    assert outsider.execute("PRAGMA journal_mode = delete").fetchone() == ("delete",)
    outsider.close()
    author.commit(driver, say("two"))
    assert read_all(driver, "a") == author.page
    assert _mode(path) == "wal"


@pytest.mark.skipif(sys.platform != "linux", reason="such locks are Linux's")
def test_another_library_of_the_process_cannot_change_the_mode_nor_delete_the_log(
    driver: SqliteDriver, author: Author, path: Path
) -> None:
    """Locks that belong to an open file stand in its way."""
    log = os.stat(f"{path}-wal").st_ino
    outsider = sqlite3.connect(path, timeout=0)
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        outsider.execute("PRAGMA journal_mode = delete")
    outsider.close()
    shutil.copy(path, f"{path}.copy")
    author.commit(driver, say("two"))
    assert os.stat(f"{path}-wal").st_ino == log
    driver.close()
    assert not Path(f"{path}-wal").exists(), "the last connection checkpoints the log"


WITHOUT_FCNTL = """
import sys
from pathlib import Path

sys.modules["fcntl"] = None  # Importing it raises, as on a system that has none.

from holdfast.drivers.sqlite import SqliteDriver
from holdfast.testing.conformance.author import Author, read_all, say

author = Author("a")
driver = SqliteDriver(Path(sys.argv[1]))
author.begin(driver, say("one"))
author.commit(driver, say("two"))
assert read_all(driver, "a") == author.page
driver.close()
driver = SqliteDriver(Path(sys.argv[1]), create=False)
assert read_all(driver, "a") == author.page
driver.close()
print(len(author.page))
"""


def test_a_store_is_written_and_read_where_there_is_no_fcntl(path: Path) -> None:
    """It guards the files only; leases and commits do not need it."""
    command = [sys.executable, "-c", WITHOUT_FCNTL, str(path)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ran.stdout, ran.stderr) == ("2\n", "")


def test_syncs_reach_the_disk_on_every_system(driver: SqliteDriver) -> None:
    """macOS does that only if it is asked to; elsewhere the pragmas change nothing."""
    # A pragma holds for one connection, and only the connection tells it.
    with driver._db.reading() as reader:
        for db in (write_connection(driver), reader):
            asked = [db.pragma(name) for name in ("synchronous", "fullfsync", "checkpoint_fullfsync")]
            assert asked == [2, 1, 1]


# -- gone, renamed, replaced --------------------------------------------------------------------------


async def test_a_file_that_is_removed_is_an_error_and_nothing_is_acknowledged(path: Path) -> None:
    """No new one is made in its place."""
    async with open_store(path) as store, store.session("a") as session:
        await session.add("one")
        await session.flush()
        for end in ("", "-wal", "-shm"):
            os.unlink(f"{path}{end}")
        await session.add("two")
        with pytest.raises(StoreFailed, match=r"agents\.db is gone"):
            await session.flush()
        with pytest.raises(StoreFailed, match=r"agents\.db is gone"):
            await store.load("a")
        with pytest.raises(StoreFailed, match=r"agents\.db is gone"):
            await session.__aexit__(None, None, None)
    assert list(path.parent.iterdir()) == []


@pytest.mark.parametrize("what", ["file", "folder"])
def test_a_file_that_is_renamed_is_an_error_until_it_is_back(tmp_path: Path, what: str) -> None:
    """Then the store goes on, without being opened again."""
    folder = tmp_path / "folder"
    folder.mkdir()
    path = folder / "agents.db"
    moved = path if what == "file" else folder
    driver = SqliteDriver(path)
    author = Author("a")
    author.begin(driver)
    moved.rename(tmp_path / "elsewhere")
    item = author.write(say("two"))
    for _ in range(2):
        with pytest.raises(StoreFailed, match="is gone: it was removed or renamed"):
            driver.commit([item])
        with pytest.raises(StoreFailed, match="is gone: it was removed or renamed"):
            read_all(driver, "a")
    assert not path.exists()
    (tmp_path / "elsewhere").rename(moved)
    assert commit_one(driver, item) == Done(0)
    author.accept(item)
    assert read_all(driver, "a") == author.page
    driver.close()


def test_a_file_that_is_replaced_is_an_error(driver: SqliteDriver, author: Author, path: Path) -> None:
    """Also by a copy of itself, which may lack acknowledged commits. Opening it is a person's choice."""
    copy = path.with_name("copy.db")
    _copy_by_vacuum(path, copy)
    before = hashlib.sha256(copy.read_bytes()).digest()
    os.replace(copy, path)
    item = author.write(say("two"))
    for _ in range(2):
        with pytest.raises(StoreFailed, match="it was replaced"):
            driver.commit([item])
        with pytest.raises(StoreFailed, match="it was replaced"):
            read_all(driver, "a")
    driver.close()
    assert hashlib.sha256(path.read_bytes()).digest() == before


def test_a_commit_during_which_the_file_is_renamed_is_not_acknowledged(
    driver: SqliteDriver, author: Author, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have landed; committed again when the file is back, it is there once."""
    elsewhere = path.with_name("elsewhere.db")
    # The moment between the beginning and the end of one commit.
    prepare = SqliteConnections._prepare_to_write

    def prepare_and_rename(db: SqliteConnections, wait: bool) -> apsw.Connection:
        writer = prepare(db, wait)
        path.rename(elsewhere)
        return writer

    item = author.write(say("two"))
    with monkeypatch.context() as patched:
        patched.setattr(SqliteConnections, "_prepare_to_write", prepare_and_rename)
        with pytest.raises(StoreFailed, match="may or may not be there"):
            driver.commit([item])
    elsewhere.rename(path)
    assert commit_one(driver, item) in (Done(0), Conflict(item.head.sum))
    author.accept(item)
    assert read_all(driver, "a") == author.page


def test_a_reader_that_meets_an_index_which_is_being_written_opens_the_file_again(
    driver: SqliteDriver, author: Author, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite tells a reader without the right to write so, if it cannot make the index good itself."""
    refused = [True, True]

    def refuse(*given: Any, **options: Any) -> Any:
        if refused:
            refused.pop()
            raise apsw.ReadOnlyError("attempt to write a readonly database")
        return read_page(*given, **options)

    monkeypatch.setattr("holdfast.drivers.sqlite.driver.read_page", refuse)
    before = write_connection(driver)
    assert read_all(driver, "a") == author.page
    assert (refused, write_connection(driver) is before) == ([], False)
    author.commit(driver, say("and on"))
    assert read_all(driver, "a") == author.page
