"""The inbox: for processes other than the holder."""

from __future__ import annotations

import pytest

from ...core.entries import InboxCancel, InboxTaken
from ...drivers.contract import Conflict, Done, Driver, InboxRow
from ...errors import NotFound
from ...ids import SessionId
from .author import CHUNK_END, Author, commit_one, say
from .case import DriverCase, OpenDriver

_ITEM = b'{"kind":"cancel","by":"Zo\xc3\xab"}'


def _taken(number: int) -> InboxTaken:
    return InboxTaken(number=number, item=InboxCancel(by="Zoë"))


class InboxPromises(DriverCase):
    """Numbered items, durable at once."""

    def test_items_are_numbered_and_read_in_order(self, driver: Driver) -> None:
        """From 1, without gaps; bytes come back as they were given."""
        author = Author("a")
        author.begin(driver)
        items = [_ITEM, b'{"kind":"cancel"}', b'{"text":"\\u0000\\n"}', *([_ITEM] * 9)]
        assert [driver.post(author.session, item) for item in items] == list(range(1, 13))
        assert [tuple(row) for row in driver.read_inbox(author.session, 0, 100)] == [
            (number, item) for number, item in enumerate(items, start=1)
        ]

    def test_the_inbox_is_read_in_pages(self, driver: Driver) -> None:
        """After a number, up to a limit."""
        author = Author("a")
        author.begin(driver)
        for _ in range(12):
            driver.post(author.session, _ITEM)
        assert [row.number for row in driver.read_inbox(author.session, 0, 3)] == [1, 2, 3]
        assert [row.number for row in driver.read_inbox(author.session, 8, 3)] == [9, 10, 11]
        assert [row.number for row in driver.read_inbox(author.session, 11, 3)] == [12]
        assert list(driver.read_inbox(author.session, 12, 3)) == []

    def test_an_inbox_belongs_to_one_session(self, driver: Driver) -> None:
        """Each counts for itself."""
        a, b = Author("a"), Author("b")
        a.begin(driver)
        b.begin(driver)
        assert driver.post(a.session, b'"for a"') == 1
        assert driver.post(b.session, b'"for b"') == 1
        assert [row.item for row in driver.read_inbox(b.session, 0, 10)] == [b'"for b"']

    def test_posting_to_a_session_that_does_not_exist_is_an_error(self, driver: Driver) -> None:
        """No session would ever read it."""
        with pytest.raises(NotFound):
            driver.post(SessionId("nobody"), _ITEM)
        assert driver.find_tip(SessionId("nobody")) is None

    def test_a_commit_and_a_tip_tell_how_far_the_inbox_has_grown(self, driver: Driver) -> None:
        """So the holder notices without asking."""
        author = Author("a")
        author.begin(driver)
        driver.post(author.session, _ITEM)
        driver.post(author.session, _ITEM)
        item = author.write(say("hello"))
        assert commit_one(driver, item) == Done(2)
        tip = driver.find_tip(author.session)
        assert tip is not None
        assert tip.posted == 2

    def test_items_that_were_taken_in_are_gone(self, driver: Driver) -> None:
        """Those up to the head's `taken`; later ones stay."""
        author = Author("a")
        author.begin(driver)
        for _ in range(3):
            driver.post(author.session, _ITEM)
        author.commit(driver, _taken(1), _taken(2), taken=2)
        assert [row.number for row in driver.read_inbox(author.session, 0, 10)] == [3]
        author.commit(driver, _taken(3), taken=3)
        assert list(driver.read_inbox(author.session, 0, 10)) == []

    def test_items_are_taken_in_among_other_entries(self, driver: Driver, open_driver: OpenDriver) -> None:
        """Also in a chunk that is not the last of its commit; what had landed frees nothing again."""
        author = Author("a")
        author.begin(driver)
        for _ in range(3):
            driver.post(author.session, _ITEM)
        entries = say("before"), _taken(1), _taken(2), CHUNK_END, say("after"), CHUNK_END, say("last")
        item = author.commit(driver, *entries, taken=2)
        assert item.takes_inbox
        assert len(item.chunks) == 3
        for reader in (driver, open_driver()):
            assert [tuple(row) for row in reader.read_inbox(author.session, 0, 10)] == [(3, _ITEM)]
        assert commit_one(driver, item) in (Done(3), Conflict(author.sum))
        assert [row.number for row in driver.read_inbox(author.session, 0, 10)] == [3]

    def test_a_commit_that_takes_nothing_in_leaves_the_inbox(self, driver: Driver) -> None:
        """The head says how much was taken in before it."""
        author = Author("a")
        author.begin(driver)
        driver.post(author.session, _ITEM)
        author.commit(driver, _taken(1), taken=1)
        driver.post(author.session, _ITEM)
        assert not author.commit(driver, say("hello"), CHUNK_END).takes_inbox
        assert [row.number for row in driver.read_inbox(author.session, 0, 10)] == [2]

    def test_a_refused_commit_takes_nothing_in(self, driver: Driver) -> None:
        """The item is still there for the session that took over."""
        author = Author("a")
        author.begin(driver)
        driver.post(author.session, _ITEM)
        stale = author.twin().write(_taken(1), taken=1)
        author.commit(driver, say("in time"))
        assert commit_one(driver, stale) == Conflict(author.sum)
        assert [row.number for row in driver.read_inbox(author.session, 0, 10)] == [1]

    def test_a_number_is_never_used_again(self, driver: Driver, open_driver: OpenDriver) -> None:
        """Also when every item was taken in, and after reopening."""
        author = Author("a")
        author.begin(driver)
        for number in range(1, 4):
            assert driver.post(author.session, _ITEM) == number
            author.commit(driver, _taken(number), taken=number)
            tip = driver.find_tip(author.session)
            assert tip is not None
            assert tip.posted == number
        driver.close()
        reopened = open_driver()
        assert reopened.post(author.session, b'"next"') == 4
        assert [tuple(row) for row in reopened.read_inbox(author.session, 0, 10)] == [(4, b'"next"')]

    def test_the_inbox_of_a_replica_is_restored_with_its_numbers(
        self, driver: Driver, open_driver: OpenDriver
    ) -> None:
        """Items have gaps between them, and the next number comes after the newest."""
        author = Author("a")
        author.begin(driver, replica=True)
        driver.post(author.session, b'"replaced"')
        rows = [InboxRow(3, _ITEM), InboxRow(5, b'"five"')]
        for _ in range(2):
            assert driver.restore_inbox(author.session, rows, 7)
        for reader in (driver, open_driver()):
            assert list(reader.read_inbox(author.session, 0, 10)) == rows
            tip = reader.find_tip(author.session)
            assert tip is not None
            assert tip.posted == 7
        assert open_driver().post(author.session, _ITEM) == 8
        assert driver.restore_inbox(author.session, [InboxRow(9, _ITEM)], 9)
        assert list(driver.read_inbox(author.session, 0, 10)) == [InboxRow(9, _ITEM)]
        assert driver.restore_inbox(author.session, [], 11)
        assert list(open_driver().read_inbox(author.session, 0, 10)) == []
        assert driver.post(author.session, _ITEM) == 12
        with pytest.raises(NotFound):
            driver.restore_inbox(SessionId("nobody"), rows, 5)

    def test_the_inbox_of_a_session_that_is_driven_is_not_replaced(self, driver: Driver) -> None:
        """A copy that is slow must not take back what came since another one has brought it to life."""
        author = Author("a")
        author.begin(driver, replica=True)
        assert driver.restore_inbox(author.session, [InboxRow(1, _ITEM)], 1)
        author.commit(driver, say("arrived"), replica=False)
        assert driver.post(author.session, b'"new"') == 2
        assert not driver.restore_inbox(author.session, [InboxRow(1, _ITEM)], 1)
        assert [tuple(row) for row in driver.read_inbox(author.session, 0, 10)] == [(1, _ITEM), (2, b'"new"')]

    def test_posting_is_not_a_commit(self, driver: Driver) -> None:
        """No reader's `after` grows old by it."""
        author = Author("a")
        author.begin(driver)
        item = author.write(say("hello"))
        driver.post(author.session, _ITEM)
        assert commit_one(driver, item) == Done(1)

    def test_what_one_opening_posts_another_reads(self, driver: Driver, open_driver: OpenDriver) -> None:
        """At once: it is durable when `post` returns."""
        author = Author("a")
        author.begin(driver)
        second = open_driver()
        assert second.post(author.session, _ITEM) == 1
        assert [row.item for row in driver.read_inbox(author.session, 0, 10)] == [_ITEM]
