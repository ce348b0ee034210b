"""Random stores, copied from driver to driver: byte for byte, fold for fold."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import open_store
from holdfast.drivers.contract import Driver
from holdfast.drivers.memory import MemoryDriver
from tests.stores import drop, schema_of, server_url

from .random_stores import contents_of, fill, replicas


@pytest.fixture
def anyio_backend() -> str:
    """LangGraph knows asyncio only."""
    return "asyncio"


@pytest.fixture
def round_trip(tmp_path: Path, postgres: str) -> Iterator[list[str | Driver]]:
    """A store of each kind, and one more in memory to come back to."""
    schema = schema_of(tmp_path)
    yield [f"dir:{tmp_path}/a", f"sqlite:{tmp_path}/b.db", server_url(schema), MemoryDriver()]
    drop([schema])


async def _copy_around(stores: list[str | Driver], seed: int, steps: int) -> None:
    first = MemoryDriver()
    async with open_store(first) as store:
        await fill(store, seed, steps)
        expected = contents_of(store)
    last: str | Driver = first
    for url in stores:
        async with open_store(last) as source, open_store(url) as target:
            copied = await source.copy(target)
            assert copied.lost_blobs == copied.not_erased == ()
            found = contents_of(target)
            assert found == expected
            assert all((await replicas(target)).values())
            again = await source.copy(target)
            assert (again.entries, again.claims, again.blobs) == (0, 0, 0)
            assert contents_of(target) == expected
        last = url


async def test_a_store_is_copied_around_all_drivers(round_trip: list[str | Driver], seed: int) -> None:
    """And is the same in each: journals, inboxes, keyframes, claims, hidden histories and blobs."""
    await _copy_around(round_trip, seed, 40)


@pytest.mark.long
@pytest.mark.parametrize("number", range(20))
async def test_many_stores_are_copied_around_all_drivers(
    round_trip: list[str | Driver], seed: int, number: int
) -> None:
    """Each with another course."""
    await _copy_around(round_trip, seed + number, 120)
