"""A process that dies at any of its writes leaves a store that is whole, and loses nothing it acknowledged.

Dying is played: from the n-th change of the disk on, every further one raises, so that nothing can be tidied
up either. Of the write at which it happens, half arrives.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from holdfast.blobs.home import BlobContext
from holdfast.core.entries import CheckpointTaken, InboxCancel, InboxTaken
from holdfast.drivers.contract import Append, ClaimChange, Driver, HeadFilter, hidden_name
from holdfast.drivers.directory import DirectoryDriver
from holdfast.drivers.memory import MemoryDriver
from holdfast.ids import HolderId
from holdfast.testing.conformance.author import Author, commit_one, erased, note, read_all, say


class Died(BaseException):
    """The process is no more."""


@contextmanager
def dying_at(change: int) -> Iterator[Callable[[], int]]:
    """Die at this change of the disk. Yields a function that tells how many there were."""
    changes = 0

    def mortal(name: str) -> Callable[..., Any]:
        real = getattr(os, name)

        def call(*args: Any, **options: Any) -> Any:
            nonlocal changes
            if name == "open" and not args[1] & os.O_CREAT:
                return real(*args, **options)
            changes += 1
            if changes < change:
                return real(*args, **options)
            if name == "write" and changes == change:
                real(args[0], args[1][: len(args[1]) // 2])
            raise Died

        return call

    names = ("open", "write", "ftruncate", "fdatasync", "fsync", "rename", "unlink", "mkdir", "rmdir")
    with pytest.MonkeyPatch.context() as patch:
        for name, call in [(name, mortal(name)) for name in names]:
            patch.setattr(os, name, call)
        yield lambda: changes


Step = Callable[[Driver], object]

DIGEST = sha256(b"partpart").hexdigest()


class Workload:
    """Everything a store is used for, one change a step, and what is to be seen after each."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.pictures: list[object] = []
        self._memory = MemoryDriver()
        self.a, self.b = Author("a"), Author("b")
        self.fork = Author("f")
        self.pictures.append(self.picture(self._memory))
        self._write()

    def _write(self) -> None:
        a, b = self.a, self.b
        self._commit(a, a.opening(say("hello")))
        self._commit(a, a.write(say("x" * 5000), CheckpointTaken(version=1), say("y"), note("z")))
        self._commit(b, b.opening(claims=[ClaimChange(key="k", expect=None, record="b")]))
        self._do(lambda driver: driver.claim(ClaimChange(key="k", expect="b", record=None)))
        changes = [ClaimChange(key=key, expect=None, record="a") for key in "kl"]
        self._commit(a, a.write(say("issued"), claims=changes))
        changes = [
            ClaimChange(key="k", expect="a", record="done"),
            ClaimChange(key="l", expect="a", record=None),
        ]
        self._commit(a, a.write(say("completed"), claims=changes))
        self._do(lambda driver: driver.post(a.session, b'"item"'))
        self._commit(a, a.write(InboxTaken(number=1, item=InboxCancel()), taken=1))
        self._commit(a, a.write(say("k"), keyframe=b'{"k":1}'))
        fork = self.fork = a.fork("f", seq=4)
        self._commit(fork, fork.opening(say("on")))
        # The first of these is pinned.
        left, after = {chunk.seq: erased(chunk) for chunk in a.chunks[1:4]}, a.sum
        self._do(lambda driver: driver.erase(a.session, after, left, a.head))
        self._do(lambda driver: driver.delete(a.session, after))
        self._do(lambda driver: driver.blobs.put(DIGEST, [b"part", b"part"], BlobContext(), owner="me"))
        self._do(lambda driver: driver.beat(HolderId("h"), b'"beat"', []))
        self._commit(fork, fork.write(say("still")))
        other = fork.fork("g", seq=fork.chunks[0].seq)
        self._commit(other, other.opening())
        end, other_end = fork.sum, other.sum
        self._do(lambda driver: driver.delete(fork.session, end))
        self._do(lambda driver: driver.delete(other.session, other_end))
        self._do(lambda driver: driver.retire(HolderId("h")))

    def _commit(self, author: Author, item: Append) -> None:
        self._do(lambda driver: commit_one(driver, item))
        author.accept(item)

    def _do(self, step: Step) -> None:
        step(self._memory)
        self.steps.append(step)
        self.pictures.append(self.picture(self._memory))

    def picture(self, driver: Driver) -> object:
        """What must survive: everything but caches."""
        blob = driver.blobs.find(DIGEST)
        return {
            "tips": [
                (tip.session, tip.seq, tip.sum, tip.posted) for tip in driver.list_tips(HeadFilter(), None, 9)
            ],
            "journals": [read_all(driver, name) for name in ("a", "b", "f", "g")],
            "hidden": [read_all(driver, hidden_name(author.uid)) for author in (self.a, self.fork)],
            "claims": [driver.find_claim(key) for key in "kl"],
            "beat": driver.find_beat(HolderId("h")),
            "blob": blob and (blob.context, b"".join(blob.parts)),
        }


def die_and_go_on(root: Path, change: int, work: Workload) -> bool:
    """Whether it died at all: the workload may be over by then."""
    DirectoryDriver(root)
    done = 0
    died = False
    with dying_at(change):
        try:
            driver = DirectoryDriver(root)
            for step in work.steps:
                step(driver)
                done += 1
        except Died:
            died = True
    driver = DirectoryDriver(root)
    found = work.picture(driver)
    # All of the step that was under way, or nothing.
    assert found in work.pictures[done : done + 2]
    landed = done + (found != work.pictures[done])
    for number, step in enumerate(work.steps[landed:], start=landed + 1):
        step(driver)
        assert work.picture(driver) == work.pictures[number]
    assert work.picture(DirectoryDriver(root)) == work.pictures[-1]
    for folder in ("trash", "tmp", "hidden", "pins"):
        assert list((root / folder).iterdir()) == []
    return died


@pytest.fixture(scope="module")
def work() -> Workload:
    return Workload()


def test_a_process_that_dies_at_some_write_loses_nothing(tmp_path: Path, work: Workload) -> None:
    """A sample of all the places where it can happen."""
    change = 1
    while die_and_go_on(tmp_path / str(change), change, work):
        change += 7
    assert change > 100


@pytest.mark.long
def test_a_process_that_dies_at_any_write_loses_nothing(tmp_path: Path, work: Workload) -> None:
    """Every one of them."""
    change = 1
    while die_and_go_on(tmp_path / str(change), change, work):
        change += 1
    assert change > 100


def test_a_store_whose_making_was_interrupted_can_be_made(tmp_path: Path) -> None:
    """At whatever point."""
    change, died = 1, True
    while died:
        root = tmp_path / str(change)
        died = False
        with dying_at(change):
            try:
                DirectoryDriver(root)
            except Died:
                died = True
        Author("a").begin(DirectoryDriver(root))
        change += 1
    assert change > 10
