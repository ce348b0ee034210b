"""Runs: their ids, parents and ends, and how they are listed."""

from __future__ import annotations

import re

import anyio
import pytest

import holdfast
from holdfast.session import store as store_module
from holdfast.store.driver import Driver

Url = str | Driver


async def test_a_run_has_a_fresh_id(store_url: Url) -> None:
    """Explicit, `{agent}-{8 hex}`, or a UUID."""
    async with holdfast.open_store(store_url) as store, store.session("a") as session:
        async with session.run(run_id="mine") as run:
            assert run.id == "mine"
        async with session.run(agent="planner") as run:
            assert re.fullmatch(r"planner-[0-9a-f]{8}", run.id)
        async with session.run() as run:
            assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", run.id)


async def test_an_explicit_run_id_is_used_once(store_url: Url) -> None:
    """In its session and in every other one; the first run's records stay as they are."""
    async with holdfast.open_store(store_url) as store:
        async with store.session("a") as session:
            async with session.run(run_id="mine", agent="one"):
                pass
            with pytest.raises(holdfast.RunExists, match="session"):
                async with session.run(run_id="mine", agent="two"):
                    pass
        async with store.session("b") as session:
            with pytest.raises(holdfast.RunExists):
                async with session.run(run_id="mine"):
                    pass
        runs = [run async for run in store.runs()]
        assert [(run.run, run.agent, run.status) for run in runs] == [("mine", "one", "completed")]


async def test_a_run_finds_its_parent(store_url: Url) -> None:
    """By the run around it, also in another session; an explicit parent wins; filters combine."""
    async with holdfast.open_store(store_url) as store:
        async with store.session("a") as outer, outer.run(run_id="outer"):
            async with store.session("b") as inner:
                async with inner.run(run_id="inner"):
                    await inner.add("x")
                async with inner.run(run_id="adopted", parent="elsewhere"):
                    pass
            async with outer.run(run_id="nested"):
                pass
        runs = {run.run: run async for run in store.runs()}
        assert list(runs) == ["outer", "inner", "adopted", "nested"]
        assert runs["inner"].parent == holdfast.Parent(session="a", run="outer")
        assert runs["adopted"].parent == holdfast.Parent(run="elsewhere")
        assert [run.run async for run in store.runs(parent="outer")] == ["inner", "nested"]
        assert [run.run async for run in store.runs(parent="outer", session="a")] == ["nested"]
        assert [run.run async for run in store.runs(session="b")] == ["inner", "adopted"]
        entries = [entry async for entry in store.tail("b", follow=False)]
        assert {entry.run for entry in entries if entry.kind == "message.added"} == {"inner"}


async def test_the_end_of_a_run_is_the_status_of_the_session(store_url: Url) -> None:
    """Completed, failed with its reason, cancelled, waiting; a new message makes it active again."""
    async with holdfast.open_store(store_url) as store, store.session("a") as session:
        async with session.run():
            assert session.status == "active"
        assert session.status == "completed"
        await session.add("more")
        assert session.status == "active"
        with pytest.raises(RuntimeError):
            async with session.run():
                raise RuntimeError("boom")
        assert (session.status, session.state.facts.head.reason) == ("failed", "error")
        with anyio.CancelScope() as scope:
            async with session.run():
                scope.cancel()
                await anyio.sleep(10)
        assert session.status == "cancelled"
        async with session.run() as run:
            run.pause("approval")
        assert session.status == "waiting"
        async with session.run() as run:
            run.fail("step_limit")
        assert (session.status, session.state.facts.head.reason) == ("failed", "step_limit")
        await session.close("completed", "by hand")
        assert session.status == "completed"
    async with holdfast.open_store(store_url) as store:
        statuses = [run.status async for run in store.runs(session="a")]
        assert statuses == ["completed", "failed", "cancelled", "paused", "failed"]
        assert [head.session async for head in store.sessions(status="completed")] == ["a"]
        assert [head.session async for head in store.sessions(status="failed")] == []


async def test_a_run_without_an_end_is_found_and_continued(store_url: Url) -> None:
    """Sessions whose last run has no end and that nobody drives are listed as interrupted."""
    async with holdfast.open_store(store_url) as store:
        live: list[holdfast.Head] = []

        async def die() -> None:
            """In a task of its own, so that the run that is cut off is around nobody else."""
            async with store.session("dead") as session:
                await session.run(run_id="cut-off").__aenter__()
                await session.add("x")
                await session.flush()
                live.extend([head async for head in store.sessions(interrupted=True)])

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(die)
        async with store.session("fine") as session, session.run():
            pass
        assert live == []
        assert [head.session async for head in store.sessions(interrupted=True)] == ["dead"]
        assert [one.status async for one in store.runs(session="dead")] == ["interrupted"]
        async with store.session("dead") as session, session.run():
            pass
        assert [one.continues async for one in store.runs(session="dead")] == [None, "cut-off"]
        assert [head.session async for head in store.sessions(interrupted=True)] == []


async def test_a_run_that_reached_no_boundary_gets_a_checkpoint(store_url: Url) -> None:
    """If it can be continued from there; and none if there is one already."""
    call = holdfast.Message(role="assistant", blocks=(holdfast.ToolCall(id="c", name="pay"),))
    async with holdfast.open_store(store_url) as store, store.session("a") as session:
        async with session.run():
            await session.add("x")
        assert session.version == 1
        async with session.run():
            await session.add("y")
            await session.checkpoint()
        assert session.version == 2
        async with session.run():
            await session.add(call)
        assert session.version == 2


async def test_listings_page_by_themselves(store_url: Url, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many there are, all come, each once, in order."""
    monkeypatch.setattr(store_module, "PAGE_ROWS", 3)
    async with holdfast.open_store(store_url) as store:
        for number in range(8):
            labels = {"even": str(number % 2 == 0)}
            async with (
                store.session(f"s{number}", labels=labels) as session,
                session.run(run_id=f"r{number}"),
            ):
                pass
        assert [head.session async for head in store.sessions()] == [f"s{number}" for number in range(8)]
        even = [head.session async for head in store.sessions(label={"even": "True"})]
        assert even == ["s0", "s2", "s4", "s6"]
        assert [run.run async for run in store.runs()] == [f"r{number}" for number in range(8)]


async def test_a_budget_stops_the_next_request(store_url: Url) -> None:
    """Reserved money counts, also that of a request whose process died, and nothing is asked beyond a cap."""
    async with holdfast.open_store(store_url) as store:
        async with store.session("a") as session:
            await session.set_budget(holdfast.Budget(usd=1))
            async with session.run() as run:
                async with run.request(reserve_usd=0.6) as request:
                    assert session.budget.reserved.usd == 0.6
                    await request.reply("cheap", cost_usd=0.3)
                assert (session.budget.usd, session.budget.reserved.usd) == (0.3, 0)
                with pytest.raises(holdfast.BudgetSpent, match="usd"):
                    async with run.request(reserve_usd=0.8):
                        pytest.fail("the request was made")
                with pytest.raises(ValueError, match="said no"):
                    async with run.request(reserve_usd=0.5):
                        raise ValueError("the provider said no")
                assert session.budget.usd == 0.3
                await run.request(reserve_usd=0.5).__aenter__()  # and then the process dies
        async with store.session("a") as session:
            assert session.budget.reserved.usd == 0.5
            async with session.run() as run:
                with pytest.raises(holdfast.BudgetSpent):
                    async with run.request(reserve_usd=0.3):
                        pass
