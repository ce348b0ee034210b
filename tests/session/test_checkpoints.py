"""Versions: taken once, kept as they were, listed, loaded, dropped, gone on from."""

import pytest

from holdfast import open_store
from holdfast.errors import NotFound
from holdfast.records import Plan, PlanStep
from tests.session.example_sessions import StoreUrl, calling, collect, kinds, results, step, texts


async def test_versions_count_up_over_all_processes(store_url: StoreUrl) -> None:
    """A checkpoint ends a step."""
    async with open_store(store_url) as store, store.session("s") as session:
        assert [await step(session, "a"), await step(session, "b")] == [1, 2]
        assert session.version == 2
    async with open_store(store_url) as store, store.session("s") as session:
        assert session.version == 2
        assert await step(session, "c") == 3
        assert session.state.facts.head.step == 3


async def test_no_point_is_checkpointed_twice(store_url: StoreUrl) -> None:
    """Where nothing happened there is nothing new to go back to, also after opening again."""
    async with open_store(store_url) as store:
        async with store.session("s") as session:
            await step(session, "a")
            lines = len(await kinds(store, "s"))
            assert await session.checkpoint() == 1
            assert len(await kinds(store, "s")) == lines
        async with store.session("s") as session:
            assert await session.checkpoint() == 1
            await session.label(seen="yes")
            assert await session.checkpoint() == 1
            await session.set("k", 1)
            assert await session.checkpoint() == 2
        assert (await kinds(store, "s")).count("checkpoint.taken") == 2


async def test_an_empty_session_can_be_checkpointed(store_url: StoreUrl) -> None:
    """Its beginning is a point one may want to go back to."""
    async with open_store(store_url) as store, store.session("s") as session:
        assert await session.checkpoint() == 1
        assert await session.checkpoint() == 1
        await session.add("a")
        await session.rewind(version=1)
        assert texts(session.transcript) == []


async def test_every_version_is_listed_with_when_and_where(store_url: StoreUrl) -> None:
    """Oldest first, with step, run, name and whether a model could go on from it."""
    async with open_store(store_url) as store:
        async with store.session("s") as session:
            await step(session, "a")
            async with session.run(run_id="r1"):
                await session.add(calling("x"))
                await session.checkpoint("before the tool")
            await session.add(results("x"))
            await session.checkpoint()
        found = await collect(store.checkpoints("s"))
        ats = {entry.seq: entry.at for entry in await collect(store.tail("s", follow=False))}
    assert [(one.version, one.step, one.run, one.name) for one in found] == [
        (1, 1, None, None),
        (2, 2, "r1", "before the tool"),
        (3, 3, None, None),
    ]
    assert [one.at for one in found] == [ats[one.seq] for one in found]
    assert [one.continuable for one in found] == [True, False, True]
    assert found[1].why == ("call 'x' of tool_x has no result (message 1)",)


async def test_any_version_loads_as_it_was(store_url: StoreUrl) -> None:
    """By anybody, while the session is held and goes on; loading changes nothing."""
    plans = [Plan(goal=f"g{n}", steps=(PlanStep(id="1", what="x"),)) for n in range(3)]
    async with (
        open_store(store_url) as writer,
        open_store(store_url) as reader,
        writer.session("s") as session,
    ):
        for number, plan in enumerate(plans):
            await session.set_plan(plan)
            await session.set("number", number)
            await session.set_summary(f"summary {number}")
            await step(session, f"message {number}")
        before = await kinds(reader, "s")
        for number, plan in enumerate(plans):
            then = await reader.load("s", version=number + 1)
            assert texts(then.transcript) == [f"message {n}" for n in range(number + 1)]
            assert (then.facts.plan, then.facts.summary, then.version) == (
                plan,
                f"summary {number}",
                number + 1,
            )
            assert bytes(then.facts.values["number"]) == str(number).encode()
        assert texts((await reader.load("s")).transcript) == ["message 0", "message 1", "message 2"]
        assert await kinds(reader, "s") == before


