"""Forks, which need the chunks of their origin as long as they live."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from ...core.codec import Page
from ...core.entries import RunStarted
from ...core.pages import Chain
from ...drivers.contract import Done, Driver, HeadFilter, OriginGone, Pin, hidden_name
from ...ids import SessionId
from .author import CHUNK_END, Author, commit_one, erased, note, read_all, replaced, say, whole
from .case import DriverCase, OpenDriver

_ENDS = [1, 3, 5, 7, 9, 10]


def _origin(driver: Driver) -> Author:
    """Six chunks in three commits: they end with the entries 1, 3, 5, 7, 9 and 10."""
    origin = Author("a")
    origin.begin(driver)
    origin.commit(driver, say("two"), CHUNK_END, note("four"), CHUNK_END, say("six"), CHUNK_END)
    origin.commit(driver, say("eight"), CHUNK_END, say("ten"))
    assert [chunk.seq for chunk in origin.chunks] == _ENDS
    return origin


class ForkPromises(DriverCase):
    """A fork's journal begins where its origin's is left."""

    def test_what_is_kept_of_a_deleted_session_is_copied_under_its_hidden_name(
        self, driver: Driver, open_driver: OpenDriver
    ) -> None:
        """As a copy of a store does it: no session has this name, and it goes with the last fork."""
        origin = Author("a")
        hidden = hidden_name(origin.uid)
        for item in (origin.opening(say("one")), None):
            item = item or origin.write(say("two"))
            renamed = replace(item, session=hidden, head=replace(item.head, session=hidden))
            assert isinstance(commit_one(driver, renamed), Done)
            origin.accept(item)
        pin = Pin(origin=hidden, uid=origin.uid, seq=origin.seq)
        fork = Author("b", pin=pin, sum=origin.sum)
        fork.begin(driver, say("three"))
        for reader in (driver, open_driver()):
            assert [tip.session for tip in reader.list_tips(HeadFilter(), None, 10)] == ["b"]
            assert reader.find_tip(SessionId("a")) is None
            assert read_all(reader, hidden) == origin.page
        assert isinstance(driver.delete(fork.session, fork.sum), Done)
        assert not read_all(open_driver(), hidden).count

    def test_a_fork_goes_on_where_it_left_its_origin(self, driver: Driver, open_driver: OpenDriver) -> None:
        """Its own chunks begin with the next `seq`; nothing of the origin is copied."""
        origin = _origin(driver)
        fork = origin.fork("b", seq=3)
        fork.begin(driver)
        fork.commit(driver, say("five"), CHUNK_END, say("seven"))
        assert [chunk.seq for chunk in fork.chunks] == [4, 6, 7]
        for reader in (driver, open_driver()):
            assert read_all(reader, "b") == fork.page
            assert reader.read(fork.session, 3, 10, said=True) == fork.page
            assert reader.read(fork.session, 4, 1, said=True) == whole(fork.chunks[1:2])
            assert reader.read(fork.session, 5, 10, said=True) == whole(fork.chunks[1:])
            tip = reader.find_tip(fork.session)
            assert tip is not None
            assert (tip.seq, tip.sum) == (7, fork.sum)
        chain = Chain("b", seq=3, sum=origin.sums[3])
        assert [chunk.last for chunk in chain.open(read_all(driver, "b"))] == [4, 6, 7]
        assert read_all(driver, "a") == origin.page

    def test_there_is_no_fork_of_what_is_gone(self, driver: Driver) -> None:
        """Never there, deleted, or deleted and made anew: it is not that session."""
        missing = Author("missing")
        missing.accept(missing.opening())
        assert commit_one(driver, missing.fork("b", seq=1).opening()) == OriginGone()
        origin = _origin(driver)
        fork = origin.fork("b", seq=3)
        driver.delete(origin.session, origin.sum)
        assert commit_one(driver, fork.opening()) == OriginGone()
        Author("a").begin(driver)
        assert commit_one(driver, fork.opening()) == OriginGone()
        assert driver.find_tip(fork.session) is None
        assert not read_all(driver, "b")

    @pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 6])
    def test_a_deleted_origin_keeps_the_chunks_that_a_fork_needs(
        self, driver: Driver, open_driver: OpenDriver, count: int
    ) -> None:
        """Up to the pinned one, hidden; the origin itself is gone, and listed nowhere."""
        origin = _origin(driver)
        seq = _ENDS[count - 1]
        fork = origin.fork("b", seq=seq)
        fork.begin(driver)
        assert driver.delete(origin.session, origin.sum) == Done(0)
        for reader in (driver, open_driver()):
            hidden = hidden_name(origin.uid)
            assert read_all(reader, hidden) == whole(origin.chunks[:count])
            assert reader.read(hidden, seq - 1, 10, said=True) == whole(origin.chunks[count - 1 : count])
            assert reader.read(hidden, 0, 10, said=False) == Page.of(origin.chunks[:count], said=False)
            assert not reader.read(hidden, seq, 10, said=True)
            assert reader.find_tip(origin.session) is None
            assert not read_all(reader, "a")
            assert [tip.session for tip in reader.list_tips(HeadFilter(), None, 10)] == ["b"]
        assert read_all(driver, "b") == fork.page

    @pytest.mark.parametrize("count", [1, 3, 6])
    def test_erasing_leaves_the_chunks_that_a_fork_needs(
        self, driver: Driver, open_driver: OpenDriver, count: int
    ) -> None:
        """The others are erased; once the fork is gone, so can the rest be."""
        origin = _origin(driver)
        fork = origin.fork("b", seq=_ENDS[count - 1])
        fork.begin(driver)
        left = {chunk.seq: erased(chunk) for chunk in origin.chunks[1:]}
        changed = [replaced(chunk, left.get(chunk.seq)) for chunk in origin.chunks]
        assert driver.erase(origin.session, origin.sum, left, origin.head) == Done(0)
        for reader in (driver, open_driver()):
            assert read_all(reader, "a") == whole([*origin.chunks[:count], *changed[count:]])
        driver.delete(fork.session, fork.sum)
        assert driver.erase(origin.session, origin.sum, left, origin.head) == Done(0)
        assert read_all(driver, "a") == whole(changed)

    def test_the_fork_that_needs_most_decides(self, driver: Driver) -> None:
        """Chunks up to the highest pinned one stay."""
        origin = _origin(driver)
        for name, seq in (("b", 3), ("c", 9), ("d", 1)):
            origin.fork(name, seq=seq).begin(driver)
        driver.delete(origin.session, origin.sum)
        assert read_all(driver, hidden_name(origin.uid)) == whole(origin.chunks[:5])

    def test_hidden_chunks_go_with_the_last_fork(self, driver: Driver, open_driver: OpenDriver) -> None:
        """Not before."""
        origin = _origin(driver)
        forks = [origin.fork(name, seq=3) for name in "bc"]
        for fork in forks:
            fork.begin(driver)
        driver.delete(origin.session, origin.sum)
        driver.delete(forks[0].session, forks[0].sum)
        assert read_all(driver, hidden_name(origin.uid)) == whole(origin.chunks[:2])
        reopened = open_driver()
        reopened.delete(forks[1].session, forks[1].sum)
        assert not read_all(reopened, hidden_name(origin.uid))
        assert not read_all(driver, hidden_name(origin.uid))

    def test_a_fork_that_goes_first_takes_nothing_with_it(self, driver: Driver) -> None:
        """Its origin lives on, and is gone at once when it is deleted later."""
        origin = _origin(driver)
        fork = origin.fork("b", seq=3)
        fork.begin(driver)
        driver.delete(fork.session, fork.sum)
        assert read_all(driver, "a") == origin.page
        driver.delete(origin.session, origin.sum)
        assert not read_all(driver, hidden_name(origin.uid))

    def test_the_id_of_a_hidden_origin_is_free_at_once(self, driver: Driver) -> None:
        """The new session and the hidden chunks do not mix, whatever happens to either."""
        origin = _origin(driver)
        fork = origin.fork("b", seq=3)
        fork.begin(driver)
        driver.delete(origin.session, origin.sum)
        anew = Author("a")
        anew.begin(driver, say("quite another"))
        assert read_all(driver, "a") == anew.page
        assert read_all(driver, hidden_name(origin.uid)) == whole(origin.chunks[:2])
        driver.delete(fork.session, fork.sum)
        assert not read_all(driver, hidden_name(origin.uid))
        assert read_all(driver, "a") == anew.page

    def test_a_fork_of_a_fork_keeps_both(self, driver: Driver) -> None:
        """A hidden fork needs its own origin still; both go with the last that needs them."""
        first = _origin(driver)
        second = first.fork("b", seq=5)
        second.begin(driver, CHUNK_END, say("eight"), CHUNK_END, say("ten"))
        third = second.fork("c", seq=9)
        third.begin(driver)
        driver.delete(first.session, first.sum)
        driver.delete(second.session, second.sum)
        assert read_all(driver, hidden_name(first.uid)) == whole(first.chunks[:3])
        assert read_all(driver, hidden_name(second.uid)) == whole(second.chunks[:2])
        driver.delete(third.session, third.sum)
        assert not read_all(driver, hidden_name(second.uid))
        assert not read_all(driver, hidden_name(first.uid))

    def test_a_fork_may_take_the_id_of_what_it_was_forked_from(self, driver: Driver) -> None:
        """Delete the origin, and fork the fork into its id."""
        first = _origin(driver)
        second = first.fork("b", seq=5)
        second.begin(driver, CHUNK_END, say("eight"))
        driver.delete(first.session, first.sum)
        third = second.fork("a", seq=7)
        third.begin(driver)
        driver.delete(second.session, second.sum)
        assert read_all(driver, "a") == third.page
        assert read_all(driver, hidden_name(first.uid)) == whole(first.chunks[:3])
        driver.delete(third.session, third.sum)
        assert not read_all(driver, hidden_name(second.uid))
        assert not read_all(driver, hidden_name(first.uid))

    def test_the_runs_of_a_hidden_session_are_not_listed(self, driver: Driver) -> None:
        """They went with it."""
        origin = Author("a")
        origin.begin(driver, RunStarted(), run="r")
        origin.fork("b", seq=2).begin(driver)
        driver.delete(origin.session, origin.sum)
        assert list(driver.list_runs(None, None, 10)) == []
        assert list(driver.list_runs(SessionId("a"), None, 10)) == []
