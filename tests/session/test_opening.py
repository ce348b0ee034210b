"""Opening a session: who it is, who holds it, and what another process finds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

import holdfast
from holdfast.store.driver import Driver

Url = str | Driver


@dataclass
class Cart:
    items: list[str]
    total: int


async def test_a_session_keeps_its_beginning(store_url: Url) -> None:
    """Opening it again changes neither its creation time, nor its uid, nor its title."""
    async with holdfast.open_store(store_url) as store:
        async with store.session("a") as session:
            await session.add("first words")
            before = session.state.facts.head
        async with store.session("a", labels={"tenant": "late"}) as session:
            await session.add("later words")
            after = session.state.facts.head
        assert (before.created_at, before.uid) == (after.created_at, after.uid)
        assert after.title == "first words"
        assert after.labels == {}


async def test_everything_is_there_in_another_store(store_url: Url, tmp_path: Path) -> None:
    """Transcript, plan, budget, state, labels, summary and scratchpad come back elsewhere as they were."""
    plan = holdfast.Plan(
        goal="ship",
        steps=(
            holdfast.PlanStep(id="1", what="pack", postcondition="boxed", status="done", evidence="photo"),
        ),
    )
    async with holdfast.open_store(store_url) as store, store.session("a", labels={"tenant": "x"}) as session:
        await session.add("hello")
        await session.set("cart", Cart(["tea"], 3))
        await session.set_plan(plan)
        await session.set_summary("so far so good")
        await session.set_budget(holdfast.Budget(usd=2))
        root = await session.set_scratchpad(tmp_path / "pad")
        await session.label(team="blue", tenant=None)
        version = await session.checkpoint()
    async with holdfast.open_store(store_url) as store, store.session("a") as session:
        assert [message.text for message in session.transcript] == ["hello"]
        assert session.transcript[0].id
        assert session.transcript[0].at
        assert session.get("cart", Cart) == Cart(["tea"], 3)
        assert session.plan == plan
        assert session.summary == "so far so good"
        assert session.budget.caps == holdfast.Budget(usd=2)
        assert session.scratchpad == root
        assert root.is_dir()
        assert session.labels == {"team": "blue"}
        assert session.version == version


async def test_a_session_that_is_open_is_refused_politely(store_url: Url) -> None:
    """Who holds it and until when is said; when it is closed, it can be opened."""
    async with holdfast.open_store(store_url) as one, holdfast.open_store(store_url) as other:
        async with one.session("a"):
            with pytest.raises(holdfast.LeaseHeld, match="already"):
                async with one.session("a"):
                    pass
            with pytest.raises(holdfast.LeaseHeld, match=r"held by .+:\d+.+runs out in|another machine"):
                async with other.session("a"):
                    pass
        async with other.session("a"):
            pass


async def test_a_session_that_is_not_there_is_not_made_by_mistake(store_url: Url) -> None:
    """Reading what is not there is `NotFound`, and so is opening it without leave to create."""
    async with holdfast.open_store(store_url) as store:
        with pytest.raises(holdfast.NotFound, match="ghost"):
            await store.load("ghost")
        with pytest.raises(holdfast.NotFound):
            async with store.session("ghost", create=False):
                pass
        assert [head async for head in store.sessions()] == []


async def test_a_closed_session_writes_nothing(store_url: Url) -> None:
    """After the block, the object is of no more use, and says so."""
    async with holdfast.open_store(store_url) as store:
        async with store.session("a") as session:
            pass
        with pytest.raises(holdfast.Closed):
            await session.add("too late")


async def test_a_deleted_session_made_anew_is_another_one(store_url: Url) -> None:
    """The id is free at once; uid and history are not inherited."""
    async with holdfast.open_store(store_url) as store:
        async with store.session("a") as session:
            await session.add("old")
            uid = session.state.facts.head.uid
        await store.delete("a")
        with pytest.raises(holdfast.NotFound):
            await store.load("a")
        async with store.session("a") as session:
            assert session.state.facts.head.uid != uid
            assert len(session.transcript) == 0


async def test_a_resource_has_one_holder(store_url: Url) -> None:
    """`hold` excludes others, across stores; its fence grows; a lost hold is noticed."""
    async with holdfast.open_store(store_url) as one, holdfast.open_store(store_url) as other:
        async with one.session("a") as a, other.session("b") as b:
            async with a.hold("repo/main.py") as held:
                await held.check()
                with pytest.raises(holdfast.LeaseHeld, match="session a"):
                    async with b.hold("repo/main.py"):
                        pass
                async with b.hold("repo/other.py"):
                    pass
            async with b.hold("repo/main.py") as later:
                assert later.fence > held.fence
                with pytest.raises(holdfast.Fenced):
                    await held.check()


@pytest.mark.parametrize("bad", ["", "a/b", "..", ".", "a" * 201, "ä", "\u0430", "a b", "a\n"])
async def test_a_bad_id_is_refused(bad: str) -> None:
    """No id can leave its place."""
    async with holdfast.open_store("memory:") as store:
        with pytest.raises(holdfast.BadId):
            store.session(bad)
