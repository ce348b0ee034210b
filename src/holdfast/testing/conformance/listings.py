"""Lists of sessions and of runs: in order, in pages, filtered."""

from __future__ import annotations

import msgspec
import pytest

from ...core.codec import Page
from ...core.entries import RunCancelled, RunCompleted, RunFailed, RunPaused, RunStarted
from ...drivers.contract import Append, Conflict, Done, Driver, HeadFilter, RunChunks, RunCursor, RunMark
from ...ids import SessionId
from .author import CHUNK_END, Author, at_second, commit_one, say
from .case import DriverCase, OpenDriver


def _listed(driver: Driver, wanted: HeadFilter, authors: list[Author], page: int = 3) -> list[str]:
    """The wanted sessions, page by page; heads that the driver does not know are the authors' to tell."""
    heads = {author.session: author.head for author in authors}
    found: list[str] = []
    after: SessionId | None = None
    while tips := driver.list_tips(wanted, after, page):
        assert len(tips) <= page
        for tip in tips:
            assert tip.head in (None, heads[tip.session])
            if wanted.matches(heads[tip.session]):
                found.append(tip.session)
            else:
                assert tip.head is None
        after = tips[-1].session
    return found


def _pages(item: Append) -> list[Page]:
    """Each chunk of a commit as a list of runs shows it."""
    return [Page.of([chunk], said=False) for chunk in item.chunks]


