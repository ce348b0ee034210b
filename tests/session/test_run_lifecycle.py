"""Runs: their ids, how they end, and what that says about the session."""

import math
import re
from collections.abc import Callable
from contextlib import suppress

import anyio
import pytest

from holdfast import Budget, Store, open_store
from holdfast.core.entries import RunCompleted, RunFailed, RunStarted
from holdfast.errors import BadInput, BudgetSpent, RunExists
from holdfast.records import Run, RunInfo
from tests.session.example_sessions import (
    StoreUrl,
    abandon,
    calling,
    collect,
    entries,
    kinds,
    status_of,
    step,
    texts,
)


async def run_called(store: Store, name: str) -> RunInfo:
    return next(run for run in await collect(store.runs()) if run.run == name)


async def test_a_run_id_is_explicit_or_names_the_agent_or_is_a_uuid(store_url: StoreUrl) -> None:
    """Fresh for every run."""
    async with open_store(store_url) as store, store.session("s") as session:
        async with session.run(run_id="my-run.1", agent="planner") as run:
            assert run.id == "my-run.1"
        found = set()
        for _ in range(3):
            async with session.run(agent="planner") as run:
                assert re.fullmatch(r"planner-[0-9a-f]{8}", run.id)
                found.add(run.id)
        for agent in (None, "not an id"):
            async with session.run(agent=agent) as run:
                assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", run.id)
                found.add(run.id)
        assert len(found) == 5


async def test_a_run_id_that_exists_is_refused_and_leaves_the_first_run_alone(store_url: StoreUrl) -> None:
    """In its session, in any other of the store, in a fork, after the first was deleted and made anew; the
    error points to sessions for grouping."""
    async with open_store(store_url) as store:
        async with store.session("one") as session:
            async with session.run(run_id="r", agent="first"):
                await step(session, "a")
            before = await entries(store, "one")
            with pytest.raises(RunExists, match=r"'r' exists already \(in session 'one'\).*same session"):
                async with session.run(run_id="r", agent="second"):
                    pytest.fail("started")
            assert await entries(store, "one") == before
            async with session.run() as run:
                assert run.id != "r"
        await store.fork("one", into="fork")
    async with open_store(store_url) as store:
        for other in ("two", "fork"):
            async with store.session(other) as session:
                with pytest.raises(RunExists) as caught:
                    async with session.run(run_id="r"):
                        pytest.fail("started")
                assert (caught.value.run, caught.value.session) == ("r", "one")
                assert "run.started" not in (await kinds(store, other))[-2:]
                async with session.run(run_id=f"r-{other}"):
                    pass
        first = await run_called(store, "r")
        assert (first.session, first.agent, first.status) == ("one", "first", "completed")
        await store.delete("one")
        async with store.session("one") as session:
            with pytest.raises(RunExists):
                async with session.run(run_id="r"):
                    pytest.fail("started")


async def test_a_refused_run_id_does_not_change_which_run_one_is_in(store_url: StoreUrl) -> None:
    """What is recorded afterwards still belongs to the run around."""
    async with open_store(store_url) as store, store.session("s") as session:
        async with session.run(run_id="outer"):
            with pytest.raises(RunExists):
                async with session.run(run_id="outer"):
                    pytest.fail("started")
            await session.add("x")
        assert [entry.run for entry in await entries(store, "s") if entry.kind == "message.added"] == [
            "outer"
        ]


ENDS: list[tuple[Callable[[Run], object], str, str, str]] = [
    (lambda run: run.complete({"answer": 42}), "completed", "completed", ""),
    (lambda run: None, "completed", "completed", ""),
    (lambda run: run.fail("step_limit", "50 steps"), "failed", "failed", "step_limit"),
    (lambda run: run.cancel("enough"), "cancelled", "cancelled", "enough"),
    (lambda run: run.pause("approval"), "paused", "waiting", "approval"),
]


@pytest.mark.parametrize(("end", "run_status", "session_status", "reason"), ENDS)
async def test_the_end_of_a_run_is_the_status_of_the_session(
    end: Callable[[Run], object], run_status: str, session_status: str, reason: str, store_url: StoreUrl
) -> None:
    """Completed, failed, cancelled, or waiting for a person, with the reason; a new run makes it active."""
    async with open_store(store_url) as store:
        async with store.session("s") as session:
            async with session.run(run_id="r") as run:
                await session.add("x")
                assert status_of(session) == "active"
                end(run)
            assert status_of(session) == session_status
        (head,) = await collect(store.sessions())
        assert (head.status, head.reason, head.open_run) == (session_status, reason, None)
        found = await run_called(store, "r")
        assert (found.status, found.reason) == (run_status, reason)
        assert found.ended_at is not None
        assert found.ended_at >= found.started_at
        async with store.session("s") as session, session.run():
            assert status_of(session) == "active"


