"""Other programs at a SQLite file that is in use: nothing that was acknowledged is lost, nothing overwritten.

Locks of files belong to a process. Another SQLite library in the same process, or a plain read of the file,
drops those of holdfast; the next program that opens and closes the file then concludes that it is the last
user, and deletes the log. On Linux, holdfast guards the files with other locks; tests are done with and
without.
"""

from __future__ import annotations

import gc
import os
import shutil
import sqlite3
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.to_thread
import apsw
import pytest

from holdfast import Registry, Session, open_store, tool
from holdfast.drivers.sqlite import SqliteDriver, connections
from holdfast.drivers.sqlite.connections import SqliteConnections
from holdfast.drivers.sqlite.file_guard import FileGuard
from holdfast.testing.conformance.author import Author, read_all, say

from .fork_server import Child, Line, Warm

MESSAGES: Final = 16

guarded_or_not = pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "unguarded"])


def _unguard() -> None:
    """As on a system without locks that belong to an open file."""
    setattr(FileGuard, "lock", lambda self, db, shared: None)  # noqa: B010


# -- outsiders ----------------------------------------------------------------------------------------


def look(path: str) -> int:
    """Open and close the file with another library, as pandas or an ORM does; how many lines it has."""
    db = sqlite3.connect(path)
    (count,) = db.execute("SELECT count(*) FROM entries").fetchone()
    db.close()
    return int(count)


def look_from_outside(line: Line, path: str) -> int:
    """The same in a process of its own."""
    return look(path)


def write_from_outside(line: Line, path: str, session: str) -> None:
    """Another process of holdfast's, which ends in order."""
    driver = SqliteDriver(Path(path))
    author = Author(session)
    author.begin(driver)
    for number in range(30):
        author.commit(driver, say(f"{number} of {session}"))
    driver.close()


def count_from_outside(line: Line, path: str) -> dict[str, Any]:
    """What every process sees: lines by session."""
    db = apsw.Connection(path)
    found = dict(db.execute("SELECT session, count(*) FROM entries GROUP BY session"))
    found["check"] = db.pragma("integrity_check")
    db.close()
    return found


def _drop_locks(path: str) -> None:
    for name in (path, f"{path}-shm"):
        shutil.copy(name, f"{name}.copy")


# -- killed -------------------------------------------------------------------------------------------


def write(line: Line, path: str, trap: str, guarded: bool) -> None:
    """Write and acknowledge; every few messages, fall into the trap."""
    if not guarded:
        _unguard()
    anyio.run(_write, line, path, trap)


async def _write(line: Line, path: str, trap: str) -> None:
    async with open_store(f"sqlite:{path}") as store, store.session("s") as session:
        log = _find_inode(f"{path}-wal")
        for number in range(MESSAGES):
            await session.add(f"message {number}")
            await session.flush()
            if number % 5 == 2:
                await anyio.to_thread.run_sync(_fall_into, trap, line, path)
        await _pay(path, session)
        await anyio.to_thread.run_sync(_fall_into, trap, line, path)
        line.say(
            {
                "seen": len((await store.load("s")).transcript),
                "same log": _find_inode(f"{path}-wal") == log,
            }
        )
        await anyio.to_thread.run_sync(line.wait_for_the_end)


def _find_inode(path: str) -> int | None:
    return os.stat(path).st_ino if os.path.exists(path) else None


def _fall_into(trap: str, line: Line, path: str) -> None:
    if trap == "another library":
        look(path)
    else:
        _drop_locks(path)
        line.say("copied")
        line.hear()


async def _pay(path: str, session: Session) -> str:
    @tool(side_effects={"mutate"}, scope="session")
    def pay(amount: int) -> str:
        """Pay."""
        with open(f"{path}.paid", "a") as paid:
            paid.write(f"{amount}\n")
        return "paid"

    return str((await Registry([pay]).dispatch("pay", {"amount": 5}, session=session)).content)


def _list_paid(path: str) -> list[str]:
    return Path(f"{path}.paid").read_text().split()


def _watch(child: Child, warm: Warm, path: Path) -> dict[str, Any]:
    """Look from outside whenever the child has copied the file; what it says in the end."""
    while (said := child.hear()) == "copied":
        warm.call(look_from_outside, str(path))
        child.say("go on")
    found: dict[str, Any] = said
    return found


