"""A process that may only read a SQLite store, while another one writes to it."""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.core.codec import Chunk
from holdfast.core.pages import open_page
from holdfast.drivers.sqlite import SqliteDriver
from holdfast.errors import HoldfastError, StoreFailed
from holdfast.testing.conformance.author import Author, read_all, say
from tests.internals import write_connection

from .fork_server import Child, Line, Warm

_CLONE_NEWNS = 0x20000
READS = 100

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a folder read-only")


def write_and_stay(line: Line, path: str) -> None:
    """Begin the session, to be killed after it."""
    driver = SqliteDriver(Path(path))
    Author("a").begin(driver, say("one"))
    line.say("written")
    line.wait_for_the_end()


def read_only(line: Line, folder: str, path: str) -> None:
    """Count entries whenever told to, where nothing can be written. Only this process has it so."""
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.unshare(_CLONE_NEWNS) == 0, os.strerror(ctypes.get_errno())
    for options in (["--make-rprivate", "/"], ["--bind", folder, folder], ["-o", "remount,ro,bind", folder]):
        subprocess.run(["mount", *options], check=True)
    driver = SqliteDriver(Path(path), create=False)
    line.say("ready")
    while True:
        match line.hear():
            case "count":
                line.say(_count(driver))
            case "count and count":
                counts = [_count(driver) for _ in range(READS)]
                assert counts == sorted(counts)
                line.say(counts[-1])
            case "write":
                try:
                    driver.retire("nobody")  # type: ignore[arg-type]
                    line.say("written")
                except HoldfastError as error:
                    line.say(f"{type(error).__name__}: {error}")


def _count(driver: SqliteDriver) -> int:
    return sum(1 for _ in open_page(read_all(driver, "a"), "a"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the store is."""
    (tmp_path / "folder").mkdir()
    return tmp_path / "folder" / "agents.db"


@pytest.fixture(params=["closed", "open", "killed", "killed, without an index"])
def reader(request: pytest.FixtureRequest, warm: Warm, path: Path) -> Iterator[Child]:
    """A process that has opened the store when it was in this state."""
    if request.param == "open":
        writer = SqliteDriver(path)
        Author("a").begin(writer, say("one"))
    else:
        with warm.child(write_and_stay, str(path)) as child:
            child.hear()
    if request.param == "closed":
        SqliteDriver(path).close()
    if request.param == "killed, without an index":
        os.unlink(f"{path}-shm")
    with warm.child(read_only, str(path.parent), str(path)) as child:
        assert child.hear() == "ready"
        if request.param == "open":
            writer.close()
        yield child


def _ask(reader: Child, what: str) -> object:
    reader.say(what)
    return reader.hear()


def _writer(driver: SqliteDriver) -> Author:
    tip = driver.find_tip(Author("a").session)
    assert tip is not None
    assert tip.head is not None
    author = Author("a")
    author.uid, author.seq, author.sum, author.head = tip.head.uid, tip.seq, tip.sum, tip.head
    author.chunks = [Chunk(tip.seq, tip.sum, b"of another process")]
    return author


def test_a_reader_that_cannot_write_sees_what_is_written_meanwhile(reader: Child, path: Path) -> None:
    """However the store was left when it was opened: log and file, folded and closed and opened again."""
    assert _ask(reader, "count") == 2
    for turn in range(1, 3):
        driver = SqliteDriver(path)
        author = _writer(driver)
        author.commit(driver, say("more"))
        assert _ask(reader, "count") == 3 * turn
        author.commit(driver, say("x" * 500_000))
        write_connection(driver).wal_checkpoint()
        assert _ask(reader, "count") == 3 * turn + 1
        author.commit(driver, say("folded"))
        driver.close()
        assert _ask(reader, "count") == 3 * turn + 2
    assert str(_ask(reader, "write")).startswith(f"{StoreFailed.__name__}: {path}")


def test_a_reader_that_cannot_write_is_never_told_of_damage(reader: Child, path: Path) -> None:
    """While another process writes, folds the log, leaves and comes back."""
    count = 2
    reader.say("count and count")
    for _ in range(2):
        driver = SqliteDriver(path)
        author = _writer(driver)
        for number in range(15):
            author.commit(driver, say("x" * (10_000 * number)))
            if number % 7 == 6:
                write_connection(driver).wal_checkpoint()
        count += 15
        driver.close()
    assert isinstance(reader.hear(), int)
    assert _ask(reader, "count") == count
