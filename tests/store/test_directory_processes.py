"""Several processes on one directory, some of them killed."""

import json
import multiprocessing
import signal
from multiprocessing.connection import Connection
from pathlib import Path

from holdfast.core.codec import Chain
from holdfast.drivers.contract import Done, Tip
from holdfast.drivers.directory import DirectoryDriver
from holdfast.ids import SessionId
from holdfast.testing.conformance.author import Author, commit_one, read_all, say

SPAWN = multiprocessing.get_context("spawn")
A = SessionId("a")


def author_at(driver: DirectoryDriver, tip: Tip) -> Author:
    """Somebody who found the journal like this. A killed writer may have left no head of its last line."""
    author = Author(A)
    author.seq, author.sum, author.lines = tip.seq, tip.sum, [b"of others"]
    (first,) = driver.read(A, 0, 1)
    author.uid = author.head.uid = json.loads(first)["body"]["uid"]
    return author


def append(root: Path, name: str, count: int) -> None:
    """Land so many commits, against everybody else."""
    driver = DirectoryDriver(root)
    landed = 0
    while landed < count:
        tip = driver.find_tip(A)
        assert tip is not None
        item = author_at(driver, tip).write(say(f"{name} {landed}"), say("and"))
        landed += isinstance(commit_one(driver, item), Done)


def append_for_ever(root: Path, report: Connection) -> None:
    """Tell about every commit once it is acknowledged."""
    driver = DirectoryDriver(root)
    tip = driver.find_tip(A)
    assert tip is not None
    author = author_at(driver, tip)
    while True:
        item = author.commit(driver, say("x" * 3000), say("y" * 3000), say("z"))
        report.send(item.lines)


def test_processes_take_turns(tmp_path: Path) -> None:
    """Each lands all of its commits, each commit is there once and whole, and the chain holds."""
    Author(A).begin(DirectoryDriver(tmp_path))
    writers = [SPAWN.Process(target=append, args=(tmp_path, f"writer {number}", 25)) for number in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0, 0, 0]
    lines = read_all(DirectoryDriver(tmp_path), A)
    entries = list(Chain(A).read(lines))
    assert len(entries) == 1 + 3 * 25 * 2
    assert len(set(lines)) == len(lines)


def test_a_killed_process_has_kept_what_it_acknowledged(tmp_path: Path) -> None:
    """Again and again: the next one goes on from there without waiting."""
    Author(A).begin(DirectoryDriver(tmp_path))
    acknowledged = read_all(DirectoryDriver(tmp_path), A)
    for turn in range(4):
        here, there = SPAWN.Pipe(duplex=False)
        writer = SPAWN.Process(target=append_for_ever, args=(tmp_path, there))
        writer.start()
        there.close()
        for _ in range(5 + turn):
            acknowledged += here.recv()
        writer.kill()
        try:
            while True:
                acknowledged += here.recv()
        except EOFError:
            pass
        here.close()
        writer.join()
        assert writer.exitcode == -signal.SIGKILL
        found = read_all(DirectoryDriver(tmp_path), A)
        assert found[: len(acknowledged)] == acknowledged
        # One more may have landed, of which nobody was told.
        assert len(found) - len(acknowledged) in (0, 3)
        acknowledged = found