@guarded_or_not
@pytest.mark.parametrize("trap", ["another library", "a copy"])
async def test_killed_after_an_outsider_came_and_went_it_has_lost_nothing(
    warm: Warm, quick_path: Path, trap: str, guarded: bool
) -> None:
    """Every message that was acknowledged is there, and what was paid is not paid again."""
    path = quick_path / "agents.db"
    with warm.child(write, str(path), trap, guarded) as child:
        said = await anyio.to_thread.run_sync(_watch, child, warm, path)
    assert said == {"seen": MESSAGES, "same log": guarded}
    async with open_store(path) as store, store.session("s") as session:
        assert [message.text for message in session.transcript] == [f"message {n}" for n in range(MESSAGES)]
        assert (await _pay(str(path), session)).endswith("paid")
    assert _list_paid(str(path)) == ["5"]


# -- without a kill -----------------------------------------------------------------------------------


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the store is."""
    return tmp_path / "agents.db"


@pytest.fixture
def driver(path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SqliteDriver]:
    """One whose locks can be dropped."""
    monkeypatch.setattr(FileGuard, "lock", lambda self, db, shared: None)
    driver = SqliteDriver(path)
    yield driver
    driver.close()


class _Trap:
    """Deletes the log at the worst moment, once: when the next write has begun, or just after its commit."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch, moment: str) -> None:
        self.sprung = False

        def spring() -> None:
            if not self.sprung:
                self.sprung = True
                look(str(path))
                assert not Path(f"{path}-wal").exists()

        # The moments between the steps of one write: an outsider meets them by chance only.
        prepare, check = SqliteConnections._prepare_to_write, SqliteConnections._check_after

        def prepare_and_spring(db: SqliteConnections, wait: bool) -> apsw.Connection:
            writer = prepare(db, wait)
            if moment == "before":
                spring()
            return writer

        def spring_and_check(db: SqliteConnections, *args: Any) -> None:
            # A reader checks its files, too; only a writer has the lock.
            if moment == "after" and db._writer_lock.locked():
                spring()
            check(db, *args)

        monkeypatch.setattr(SqliteConnections, "_prepare_to_write", prepare_and_spring)
        monkeypatch.setattr(SqliteConnections, "_check_after", spring_and_check)


