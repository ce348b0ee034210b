"""Many at once: exactly one wins."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from ...core.pages import Chain
from ...drivers.contract import Append, ClaimChange, Conflict, Done, Driver, Outcome
from .author import CHUNK_END, Author, commit_one, erased, note, read_all, replaced, say, whole
from .case import DriverCase, OpenDriver

_T = TypeVar("_T")
_RACERS = 8


def race(run: Callable[[int], _T]) -> list[_T]:
    """Call it in several threads, as nearly at the same moment as can be."""
    ready = threading.Barrier(_RACERS)

    def start(number: int) -> _T:
        ready.wait()
        return run(number)

    with ThreadPoolExecutor(_RACERS) as threads:
        return list(threads.map(start, range(_RACERS)))


def _winner(items: list[Append], outcomes: list[Outcome]) -> Append:
    """The item that landed; all others lost against it."""
    (won,) = [item for item, outcome in zip(items, outcomes, strict=True) if isinstance(outcome, Done)]
    assert outcomes.count(Conflict(won.head.sum)) == len(items) - 1
    return won


class RacePromises(DriverCase):
    """Threads of one process, through one opening of the store or several."""

    def test_one_of_many_creates_the_session(self, driver: Driver) -> None:
        """The others are told whose it is."""
        items = [Author("a").opening(say(f"{number}"), CHUNK_END, say("and")) for number in range(_RACERS)]
        outcomes = race(lambda number: commit_one(driver, items[number]))
        assert read_all(driver, "a") == whole(_winner(items, outcomes).chunks)

    def test_one_of_many_appends_after_the_same_chunk(self, driver: Driver, open_driver: OpenDriver) -> None:
        """In every round one lands, whole, and the others write nothing."""
        author = Author("a")
        author.begin(driver)
        drivers = [driver, open_driver()]
        for turn in range(10):
            items = [
                author.write(say(f"{turn}.{number}"), CHUNK_END, say("and")) for number in range(_RACERS)
            ]

            def append(number: int, items: list[Append] = items) -> Outcome:
                return commit_one(drivers[number % 2], items[number])

            author.accept(_winner(items, race(append)))
        assert read_all(driver, "a") == author.page

    def test_many_write_to_sessions_of_their_own(self, driver: Driver) -> None:
        """No writer is refused, nothing gets into another's journal."""
        authors = [Author(f"s{number}") for number in range(_RACERS)]

        def write(number: int) -> None:
            authors[number].begin(driver)
            for turn in range(10):
                authors[number].commit(driver, say(f"{number} in turn {turn}"))

        race(write)
        for author in authors:
            assert read_all(driver, author.session) == author.page

    def test_a_reader_never_sees_half_a_commit(self, driver: Driver, open_driver: OpenDriver) -> None:
        """While another opening commits, each read ends with the end of a commit, and its parts agree."""
        second = open_driver()
        author = Author("a")
        author.begin(driver)

        def act(number: int) -> set[int]:
            if number == 0:
                for turn in range(20):
                    author.commit(driver, say(f"{turn}"), CHUNK_END, note("two"), CHUNK_END, say("three"))
                return set()
            reader = driver if number % 2 else second
            lengths = set()
            for _ in range(20):
                page = read_all(reader, "a")
                assert sum(len(chunk.entries) for chunk in Chain("a").open(page)) % 5 == 1
                lengths.add(len(page) % 3)
            return lengths

        assert set().union(*race(act)) == {1}

    def test_a_reader_never_sees_half_an_erasure(self, driver: Driver, open_driver: OpenDriver) -> None:
        """All of the chunks are as they were, or none is."""
        second = open_driver()
        author = Author("a")
        author.begin(driver)
        for turn in range(20):
            author.commit(driver, say(f"{turn}" * 100), note("a note"), CHUNK_END, note("last"))
        left = {chunk.seq: erased(chunk) for chunk in author.chunks}
        after = whole([replaced(chunk, left[chunk.seq]) for chunk in author.chunks])

        def act(number: int) -> Outcome | None:
            if number == 0:
                return driver.erase(author.session, author.sum, left, author.head)
            for _ in range(20):
                assert read_all(driver if number % 2 else second, "a") in (author.page, after)
            return None

        assert race(act)[0] == Done(0)
        assert read_all(driver, "a") == read_all(second, "a") == after

    def test_numbers_of_the_inbox_are_given_once(self, driver: Driver, open_driver: OpenDriver) -> None:
        """Many post at once; each item has a number of its own, without gaps."""
        author = Author("a")
        author.begin(driver)
        drivers = [driver, open_driver()]

        def post(number: int) -> list[int]:
            return [drivers[number % 2].post(author.session, b'"%d"' % number) for _ in range(5)]

        numbers = [number for posted in race(post) for number in posted]
        assert sorted(numbers) == list(range(1, 5 * _RACERS + 1))
        assert [row.number for row in driver.read_inbox(author.session, 0, 1000)] == sorted(numbers)

    def test_one_of_many_gets_a_claim(self, driver: Driver, open_driver: OpenDriver) -> None:
        """The others are told who has it."""
        drivers = [driver, open_driver()]

        def take(number: int) -> Outcome:
            return drivers[number % 2].claim(ClaimChange(key="k", expect=None, record=f"mine {number}"))

        outcomes = race(take)
        assert sum(isinstance(outcome, Done) for outcome in outcomes) == 1
        assert driver.find_claim("k") == f"mine {outcomes.index(Done(0))}"

    def test_one_of_many_gets_a_claim_with_its_chunks(self, driver: Driver, open_driver: OpenDriver) -> None:
        """Only the winner's chunks are there."""
        drivers = [driver, open_driver()]
        authors = [Author(f"s{number}") for number in range(_RACERS)]
        for author in authors:
            author.begin(driver)

        def take(number: int) -> Outcome:
            change = ClaimChange(key="k", expect=None, record=f"mine {number}")
            return commit_one(drivers[number % 2], authors[number].write(say("issued"), claims=[change]))

        outcomes = race(take)
        winner = outcomes.index(Done(0))
        assert driver.find_claim("k") == f"mine {winner}"
        lengths = [len(read_all(driver, author.session)) for author in authors]
        assert lengths == [2 if number == winner else 1 for number in range(_RACERS)]

    def test_a_fork_and_the_deletion_of_its_origin_exclude_each_other(self, driver: Driver) -> None:
        """Either the fork has its origin's chunks, or there is no fork."""
        for turn in range(5):
            origin = Author(f"o{turn}")
            origin.begin(driver, say("kept?"))
            fork = origin.fork(f"f{turn}", seq=2)

            def act(number: int, origin: Author = origin, fork: Author = fork) -> Outcome | None:
                if number == 0:
                    return driver.delete(origin.session, origin.sum)
                return commit_one(driver, fork.opening()) if number == 1 else None

            race(act)
            kept = read_all(driver, f"~{origin.uid}") == origin.page
            assert kept == (driver.find_tip(fork.session) is not None)
