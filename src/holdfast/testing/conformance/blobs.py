"""Blobs: large bytes under their digest."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import pytest

from ...store.driver import Driver
from .case import DriverCase, OpenDriver

_INFO = b'{"media_type":"image/png","name":"\xc3\xa9"}'


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _read(driver: Driver, data: bytes) -> tuple[bytes, bytes] | None:
    found = driver.find_blob(_digest(data))
    return (found[0], b"".join(found[1])) if found else None


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
        begun = next(first[1])
        assert b"".join(second[1]) == data
        assert begun + b"".join(first[1]) == data

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