async def test_what_a_run_gave_is_on_record(store_url: StoreUrl) -> None:
    """Its output, and what it was started with: agent, model, configuration, instructions by digest."""
    async with open_store(store_url) as store:
        async with (
            store.session("s") as session,
            session.run(agent="a", model="m", instructions="be good", config={"t": 1}) as run,
        ):
            run.complete({"answer": [42]})
        journal = await entries(store, "s")
        started = next(entry.body for entry in journal if isinstance(entry.body, RunStarted))
        ended = next(entry.body for entry in journal if isinstance(entry.body, RunCompleted))
        (found,) = await collect(store.runs())
    assert (found.agent, found.model, found.config) == ("a", "m", {"t": 1})
    assert started.instructions is not None
    assert "good" not in started.instructions
    assert ended.output == {"answer": [42]}


async def test_an_output_that_cannot_be_recorded_is_refused_at_once(store_url: StoreUrl) -> None:
    """Not when the run ends, which would then have no end."""
    async with open_store(store_url) as store:
        async with store.session("s") as session, session.run(run_id="r") as run:
            with pytest.raises(BadInput):
                run.complete(object())
            with pytest.raises(BadInput, match=r"output\[0\] is nan"):
                run.complete([math.nan])
            with pytest.raises(BadInput):
                run.fail(3)  # type: ignore[arg-type]
        assert (await run_called(store, "r")).status == "completed"


async def test_what_json_would_change_is_refused(store_url: StoreUrl) -> None:
    """Before anything is written, instead of being kept as null or as something else."""
    async with open_store(store_url) as store, store.session("s") as session:
        for config, why in (
            ({"t": math.nan}, "config.t is nan"),
            ([math.inf], r"config\[0\] is inf"),
            ({1: 2}, "keys must be strings"),
            ({"t": {1}}, "config.t is a set"),
        ):
            with pytest.raises(BadInput, match=why):
                session.run(config=config)
        async with session.run() as run, run.request() as request:
            with pytest.raises(BadInput, match="latency_ms is inf"):
                await request.reply("hello", latency_ms=math.inf)
            await request.reply("hello")
        assert [one.config for one in await collect(store.runs())] == [None]


async def test_an_exception_ends_the_run_as_failed_and_goes_on(store_url: StoreUrl) -> None:
    """With its text, for who looks later; what was said before is kept."""
    async with open_store(store_url) as store:
        async with store.session("s") as session:
            with suppress(ZeroDivisionError):
                async with session.run(run_id="r") as run:
                    await session.add("x")
                    run.complete("not after all")
                    raise ZeroDivisionError("by \ud800 zero")
                pytest.fail("the error was swallowed")
            assert (session.status, texts(session.transcript)) == ("failed", ["x"])
        failed = [entry.body for entry in await entries(store, "s") if isinstance(entry.body, RunFailed)]
        assert [(body.reason, body.error[:20]) for body in failed] == [("error", "ZeroDivisionError: b")]


async def test_a_spent_budget_ends_the_run_as_failed_with_that_reason(store_url: StoreUrl) -> None:
    """Whoever looks at the list sees why."""
    async with open_store(store_url) as store:
        async with store.session("s") as session:
            await session.set_budget(Budget(usd=0.1))
            with pytest.raises(BudgetSpent):
                async with session.run() as run, run.request(reserve_usd=1):
                    pytest.fail("asked")
        (head,) = await collect(store.sessions())
    assert (head.status, head.reason) == ("failed", "budget_spent")


async def test_a_cancelled_run_is_recorded_as_such(store_url: StoreUrl) -> None:
    """Although its caller is in a hurry: the end is durable before the cancellation goes on."""
    async with open_store(store_url, linger_s=1000) as store, open_store(store_url) as reader:
        session = await store.session("s").__aenter__()
        with anyio.CancelScope() as scope:
            async with session.run(run_id="r"):
                await session.add("x")
                scope.cancel()
                await anyio.sleep_forever()
        assert scope.cancelled_caught
        assert (await run_called(reader, "r")).status == "cancelled"
        assert texts((await reader.load("s")).transcript) == ["x"]
        await session.__aexit__(None, None, None)


