"""Resources that agents share."""

from contextlib import AbstractAsyncContextManager

import anyio
import pytest

from holdfast import LeaseHeld, Store, open_store
from holdfast.drivers.contract import ClaimChange, Done
from holdfast.errors import BadInput, Closed, Fenced
from holdfast.records import Hold
from tests.session.example_sessions import StoreUrl, abandon, driver_of

NAME = "repo/main.py ☃"


async def test_a_resource_has_one_holder_among_all_stores(store_url: StoreUrl) -> None:
    """Others are told who has it; another resource is free."""
    async with (
        open_store(store_url) as one,
        open_store(store_url) as two,
        one.session("a") as a,
        one.session("a2") as a2,
        two.session("b") as b,
    ):
        async with a.hold(NAME) as held:
            assert held.name == NAME
            await held.check()
            for session in (a, a2, b):
                with pytest.raises(LeaseHeld, match="is held by session a "):
                    async with session.hold(NAME):
                        pytest.fail("two holders")
            async with b.hold("another"):
                await held.check()
        async with b.hold(NAME), b.hold("another"):
            pass


async def test_the_fence_grows_with_every_holder(store_url: StoreUrl) -> None:
    """So that a service can refuse who comes late, also over restarts."""
    fences = []
    for name in "abc":
        async with open_store(store_url) as store, store.session(name) as session:
            for _ in range(2):
                async with session.hold(NAME) as held:
                    fences.append(held.fence)
    assert fences == sorted(set(fences))
    assert len(fences) == 6


async def test_who_waits_gets_the_resource_when_it_is_free(store_url: StoreUrl) -> None:
    """Two agents that edit one file take turns."""
    inside = 0
    most = 0

    async def edit(store: Store, name: str) -> None:
        nonlocal inside, most
        async with store.session(name) as session:
            for _ in range(3):
                async with session.hold(NAME, wait_s=30):
                    inside += 1
                    most = max(most, inside)
                    await anyio.lowlevel.checkpoint()
                    inside -= 1

    async with open_store(store_url) as one, open_store(store_url) as two, anyio.create_task_group() as tasks:
        tasks.start_soon(edit, one, "a")
        tasks.start_soon(edit, two, "b")
    assert (inside, most) == (0, 1)


async def test_an_error_inside_frees_the_resource(store_url: StoreUrl) -> None:
    """Also a cancellation."""
    async with open_store(store_url) as store, store.session("s") as session:
        with pytest.raises(ZeroDivisionError):
            async with session.hold(NAME):
                raise ZeroDivisionError
        with anyio.CancelScope() as scope:
            async with session.hold(NAME):
                scope.cancel()
                await anyio.sleep_forever()
        assert scope.cancelled_caught
        async with session.hold(NAME):
            pass


async def test_a_resource_of_a_process_that_is_gone_is_free(store_url: StoreUrl) -> None:
    """Nobody waits for who will never come back."""
    gone: list[AbstractAsyncContextManager[Hold]] = []

    async def work(store: Store) -> None:
        session = await store.session("s").__aenter__()
        gone.append(session.hold(NAME))
        await gone[0].__aenter__()

    await abandon(store_url, work)
    async with open_store(store_url) as store, store.session("t") as session, session.hold(NAME) as again:
        assert again.fence == 2
        with pytest.raises(Closed):
            await gone[0].__aexit__(None, None, None)
        await again.check()


async def test_who_lost_the_resource_finds_out(store_url: StoreUrl) -> None:
    """`check` says so, and leaving does not take it from the new holder."""
    async with open_store(store_url) as store, store.session("s") as session:
        async with session.hold(NAME) as held:
            with driver_of(store_url) as driver:
                key = f"hold:{NAME}"
                record = driver.find_claim(key)
                assert record is not None
                usurped = ClaimChange(key=key, expect=record, record='{"fence":9}')
                assert isinstance(driver.claim(usurped), Done)
            with pytest.raises(Fenced, match="fence 1 was taken over"):
                await held.check()
        with driver_of(store_url) as driver:
            assert driver.find_claim(key) == '{"fence":9}'
        async with session.hold(NAME) as held:
            assert held.fence == 10


async def test_a_resource_needs_a_name_and_a_session(store_url: StoreUrl) -> None:
    """A readable name, and somebody who can be named as its holder."""
    async with open_store(store_url) as store:
        async with store.session("s") as session:
            for name in ("", "x" * 201):
                with pytest.raises(BadInput, match="a resource is text"):
                    session.hold(name)
        with pytest.raises(Closed):
            async with session.hold(NAME):
                pytest.fail("held by nobody")
