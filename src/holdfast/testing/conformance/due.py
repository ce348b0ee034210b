"""What workers look for: sessions with something to do, the longest due first, and who has their leases."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping
from datetime import datetime
from types import MappingProxyType

import pytest
from msgspec.structs import replace

from ...core.entries import InboxCancel, InboxTaken
from ...core.head import Lease
from ...drivers.contract import Done, Driver, DueFilter, InboxRow
from ...ids import HolderId
from .author import Author, at_second, commit_one, say
from .case import DriverCase, OpenDriver

_ITEM = b'{"kind":"cancel"}'
_LATE = datetime.fromisoformat("2999-01-01T00:00:00Z")


def _held_by(holder: str) -> Lease:
    return Lease(holder=HolderId(holder), name=holder, fence=1)


def _due(
    driver: Driver,
    limit: int = 100,
    *,
    until: datetime = _LATE,
    holder: HolderId | None = None,
    agents: Collection[str] | None = None,
    labels: Mapping[str, str] = MappingProxyType({}),
) -> list[str]:
    wanted = DueFilter(until=until, holder=holder, agents=agents, labels=labels)
    found = driver.list_due(wanted, limit)
    assert all(tip.head is not None and tip.head.session == tip.session for tip in found)
    return [tip.session for tip in found]


class DuePromises(DriverCase):
    """What is found without looking at everything."""

    def _write(self, driver: Driver, **heads: Mapping[str, object]) -> dict[str, Author]:
        authors = {}
        for name, head in heads.items():
            authors[name] = author = Author(name)
            author.begin(driver)
            author.commit(driver, say("hello"), **head)
        return authors

    def test_the_longest_due_comes_first(self, driver: Driver, open_driver: OpenDriver) -> None:
        """Then the order of the ids; what has nothing to do is left out."""
        self._write(
            driver,
            a={"due": at_second(30.5)},
            b={"due": at_second(7)},
            c={},
            e={"due": at_second(30)},
            d={"due": at_second(30)},
        )
        for reader in (driver, open_driver()):
            assert _due(reader) == ["b", "d", "e", "a"]
            assert _due(reader, limit=2) == ["b", "d"]

    def test_only_what_was_postponed_is_waited_for(self, driver: Driver, open_driver: OpenDriver) -> None:
        """What is due since a time is due at once, also by a clock that is behind the one that wrote it."""
        later = {"postponed": True, "title": '\0"postponed":true'}
        self._write(
            driver,
            a={"due": at_second(30.5), **later},
            b={"due": at_second(7), **later},
            c={"due": at_second(30), "title": '"postponed":true\0,"postponed":true'},
            d={"due": at_second(30), **later},
        )
        for reader in (driver, open_driver()):
            assert _due(reader) == ["b", "c", "d", "a"]
            assert _due(reader, until=at_second(30)) == ["b", "c", "d"]
            assert _due(reader, until=at_second(6)) == ["c"]
            assert _due(reader, 1, until=at_second(6)) == ["c"]

    def test_a_session_is_due_as_its_last_head_says(self, driver: Driver) -> None:
        """It may become due, later, and not at all."""
        author = self._write(driver, a={})["a"]
        for due in (at_second(1), at_second(2), None):
            author.commit(driver, say("more"), due=due, postponed=due is not None)
            assert _due(driver, until=at_second(1)) == (["a"] if due == at_second(1) else [])
            assert _due(driver) == ([] if due is None else ["a"])

    def test_an_item_in_the_inbox_makes_a_session_due(self, driver: Driver, open_driver: OpenDriver) -> None:
        """At once, whatever the clocks say, until it is taken in; the item that came first counts."""
        authors = self._write(
            driver, a={}, b={}, c={"due": at_second(5)}, d={"due": _LATE, "postponed": True}
        )
        for name in ("d", "b", "a", "b", "c"):
            driver.post(authors[name].session, _ITEM)
        for reader in (driver, open_driver()):
            assert _due(reader) == ["c", "d", "b", "a"]
            assert _due(reader, until=at_second(0)) == ["c", "d", "b", "a"]
        taken = InboxTaken(number=1, item=InboxCancel())
        authors["b"].commit(driver, taken, taken=1)
        assert _due(driver) == ["c", "d", "a", "b"]
        for name in ("a", "c", "d"):
            authors[name].commit(driver, taken, taken=1)
        assert _due(driver, until=at_second(9)) == ["c", "b"]

    def test_a_replica_is_never_due(self, driver: Driver, open_driver: OpenDriver) -> None:
        """Neither by its head nor by its inbox, until it is one no longer; nor is its holder listed."""
        replica = {"due": at_second(1), "replica": True}
        authors = self._write(driver, a=replica, b=replica | {"lease": _held_by("h1")}, c=replica)
        driver.post(authors["a"].session, _ITEM)
        driver.restore_inbox(authors["b"].session, [InboxRow(1, _ITEM)], 1)
        for reader in (driver, open_driver()):
            assert _due(reader) == _due(reader, holder=HolderId("h1")) == []
            assert list(reader.list_holders()) == []
        authors["c"].commit(driver, say("arrived"), replica=False)
        # Its inbox counts with the commit that says that items up to this one were taken in: none here.
        arrived = authors["b"].write(say("arrived"), replica=False, due=None, lease=None)
        assert commit_one(driver, replace(arrived, takes_inbox=True)) == Done(1)
        assert _due(driver) == ["c", "b"]

    def test_sessions_are_listed_by_who_has_their_lease(self, driver: Driver) -> None:
        """None is no holder; a lease that is given back or taken over moves the session."""
        authors = self._write(
            driver,
            a={"due": at_second(3), "lease": _held_by("h1")},
            b={"due": at_second(2), "lease": _held_by("h2")},
            c={"due": at_second(1), "lease": _held_by("h1")},
            d={"due": at_second(4)},
            e={"lease": _held_by("h1")},
        )
        assert _due(driver) == ["d"]
        assert _due(driver, holder=HolderId("h1")) == ["c", "a"]
        assert _due(driver, holder=HolderId("h2")) == ["b"]
        assert _due(driver, holder=HolderId("nobody")) == []
        driver.post(authors["e"].session, _ITEM)
        assert _due(driver, holder=HolderId("h1")) == ["c", "a", "e"]
        authors["a"].commit(driver, say("free"), lease=None)
        authors["c"].commit(driver, say("taken over"), lease=_held_by("h2"))
        assert _due(driver) == ["a", "d"]
        assert _due(driver, holder=HolderId("h2")) == ["c", "b"]

    def test_only_sessions_for_these_agents_and_with_these_labels_are_listed(self, driver: Driver) -> None:
        """Every condition must hold; a session for no agent in particular is none of a worker's."""
        odd = "ä'\"$.*%"
        self._write(
            driver,
            a={"due": at_second(1), "agent": "clerk", "labels": {"tenant": "x", "kind": "chat"}},
            b={"due": at_second(2), "agent": odd, "labels": {"tenant": "x"}},
            c={"due": at_second(3), "labels": {"tenant": odd}},
        )
        assert _due(driver, agents={"clerk"}) == ["a"]
        assert _due(driver, agents={"clerk", odd}) == ["a", "b"]
        assert _due(driver, agents={"somebody"}) == _due(driver, agents=set()) == []
        assert _due(driver, labels={"tenant": "x"}) == ["a", "b"]
        assert _due(driver, labels={"tenant": "x", "kind": "chat"}) == ["a"]
        assert _due(driver, labels={"tenant": odd}) == ["c"]
        assert _due(driver, labels={"tenant": odd}, agents={"clerk"}) == []

    def test_what_was_deleted_is_never_due(self, driver: Driver) -> None:
        """Not even where a fork still needs its chunks, or its inbox was not empty."""
        author = self._write(driver, a={"due": at_second(1), "lease": _held_by("h1")})["a"]
        author.fork("b", seq=2).begin(driver)
        driver.post(author.session, _ITEM)
        driver.delete(author.session, author.sum)
        assert _due(driver) == _due(driver, holder=HolderId("h1")) == []
        assert list(driver.list_holders()) == []

    def test_holders_are_those_who_beat_and_those_who_left_work(self, driver: Driver) -> None:
        """Who retired with the lease of a session that is due is still named, without a heartbeat."""
        authors = self._write(
            driver,
            a={"due": at_second(1), "lease": _held_by("h3")},
            b={"due": at_second(2), "lease": _held_by("h3")},
            c={"due": at_second(2), "lease": _held_by("h1")},
            d={"lease": _held_by("h4")},
            e={"lease": _held_by("h5")},
        )
        driver.beat(HolderId("h1"), b'{"n":1}', [])
        driver.beat(HolderId("h2"), b'{"n":2}', [])
        driver.post(authors["e"].session, _ITEM)
        found = [(holder, beat.record if beat else None) for holder, beat in driver.list_holders()]
        assert found == [("h1", b'{"n":1}'), ("h2", b'{"n":2}'), ("h3", None), ("h5", None)]

    def test_waiting_for_work_ends(self, driver: Driver, open_driver: OpenDriver) -> None:
        """When the time is over at the latest; a post ends it sooner where the driver can be told."""
        author = self._write(driver, a={})["a"]
        driver.wait_for_work(0.0)
        waiting = threading.Thread(target=driver.wait_for_work, args=(0.2,))
        waiting.start()
        open_driver().post(author.session, _ITEM)
        waiting.join(30)
        assert not waiting.is_alive()

    @pytest.mark.parametrize("held", [False, True])
    def test_many_that_have_nothing_to_do_are_not_in_the_way(self, driver: Driver, held: bool) -> None:
        """What is due is found among them."""
        lease = {"lease": _held_by("h1")} if held else {}
        names = [f"s{number:03}" for number in range(60)]
        self._write(driver, **{name: {"due": at_second(1), **lease} if held else {} for name in names})
        self._write(driver, last={"due": at_second(2)})
        assert _due(driver, limit=1) == ["last"]
