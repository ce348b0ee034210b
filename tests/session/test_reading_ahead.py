"""Pages of a long transcript are read in a thread, while the pages before them are decoded."""

from __future__ import annotations

import pytest

from holdfast import open_store
from holdfast.core.codec import Page
from holdfast.drivers.memory import MemoryDriver
from holdfast.engine import journal
from holdfast.errors import StoreFailed
from holdfast.ids import SessionId
from tests.session.example_sessions import step, texts

STEPS = 200


class FailingReads(MemoryDriver):
    """Fails to read what was said after an entry."""

    def __init__(self) -> None:
        super().__init__()
        self.fails_after: int | None = None

    def read(self, session: SessionId, after: int, limit: int, *, said: bool) -> Page:
        if said and self.fails_after is not None and after >= self.fails_after:
            raise StoreFailed("the disk is gone")
        return super().read(session, after, limit, said=said)


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
