"""Sessions and resources that were left open in an event loop that has ended."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import anyio
import pytest
import trio

from holdfast import LeaseHeld, Session, Store, open_store
from holdfast.errors import Closed
from tests.session.example_sessions import StoreUrl, texts


def _die_in_asyncio(work: Callable[[], Awaitable[object]]) -> None:
    """Do the work in a loop that is closed without another turn for any task."""
    loop = asyncio.new_event_loop()
    loop.run_until_complete(work())
    loop.close()


def _die_in_trio(work: Callable[[], Awaitable[object]]) -> None:
    trio.run(work)


@pytest.fixture(params=[_die_in_asyncio, _die_in_trio])
def die(request: pytest.FixtureRequest) -> Callable[[Callable[[], Awaitable[object]]], None]:
    """Runs something in an event loop of its own, which has ended on return."""
    found: Callable[[Callable[[], Awaitable[object]]], None] = request.param
    return found


def test_a_session_whose_event_loop_ended_can_be_opened_again(
    store_url: StoreUrl, die: Callable[[Callable[[], Awaitable[object]]], None]
) -> None:
    """In the same process, with all that was recorded. The one that was left open is closed."""
    store = open_store(store_url)
    opened: list[Session] = []

    async def begin() -> None:
        await store.__aenter__()
        opened.append(await store.session("s").__aenter__())
        await opened[0].add("not yet waited for")

    async def go_on() -> None:
        async with store.session("s", create=False) as session:
            assert texts(session.transcript) == ["not yet waited for"]
            await session.add("more")
            await session.checkpoint()
            with pytest.raises(LeaseHeld, match="this process"):
                await store.session("s").__aenter__()
            with pytest.raises(Closed, match="event loop"):
                await opened[0].add("too late")
        assert (await store.head("s")).lease is None
        await store.aclose()

    die(begin)
    anyio.run(go_on)


def test_a_resource_that_was_held_in_an_event_loop_that_ended_can_be_held_again(
    store_url: StoreUrl, die: Callable[[Callable[[], Awaitable[object]]], None]
) -> None:
    """With a higher fence."""
    store = open_store(store_url)
    left: list[AbstractAsyncContextManager[Any]] = []
    fences: list[int] = []

    async def begin() -> None:
        await store.__aenter__()
        session = await store.session("s").__aenter__()
        left.append(session.hold("printer"))
        fences.append((await left[0].__aenter__()).fence)
        with pytest.raises(LeaseHeld):
            await session.hold("printer").__aenter__()

    async def go_on() -> None:
        async with store.session("s") as session, session.hold("printer") as held:
            assert held.fence > fences[0]
        await store.aclose()

    die(begin)
    anyio.run(go_on)


async def test_a_session_that_is_open_in_another_living_event_loop_stays_held(store_url: StoreUrl) -> None:
    """Only a loop that has ended leaves something behind."""

    async def attempt(store: Store) -> None:
        with pytest.raises(LeaseHeld, match="this process"):
            await store.session("s").__aenter__()

    async with open_store(store_url) as store, store.session("s") as session:
        await anyio.to_thread.run_sync(lambda: anyio.run(attempt, store))
        await session.add("mine")
        await session.checkpoint()
