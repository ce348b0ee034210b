"""Forks, which need the lines of their origin as long as they live."""

from __future__ import annotations

import pytest

from ...core.codec import erase
from ...core.entries import RunStarted
from ...drivers.contract import Done, Driver, HeadFilter, OriginGone, hidden_name
from ...ids import SessionId
from .author import Author, commit_one, read_all, say
from .case import DriverCase, OpenDriver


def _origin(driver: Driver) -> Author:
    """Six entries in three commits."""
    origin = Author("a")
    origin.begin(driver)
    origin.commit(driver, say("two"), say("three"), say("four"))
    origin.commit(driver, say("five"), say("six"))
    return origin


class ForkPromises(DriverCase):
    """A fork's journal begins where its origin's is left."""

    def test_a_fork_goes_on_where_it_left_its_origin(self, driver: Driver, open_driver: OpenDriver) -> None:
        """Its own lines begin with the next `seq`; nothing of the origin is copied."""
        origin = _origin(driver)
        fork = origin.fork("b", seq=3)
        fork.begin(driver)
        fork.commit(driver, say("five"), say("six"))
        for reader in (driver, open_driver()):
            assert read_all(reader, "b") == fork.lines
            assert list(reader.read(fork.session, 3, 10)) == fork.lines
            assert list(reader.read(fork.session, 4, 1)) == fork.lines[1:2]
            tip = reader.find_tip(fork.session)
            assert tip is not None
            assert (tip.seq, tip.sum) == (6, fork.sum)
        assert read_all(driver, "a") == origin.lines

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
        assert read_all(driver, "b") == []

    @pytest.mark.parametrize("seq", [1, 2, 3, 4, 5, 6])
    def test_a_deleted_origin_keeps_the_lines_that_a_fork_needs(
        self, driver: Driver, open_driver: OpenDriver, seq: int
    ) -> None:
        """Up to the pinned one, hidden; the origin itself is gone, and listed nowhere."""
        origin = _origin(driver)
        fork = origin.fork("b", seq=seq)
        fork.begin(driver)
        assert driver.delete(origin.session, origin.sum) == Done(0)
        for reader in (driver, open_driver()):
            assert read_all(reader, hidden_name(origin.uid)) == origin.lines[:seq]
            assert list(reader.read(hidden_name(origin.uid), seq - 1, 10)) == origin.lines[seq - 1 : seq]
            assert reader.find_tip(origin.session) is None
            assert read_all(reader, "a") == []
            assert [tip.session for tip in reader.list_tips(HeadFilter(), None, 10)] == ["b"]
        assert read_all(driver, "b") == fork.lines

    @pytest.mark.parametrize("seq", [1, 3, 6])
    def test_erasing_leaves_the_lines_that_a_fork_needs(self, driver: Driver, seq: int) -> None:
        """The others are erased; once the fork is gone, so can the rest be."""
        origin = _origin(driver)
        fork = origin.fork("b", seq=seq)
        fork.begin(driver)
        erased = {number: erase(origin.lines[number - 1], "a") for number in range(2, 7)}
        assert driver.erase(origin.session, origin.sum, erased, origin.head) == Done(0)
        expected = [*origin.lines[:seq], *(erased[number] for number in range(seq + 1, 7))]
        assert read_all(driver, "a") == expected
        driver.delete(fork.session, fork.sum)
        assert driver.erase(origin.session, origin.sum, erased, origin.head) == Done(0)
        assert read_all(driver, "a") == [origin.lines[0], *erased.values()]

    def test_the_fork_that_needs_most_decides(self, driver: Driver) -> None:
        """Lines up to the highest pinned one stay."""
        origin = _origin(driver)
        for name, seq in (("b", 2), ("c", 5), ("d", 1)):
            origin.fork(name, seq=seq).begin(driver)
        driver.delete(origin.session, origin.sum)
        assert read_all(driver, hidden_name(origin.uid)) == origin.lines[:5]

    def test_hidden_lines_go_with_the_last_fork(self, driver: Driver, open_driver: OpenDriver) -> None:
        """Not before."""
        origin = _origin(driver)
        forks = [origin.fork(name, seq=3) for name in "bc"]
        for fork in forks:
            fork.begin(driver)
        driver.delete(origin.session, origin.sum)
        driver.delete(forks[0].session, forks[0].sum)
        assert read_all(driver, hidden_name(origin.uid)) == origin.lines[:3]
        reopened = open_driver()
        reopened.delete(forks[1].session, forks[1].sum)
        assert read_all(reopened, hidden_name(origin.uid)) == []
        assert read_all(driver, hidden_name(origin.uid)) == []

    def test_a_fork_that_goes_first_takes_nothing_with_it(self, driver: Driver) -> None:
        """Its origin lives on, and is gone at once when it is deleted later."""
        origin = _origin(driver)
        fork = origin.fork("b", seq=3)
        fork.begin(driver)
        driver.delete(fork.session, fork.sum)
        assert read_all(driver, "a") == origin.lines
        driver.delete(origin.session, origin.sum)
        assert read_all(driver, hidden_name(origin.uid)) == []

    def test_the_id_of_a_hidden_origin_is_free_at_once(self, driver: Driver) -> None:
        """The new session and the hidden lines do not mix, whatever happens to either."""
        origin = _origin(driver)
        fork = origin.fork("b", seq=3)
        fork.begin(driver)
        driver.delete(origin.session, origin.sum)
        anew = Author("a")
        anew.begin(driver, say("quite another"))
        assert read_all(driver, "a") == anew.lines
        assert read_all(driver, hidden_name(origin.uid)) == origin.lines[:3]
        driver.delete(fork.session, fork.sum)
        assert read_all(driver, hidden_name(origin.uid)) == []
        assert read_all(driver, "a") == anew.lines

    def test_a_fork_of_a_fork_keeps_both(self, driver: Driver) -> None:
        """A hidden fork needs its own origin still; both go with the last that needs them."""
        first = _origin(driver)
        second = first.fork("b", seq=4)
        second.begin(driver, say("six"), say("seven"))
        third = second.fork("c", seq=6)
        third.begin(driver)
        driver.delete(first.session, first.sum)
        driver.delete(second.session, second.sum)
        assert read_all(driver, hidden_name(first.uid)) == first.lines[:4]
        assert read_all(driver, hidden_name(second.uid)) == second.lines[:2]
        driver.delete(third.session, third.sum)
        assert read_all(driver, hidden_name(second.uid)) == []
        assert read_all(driver, hidden_name(first.uid)) == []

    def test_a_fork_may_take_the_id_of_what_it_was_forked_from(self, driver: Driver) -> None:
        """Delete the origin, and fork the fork into its id."""
        first = _origin(driver)
        second = first.fork("b", seq=4)
        second.begin(driver, say("six"))
        driver.delete(first.session, first.sum)
        third = second.fork("a", seq=5)
        third.begin(driver)
        driver.delete(second.session, second.sum)
        assert read_all(driver, "a") == third.lines
        assert read_all(driver, hidden_name(first.uid)) == first.lines[:4]
        driver.delete(third.session, third.sum)
        assert read_all(driver, hidden_name(second.uid)) == []
        assert read_all(driver, hidden_name(first.uid)) == []

    def test_the_runs_of_a_hidden_session_are_not_listed(self, driver: Driver) -> None:
        """They went with it."""
        origin = Author("a")
        origin.begin(driver, RunStarted(), run="r")
        origin.fork("b", seq=2).begin(driver)
        driver.delete(origin.session, origin.sum)
        assert list(driver.list_runs(None, None, 10)) == []
        assert list(driver.list_runs(SessionId("a"), None, 10)) == []
