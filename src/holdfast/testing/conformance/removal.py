"""Erasing lines and deleting sessions."""

from __future__ import annotations

import msgspec
import pytest

from ...core.codec import Chain, erase
from ...core.entries import RunCompleted, RunStarted
from ...drivers.contract import ClaimChange, Conflict, Done, Driver, HeadFilter
from ...errors import NotFound
from ...ids import HolderId
from .author import Author, commit_one, read_all, say
from .case import DriverCase, OpenDriver


def _session(driver: Driver) -> Author:
    """Five entries in three commits, with a keyframe."""
    author = Author("a")
    author.begin(driver, keyframe=b'{"secret":1}')
    author.commit(driver, say("secret one"), say("two"), say("secret " * 1000))
    author.commit(driver, say("five"))
    return author


class RemovalPromises(DriverCase):
    """What is gone is gone, and nothing else is."""

    def test_erased_lines_are_replaced_and_the_others_stay(
        self, driver: Driver, open_driver: OpenDriver
    ) -> None:
        """The chain still holds, and the session goes on."""
        author = _session(driver)
        second = open_driver()
        assert read_all(second, "a") == author.lines
        erased = {seq: erase(author.lines[seq - 1], "a") for seq in (2, 4, 5)}
        head = msgspec.structs.replace(author.head, title="")
        assert driver.erase(author.session, author.sum, erased, head) == Done(0)
        expected = [erased.get(seq, line) for seq, line in enumerate(author.lines, start=1)]
        for reader in (driver, second, open_driver()):
            assert read_all(reader, "a") == expected
            assert list(reader.read(author.session, 3, 1)) == expected[3:4]
        assert len(list(Chain("a").read(expected))) == 5
        item = author.commit(second, say("six"))
        assert read_all(driver, "a") == [*expected, *item.lines]

    def test_erasing_drops_the_keyframe_and_replaces_the_head(self, driver: Driver) -> None:
        """Both may hold what was erased."""
        author = _session(driver)
        head = msgspec.structs.replace(author.head, title="erased")
        driver.erase(author.session, author.sum, {2: erase(author.lines[1], "a")}, head)
        assert driver.find_keyframe(author.session) is None
        tip = driver.find_tip(author.session)
        assert tip is not None
        assert tip.head in (None, head)

    def test_erasing_after_a_line_that_is_no_longer_the_last_changes_nothing(self, driver: Driver) -> None:
        """Nor does erasing from a session that does not exist."""
        author = _session(driver)
        after = author.sum
        author.commit(driver, say("six"), keyframe=b'{"kept":1}')
        erased = {2: erase(author.lines[1], "a")}
        assert driver.erase(author.session, after, erased, author.head) == Conflict(author.sum)
        assert read_all(driver, "a") == author.lines
        assert driver.find_keyframe(author.session) == b'{"kept":1}'
        nobody = Author("nobody")
        assert driver.erase(nobody.session, after, erased, nobody.head) == Conflict(None)

    def test_who_writes_to_a_deleted_session_is_told_that_there_is_none(
        self, driver: Driver, open_driver: OpenDriver
    ) -> None:
        """Its old writer, in this process or in another, and one that never fitted."""
        author, other = _session(driver), open_driver()
        assert read_all(other, "a") == author.lines
        old = author.write(say("six"))
        assert driver.delete(author.session, author.sum) == Done(0)
        stranger = msgspec.structs.replace(Author("a").opening(), after="no such sum")
        for item in (old, stranger):
            assert [commit_one(one, item) for one in (driver, other)] == [Conflict(None)] * 2

    def test_erasing_leaves_the_inbox_and_the_runs(self, driver: Driver) -> None:
        """Only lines are replaced."""
        author = Author("a")
        author.begin(driver, say("secret"))
        author.commit(driver, RunStarted(), run="r")
        author.commit(driver, RunCompleted(), run="r")
        driver.post(author.session, b'"item"')
        before = list(driver.list_runs(None, None, 10))
        erased = {2: erase(author.lines[1], "a")}
        assert driver.erase(author.session, author.sum, erased, author.head) == Done(1)
        assert list(driver.list_runs(None, None, 10)) == before
        assert [tuple(row) for row in driver.read_inbox(author.session, 0, 10)] == [(1, b'"item"')]

    def test_an_erased_fork_keeps_its_numbers(self, driver: Driver) -> None:
        """Its first line is not number one."""
        origin = _session(driver)
        fork = origin.fork("b", seq=3)
        fork.begin(driver, say("five"), say("six"))
        erased = {5: erase(fork.lines[1], "b")}
        assert driver.erase(fork.session, fork.sum, erased, fork.head) == Done(0)
        assert read_all(driver, "b") == [fork.lines[0], erased[5], fork.lines[2]]

    def test_a_deleted_session_is_gone(self, driver: Driver, open_driver: OpenDriver) -> None:
        """Lines, keyframe, inbox, runs, and its place in the list; for every opening, and for good."""
        author, other = _session(driver), Author("b")
        other.begin(driver)
        author.commit(driver, RunStarted(), run="r")
        driver.post(author.session, b'"item"')
        second = open_driver()
        assert read_all(second, "a") == author.lines
        assert driver.delete(author.session, author.sum) == Done(1)
        for reader in (driver, second, open_driver()):
            assert read_all(reader, "a") == []
            assert reader.find_tip(author.session) is None
            assert reader.find_keyframe(author.session) is None
            assert list(reader.read_inbox(author.session, 0, 10)) == []
            assert list(reader.list_runs(None, None, 10)) == []
            assert [tip.session for tip in reader.list_tips(HeadFilter(), None, 10)] == ["b"]
            assert read_all(reader, "b") == other.lines
            with pytest.raises(NotFound):
                reader.post(author.session, b'"item"')
        assert dict(driver.beat(HolderId("h"), b"{}", [author.session])) == {}

    def test_deleting_after_a_line_that_is_no_longer_the_last_changes_nothing(self, driver: Driver) -> None:
        """Another process wrote in the meantime, or it is gone already."""
        author = _session(driver)
        after = author.sum
        author.commit(driver, say("wait"))
        assert driver.delete(author.session, after) == Conflict(author.sum)
        assert read_all(driver, "a") == author.lines
        assert driver.delete(author.session, author.sum) == Done(0)
        assert driver.delete(author.session, author.sum) == Conflict(None)

    def test_the_id_of_a_deleted_session_is_free_at_once(
        self, driver: Driver, open_driver: OpenDriver
    ) -> None:
        """The new session has nothing of the old one, not even its count of the inbox."""
        author = _session(driver)
        driver.post(author.session, b'"old"')
        second = open_driver()
        assert read_all(second, "a") == author.lines
        driver.delete(author.session, author.sum)
        anew = Author("a")
        anew.begin(driver)
        for reader in (driver, second):
            assert read_all(reader, "a") == anew.lines
            assert reader.find_keyframe(anew.session) is None
            assert list(reader.read_inbox(anew.session, 0, 10)) == []
            assert commit_one(reader, author.write(say("from the past"))) == Conflict(anew.sum)
        assert second.post(anew.session, b'"new"') == 1
        anew.commit(second, say("on it goes"))
        assert read_all(driver, "a") == anew.lines

    def test_sessions_come_and_go(self, driver: Driver, open_driver: OpenDriver) -> None:
        """Again and again under one id, through two openings in turn."""
        drivers = [driver, open_driver()]
        for turn in range(10):
            author = Author("a")
            author.begin(drivers[turn % 2])
            author.commit(drivers[turn % 2 - 1], say("hello"))
            assert [read_all(reader, "a") for reader in drivers] == [author.lines] * 2
            assert drivers[turn % 2].delete(author.session, author.sum) == Done(0)
            assert [read_all(reader, "a") for reader in drivers] == [[], []]

    def test_claims_outlive_the_session_that_took_them(self, driver: Driver) -> None:
        """Once ever does not begin anew."""
        author = Author("a")
        author.begin(driver, claims=[ClaimChange(key="k", expect=None, record="done")])
        driver.delete(author.session, author.sum)
        assert driver.find_claim("k") == "done"