@pytest.mark.parametrize("moment", ["before", "after"])
async def test_a_commit_whose_log_is_deleted_in_the_middle_lands_once(
    path: Path, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it went into the deleted log, or the outsider wrote it to the file: the commit is repeated."""
    monkeypatch.setattr(FileGuard, "lock", lambda self, db, shared: None)
    async with open_store(path) as store, store.session("s") as session:
        await session.add("one")
        await session.flush()
        trap = _Trap(path, monkeypatch, moment)
        await session.add("two")
        await session.flush()
        assert trap.sprung
        await session.add("three")
        await session.flush()
        assert [message.text for message in (await store.load("s")).transcript] == ["one", "two", "three"]
        kinds = look(str(path))
    async with open_store(path) as store:
        assert [message.text for message in (await store.load("s")).transcript] == ["one", "two", "three"]
    assert look(str(path)) == kinds + 1, "lease.released"


@pytest.mark.parametrize("how", ["closed", "collected"])
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_deleted_log_never_overwrites_what_others_wrote(
    warm: Warm, driver: SqliteDriver, path: Path, monkeypatch: pytest.MonkeyPatch, how: str, moment: str
) -> None:
    """Not when the store is closed, nor when it is left to the garbage collector."""
    author = Author("mine")
    author.begin(driver)
    _Trap(path, monkeypatch, moment)
    with pytest.raises(Exception, match="may or may not be there"):
        driver.commit([author.write(say("in doubt"))])
    warm.call(write_from_outside, str(path), "theirs")
    if how == "closed":
        driver.close()
    else:
        # The fixture keeps the driver, so its connections are left to the collector one by one.
        db = driver._db
        db._writer, db._idle = None, []
        gc.collect()
    found = warm.call(count_from_outside, str(path))
    assert found == {"mine": 1 if moment == "before" else 2, "theirs": 31, "check": "ok"}


def test_readers_see_what_others_wrote_after_the_log_was_deleted(
    warm: Warm, driver: SqliteDriver, path: Path
) -> None:
    """They do not stay with the old log."""
    author = Author("mine")
    author.begin(driver)
    assert read_all(driver, "mine") == author.page
    look(str(path))
    warm.call(write_from_outside, str(path), "theirs")
    assert len(read_all(driver, "theirs")) == 31
    author.commit(driver, say("and on"))
    assert warm.call(count_from_outside, str(path)) == {"mine": 2, "theirs": 31, "check": "ok"}


def test_all_stores_of_a_process_go_on_after_the_log_was_deleted(
    warm: Warm, driver: SqliteDriver, path: Path
) -> None:
    """SQLite shares the index of a log between them: none may keep the deleted one."""
    other = SqliteDriver(path)
    first, second = Author("first"), Author("second")
    first.begin(driver)
    second.begin(other)
    for number in range(3):
        look(str(path))
        first.commit(driver, say(str(number)))
        second.commit(other, say(str(number)))
        assert read_all(driver, "second") == second.page
        assert read_all(other, "first") == first.page
    other.close()
    first.commit(driver, say("still there"))
    assert warm.call(count_from_outside, str(path)) == {"first": 5, "second": 4, "check": "ok"}


# -- a forked child -----------------------------------------------------------------------------------


def open_and_fork(line: Line, path: str, guarded: bool) -> None:
    """The parent's store is closed while its child, which has opened its own, is writing."""
    if not guarded:
        _unguard()
    driver = SqliteDriver(Path(path))
    Author("parent").begin(driver)
    (from_child, to_parent), (from_parent, to_child) = os.pipe(), os.pipe()
    if os.fork():
        os.read(from_child, 1)
        driver.close()
        os.write(to_child, b"x")
        line.wait_for_the_end()
    mine = SqliteDriver(Path(path))
    author = Author("child")
    author.begin(mine)
    os.write(to_parent, b"x")
    os.read(from_parent, 1)
    for number in range(5):
        author.commit(mine, say(str(number)))
    line.say("acknowledged")
    line.wait_for_the_end()


@guarded_or_not
def test_a_forked_child_that_opens_the_store_has_locks_of_its_own(
    warm: Warm, path: Path, guarded: bool
) -> None:
    """The parent is not the last user, although it had the file open before the fork."""
    with warm.child(open_and_fork, str(path), guarded) as child:
        assert child.hear() == "acknowledged"
        assert Path(f"{path}-wal").exists()
        found = warm.call(count_from_outside, str(path))
    assert found == {"parent": 1, "child": 6, "check": "ok"}


def fork_in_the_middle(line: Line, path: str, use: str, waits_s: float) -> list[bool]:
    """Fork while another thread uses the file. Whether it was done in the child, and in the parent."""
    setattr(connections, "_FORK_WAITS_S", waits_s)  # noqa: B010
    driver = SqliteDriver(Path(path))
    author = Author("parent")
    author.begin(driver)
    inside, has_forked, is_done = threading.Event(), threading.Event(), False

    def work(*_: object) -> None:
        nonlocal is_done
        inside.set()
        has_forked.wait(0.3 if waits_s else 120)
        is_done = True

    def read() -> None:
        with driver._db.reading() as db:
            db.execute("SELECT count(*) FROM chunks").fetchall()
            work()

    def write() -> None:
        driver._db.write(work, None, wait=True)

    thread = threading.Thread(target=read if use == "read" else write)
    thread.start()
    inside.wait()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Of Python 3.12: a process with threads forks.
        pid = os.fork()
    if not pid:
        os._exit(is_done)
    has_forked.set()
    _, status = os.waitpid(pid, 0)
    thread.join()
    author.commit(driver, say("and on"))
    driver.close()
    return [bool(os.waitstatus_to_exitcode(status)), is_done]


@pytest.mark.parametrize("use", ["read", "write"])
def test_a_fork_waits_until_no_thread_is_in_sqlite(warm: Warm, path: Path, use: str) -> None:
    """SQLite's own locks would stay locked in the child, and hang it where it opens a store."""
    assert warm.call(fork_in_the_middle, str(path), use, 120.0) == [True, True]


@pytest.mark.parametrize("use", ["read", "write"])
def test_a_fork_does_not_wait_for_ever(warm: Warm, path: Path, use: str) -> None:
    """Another process may write for long. The parent goes on; the child may hang where it opens a store."""
    assert warm.call(fork_in_the_middle, str(path), use, 0.0) == [False, True]
