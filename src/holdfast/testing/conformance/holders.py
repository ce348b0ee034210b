"""Heartbeats of holders."""

from __future__ import annotations

from ...drivers.contract import Driver
from ...ids import HolderId, SessionId
from .author import Author
from .case import DriverCase, OpenDriver

_HOLDER = HolderId("h1")


class HolderPromises(DriverCase):
    """Who is alive."""

    def test_a_holder_has_its_last_heartbeat(self, driver: Driver, open_driver: OpenDriver) -> None:
        """Each replaces the one before; others do not mix with it."""
        assert driver.find_beat(_HOLDER) is None
        for record in (b'{"n":1}', b'{"n":2,"name":"\xc3\xa9"}'):
            driver.beat(_HOLDER, record, [])
            driver.beat(HolderId("h2"), b"{}", [])
            for reader in (driver, open_driver()):
                beat = reader.find_beat(_HOLDER)
                assert beat is not None
                assert beat.record == record

    def test_the_age_of_a_heartbeat_is_not_negative(self, driver: Driver) -> None:
        """Where the driver has a clock of its own; it may have none."""
        driver.beat(_HOLDER, b"{}", [])
        beat = driver.find_beat(_HOLDER)
        assert beat is not None
        assert beat.age_s is None or 0 <= beat.age_s < 60

    def test_a_server_s_clock_is_known_from_the_first_heartbeat_on(
        self, driver: Driver, open_driver: OpenDriver
    ) -> None:
        """It goes forward, and is the same for all; a driver without a server has none."""
        other = open_driver()
        driver.beat(_HOLDER, b"{}", [])
        other.beat(HolderId("h2"), b"{}", [])
        first, theirs, second = driver.server_s(), other.server_s(), driver.server_s()
        if first is None or theirs is None or second is None:
            # An answer that took long says too little; the next one may be quicker.
            return
        assert first <= second
        assert abs(theirs - first) < 60

    def test_a_heartbeat_answers_how_far_the_inboxes_have_grown(self, driver: Driver) -> None:
        """Of the sessions that it names and that exist."""
        a, b = Author("a"), Author("b")
        a.begin(driver)
        b.begin(driver)
        driver.post(a.session, b"{}")
        driver.post(a.session, b"{}")
        assert dict(driver.beat(_HOLDER, b"{}", [a.session, b.session, SessionId("nobody")])) == {
            "a": 2,
            "b": 0,
        }
        assert dict(driver.beat(_HOLDER, b"{}", [b.session])) == {"b": 0}
        assert dict(driver.beat(_HOLDER, b"{}", [])) == {}

    def test_a_holder_that_retired_is_gone(self, driver: Driver, open_driver: OpenDriver) -> None:
        """At once, for all readers; retiring again is harmless, and it may come back."""
        driver.beat(_HOLDER, b"{}", [])
        driver.retire(_HOLDER)
        driver.retire(_HOLDER)
        assert driver.find_beat(_HOLDER) is None
        assert open_driver().find_beat(_HOLDER) is None
        driver.beat(_HOLDER, b'"back"', [])
        assert driver.find_beat(_HOLDER) is not None

    def test_heartbeats_survive_reopening(self, driver: Driver, open_driver: OpenDriver) -> None:
        """A holder that died left its last one behind."""
        driver.beat(_HOLDER, b'{"n":1}', [])
        driver.close()
        beat = open_driver().find_beat(_HOLDER)
        assert beat is not None
        assert beat.record == b'{"n":1}'
