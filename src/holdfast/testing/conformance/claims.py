"""Claims: once ever, over all sessions."""

from __future__ import annotations

import pytest

from ...drivers.contract import ClaimChange, Claimed, Conflict, Done, Driver, OriginGone
from .author import Author, commit_one, read_all, say
from .case import DriverCase, OpenDriver


def _change(key: str, expect: str | None, record: str | None) -> ClaimChange:
    return ClaimChange(key=key, expect=expect, record=record)


class ClaimPromises(DriverCase):
    """By themselves, and in the same commit as chunks."""

    def test_a_claim_is_taken_changed_and_freed(self, driver: Driver, open_driver: OpenDriver) -> None:
        """Each step expects the one before it."""
        assert driver.find_claim("k") is None
        for expect, record in ((None, "taken"), ("taken", "döne"), ("döne", None), (None, "again")):
            assert driver.claim(_change("k", expect, record)) == Done(0)
            assert driver.find_claim("k") == record
            assert open_driver().find_claim("k") == record

    @pytest.mark.parametrize("record", ["theirs", None])
    @pytest.mark.parametrize("expect", [None, "something else"])
    def test_a_claim_that_is_not_as_expected_stays(
        self, driver: Driver, expect: str | None, record: str | None
    ) -> None:
        """The answer is what is there."""
        driver.claim(_change("k", None, "mine"))
        assert driver.claim(_change("k", expect, record)) == Claimed("k", "mine")
        assert driver.find_claim("k") == "mine"

    def test_a_free_claim_cannot_be_changed(self, driver: Driver) -> None:
        """There is nothing to change or to free."""
        assert driver.claim(_change("k", "mine", "other")) == Claimed("k", None)
        assert driver.claim(_change("k", "mine", None)) == Claimed("k", None)
        assert driver.find_claim("k") is None

    def test_any_key_is_a_key(self, driver: Driver) -> None:
        """Keys are not names of files: they may hold anything."""
        keys = ["a", "A", "a/b", "../a", "x" * 5000, "ключ", " ", "%", "a\0b"]
        for key in keys:
            assert driver.claim(_change(key, None, f"record of {key}")) == Done(0)
        for key in keys:
            assert driver.find_claim(key) == f"record of {key}"

    def test_claims_are_listed_in_pages(self, driver: Driver, open_driver: OpenDriver) -> None:
        """In an order of the driver's own, each once, whatever the keys hold."""
        keys = ["a", "A", "a/b", "x" * 5000, "ключ", " ", "a\0b", "b", ""]
        for key in keys:
            driver.claim(_change(key, None, f"record of {key}"))
        driver.claim(_change("freed", None, "1"))
        driver.claim(_change("freed", "1", None))
        author = Author("s")
        author.begin(driver, claims=[_change("of a commit", None, "2")])
        expected = {key: f"record of {key}" for key in keys} | {"of a commit": "2"}
        for reader in (driver, open_driver()):
            found = list(reader.list_claims(None, 100))
            assert dict(found) == expected
            assert len(found) == len(expected)
            listed: list[tuple[str, str]] = []
            while page := reader.list_claims(listed[-1][0] if listed else None, 4):
                assert len(page) <= 4
                listed += page
            assert listed == found

    def test_a_commit_changes_its_claims_with_its_chunks(
        self, driver: Driver, open_driver: OpenDriver
    ) -> None:
        """Taken, changed and freed together."""
        author = Author("a")
        driver.claim(_change("old", None, "1"))
        driver.claim(_change("done", None, "1"))
        changes = [_change("new", None, "1"), _change("old", "1", "2"), _change("done", "1", None)]
        author.begin(driver, claims=changes)
        for reader in (driver, open_driver()):
            assert [reader.find_claim(key) for key in ("new", "old", "done")] == ["1", "2", None]
            assert read_all(reader, "a") == author.page

    def test_a_commit_whose_claim_is_not_as_expected_writes_nothing(self, driver: Driver) -> None:
        """Neither chunks nor any of its other claims, whichever of them it was."""
        author = Author("a")
        author.begin(driver)
        driver.claim(_change("taken", None, "theirs"))
        for changes in (
            [_change("taken", None, "mine"), _change("free", None, "mine")],
            [_change("free", None, "mine"), _change("taken", None, "mine")],
            [_change("taken", "theirs", "mine"), _change("free", "mine", None)],
        ):
            item = author.write(say("issued"), claims=changes, keyframe=b"{}")
            refused = "free" if changes[1].expect else "taken"
            record = None if refused == "free" else "theirs"
            assert commit_one(driver, item) == Claimed(refused, record)
            assert (driver.find_claim("taken"), driver.find_claim("free")) == ("theirs", None)
            assert read_all(driver, "a") == author.page
            assert driver.find_keyframe(author.session) is None

    def test_a_session_whose_first_claim_is_refused_does_not_begin(self, driver: Driver) -> None:
        """It can begin later."""
        author = Author("a")
        driver.claim(_change("k", None, "theirs"))
        assert commit_one(driver, author.opening(claims=[_change("k", None, "mine")])) == Claimed(
            "k", "theirs"
        )
        assert driver.find_tip(author.session) is None
        assert not read_all(driver, "a")
        author.begin(driver)
        assert read_all(driver, "a") == author.page

    def test_a_stale_commit_leaves_its_claims(self, driver: Driver) -> None:
        """A conflict is told before a claim that is not as expected."""
        author = Author("a")
        author.begin(driver)
        driver.claim(_change("taken", None, "theirs"))
        stale = author.twin().write(
            say("x"), claims=[_change("free", None, "x"), _change("taken", None, "x")]
        )
        author.commit(driver, say("in time"))
        assert commit_one(driver, stale) == Conflict(author.sum)
        assert driver.find_claim("free") is None

    def test_a_fork_without_origin_leaves_its_claims(self, driver: Driver) -> None:
        """Nothing of it is there."""
        origin = Author("a")
        origin.begin(driver)
        fork = origin.fork("b", seq=1)
        driver.delete(origin.session, origin.sum)
        assert commit_one(driver, fork.opening(claims=[_change("k", None, "x")])) == OriginGone()
        assert driver.find_claim("k") is None

    def test_of_two_items_of_a_batch_one_gets_the_claim(self, driver: Driver) -> None:
        """The first; the second finds it taken."""
        authors = [Author("a"), Author("b")]
        items = [author.opening(claims=[_change("k", None, author.session)]) for author in authors]
        assert list(driver.commit(items)) == [Done(0), Claimed("k", "a")]
        assert not read_all(driver, "b")

    def test_committing_again_what_had_landed_does_not_change_its_claims_again(self, driver: Driver) -> None:
        """They may be another session's by now."""
        author = Author("a")
        item = author.begin(driver, claims=[_change("k", None, "mine")])
        driver.claim(_change("k", "mine", "theirs"))
        assert commit_one(driver, item) == Conflict(author.sum)
        assert driver.find_claim("k") == "theirs"

    def test_claims_survive_reopening(self, driver: Driver, open_driver: OpenDriver) -> None:
        """Once ever is longer than a process lives."""
        Author("a").begin(driver, claims=[_change("k", None, "mine")])
        driver.close()
        reopened = open_driver()
        assert reopened.find_claim("k") == "mine"
        assert reopened.claim(_change("k", None, "x")) == Claimed("k", "mine")