async def test_a_version_that_is_not_there_is_not_found(store_url: StoreUrl) -> None:
    """The error lists those that are."""
    async with open_store(store_url) as store:
        async with store.session("s") as session:
            await step(session, "a")
            await step(session, "b")
            with pytest.raises(NotFound, match=r"version 7 does not exist; there are \[1, 2\]"):
                await session.rewind(version=7)
            with pytest.raises(NotFound):
                await session.drop(7)
        for version in (0, 7, -1):
            with pytest.raises(NotFound, match=f"version {version} does not exist"):
                await store.load("s", version=version)
        with pytest.raises(NotFound):
            await store.fork("s", version=7)
        with pytest.raises(NotFound):
            await store.diff("s", 1, 7)


async def test_dropping_a_middle_version_harms_no_other(store_url: StoreUrl) -> None:
    """Later ones load, resume, fork, diff and rewind as before; the dropped one is no longer offered."""
    async with open_store(store_url) as store:
        async with store.session("s") as session:
            for text in "abcd":
                await step(session, text)
            await session.drop(2)
            assert [one.version for one in session.checkpoints] == [1, 3, 4]
        await store.drop("s", 3)
    async with open_store(store_url) as store:
        assert [one.version for one in await collect(store.checkpoints("s"))] == [1, 4]
        for version in (2, 3):
            with pytest.raises(NotFound, match=rf"version {version} was dropped; there are \[1, 4\]"):
                await store.load("s", version)
        assert texts((await store.load("s", 1)).transcript) == ["a"]
        assert texts((await store.load("s", 4)).transcript) == ["a", "b", "c", "d"]
        assert texts((await store.diff("s", 1, 4)).messages_added) == ["b", "c", "d"]
        fork = await store.fork("s", version=4)
        assert texts((await store.load(fork)).transcript) == ["a", "b", "c", "d"]
        async with store.session("s") as session:
            assert texts(session.transcript) == ["a", "b", "c", "d"]
            assert await step(session, "e") == 5
            assert (await session.rewind(steps=1)).version == 4
            assert (await session.rewind(steps=1)).version == 1
            assert texts(session.transcript) == ["a"]


async def test_the_latest_version_can_be_dropped(store_url: StoreUrl) -> None:
    """The session goes on where it is; its number is not used again."""
    async with open_store(store_url) as store:
        async with store.session("s") as session:
            await step(session, "a")
            await step(session, "b")
            await session.drop(2)
            assert texts(session.transcript) == ["a", "b"]
        async with store.session("s") as session:
            assert texts(session.transcript) == ["a", "b"]
            assert await step(session, "c") == 3


async def test_continue_stays_where_a_model_could_go_on(store_url: StoreUrl) -> None:
    """Also if something came after the last checkpoint."""
    async with open_store(store_url) as store, store.session("s") as session:
        await step(session, "a")
        await session.add("b")
        lines = session.state.seq
        assert await session.continue_() == 1
        assert texts(session.transcript) == ["a", "b"]
        assert session.state.seq == lines


async def test_continue_goes_back_to_the_latest_continuable_version(store_url: StoreUrl) -> None:
    """A call without its result is never sent to a provider as it stands."""
    async with open_store(store_url) as store:
        async with store.session("s") as session:
            await step(session, "a")
            await step(session, "b")
            await session.add(calling("x"))
            assert await session.checkpoint() == 3
            await session.add("and?")
        async with store.session("s") as session:
            assert [problem.call_id for problem in session.problems] == ["x"]
            assert await session.continue_() == 2
            assert session.continuable
            assert texts(session.transcript) == ["a", "b"]
        async with store.session("s") as session:
            assert texts(session.transcript) == ["a", "b"]


async def test_continue_without_a_point_to_go_on_from_says_so(store_url: StoreUrl) -> None:
    """Nothing is changed."""
    async with open_store(store_url) as store, store.session("s") as session:
        await session.add(calling("x"))
        await session.checkpoint()
        with pytest.raises(NotFound, match="no continuable version"):
            await session.continue_()
        assert texts(session.transcript) == ["let me see"]


async def test_continue_does_not_go_to_another_branch(store_url: StoreUrl) -> None:
    """What a rewind left behind is not what led here."""
    async with open_store(store_url) as store, store.session("s") as session:
        await step(session, "a")
        await step(session, "left behind")
        await session.rewind(version=1)
        await session.add(calling("x"))
        assert await session.checkpoint() == 3
        assert await session.continue_() == 1
        assert texts(session.transcript) == ["a"]
