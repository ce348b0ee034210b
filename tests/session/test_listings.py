"""Listing sessions and runs, however many there are."""

import pytest

from holdfast import Store, open_store
from holdfast.errors import NotFound
from holdfast.records import Parent
from tests.session.example_sessions import StoreUrl, abandon, collect, step


async def names(store: Store, **wanted: object) -> list[str]:
    return [head.session async for head in store.sessions(**wanted)]  # type: ignore[arg-type]


@pytest.mark.parametrize("rows", [1, 2, 3, 7, 8])
async def test_lists_page_by_themselves(
    rows: int, store_url: StoreUrl, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sessions by id and runs by age, each once, wherever a page ends; filters hold on every page."""
    monkeypatch.setattr("holdfast.store.store.PAGE_ROWS", rows)
    async with open_store(store_url) as store:
        for number in (3, 0, 6, 1, 5, 2, 4):
            labels = {"parity": "even" if number % 2 == 0 else "odd"}
            async with (
                store.session(f"s{number}", labels=labels) as session,
                session.run(run_id=f"r{number}"),
            ):
                pass
        assert await names(store) == [f"s{number}" for number in range(7)]
        assert await names(store, label={"parity": "odd"}) == ["s1", "s3", "s5"]
        assert [run.run async for run in store.runs()] == ["r3", "r0", "r6", "r1", "r5", "r2", "r4"]
        assert [run.run async for run in store.runs(session="s5")] == ["r5"]


async def test_sessions_are_found_by_status_parent_and_labels(store_url: StoreUrl) -> None:
    """All of them together, if one likes; what was changed later counts."""
    async with open_store(store_url) as store:
        async with store.session("a", labels={"tenant": "x", "tier": "1"}) as session:
            await session.close("completed")
        async with store.session("b", labels={"tenant": "x"}, parent=Parent(session="a")) as session:
            await session.close("failed")
        async with store.session("c", parent=Parent(session="a", run="r")) as session:
            await session.label(tenant="x")
        async with store.session("d", labels={"tenant": "y"}) as session:
            await session.close("completed")
            await session.add("not yet")
    async with open_store(store_url) as store:
        assert await names(store, status="completed") == ["a"]
        assert await names(store, status="active") == ["c", "d"]
        assert await names(store, status="waiting") == []
        assert await names(store, parent="a") == ["b", "c"]
        assert await names(store, label={"tenant": "x"}) == ["a", "b", "c"]
        assert await names(store, label={"tenant": "x", "tier": "1"}) == ["a"]
        assert await names(store, label={"tenant": "x"}, parent="a", status="failed") == ["b"]
        assert await names(store, label={"tenant": "z"}) == []


async def test_a_list_tells_what_one_wants_to_know(store_url: StoreUrl) -> None:
    """Without loading any session."""
    async with open_store(store_url) as store:
        async with store.session("s", labels={"tenant": "x"}) as session:
            async with session.run(agent="planner"):
                await session.add("What is up?")
                await session.checkpoint()
            created = session.state.facts.head.created_at
        (head,) = await collect(store.sessions())
    assert (head.session, head.title, head.agent, head.labels) == (
        "s",
        "What is up?",
        "planner",
        {"tenant": "x"},
    )
    assert (head.status, head.step, head.version, head.messages, head.runs) == ("completed", 1, 1, 1, 1)
    assert head.created_at == created
    assert head.updated_at >= created
    assert head.lease is None


async def test_interrupted_sessions_are_found_among_many(
    store_url: StoreUrl, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On every page; so that they can be taken up all at once."""
    monkeypatch.setattr("holdfast.store.store.PAGE_ROWS", 2)

    async def work(store: Store) -> None:
        for name in ("b", "d", "e"):
            session = await store.session(name).__aenter__()
            await session.run().__aenter__()
            await session.add("x")

    await abandon(store_url, work)
    async with open_store(store_url) as store:
        for name in ("a", "c", "f"):
            async with store.session(name) as session, session.run():
                await step(session, "x")
        assert await names(store, interrupted=True) == ["b", "d", "e"]
        assert await names(store, interrupted=False) == ["a", "c", "f"]
        async with store.session("d") as session, session.run():
            await session.flush()
            assert await names(store, interrupted=True) == ["b", "e"]


async def test_deleted_sessions_and_hidden_ones_are_not_listed(store_url: StoreUrl) -> None:
    """Neither they nor their runs, although a fork keeps their lines."""
    async with open_store(store_url) as store:
        async with store.session("origin") as session, session.run(run_id="r"):
            await step(session, "x")
        await store.fork("origin", into="fork")
        await store.delete("origin")
        assert await names(store) == ["fork"]
        assert await collect(store.runs()) == []


async def test_one_session_is_found_by_its_id(store_url: StoreUrl) -> None:
    """As the list has it; and whether somebody drives it, here or anywhere."""
    async with open_store(store_url) as store:
        async with store.session("s") as session:
            await step(session, "hello")
            (listed,) = await collect(store.sessions())
            assert await store.head("s") == listed
            assert await store.is_held(listed)
        assert not await store.is_held(await store.head("s"))
        with pytest.raises(NotFound, match="no session 'nobody'"):
            await store.head("nobody")
