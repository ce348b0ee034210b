"""Blobs: large bytes under their digest."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from ...drivers.contract import Driver
from .case import DriverCase, OpenDriver

_INFO = b'{"media_type":"image/png","name":"\xc3\xa9"}'


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _read(driver: Driver, data: bytes) -> tuple[bytes, bytes] | None:
    found = driver.find_blob(_digest(data))
    return (found.info, b"".join(found.parts)) if found else None


def _put(driver: Driver, *blobs: bytes) -> list[str]:
    """Store them; their digests in order."""
    for data in blobs:
        driver.put_blob(_digest(data), [data], _INFO)
    return sorted(map(_digest, blobs))


def _put_at(driver: Driver, digest: str) -> datetime:
    return next(row.put_at for row in driver.list_blobs(None, 1000) if row.digest == digest)


class BlobPromises(DriverCase):
    """Stored once, whole or not at all."""

    @pytest.mark.parametrize("data", [b"", b"\0", b"\xff\xfe not text", b"0123456789abcdef" * (1 << 17)])
    def test_a_blob_comes_back_as_it_was(self, driver: Driver, open_driver: OpenDriver, data: bytes) -> None:
        """With its info, also after reopening."""
        driver.put_blob(_digest(data), [data], _INFO)
        assert _read(driver, data) == (_INFO, data)
        driver.close()
        assert _read(open_driver(), data) == (_INFO, data)

    def test_a_blob_may_come_in_parts(self, driver: Driver) -> None:
        """Of any size, from anything that can be iterated over once."""
        parts = [b"a" * 10, b"", b"b" * (3 << 20), b"c"]
        data = b"".join(parts)
        driver.put_blob(_digest(data), iter(parts), _INFO)
        assert _read(driver, data) == (_INFO, data)

    def test_of_a_blob_that_was_never_stored_there_is_nothing(self, driver: Driver) -> None:
        """None, not an error."""
        driver.put_blob(_digest(b"this"), [b"this"], _INFO)
        assert _read(driver, b"that") is None

    def test_the_first_one_wins(self, driver: Driver, open_driver: OpenDriver) -> None:
        """Equal bytes are stored once, with the info that came first."""
        driver.put_blob(_digest(b"data"), [b"data"], _INFO)
        open_driver().put_blob(_digest(b"data"), [b"da", b"ta"], b'"second"')
        assert _read(driver, b"data") == (_INFO, b"data")

    def test_a_blob_can_be_read_by_several_at_once(self, driver: Driver) -> None:
        """Each has its own place in it; one that is never read to its end is no burden."""
        data = b"0123456789" * (1 << 18)
        driver.put_blob(_digest(data), [data[: 1 << 20], data[1 << 20 :]], _INFO)
        first, second, third = (driver.find_blob(_digest(data)) for _ in range(3))
        assert first is not None
        assert second is not None
        assert third is not None
        begun = next(first.parts)
        assert b"".join(second.parts) == data
        assert begun + b"".join(first.parts) == data

    def test_an_upload_that_broke_off_leaves_nothing(self, driver: Driver) -> None:
        """Neither a blob nor anything that gets into a later one. The error is the source's own."""
        data = b"part" * 5

        def broken() -> Iterator[bytes]:
            for _ in range(4):
                yield b"part"
            raise ConnectionResetError("the caller's source")

        with pytest.raises(ConnectionResetError):
            driver.put_blob(_digest(data), broken(), _INFO)
        assert _read(driver, data) is None
        driver.put_blob(_digest(data), [data], _INFO)
        assert _read(driver, data) == (_INFO, data)

    def test_an_upload_that_is_overtaken_does_no_harm(self, driver: Driver, open_driver: OpenDriver) -> None:
        """Somebody else stored the same bytes, in other parts, while ours were under way."""
        second = open_driver()
        data = b"0123456789"

        def overtaken() -> Iterator[bytes]:
            yield data[:3]
            second.put_blob(_digest(data), [data[:7], data[7:]], b'"overtaker"')
            yield data[3:]

        driver.put_blob(_digest(data), overtaken(), _INFO)
        assert _read(driver, data) == (b'"overtaker"', data)
        assert _read(second, data) == (b'"overtaker"', data)

    def test_a_blob_tells_its_size(self, driver: Driver) -> None:
        """Found or listed, without being read."""
        (digest,) = _put(driver, b"x" * 12345)
        found = driver.find_blob(digest)
        assert found is not None
        assert found.size == 12345
        assert [(row.digest, row.size, row.info) for row in driver.list_blobs(None, 10)] == [
            (digest, 12345, _INFO)
        ]

    def test_blobs_are_listed_in_pages(self, driver: Driver) -> None:
        """In the order of their digests, each once, beginning after any text."""
        digests = _put(driver, *(str(n).encode() for n in range(20)))
        assert [row.digest for row in driver.list_blobs(None, 7)] == digests[:7]
        assert [row.digest for row in driver.list_blobs(digests[6], 7)] == digests[7:14]
        assert [row.digest for row in driver.list_blobs(digests[13], 7)] == digests[14:]
        assert [row.digest for row in driver.list_blobs(digests[3][:10], 2)] == digests[3:5]
        assert not driver.list_blobs(digests[-1], 7)

    def test_a_blob_remembers_when_it_was_put_last(self, driver: Driver, open_driver: OpenDriver) -> None:
        """Putting it again, from anywhere, is a later time; reading it is none."""
        (digest,) = _put(driver, b"data")
        first = _put_at(driver, digest)
        assert first.utcoffset() == timedelta(0)
        _read(driver, b"data")
        assert _put_at(driver, digest) == first
        _put(open_driver(), b"data")
        assert _put_at(driver, digest) > first

    def test_a_blob_can_be_removed(self, driver: Driver, open_driver: OpenDriver) -> None:
        """It is gone for all, the others stay, and it may come back."""
        gone, stays = _digest(b"goes"), _digest(b"stays")
        _put(driver, b"goes", b"stays")
        later = _put_at(driver, gone) + timedelta(days=1)
        assert driver.remove_blob(gone, later)
        assert not driver.remove_blob(gone, later)
        second = open_driver()
        assert _read(second, b"goes") is None
        assert [row.digest for row in second.list_blobs(None, 10)] == [stays]
        _put(second, b"goes")
        assert _read(driver, b"goes") == (_INFO, b"goes")

    def test_what_was_put_again_is_not_removed(self, driver: Driver, open_driver: OpenDriver) -> None:
        """Only what was put before a time goes: an entry that refers to it may be on its way."""
        (digest,) = _put(driver, b"data")
        first = _put_at(driver, digest)
        assert not driver.remove_blob(digest, first)
        _put(open_driver(), b"data")
        assert not driver.remove_blob(digest, first + timedelta(microseconds=1))
        assert _read(driver, b"data") == (_INFO, b"data")

    def test_sweeping_takes_no_blob(self, driver: Driver) -> None:
        """However old it is; and nothing is left of an upload that broke off."""
        (digest,) = _put(driver, b"data")
        driver.sweep_uploads(datetime.max.replace(tzinfo=UTC))
        assert _read(driver, b"data") == (_INFO, b"data")
        assert driver.remove_blob(digest, datetime.max.replace(tzinfo=UTC))
        assert driver.sweep_uploads(datetime.max.replace(tzinfo=UTC)) == 0
