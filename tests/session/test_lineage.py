"""Which run started which."""

import anyio
import pytest

from holdfast import Store, open_store
from holdfast.records import Parent, RunInfo
from tests.session.example_sessions import StoreUrl, collect, entries


async def runs(store: Store) -> dict[str, RunInfo]:
    return {run.run: run async for run in store.runs()}


async def test_a_run_inside_another_finds_its_parent_by_itself(store_url: StoreUrl) -> None:
    """In the same session or another one, at any depth; afterwards the outer one is around again."""
    async with open_store(store_url) as store:
        async with store.session("one") as one, store.session("two") as two:
            async with one.run(run_id="a"):
                async with two.run(run_id="b"):
                    async with one.run(run_id="c"):
                        pass
                    async with two.run(run_id="d"):
                        pass
                async with two.run(run_id="e"):
                    pass
            async with two.run(run_id="f"):
                pass
        found = {run.run: run.parent for run in (await runs(store)).values()}
    assert found == {
        "a": None,
        "b": Parent(session="one", run="a"),
        "c": Parent(session="two", run="b"),
        "d": Parent(session="two", run="b"),
        "e": Parent(session="one", run="a"),
        "f": None,
    }


async def test_a_run_in_a_task_of_its_own_finds_its_parent_too(store_url: StoreUrl) -> None:
    """Delegates run in parallel; none is taken for another's parent."""
    async with open_store(store_url) as store:
        async with store.session("root") as root, root.run(run_id="root"):

            async def delegate(name: str) -> None:
                async with store.session(name) as session, session.run(run_id=name):
                    await session.add("x")

            async with anyio.create_task_group() as tasks:
                for name in ("d1", "d2", "d3"):
                    tasks.start_soon(delegate, name)
        found = await runs(store)
    parent = Parent(session="root", run="root")
    assert {name: run.parent for name, run in found.items() if name != "root"} == {
        "d1": parent,
        "d2": parent,
        "d3": parent,
    }


async def test_an_explicit_parent_wins(store_url: StoreUrl) -> None:
    """By the run's id alone, or with its session and call."""
    async with open_store(store_url) as store:
        async with store.session("s") as session, session.run(run_id="around"):
            async with session.run(run_id="x", parent="elsewhere"):
                pass
            async with session.run(run_id="y", parent=Parent(session="other", run="r", call="c1")):
                pass
        found = await runs(store)
    assert found["x"].parent == Parent(run="elsewhere")
    assert found["y"].parent == Parent(session="other", run="r", call="c1")


async def test_entries_belong_to_the_innermost_run_of_their_own_session(store_url: StoreUrl) -> None:
    """Also with a run of another session, such as a delegate's, in between."""
    async with open_store(store_url) as store:
        async with store.session("one") as one, store.session("two") as two:
            async with one.run(run_id="a"):
                await one.add("in a")
                await two.add("in none")
                async with two.run(run_id="b"):
                    await two.add("in b")
                    await one.add("still in a")
                await one.add("in a again")
            await one.add("in none")
        assert [e.run for e in await entries(store, "one") if e.kind == "message.added"] == [
            "a",
            "a",
            "a",
            None,
        ]
        assert [e.run for e in await entries(store, "two") if e.kind == "message.added"] == [None, "b"]


async def test_an_error_on_the_way_restores_the_run_around(store_url: StoreUrl) -> None:
    """Whatever ends the inner run, the outer one goes on as itself."""
    async with open_store(store_url) as store:
        async with store.session("s") as session, session.run(run_id="outer"):
            with pytest.raises(ZeroDivisionError):
                async with session.run(run_id="inner"):
                    raise ZeroDivisionError
            async with session.run(run_id="next"):
                pass
            assert session.status == "active"
        assert (await runs(store))["next"].parent == Parent(session="s", run="outer")


async def test_runs_are_listed_by_session_and_by_parent_oldest_first(store_url: StoreUrl) -> None:
    """Both filters combine."""
    async with open_store(store_url) as store:
        async with store.session("z") as z, store.session("a") as a:
            async with z.run(run_id="9-root"):
                async with a.run(run_id="5"):
                    pass
                async with z.run(run_id="7"), a.run(run_id="1"):
                    pass
                async with a.run(run_id="3"):
                    pass
            async with z.run(run_id="0"):
                pass
        assert [run.run for run in await collect(store.runs())] == ["9-root", "5", "7", "1", "3", "0"]
        assert [run.run for run in await collect(store.runs(session="a"))] == ["5", "1", "3"]
        assert [run.run for run in await collect(store.runs(parent="9-root"))] == ["5", "7", "3"]
        both = await collect(store.runs(session="a", parent="9-root"))
        assert [run.run for run in both] == ["5", "3"]
        assert await collect(store.runs(session="a", parent="0")) == []
        assert await collect(store.runs(session="nobody")) == []
        starts = [run.started_at for run in await collect(store.runs())]
        assert starts == sorted(starts)


async def test_a_run_inside_another_of_its_session_does_not_interrupt_it(store_url: StoreUrl) -> None:
    """The session's status is set when the outermost run ends."""
    async with open_store(store_url) as store, store.session("s") as session:
        async with session.run(run_id="outer"):
            async with session.run(run_id="inner") as inner:
                inner.fail("no use")
            assert session.status == "active"
            assert session.state.facts.runs["outer"].status == "running"
            assert session.state.facts.head.open_run == "outer"
        assert session.state.facts.head.status == "completed"
