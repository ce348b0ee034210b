"""Erasing what was said, and deleting sessions."""

from __future__ import annotations

import msgspec
import pytest

from ...core.codec import Page, erase
from ...core.entries import RunCompleted, RunStarted
from ...core.pages import Chain
from ...drivers.contract import ClaimChange, Conflict, Done, Driver, Erasure, HeadFilter
from ...errors import NotFound
from ...ids import HolderId
from .author import (
    CHUNK_END,
    Author,
    commit_one,
    erased,
    note,
    read_all,
    replaced,
    say,
    whole,
)
from .case import DriverCase, OpenDriver


def _session(driver: Driver) -> Author:
    """Six chunks in three commits, with a keyframe: they end with the entries 1, 3, 5, 7, 10 and 11."""
    author = Author("a")
    author.begin(driver, keyframe=b'{"secret":1}')
    secrets = say("secret one"), CHUNK_END, note("secret two"), CHUNK_END, say("secret " * 1000), CHUNK_END
    author.commit(driver, *secrets)
    author.commit(driver, say("eight"), note("é"), CHUNK_END, say("eleven"))
    assert [chunk.seq for chunk in author.chunks] == [1, 3, 5, 7, 10, 11]
    return author


class RemovalPromises(DriverCase):
    """What is gone is gone, and nothing else is."""

    def test_erased_chunks_are_replaced_and_the_others_stay(
        self, driver: Driver, open_driver: OpenDriver
    ) -> None:
        """Facts and sums stay, too; the chain still holds, and the session goes on."""
        author = _session(driver)
        second = open_driver()
        assert read_all(second, "a") == author.page
        left = {chunk.seq: erased(chunk) for chunk in author.chunks if chunk.seq in (3, 5, 7, 11)}
        head = msgspec.structs.replace(author.head, title="")
        assert driver.erase(author.session, author.sum, left, head) == Done(0)
        chunks = [replaced(chunk, left.get(chunk.seq)) for chunk in author.chunks]
        for reader in (driver, second, open_driver()):
            page = read_all(reader, "a")
            assert page == whole(chunks)
            assert b"secret" not in page.details + (page.said or b"")
            assert reader.read(author.session, 3, 2, said=True) == whole(chunks[2:4])
            assert reader.read(author.session, 0, 10, said=False) == Page.of(chunks, said=False)
        assert [chunk.last for chunk in Chain("a").open(whole(chunks))] == [1, 3, 5, 7, 10, 11]
        item = author.commit(second, say("twelve"))
        assert read_all(driver, "a") == whole([*chunks, *item.chunks])

    def test_a_part_of_a_chunk_can_be_erased(self, driver: Driver, open_driver: OpenDriver) -> None:
        """Details without what was said, what was said without details, and single elements of either."""
        author = Author("a")
        author.begin(driver)
        for number in range(3):
            author.commit(driver, say("one"), note("two"), say("three"), note(f"{number}"))
        opening, first, second, third = author.chunks
        left = {
            first.seq: Erasure(erase(first.details, [1], "a"), first.said),
            second.seq: Erasure(second.details, erase(second.said, [0, 2], "a")),
            third.seq: Erasure(erase(third.details, [3], "a"), erase(third.said, [2], "a")),
        }
        assert driver.erase(author.session, author.sum, left, author.head) == Done(0)
        chunks = [opening, *(replaced(chunk, left[chunk.seq]) for chunk in (first, second, third))]
        for reader in (driver, open_driver()):
            assert read_all(reader, "a") == whole(chunks)
        assert [chunk.last for chunk in Chain("a").open(read_all(driver, "a"))] == [1, 5, 9, 13]

    def test_what_was_erased_can_be_erased_again(self, driver: Driver) -> None:
        """And more with it; what is left may be longer than what was there."""
        author = Author("a")
        author.begin(driver, note(""), note("1"))
        author.commit(driver, note("2"))
        for places in ([1], [1, 2], [1, 2]):
            chunks = [
                msgspec.structs.replace(chunk, details=erase(chunk.details, places, "a"))
                for chunk in author.chunks
            ]
            left = {chunk.seq: Erasure(chunk.details, chunk.said) for chunk in chunks}
            assert driver.erase(author.session, author.sum, left, author.head) == Done(0)
            assert read_all(driver, "a") == whole(chunks)

    def test_erasing_drops_the_keyframe_and_replaces_the_head(self, driver: Driver) -> None:
        """Both may hold what was erased, also where no chunk does."""
        author = _session(driver)
        for left in ({3: erased(author.chunks[1])}, {}):
            author.commit(driver, say("more"), keyframe=b'{"secret":2}', title="secret")
            head = msgspec.structs.replace(author.head, title="erased")
            assert driver.erase(author.session, author.sum, left, head) == Done(0)
            assert driver.find_keyframe(author.session) is None
            tip = driver.find_tip(author.session)
            assert tip is not None
            assert tip.head in (None, head)

    def test_erasing_after_a_chunk_that_is_no_longer_the_last_changes_nothing(self, driver: Driver) -> None:
        """Nor does erasing from a session that does not exist."""
        author = _session(driver)
        after = author.sum
        author.commit(driver, say("more"), keyframe=b'{"kept":1}')
        left = {3: erased(author.chunks[1])}
        assert driver.erase(author.session, after, left, author.head) == Conflict(author.sum)
        assert read_all(driver, "a") == author.page
        assert driver.find_keyframe(author.session) == b'{"kept":1}'
        nobody = Author("nobody")
        assert driver.erase(nobody.session, after, left, nobody.head) == Conflict(None)

    def test_who_writes_to_a_deleted_session_is_told_that_there_is_none(
        self, driver: Driver, open_driver: OpenDriver
    ) -> None:
        """Its old writer, in this process or in another, and one that never fitted."""
        author, other = _session(driver), open_driver()
        assert read_all(other, "a") == author.page
        old = author.write(say("six"))
        assert driver.delete(author.session, author.sum) == Done(0)
        stranger = msgspec.structs.replace(Author("a").opening(), after="no such sum")
        for item in (old, stranger):
            assert [commit_one(one, item) for one in (driver, other)] == [Conflict(None)] * 2

    def test_erasing_leaves_the_inbox_and_the_runs(self, driver: Driver) -> None:
        """A list of runs shows what is left of the chunks in which they begin and end."""
        author = Author("a")
        author.begin(driver, say("secret"))
        author.commit(driver, RunStarted(agent="clerk"), run="r")
        author.commit(driver, RunCompleted(output="secret"), say("secret"), run="r")
        driver.post(author.session, b'"item"')
        (before,) = driver.list_runs(None, None, 10)
        left = {chunk.seq: erased(chunk) for chunk in author.chunks}
        assert driver.erase(author.session, author.sum, left, author.head) == Done(1)
        ended = Page.of([replaced(author.chunks[2], left[5])], said=False)
        assert list(driver.list_runs(None, None, 10)) == [before._replace(ended=ended)]
        assert [tuple(row) for row in driver.read_inbox(author.session, 0, 10)] == [(1, b'"item"')]

    def test_an_erased_fork_keeps_its_numbers(self, driver: Driver) -> None:
        """Its first entry is not number one."""
        origin = _session(driver)
        fork = origin.fork("b", seq=3)
        fork.begin(driver, CHUNK_END, say("six"), CHUNK_END, say("eight"))
        first, second, third = fork.chunks
        left = {7: erased(second)}
        assert driver.erase(fork.session, fork.sum, left, fork.head) == Done(0)
        assert read_all(driver, "b") == whole([first, replaced(second, left[7]), third])

    def test_a_deleted_session_is_gone(self, driver: Driver, open_driver: OpenDriver) -> None:
        """Chunks, keyframe, inbox, runs, and its place in the list; for every opening, and for good."""
        author, other = _session(driver), Author("b")
        other.begin(driver)
        author.commit(driver, RunStarted(), run="r")
        driver.post(author.session, b'"item"')
        second = open_driver()
        assert read_all(second, "a") == author.page
        assert driver.delete(author.session, author.sum) == Done(1)
        for reader in (driver, second, open_driver()):
            assert not read_all(reader, "a")
            assert reader.find_tip(author.session) is None
            assert reader.find_keyframe(author.session) is None
            assert list(reader.read_inbox(author.session, 0, 10)) == []
            assert list(reader.list_runs(None, None, 10)) == []
            assert [tip.session for tip in reader.list_tips(HeadFilter(), None, 10)] == ["b"]
            assert read_all(reader, "b") == other.page
            with pytest.raises(NotFound):
                reader.post(author.session, b'"item"')
        assert dict(driver.beat(HolderId("h"), b"{}", [author.session])) == {}

    def test_deleting_after_a_chunk_that_is_no_longer_the_last_changes_nothing(self, driver: Driver) -> None:
        """Another process wrote in the meantime, or it is gone already."""
        author = _session(driver)
        after = author.sum
        author.commit(driver, say("wait"))
        assert driver.delete(author.session, after) == Conflict(author.sum)
        assert read_all(driver, "a") == author.page
        assert driver.delete(author.session, author.sum) == Done(0)
        assert driver.delete(author.session, author.sum) == Conflict(None)

    def test_the_id_of_a_deleted_session_is_free_at_once(
        self, driver: Driver, open_driver: OpenDriver
    ) -> None:
        """The new session has nothing of the old one, not even its count of the inbox."""
        author = _session(driver)
        driver.post(author.session, b'"old"')
        second = open_driver()
        assert read_all(second, "a") == author.page
        driver.delete(author.session, author.sum)
        anew = Author("a")
        anew.begin(driver)
        for reader in (driver, second):
            assert read_all(reader, "a") == anew.page
            assert reader.find_keyframe(anew.session) is None
            assert list(reader.read_inbox(anew.session, 0, 10)) == []
            assert commit_one(reader, author.write(say("from the past"))) == Conflict(anew.sum)
        assert second.post(anew.session, b'"new"') == 1
        anew.commit(second, say("on it goes"))
        assert read_all(driver, "a") == anew.page

    def test_sessions_come_and_go(self, driver: Driver, open_driver: OpenDriver) -> None:
        """Again and again under one id, through two openings in turn."""
        drivers = [driver, open_driver()]
        for turn in range(10):
            author = Author("a")
            author.begin(drivers[turn % 2])
            author.commit(drivers[turn % 2 - 1], say("hello"))
            assert [read_all(reader, "a") for reader in drivers] == [author.page] * 2
            assert drivers[turn % 2].delete(author.session, author.sum) == Done(0)
            assert not any(read_all(reader, "a") for reader in drivers)

    def test_claims_outlive_the_session_that_took_them(self, driver: Driver) -> None:
        """Once ever does not begin anew."""
        author = Author("a")
        author.begin(driver, claims=[ClaimChange(key="k", expect=None, record="done")])
        driver.delete(author.session, author.sum)
        assert driver.find_claim("k") == "done"
