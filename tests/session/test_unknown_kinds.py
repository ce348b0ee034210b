"""A journal that a newer version wrote to."""

import msgspec
import pytest

from holdfast import Store, open_store
from holdfast.drivers.contract import Append, Done
from holdfast.errors import ReadOnly
from tests.session.example_sessions import StoreUrl, collect, driver_of, entries, own_page, step, texts
from tests.unit import chunks_by_hand


async def write_future(url: StoreUrl, store: Store, kind: str, *, must: bool) -> bytes:
    """What a newer holdfast would have done: one more entry, of a kind that is not known here."""
    async with store.session("s") as session:
        await step(session, "a")
    head = (await store.load("s")).facts.head
    future = chunks_by_hand.entry(kind, {"rule": [1, "ü"]}, must=must)
    chunk = chunks_by_hand.chunk(head.seq + 1, future, after=head.sum)
    item = Append(
        session=head.session,
        after=head.sum,
        chunks=(chunk,),
        head=msgspec.structs.replace(head, seq=head.seq + 1, sum=chunk.sum),
    )
    with driver_of(url) as driver:
        assert isinstance(driver.commit([item])[0], Done)
    return chunk.facts


async def test_a_kind_that_only_informs_is_kept_and_passed_over(store_url: StoreUrl) -> None:
    """An older version goes on after it, and leaves the line as it is."""
    async with open_store(store_url) as store:
        facts = await write_future(store_url, store, "future.idea", must=False)
        async with store.session("s") as session:
            assert await step(session, "b") == 2
        assert texts((await store.load("s")).transcript) == ["a", "b"]
        assert facts in own_page(store_url, "s").facts.split(b"\n")
        assert "future.idea" in [entry.kind for entry in await entries(store, "s")]


async def test_a_kind_that_must_be_understood_makes_the_session_read_only(store_url: StoreUrl) -> None:
    """It changes decisions: who does not know it may look, and not touch."""
    async with open_store(store_url) as store:
        facts = await write_future(store_url, store, "future.rule", must=True)
        before = own_page(store_url, "s")
        with pytest.raises(ReadOnly, match=r"'future\.rule'.*Upgrade") as caught:
            async with store.session("s"):
                pytest.fail("opened")
        assert (caught.value.session, caught.value.kind) == ("s", "future.rule")
        for call in (store.drop("s", 1), store.clean("s"), store.delete("s"), store.fork("s")):
            with pytest.raises(ReadOnly):
                await call
        assert own_page(store_url, "s") == before
        assert before.facts.endswith(facts)


async def test_a_read_only_session_can_still_be_read(store_url: StoreUrl) -> None:
    """Loaded, listed, followed, and sent to: whoever understands it will take it in."""
    async with open_store(store_url) as store:
        await write_future(store_url, store, "future.rule", must=True)
        state = await store.load("s")
        assert texts(state.transcript) == ["a"]
        assert state.facts.unknown == ("future.rule", state.seq)
        assert texts((await store.load("s", 1)).transcript) == ["a"]
        assert texts((await store.overview("s")).history) == ["a"]
        assert [head.session for head in await collect(store.sessions())] == ["s"]
        assert [one.version for one in await collect(store.checkpoints("s"))] == [1]
        assert (await entries(store, "s"))[-1].must
        assert await store.submit("s", "for who understands") == 1
