"""Commits and reads: all of an item or nothing, byte for byte, for good."""

from __future__ import annotations

import pytest

from ...core.codec import Chain
from ...core.entries import LeaseTaken
from ...core.head import Lease
from ...drivers.contract import Conflict, Done, Driver
from ...errors import StoreBusy
from ...ids import HolderId, SessionId
from .author import Author, commit_one, read_all, say
from .case import DriverCase, OpenDriver


class CommitPromises(DriverCase):
    """One writer at a time."""

    def test_what_was_committed_is_read_back_byte_for_byte(self, driver: Driver) -> None:
        """Lines come back exactly as they were given, in order, and their chain holds."""
        author = Author("a")
        author.begin(driver)
        author.commit(driver, say("one"), say("two"))
        author.commit(driver, say("three"))
        assert read_all(driver, "a") == author.lines
        assert len(list(Chain("a").read(read_all(driver, "a")))) == 4

    def test_an_item_with_one_line_and_an_item_with_many_are_the_same(self, driver: Driver) -> None:
        """How lines were grouped into commits does not show."""
        author = Author("a")
        author.begin(driver, *(say(f"{number}") for number in range(2000)))
        author.commit(driver, *(say(f"{number}") for number in range(1500)))
        author.commit(driver, say("last"))
        assert read_all(driver, "a") == author.lines

    def test_reading_begins_after_the_given_seq(self, driver: Driver) -> None:
        """`after` is excluded; beyond the end there is nothing."""
        author = Author("a")
        author.begin(driver, say("two"), say("three"))
        for after in range(5):
            assert list(driver.read(author.session, after, 10)) == author.lines[after:]

    def test_a_read_gives_no_more_than_its_limit(self, driver: Driver) -> None:
        """Even in the middle of a commit."""
        author = Author("a")
        author.begin(driver, say("two"), say("three"))
        author.commit(driver, say("four"))
        for limit in range(6):
            assert list(driver.read(author.session, 1, limit)) == author.lines[1 : 1 + limit]

    @pytest.mark.parametrize("page", [1, 7, 64])
    def test_pages_put_together_are_the_journal(self, driver: Driver, page: int) -> None:
        """Reading on after the last line of each page misses nothing and repeats nothing."""
        author = Author("a")
        author.begin(driver)
        for number in range(40):
            author.commit(driver, *(say(f"{number}.{part} " + "x" * 400) for part in range(5)))
        found: list[bytes] = []
        while lines := driver.read(author.session, len(found), page):
            assert len(lines) <= page
            found += lines
        assert found == author.lines

    def test_a_reader_that_follows_sees_each_new_line_once(self, driver: Driver) -> None:
        """Reading after the last known line gives what came since."""
        author = Author("a")
        author.begin(driver)
        for number in range(20):
            after = author.seq
            item = author.commit(driver, say(f"{number}"), say("and more"))
            assert tuple(driver.read(author.session, after, 100)) == item.lines
            assert not driver.read(author.session, author.seq, 100)

    def test_of_a_session_that_does_not_exist_there_is_nothing(self, driver: Driver) -> None:
        """No error: it is simply not there."""
        nobody = SessionId("nobody")
        assert list(driver.read(nobody, 0, 10)) == []
        assert driver.find_tip(nobody) is None
        assert driver.find_keyframe(nobody) is None
        assert list(driver.read_inbox(nobody, 0, 10)) == []

    def test_the_tip_is_where_the_journal_ends(self, driver: Driver) -> None:
        """Its `seq` and `sum` are the last line's; the head, where it is known, is the committed one."""
        author = Author("a")
        author.begin(driver, title="first")
        author.commit(driver, say("hello"), title="second", labels={"tenant": "é"}, usd=0.25, step=3)
        tip = driver.find_tip(author.session)
        assert tip is not None
        assert (tip.session, tip.seq, tip.sum, tip.posted) == ("a", 2, author.sum, 0)
        assert tip.head in (None, author.head)

    def test_a_stale_commit_writes_nothing(self, driver: Driver) -> None:
        """Who follows a line that is no longer the last gets `Conflict` with the one that is."""
        author = Author("a")
        author.begin(driver)
        late = author.twin().write(say("too late"), keyframe=b'{"of":"late"}', title="late")
        author.commit(driver, say("in time"), keyframe=b'{"of":"author"}')
        assert commit_one(driver, late) == Conflict(author.sum)
        assert read_all(driver, "a") == author.lines
        assert driver.find_keyframe(author.session) == b'{"of":"author"}'
        tip = driver.find_tip(author.session)
        assert tip is not None
        assert tip.head in (None, author.head)

    def test_a_commit_to_a_session_that_does_not_exist_is_a_conflict(self, driver: Driver) -> None:
        """With no sum: there is no session. None is made."""
        author = Author("a")
        author.accept(author.opening())
        assert commit_one(driver, author.write(say("hello?"))) == Conflict(None)
        assert driver.find_tip(author.session) is None

    def test_a_session_is_begun_once(self, driver: Driver) -> None:
        """A second beginning is a conflict with the first."""
        first, second = Author("a"), Author("a")
        first.begin(driver)
        assert commit_one(driver, second.opening()) == Conflict(first.sum)
        assert read_all(driver, "a") == first.lines

    def test_ids_differ_by_case_and_may_begin_with_a_dot(self, driver: Driver) -> None:
        """Every id of the alphabet is a session of its own, also the longest."""
        authors = [Author(name) for name in ("a", "A", ".a", "a.", "-", "_", "..a", "x" * 200)]
        for author in authors:
            author.begin(driver)
        for author in authors:
            assert read_all(driver, author.session) == author.lines

    def test_a_lease_that_was_taken_over_stops_the_old_holder(self, driver: Driver) -> None:
        """Taking the lease is a commit: the old holder's next one does not follow it, and writes nothing."""
        old = Author("a")
        old.begin(driver, LeaseTaken(holder="h1", name="one"))
        new = old.twin()
        lease = Lease(holder=HolderId("h2"), name="two", fence=3)
        new.commit(driver, LeaseTaken(holder="h2", name="two"), lease=lease)
        assert commit_one(driver, old.write(say("still here"))) == Conflict(new.sum)
        new.commit(driver, say("mine now"))
        assert read_all(driver, "a") == new.lines

    def test_a_conflict_does_not_affect_the_others_of_its_batch(self, driver: Driver) -> None:
        """Outcomes are in the order of the items; what fits lands."""
        authors = [Author(name) for name in "abc"]
        for author in authors:
            author.begin(driver)
        stale = authors[1].twin().write(say("stale"))
        authors[1].commit(driver, say("meanwhile"))
        items = [authors[0].write(say("0")), stale, authors[2].write(say("2")), Author("d").opening()]
        assert list(driver.commit(items)) == [Done(0), Conflict(authors[1].sum), Done(0), Done(0)]
        assert read_all(driver, "a") == [*authors[0].lines, *items[0].lines]
        assert read_all(driver, "b") == authors[1].lines
        assert read_all(driver, "c") == [*authors[2].lines, *items[2].lines]
        assert read_all(driver, "d") == list(items[3].lines)

    def test_an_empty_batch_has_no_outcomes(self, driver: Driver) -> None:
        """And does nothing."""
        assert list(driver.commit([])) == []

    def test_who_cannot_wait_is_served_at_once_or_refused(self, driver: Driver) -> None:
        """Refused means that nothing was written, and that asking again with time to wait helps."""
        author = Author("s")
        author.commit(driver, say("before"))
        item = author.write(say("now"))
        try:
            (outcome,) = driver.commit([item], wait=False)
        except StoreBusy:
            assert len(driver.read(author.session, 0, 10)) == 1
            (outcome,) = driver.commit([item])
        assert outcome == Done(0)
        assert driver.read(author.session, 1, 10)[0] == item.lines[0]
        (again,) = driver.commit([item])
        assert again == Conflict(item.head.sum)

    def test_committing_what_has_landed_again_tells_so(self, driver: Driver) -> None:
        """`Done`, or `Conflict` with the item's own sum; either way its lines are there once."""
        author = Author("a")
        assert commit_one(driver, author.begin(driver)) in (Done(0), Conflict(author.sum))
        item = author.commit(driver, say("once"), say("only"))
        assert commit_one(driver, item) in (Done(0), Conflict(author.sum))
        assert read_all(driver, "a") == author.lines

    def test_the_last_keyframe_is_kept(self, driver: Driver) -> None:
        """A commit without one leaves the one that is there."""
        author = Author("a")
        author.begin(driver)
        assert driver.find_keyframe(author.session) is None
        first, last = b'{"seq":2}', b'{"seq":4,"text":"\xc3\xa9"}'
        for keyframe, kept in ((first, first), (None, first), (last, last), (None, last)):
            author.commit(driver, say("more"), keyframe=keyframe)
            assert driver.find_keyframe(author.session) == kept

    @pytest.mark.parametrize(
        "text",
        [
            "Grüße, 世界, 🙂, e\u0301",
            "line\u2028separator, next\u0085line, \ufeffmark",
            "nul \0, tab \t, newline \n, return \r, escape \x1b, delete \x7f",
            'quotes " and \\ and ,"end":3} and \\u0000',
        ],
    )
    def test_any_text_survives(self, driver: Driver, open_driver: OpenDriver, text: str) -> None:
        """Whatever JSON can say is stored as it was said."""
        author = Author("a")
        author.begin(driver, say(text), title=text, labels={"text": text})
        driver.close()
        reopened = open_driver()
        assert read_all(reopened, "a") == author.lines
        tip = reopened.find_tip(author.session)
        assert tip is not None
        assert tip.head in (None, author.head)

    def test_large_lines_survive(self, driver: Driver, open_driver: OpenDriver) -> None:
        """A megabyte in one line, between small ones."""
        author = Author("a")
        author.begin(driver)
        author.commit(driver, say("ä" * (1 << 19)), say("small"), say("x" * (1 << 20)))
        author.commit(driver, say("small"))
        driver.close()
        reopened = open_driver()
        assert list(reopened.read(author.session, 2, 2)) == author.lines[2:4]
        assert read_all(reopened, "a") == author.lines

    def test_everything_is_there_after_reopening(self, driver: Driver, open_driver: OpenDriver) -> None:
        """A closed store is the same store when it is opened again."""
        author, other = Author("a"), Author("b")
        author.begin(driver, say("one"))
        author.commit(driver, say("two"), keyframe=b'{"seq":3}')
        other.begin(driver)
        name = driver.store_id()
        driver.close()
        reopened = open_driver()
        assert reopened.store_id() == name
        assert read_all(reopened, "a") == author.lines
        assert read_all(reopened, "b") == other.lines
        assert reopened.find_keyframe(author.session) == b'{"seq":3}'
        author.commit(reopened, say("three"))
        assert read_all(reopened, "a") == author.lines

    def test_two_openings_of_a_store_see_each_other(self, driver: Driver, open_driver: OpenDriver) -> None:
        """What one has committed, the other reads; and it is refused what no longer follows."""
        second = open_driver()
        author = Author("a")
        author.begin(driver)
        for number in range(10):
            here, there = (driver, second) if number % 2 else (second, driver)
            late = author.twin().write(say("late"))
            author.commit(here, say(f"{number}"))
            assert read_all(there, "a") == author.lines
            assert commit_one(there, late) == Conflict(author.sum)

    def test_closing_twice_is_harmless(self, driver: Driver) -> None:
        """The second time, there is nothing left to let go of."""
        driver.close()
        driver.close()
