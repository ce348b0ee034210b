"""Pages of a long transcript are read in a thread, while the pages before them are decoded."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest
from msgspec.structs import replace

from holdfast import open_store
from holdfast.core.codec import Page
from holdfast.drivers.memory import MemoryDriver
from holdfast.engine import journal
from holdfast.errors import Corrupt, StoreFailed
from holdfast.ids import SessionId
from tests.session.example_sessions import step, texts

STEPS = 200


class FailingReads(MemoryDriver):
    """Fails to read what was said after an entry, or reads what makes no sense."""

    def __init__(self) -> None:
        super().__init__()
        self.fails_after: int | None = None
        self.garbles = False

    def read(self, session: SessionId, after: int, limit: int, *, said: bool) -> Page:
        if said and self.fails_after is not None and after >= self.fails_after:
            raise StoreFailed("the disk is gone")
        page = super().read(session, after, limit, said=said)
        return replace(page, said=b"[") if said and self.garbles and after >= STEPS else page


@pytest.fixture(autouse=True)
def short_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many pages of few chunks."""
    monkeypatch.setattr(journal, "READ_CHUNKS", 16)
    monkeypatch.setattr("holdfast.session.writer.KEYFRAME_ENTRIES_MIN", 64)


async def test_every_page_is_read_in_order() -> None:
    """As if they were read one after another."""
    async with open_store(MemoryDriver()) as store:
        async with store.session("s") as session:
            for number in range(STEPS):
                await step(session, f"{number}")
        found = await store.load("s")
        assert found.keyframe_seq, "without a keyframe, nothing is read ahead"
        assert texts(found.transcript) == [f"{number}" for number in range(STEPS)]


async def test_a_page_that_cannot_be_read_is_an_error_for_the_reader() -> None:
    """The error of the thread is raised where the transcript is looked at, which can be tried again."""
    driver = FailingReads()
    async with open_store(driver) as store:
        async with store.session("s") as session:
            for number in range(STEPS):
                await step(session, f"{number}")
        found = await store.load("s")
        driver.fails_after = STEPS
        with pytest.raises(StoreFailed, match="disk is gone"):
            texts(found.transcript)
        driver.fails_after = None
        assert len(texts(found.transcript)) == STEPS


async def test_no_thread_reads_on_after_an_error() -> None:
    """The store may be closed then, even while the error is still at hand."""
    driver = FailingReads()
    async with open_store(driver) as store:
        async with store.session("s") as session:
            for number in range(STEPS):
                await step(session, f"{number}")
        found = await store.load("s")
        driver.garbles = True
        with pytest.raises(Corrupt) as error:
            texts(found.transcript)
        assert not [one.name for one in threading.enumerate() if one.name.startswith("holdfast read")]
        del error, found


READS_AFTER_THE_END = """
import atexit, sys, threading
from holdfast import blocking
from holdfast.engine import journal
from holdfast.session import writer

journal.READ_CHUNKS = 16
writer.KEYFRAME_ENTRIES_MIN = 64
with blocking.open_store(sys.argv[1]) as store:
    with store.session("s") as session:
        for number in range(200):
            session.add(str(number))
            session.checkpoint()
opened = blocking.open_store(sys.argv[1])
store = opened.__enter__()
states = [store.load("s") for _ in range(2)]


def look(where):
    print(where, [message.text for message in states.pop().transcript] == [str(n) for n in range(200)])


def outlive():
    threading.main_thread().join()
    look("thread")


threading.Thread(target=outlive).start()
atexit.register(look, "atexit")
"""


def test_a_transcript_can_be_read_while_the_interpreter_ends(quick_path: Path) -> None:
    """By a thread that outlives the main one, and by a handler at the exit: no thread can be started then."""
    command = [sys.executable, "-c", READS_AFTER_THE_END, f"sqlite:{quick_path}/agents.db"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.stdout.split("\n"), done.stderr) == (["thread True", "atexit True", ""], "")
