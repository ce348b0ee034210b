"""Blobs: the driver's own home keeps the promises of every home, and some more."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ...blobs.home import BlobContext, BlobHome
from ...drivers.contract import Driver
from .case import DriverCase, OpenDriver
from .homes import CONTEXTS, LATER, OWNER, HomePromises, OpenHome, digest_of, put, read


class BlobPromises(DriverCase, HomePromises):
    """The home is `driver.blobs`."""

    @pytest.fixture
    def open_home(self, open_driver: OpenDriver) -> OpenHome:
        """The home of one more driver, which is closed in the end."""
        return lambda: open_driver().blobs

    def test_the_home_of_a_driver_is_its_stores_own(self, driver: Driver) -> None:
        """Always the same object; it belongs to the store, and its blobs have neither paths nor URLs."""
        digest = put(driver.blobs, b"data")
        assert driver.blobs is driver.blobs
        assert driver.blobs.find_owner() == driver.store_id()
        assert driver.blobs.find_key(digest) is None
        assert driver.blobs.sign(digest, valid_s=60) is None

    def test_a_list_of_blobs_begins_after_any_text(self, home: BlobHome) -> None:
        """Not only after the digest of a blob."""
        digests = sorted(put(home, str(n).encode()) for n in range(20))
        assert [blob.digest for blob in home.list_blobs(digests[3][:10], 2)] == digests[3:5]

    def test_an_upload_that_was_overtaken_leaves_the_first_context(
        self, home: BlobHome, open_home: OpenHome
    ) -> None:
        """The blob that was whole first wins, not the upload that began first."""
        second, data = open_home(), b"0123456789"
        overtaker = BlobContext(file_name="overtaker")

        def overtaken() -> Iterator[bytes]:
            yield data[:3]
            second.put(digest_of(data), [data[:7], data[7:]], overtaker, owner=OWNER)
            yield data[3:]

        home.put(digest_of(data), overtaken(), CONTEXTS[1], owner=OWNER)
        assert read(home, data) == read(second, data) == (overtaker, 10, data)

    def test_a_blob_that_was_removed_leaves_nothing_to_sweep(self, home: BlobHome) -> None:
        """Nor does an upload that broke off, or whose bytes had another digest."""

        def broken() -> Iterator[bytes]:
            yield b"part" * 500_000
            raise ConnectionResetError("the caller's source")

        digest = put(home, b"data")
        with pytest.raises(ConnectionResetError):
            home.put(digest_of(b"other"), broken(), CONTEXTS[1], owner=OWNER)
        assert home.remove(digest, put_before=LATER)
        assert home.sweep(begun_before=LATER) == 0
