"""Several processes on one directory, some of them killed."""

import json
import multiprocessing
import signal
from multiprocessing.connection import Connection
from pathlib import Path

import msgspec

from holdfast.core.codec import Chunk, Page
from holdfast.core.entries import Body, CheckpointTaken
from holdfast.core.pages import Chain
from holdfast.drivers.contract import Done, Tip
from holdfast.drivers.directory import DirectoryDriver
from holdfast.ids import SessionId
from holdfast.testing.conformance.author import Author, Said, commit_one, read_all, say, whole

SPAWN = multiprocessing.get_context("spawn")
A = SessionId("a")


def author_at(driver: DirectoryDriver, tip: Tip) -> Author:
    """Somebody who found the journal like this. A killed writer may have left no head of its last line."""
    author = Author(A)
    author.seq, author.sum, author.chunks = tip.seq, tip.sum, [Chunk(tip.seq, tip.sum, b"of others")]
    opening = json.loads(driver.read(A, 0, 1, said=False).facts)["entries"][0]
    author.uid = author.head.uid = opening["body"]["uid"]
    return author


def chunks_of(page: Page) -> list[Chunk]:
    """The chunks of a page with what was said."""
    assert page.said is not None
    parts = zip(
        Chain(A).open(page),
        page.facts.split(b"\n"),
        page.details.split(b"\n"),
        page.said.split(b"\n"),
        strict=True,
    )
    return [
        Chunk(
            chunk.last,
            chunk.sum,
            facts,
            None if details == b"null" else details,
            None if said == b"null" else said,
        )
        for chunk, facts, details, said in parts
    ]


def append(root: Path, name: str, count: int) -> None:
    """Land so many commits, against everybody else."""
    driver = DirectoryDriver(root)
    landed = 0
    while landed < count:
        tip = driver.find_tip(A)
        assert tip is not None
        item = author_at(driver, tip).write(say(f"{name} {landed}"), CheckpointTaken(version=1), say("and"))
        landed += isinstance(commit_one(driver, item), Done)


def append_for_ever(root: Path, report: Connection) -> None:
    """Tell about every commit once it is acknowledged."""
    driver = DirectoryDriver(root)
    tip = driver.find_tip(A)
    assert tip is not None
    author = author_at(driver, tip)
    while True:
        words: list[Body | Said] = [
            say("x" * 3000),
            CheckpointTaken(version=1),
            say("y" * 3000),
            CheckpointTaken(version=2),
        ]
        item = author.commit(driver, *words, say("z"))
        report.send([msgspec.structs.astuple(chunk) for chunk in item.chunks])


def test_processes_take_turns(tmp_path: Path) -> None:
    """Each lands all of its commits, each commit is there once and whole, and the chain holds."""
    Author(A).begin(DirectoryDriver(tmp_path))
    writers = [SPAWN.Process(target=append, args=(tmp_path, f"writer {number}", 25)) for number in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0, 0, 0]
    page = read_all(DirectoryDriver(tmp_path), A)
    entries = [entry for chunk in Chain(A).open(page) for entry in chunk.entries]
    assert len(entries) == 1 + 3 * 25 * 3
    said = [entry.content for entry in entries if entry.content is not None]
    assert len({bytes(one) for one in said if b"writer" in bytes(one)}) == 3 * 25


def test_a_killed_process_has_kept_what_it_acknowledged(tmp_path: Path) -> None:
    """Again and again: the next one goes on from there without waiting."""
    author = Author(A)
    author.begin(DirectoryDriver(tmp_path))
    acknowledged = author.chunks
    for turn in range(4):
        here, there = SPAWN.Pipe(duplex=False)
        writer = SPAWN.Process(target=append_for_ever, args=(tmp_path, there))
        writer.start()
        there.close()
        for _ in range(5 + turn):
            acknowledged += [Chunk(*one) for one in here.recv()]
        writer.kill()
        try:
            while True:
                acknowledged += [Chunk(*one) for one in here.recv()]
        except EOFError:
            pass
        here.close()
        writer.join()
        assert writer.exitcode == -signal.SIGKILL
        found = read_all(DirectoryDriver(tmp_path), A)
        driver = DirectoryDriver(tmp_path)
        assert driver.read(A, 0, len(acknowledged), said=True) == whole(acknowledged)
        # One more may have landed, which was not acknowledged any more.
        assert len(found) - len(acknowledged) in (0, 3)
        acknowledged = chunks_of(found)