async def test_a_run_that_reached_no_boundary_gets_a_checkpoint(store_url: StoreUrl) -> None:
    """If one could go on from there; never a second one for the same point."""
    async with open_store(store_url) as store, store.session("s") as session:
        async with session.run():
            await session.add("no boundary")
        assert session.version == 1
        async with session.run():
            await step(session, "a boundary")
            await session.add("and more")
        assert [one.version for one in session.checkpoints] == [1, 2]
        async with session.run():
            pass
        assert [one.version for one in session.checkpoints] == [1, 2, 3]
        async with session.run():
            pass
        assert [one.version for one in session.checkpoints] == [1, 2, 3]
        async with session.run():
            await session.add(calling("x"))
        assert [one.version for one in session.checkpoints] == [1, 2, 3]
        assert texts((await store.load("s", 3)).transcript)[-1] == "and more"


async def test_a_failed_run_that_reached_no_boundary_gets_its_checkpoint_too(store_url: StoreUrl) -> None:
    """What it did is not lost for who goes on."""
    async with open_store(store_url) as store, store.session("s") as session:
        with suppress(ZeroDivisionError):
            async with session.run():
                await session.add("x")
                raise ZeroDivisionError
        assert session.version == 1


async def test_a_session_whose_last_run_has_no_end_is_listed_as_interrupted(store_url: StoreUrl) -> None:
    """Only once nobody drives it any more; taken up again, the new run says what it continues."""

    async def work(store: Store) -> None:
        session = await store.session("cut").__aenter__()
        await session.run(run_id="r1", agent="a").__aenter__()
        await session.add("half")

    async def interrupted(store: Store) -> list[str]:
        return [head.session for head in await collect(store.sessions(interrupted=True))]

    async with open_store(store_url) as store:
        async with store.session("fine") as session:
            async with session.run():
                assert await interrupted(store) == []
            await session.add("after its run")
        await abandon(store_url, work)
        assert await interrupted(store) == ["cut"]
        assert [h.session for h in await collect(store.sessions(interrupted=False))] == ["fine"]
        first = await run_called(store, "r1")
        assert (first.status, first.ended_at) == ("interrupted", None)
        async with store.session("cut") as session:
            async with session.run(run_id="r2"):
                assert await interrupted(store) == []
                await session.flush()
                assert (await run_called(store, "r1")).status == "interrupted"
                second = await run_called(store, "r2")
                assert (second.status, second.continues) == ("running", "r1")
            assert session.state.facts.runs["r1"].status == "interrupted"
        assert await interrupted(store) == []
        async with store.session("cut") as session, session.run(run_id="r3"):
            assert session.state.facts.runs["r3"].continues is None


async def test_a_run_is_seen_as_running_by_others(store_url: StoreUrl) -> None:
    """While its process lives, whatever the store."""
    async with (
        open_store(store_url) as one,
        open_store(store_url) as two,
        one.session("s") as session,
        session.run(run_id="r"),
    ):
        await session.flush()
        assert (await run_called(two, "r")).status == "running"
        assert await collect(two.sessions(interrupted=True)) == []


async def test_every_boundary_is_in_the_journal(store_url: StoreUrl) -> None:
    """Run, request, reply, checkpoint: each is an entry, with its run and step."""
    async with open_store(store_url) as store:
        async with store.session("s") as session, session.run(run_id="r") as run:
            await session.add("q")
            async with run.request(model="m") as request:
                await request.reply("a")
            await session.checkpoint()
            with pytest.raises(ZeroDivisionError):
                async with run.request():
                    raise ZeroDivisionError
        found = [(entry.kind, entry.run, entry.step) for entry in await entries(store, "s")]
    assert found == [
        ("session.opened", None, 1),
        ("lease.taken", None, 1),
        ("run.started", "r", 1),
        ("message.added", "r", 1),
        ("model.requested", "r", 1),
        ("model.replied", "r", 1),
        ("checkpoint.taken", "r", 1),
        ("model.requested", "r", 2),
        ("model.failed", "r", 2),
        ("run.completed", "r", 2),
        ("lease.released", None, 2),
    ]


async def test_a_request_is_answered_once(store_url: StoreUrl) -> None:
    """A second reply would be a second message."""
    async with (
        open_store(store_url) as store,
        store.session("s") as session,
        session.run() as run,
        run.request() as request,
    ):
        await request.reply("a")
        with pytest.raises(BadInput, match="answered already"):
            await request.reply("b")
        assert texts(session.transcript) == ["a"]