class ListingPromises(DriverCase):
    """What can be found without knowing a session's id."""

    def _write_some(self, driver: Driver) -> list[Author]:
        heads: dict[str, dict[str, object]] = {
            "b": {"status": "active", "open_run": "r1", "labels": {"tenant": "x", "kind": "chat"}},
            "a": {"status": "completed", "labels": {"tenant": "x"}},
            "B": {"status": "waiting", "parent": "a", "in_doubt": 2, "open_run": "r2"},
            "d.1": {"status": "failed", "parent": "b", "labels": {"tenant": "y"}, "in_doubt": 1},
            "d-1": {"status": "cancelled", "parent": "a", "labels": {"kind": "chat"}},
            "10": {"status": "active"},
            "9": {"status": "active", "labels": {"tenant": "ä'\"$.*%"}},
        }
        authors = []
        for name, head in heads.items():
            author = Author(name)
            author.begin(driver)
            author.commit(driver, say("hello"), **head)
            authors.append(author)
        return authors

    def test_an_empty_store_lists_nothing(self, driver: Driver) -> None:
        """Neither sessions nor runs."""
        assert list(driver.list_tips(HeadFilter(), None, 10)) == []
        assert list(driver.list_runs(None, None, 10)) == []

    @pytest.mark.parametrize("page", [1, 2, 100])
    def test_sessions_are_listed_in_the_order_of_their_ids(self, driver: Driver, page: int) -> None:
        """Character by character, capitals first; each once, whatever the size of a page."""
        authors = self._write_some(driver)
        assert _listed(driver, HeadFilter(), authors, page) == ["10", "9", "B", "a", "b", "d-1", "d.1"]

    @pytest.mark.parametrize(
        ("wanted", "sessions"),
        [
            (HeadFilter(status="active"), ["10", "9", "b"]),
            (HeadFilter(status="failed"), ["d.1"]),
            (HeadFilter(parent=SessionId("a")), ["B", "d-1"]),
            (HeadFilter(parent=SessionId("nobody")), []),
            (HeadFilter(labels={"tenant": "x"}), ["a", "b"]),
            (HeadFilter(labels={"tenant": "x", "kind": "chat"}), ["b"]),
            (HeadFilter(labels={"tenant": "ä'\"$.*%"}), ["9"]),
            (HeadFilter(labels={"nothing": ""}), []),
            (HeadFilter(open_run=True), ["B", "b"]),
            (HeadFilter(open_run=False), ["10", "9", "a", "d-1", "d.1"]),
            (HeadFilter(in_doubt=True), ["B", "d.1"]),
            (HeadFilter(in_doubt=False), ["10", "9", "a", "b", "d-1"]),
            (HeadFilter(status="waiting", open_run=True, in_doubt=True, parent=SessionId("a")), ["B"]),
            (HeadFilter(status="active", in_doubt=True), []),
        ],
        ids=repr,
    )
    def test_a_list_has_what_its_filter_wants(
        self, driver: Driver, wanted: HeadFilter, sessions: list[str]
    ) -> None:
        """Every condition must hold."""
        assert _listed(driver, wanted, self._write_some(driver)) == sessions

    def test_a_list_shows_the_present(self, driver: Driver, open_driver: OpenDriver) -> None:
        """A session is listed by its last head, through every opening of the store."""
        authors = self._write_some(driver)
        second = open_driver()
        authors[0].commit(driver, say("done"), status="completed", open_run=None)
        for reader in (driver, second):
            assert _listed(reader, HeadFilter(status="completed"), authors) == ["a", "b"]
            assert _listed(reader, HeadFilter(open_run=True), authors) == ["B"]

    def test_a_listed_tip_is_the_one_that_is_found(self, driver: Driver) -> None:
        """Listing and looking up agree."""
        authors = self._write_some(driver)
        driver.post(authors[0].session, b'{"kind":"cancel"}')
        for tip in driver.list_tips(HeadFilter(), None, 100):
            assert driver.find_tip(tip.session) == tip

    def test_runs_are_listed_oldest_first_with_their_ends(self, driver: Driver) -> None:
        """By the time they began; a run without an end has none."""
        a, b = Author("a"), Author("b")
        a.begin(driver)
        b.begin(driver)
        starts: dict[str, Page] = {}
        for author, run, second in ((a, "r1", 30), (b, "r2", 10), (a, "r3", 20), (b, "r4", 40)):
            item = author.commit(driver, RunStarted(agent=run), say("go"), run=run, at=at_second(second))
            (starts[run],) = _pages(item)
        ends = {
            "r1": _pages(a.commit(driver, say("between"), RunCompleted(output="é"), run="r1"))[0],
            "r2": _pages(b.commit(driver, RunFailed(reason="error", error="é"), run="r2"))[0],
            "r3": _pages(a.commit(driver, RunCancelled(), run="r3"))[0],
        }
        stamp = "2026-01-01T00:00:{}.000000Z"
        assert list(driver.list_runs(None, None, 10)) == [
            RunChunks("r2", RunCursor(stamp.format(10), b.session, 2), starts["r2"], ends["r2"]),
            RunChunks("r3", RunCursor(stamp.format(20), a.session, 4), starts["r3"], ends["r3"]),
            RunChunks("r1", RunCursor(stamp.format(30), a.session, 2), starts["r1"], ends["r1"]),
            RunChunks("r4", RunCursor(stamp.format(40), b.session, 4), starts["r4"], None),
        ]

    def test_a_run_may_begin_and_end_anywhere_in_a_commit(
        self, driver: Driver, open_driver: OpenDriver
    ) -> None:
        """In one chunk or in several: the list shows the chunks that hold its first and last entry."""
        author = Author("a")
        author.begin(driver, say("first"))
        before, after = say("before"), say("after")
        one = author.commit(driver, before, RunStarted(), say("go"), RunCompleted(), after, run="one")
        two = author.commit(
            driver, before, CHUNK_END, RunStarted(), say("go"), CHUNK_END, RunCompleted(), after, run="two"
        )
        assert (len(one.chunks), len(two.chunks)) == (1, 3)
        for reader in (driver, open_driver()):
            first, second = reader.list_runs(author.session, None, 10)
            assert (first.run, first.cursor.seq, second.run, second.cursor.seq) == ("one", 4, "two", 10)
            assert (first.started, first.ended) == (_pages(one)[0], _pages(one)[0])
            assert (second.started, second.ended) == (_pages(two)[1], _pages(two)[2])

    def test_several_runs_may_be_in_one_chunk(self, driver: Driver) -> None:
        """Each has its own place in the list."""
        author = Author("a")
        author.begin(driver)
        item = author.write(say("two"), say("three"), say("four"), say("five"))
        stamp, chunk = "2026-01-01T00:00:00.000000Z", item.chunks[-1].seq
        marks = [("x", False, 2), ("y", False, 3), ("x", True, 4), ("y", True, 5)]
        runs = [RunMark(run=run, ended=ended, at=stamp, seq=seq, chunk=chunk) for run, ended, seq in marks]
        item = msgspec.structs.replace(item, runs=tuple(runs))
        assert commit_one(driver, item) == Done(0)
        (page,) = _pages(item)
        assert list(driver.list_runs(None, None, 10)) == [
            RunChunks("x", RunCursor(stamp, author.session, 2), page, page),
            RunChunks("y", RunCursor(stamp, author.session, 3), page, page),
        ]

    def test_the_runs_of_a_refused_commit_are_not_listed(self, driver: Driver) -> None:
        """Neither a beginning nor an end of it."""
        author = Author("a")
        author.begin(driver)
        author.commit(driver, RunStarted(), run="r")
        twin = author.twin()
        stale = [twin.write(RunCancelled(), run="r"), twin.write(RunStarted(), run="late")]
        author.commit(driver, say("in time"))
        for item in stale:
            assert commit_one(driver, item) == Conflict(author.sum)
        assert [(run.run, run.ended) for run in driver.list_runs(None, None, 10)] == [("r", None)]

    def test_a_run_belongs_to_its_session(self, driver: Driver) -> None:
        """Runs of two sessions may have the same name."""
        a, b = Author("a"), Author("b")
        for author in (a, b):
            author.begin(driver)
            author.commit(driver, RunStarted(), run="r", at=at_second(5))
        (ended,) = _pages(b.commit(driver, RunCompleted(), run="r"))
        found = [(run.cursor.session, run.run, run.ended) for run in driver.list_runs(None, None, 10)]
        assert found == [("a", "r", None), ("b", "r", ended)]

    def test_a_run_that_paused_and_went_on_has_its_last_end(self, driver: Driver) -> None:
        """An end replaces the one before it."""
        author = Author("a")
        author.begin(driver)
        author.commit(driver, RunStarted(), run="r")
        author.commit(driver, RunPaused(reason="approval"), run="r")
        (ended,) = _pages(author.commit(driver, RunCompleted(), run="r"))
        assert [run.ended for run in driver.list_runs(author.session, None, 10)] == [ended]
        item = author.commit(
            driver, RunPaused(reason="approval"), CHUNK_END, RunFailed(reason="error"), run="r"
        )
        assert [run.ended for run in driver.list_runs(author.session, None, 10)] == [_pages(item)[1]]

    def test_runs_that_began_at_the_same_moment_are_in_the_order_of_session_and_seq(
        self, driver: Driver
    ) -> None:
        """So every run has one place in the list."""
        authors = [Author(name) for name in ("b", "a")]
        for author in authors:
            author.begin(driver)
            for number in range(3):
                author.commit(driver, RunStarted(), run=f"{author.session}{number}", at=at_second(5))
        found = [run.cursor[1:] for run in driver.list_runs(None, None, 10)]
        assert found == [("a", 2), ("a", 3), ("a", 4), ("b", 2), ("b", 3), ("b", 4)]

    @pytest.mark.parametrize("page", [1, 3, 100])
    def test_pages_of_runs_put_together_are_the_list(self, driver: Driver, page: int) -> None:
        """Going on after the last run of each page misses nothing and repeats nothing."""
        authors = [Author(name) for name in "abc"]
        for author in authors:
            author.begin(driver)
        for number in range(9):
            author = authors[number % 3]
            author.commit(driver, RunStarted(), run=f"r{number}", at=at_second(100 - number // 2))
        everything = list(driver.list_runs(None, None, 100))
        assert len(everything) == 9
        found: list[RunChunks] = []
        while runs := driver.list_runs(None, found[-1].cursor if found else None, page):
            assert len(runs) <= page
            found += runs
        assert found == everything

    def test_runs_of_one_session_are_listed_alone(self, driver: Driver, open_driver: OpenDriver) -> None:
        """Those of others, and runs that only look like some, are left out."""
        a, b = Author("a"), Author("b")
        for author in (a, b):
            author.begin(driver, say('"kind":"run.started"'))
            author.commit(driver, RunStarted(config={"kind": "run.failed"}), run=f"{author.session}1")
            author.commit(driver, RunStarted(), run=f"{author.session}2")
        for reader in (driver, open_driver()):
            runs = list(reader.list_runs(a.session, None, 10))
            chunks = [Page.of([chunk], said=False) for chunk in a.chunks]
            assert [run.started for run in runs] == chunks[1:]
            assert [run.started for run in reader.list_runs(a.session, runs[0].cursor, 10)] == chunks[2:]
            assert list(reader.list_runs(SessionId("nobody"), None, 10)) == []

    def test_a_fork_may_end_a_run_that_its_origin_began(self, driver: Driver) -> None:
        """The run is the origin's; there it has no end."""
        origin = Author("a")
        origin.begin(driver)
        (started,) = _pages(origin.commit(driver, RunStarted(), run="r"))
        fork = origin.fork("b", seq=2)
        fork.begin(driver)
        fork.commit(driver, RunCancelled(), run="r")
        found = list(driver.list_runs(None, None, 10))
        assert [(run.cursor.session, run.started, run.ended) for run in found] == [("a", started, None)]
