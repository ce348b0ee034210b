"""Commits and reads: all of an item or nothing, byte for byte, for good."""

from __future__ import annotations

import pytest

from ...core.codec import Page
from ...core.entries import Body, LeaseTaken, RunStarted
from ...core.head import Lease
from ...core.pages import Chain
from ...drivers.contract import Conflict, Done, Driver
from ...errors import StoreBusy
from ...ids import HolderId, SessionId
from .author import CHUNK_END, Author, Said, commit_one, note, read_all, say, whole
from .case import DriverCase, OpenDriver


class CommitPromises(DriverCase):
    """One writer at a time."""

    def test_what_was_committed_is_read_back_byte_for_byte(self, driver: Driver) -> None:
        """Chunks come back exactly as they were given, with their sums, in order, and their chain holds."""
        author = Author("a")
        author.begin(driver)
        author.commit(driver, say("one"), note("two"))
        author.commit(driver, say("three"))
        page = read_all(driver, "a")
        assert page == author.page
        assert all(type(part) is bytes for part in (page.sums, page.facts, page.details, page.said))
        assert [(chunk.first, chunk.last) for chunk in Chain("a").open(page)] == [(1, 1), (2, 3), (4, 4)]

    def test_an_item_of_several_chunks_lands_whole(self, driver: Driver, open_driver: OpenDriver) -> None:
        """As if they had been committed one by one."""
        author = Author("a")
        author.begin(driver, say("two"), CHUNK_END, say("four"))
        author.commit(driver, CHUNK_END, note("six"), CHUNK_END, say("eight"), keyframe=b"{}")
        assert [chunk.seq for chunk in author.chunks] == [3, 4, 5, 7, 8]
        for reader in (driver, open_driver()):
            assert read_all(reader, "a") == author.page
            assert reader.find_keyframe(author.session) == b"{}"
            tip = reader.find_tip(author.session)
            assert tip is not None
            assert (tip.seq, tip.sum) == (8, author.chunks[-1].sum)

    def test_an_item_with_one_chunk_and_an_item_with_many_are_the_same(self, driver: Driver) -> None:
        """How chunks were grouped into commits does not show."""
        author = Author("a")
        author.begin(driver, *(entry for number in range(2000) for entry in (say(f"{number}"), CHUNK_END)))
        author.commit(driver, *(entry for number in range(1500) for entry in (note(f"{number}"), CHUNK_END)))
        author.commit(driver, say("last"))
        assert len(author.chunks) == 3501
        assert read_all(driver, "a") == author.page

    def test_a_part_that_is_empty_is_null(self, driver: Driver, open_driver: OpenDriver) -> None:
        """A chunk may have details, something said, both or neither."""
        author = Author("a")
        author.begin(driver)
        author.commit(driver, say("only said"))
        author.commit(driver, note("only details"))
        author.commit(driver, say("both"), note("both"))
        parts = [(chunk.details is not None, chunk.said is not None) for chunk in author.chunks]
        assert parts == [(False, False), (False, True), (True, False), (True, True)]
        for reader in (driver, open_driver()):
            page = read_all(reader, "a")
            assert page == author.page
            assert [line == b"null" for line in page.details.split(b"\n")] == [True, True, False, False]
            for place, chunk in enumerate(author.chunks):
                after = author.chunks[place - 1].seq if place else 0
                assert reader.read(author.session, after, 1, said=True) == whole([chunk])

    def test_what_was_said_can_be_left_out(self, driver: Driver) -> None:
        """Facts, details and sums come alone, and the chain can be checked without it."""
        author = Author("a")
        author.begin(driver, say("secret"))
        author.commit(driver, say("secret"), note("detail"), CHUNK_END, say("secret"))
        author.commit(driver, note("detail"))
        page = driver.read(author.session, 0, 100, said=False)
        assert page == Page.of(author.chunks, said=False)
        assert page.said is None
        assert [chunk.last for chunk in Chain("a").open(page)] == [2, 5, 6, 7]
        for after, limit in ((0, 1), (2, 2), (3, 1), (6, 5)):
            expected = Page.of([one for one in author.chunks if one.seq > after][:limit], said=False)
            assert driver.read(author.session, after, limit, said=False) == expected

    def test_reading_begins_with_the_chunk_that_holds_the_next_entry(self, driver: Driver) -> None:
        """`after` may be in the middle of a chunk; beyond the end there is nothing."""
        author = Author("a")
        author.begin(driver, say("two"), say("three"), CHUNK_END, say("five"), say("six"))
        author.commit(driver, say("seven"))
        assert [chunk.seq for chunk in author.chunks] == [4, 6, 7]
        for after, place in enumerate([0, 0, 0, 0, 1, 1, 2]):
            assert driver.read(author.session, after, 10, said=True) == whole(author.chunks[place:])
        for after in (7, 8, 1_000_000):
            assert not driver.read(author.session, after, 10, said=True)
            assert not driver.read(author.session, after, 10, said=False)

    def test_a_read_gives_no_more_than_its_limit(self, driver: Driver) -> None:
        """Of chunks, even in the middle of a commit."""
        author = Author("a")
        author.begin(driver, CHUNK_END, say("three"), CHUNK_END, say("five"))
        author.commit(driver, say("six"))
        for limit in range(6):
            page = driver.read(author.session, 2, limit, said=True)
            assert len(page) == min(limit, 3)
            if limit:
                assert page == whole(author.chunks[1 : 1 + limit])

    @pytest.mark.parametrize("limit", [1, 7, 64])
    def test_pages_put_together_are_the_journal(self, driver: Driver, limit: int) -> None:
        """Reading on after the last chunk of each page misses nothing and repeats nothing."""
        author = Author("a")
        author.begin(driver)
        for number in range(40):
            said = [say(f"{number}.{part} " + "x" * 400) for part in range(5)]
            author.commit(
                driver, said[0], CHUNK_END, said[1], note("n"), CHUNK_END, said[2], CHUNK_END, *said[3:]
            )
        assert len(author.chunks) == 161
        chain, count = Chain("a"), 0
        while page := driver.read(author.session, chain.seq, limit, said=True):
            assert page == whole(author.chunks[count : count + limit])
            count += sum(1 for _ in chain.open(page))
        assert (count, chain.seq, chain.sum) == (161, author.seq, author.sum)

    def test_a_reader_that_follows_sees_each_new_chunk_once(self, driver: Driver) -> None:
        """Reading after the last known chunk gives what came since."""
        author = Author("a")
        author.begin(driver)
        for number in range(20):
            after = author.seq
            item = author.commit(driver, say(f"{number}"), CHUNK_END, say("and more"))
            assert driver.read(author.session, after, 100, said=True) == whole(item.chunks)
            assert not driver.read(author.session, author.seq, 100, said=True)

    def test_of_a_session_that_does_not_exist_there_is_nothing(self, driver: Driver) -> None:
        """No error: it is simply not there."""
        nobody = SessionId("nobody")
        assert not driver.read(nobody, 0, 10, said=True)
        assert not driver.read(nobody, 0, 10, said=False)
        assert driver.find_tip(nobody) is None
        assert driver.find_keyframe(nobody) is None
        assert list(driver.read_inbox(nobody, 0, 10)) == []

    def test_the_tip_is_where_the_journal_ends(self, driver: Driver) -> None:
        """Its `seq` and `sum` are the last chunk's; the head, where it is known, is the committed one."""
        author = Author("a")
        author.begin(driver, title="first")
        author.commit(driver, say("hello"), title="second", labels={"tenant": "é"}, usd=0.25, step=3)
        tip = driver.find_tip(author.session)
        assert tip is not None
        assert (tip.session, tip.seq, tip.sum, tip.posted) == ("a", 2, author.sum, 0)
        assert tip.head in (None, author.head)

    def test_a_stale_commit_writes_nothing(self, driver: Driver) -> None:
        """Who follows a chunk that is no longer the last gets `Conflict` with the one that is."""
        author = Author("a")
        author.begin(driver)
        late = author.twin().write(say("too late"), keyframe=b'{"of":"late"}', title="late")
        author.commit(driver, say("in time"), keyframe=b'{"of":"author"}')
        assert commit_one(driver, late) == Conflict(author.sum)
        assert read_all(driver, "a") == author.page
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
        assert read_all(driver, "a") == first.page

    def test_ids_differ_by_case_and_may_begin_with_a_dot(self, driver: Driver) -> None:
        """Every id of the alphabet is a session of its own, also the longest."""
        authors = [Author(name) for name in ("a", "A", ".a", "a.", "-", "_", "..a", "x" * 200)]
        for author in authors:
            author.begin(driver)
        for author in authors:
            assert read_all(driver, author.session) == author.page

    def test_a_lease_that_was_taken_over_stops_the_old_holder(self, driver: Driver) -> None:
        """Taking the lease is a commit: the old holder's next one does not follow it, and writes nothing."""
        old = Author("a")
        old.begin(driver, LeaseTaken(holder="h1", name="one"))
        new = old.twin()
        lease = Lease(holder=HolderId("h2"), name="two", fence=3)
        new.commit(driver, LeaseTaken(holder="h2", name="two"), lease=lease)
        assert commit_one(driver, old.write(say("still here"))) == Conflict(new.sum)
        new.commit(driver, say("mine now"))
        assert read_all(driver, "a") == new.page

    def test_a_conflict_does_not_affect_the_others_of_its_batch(self, driver: Driver) -> None:
        """Outcomes are in the order of the items; what fits lands."""
        authors = [Author(name) for name in "abc"]
        for author in authors:
            author.begin(driver)
        stale = authors[1].twin().write(say("stale"))
        authors[1].commit(driver, say("meanwhile"))
        several = authors[0].write(say("0"), CHUNK_END, note("0"))
        items = [several, stale, authors[2].write(say("2")), Author("d").opening()]
        assert list(driver.commit(items)) == [Done(0), Conflict(authors[1].sum), Done(0), Done(0)]
        assert read_all(driver, "a") == whole([*authors[0].chunks, *items[0].chunks])
        assert read_all(driver, "b") == authors[1].page
        assert read_all(driver, "c") == whole([*authors[2].chunks, *items[2].chunks])
        assert read_all(driver, "d") == whole(items[3].chunks)

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
            assert len(read_all(driver, "s")) == 1
            (outcome,) = driver.commit([item])
        assert outcome == Done(0)
        assert driver.read(author.session, 1, 10, said=True) == whole(item.chunks)
        (again,) = driver.commit([item])
        assert again == Conflict(item.head.sum)

    def test_committing_what_has_landed_again_tells_so(self, driver: Driver) -> None:
        """`Done`, or `Conflict` with the item's own sum; either way its chunks are there once."""
        author = Author("a")
        assert commit_one(driver, author.begin(driver)) in (Done(0), Conflict(author.sum))
        item = author.commit(driver, say("once"), CHUNK_END, say("only"))
        assert commit_one(driver, item) in (Done(0), Conflict(author.sum))
        assert read_all(driver, "a") == author.page

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
        author.begin(driver, say(text), note(text), RunStarted(agent=text), title=text, labels={"text": text})
        driver.close()
        reopened = open_driver()
        assert read_all(reopened, "a") == author.page
        tip = reopened.find_tip(author.session)
        assert tip is not None
        assert tip.head in (None, author.head)

    @pytest.mark.parametrize("part", ["facts", "details", "said"])
    def test_large_chunks_survive(self, driver: Driver, open_driver: OpenDriver, part: str) -> None:
        """Several megabytes in one entry, between small ones of the same commit."""
        text = "ä" * (3 << 20)
        large: dict[str, Body | Said] = {
            "facts": RunStarted(config=text),
            "details": note(text),
            "said": say(text),
        }
        author = Author("a")
        author.begin(driver)
        author.commit(driver, say("small"), large[part], say("small"), note("small"))
        author.commit(driver, say("small"))
        assert max(len(getattr(chunk, part) or b"") for chunk in author.chunks) > 6 << 20
        driver.close()
        reopened = open_driver()
        assert reopened.read(author.session, 1, 1, said=True) == whole(author.chunks[1:2])
        assert reopened.read(author.session, 3, 2, said=False) == Page.of(author.chunks[2:4], said=False)
        assert read_all(reopened, "a") == author.page

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
        assert read_all(reopened, "a") == author.page
        assert read_all(reopened, "b") == other.page
        assert reopened.find_keyframe(author.session) == b'{"seq":3}'
        author.commit(reopened, say("three"))
        assert read_all(reopened, "a") == author.page

    def test_two_openings_of_a_store_see_each_other(self, driver: Driver, open_driver: OpenDriver) -> None:
        """What one has committed, the other reads; and it is refused what no longer follows."""
        second = open_driver()
        author = Author("a")
        author.begin(driver)
        for number in range(10):
            here, there = (driver, second) if number % 2 else (second, driver)
            late = author.twin().write(say("late"))
            author.commit(here, say(f"{number}"))
            assert read_all(there, "a") == author.page
            assert commit_one(there, late) == Conflict(author.sum)

    def test_closing_twice_is_harmless(self, driver: Driver) -> None:
        """The second time, there is nothing left to let go of."""
        driver.close()
        driver.close()
