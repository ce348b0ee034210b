"""Attempts: how many, how long between them, and each on record."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

import holdfast.tools.runner
from holdfast import NotDone, Registry, ToolContext, tool
from holdfast.core.entries import ToolFailed, ToolIssued, Verdict
from holdfast.drivers.contract import Append, Outcome
from holdfast.errors import StoreFailed
from holdfast.tools import Retry
from tests.drivers import in_thread, kinds_of
from tests.internals import engine_of
from tests.tools.example_tools import (
    NoWaiting,
    Url,
    World,
    bodies,
    call,
    kinds,
    later,
    opened,
    reply,
    results,
)


@pytest.fixture
def waiting(monkeypatch: pytest.MonkeyPatch) -> NoWaiting:
    """Nobody sleeps."""
    return NoWaiting(monkeypatch, holdfast.tools.runner)


@pytest.fixture
def world() -> World:
    """The outside world."""
    return World()


def failing(world: World, times: int, error: Exception, **options: Any) -> Registry:
    """A tool that fails some times before it works."""

    @tool(**options)
    async def act(ctx: ToolContext[Any]) -> str:
        world.do(f"try {ctx.attempt}", ctx.key)
        if len(world.log) <= times:
            raise error
        return "done"

    return Registry([act], max_repeats=100)


@pytest.mark.parametrize("side_effects", [{"mutate"}, {"write"}, {"read"}, set()])
async def test_a_definite_failure_is_tried_again(
    side_effects: set[str], store_url: Url, world: World, waiting: NoWaiting
) -> None:
    """As often as the policy says, with growing pauses; the transcript gets one result."""
    retry = Retry(attempts=4, backoff_s=1, factor=3, backoff_max_s=5, jitter=0)
    registry = failing(world, 3, NotDone("busy"), side_effects=side_effects, retry=retry)
    async with opened(store_url) as (store, session):
        await reply(session, call("act"))
        (found,) = await registry.dispatch_step(session)
        assert found.status == "completed"
        assert [one.attempt for one in await bodies(store, session, ToolIssued)] == [1, 2, 3, 4]
        failed = await bodies(store, session, ToolFailed)
        assert [(one.error, one.final) for one in failed] == [("it raised NotDone: busy", False)] * 3
        assert [block.content for block in results(session)] == ["done"]
        assert session.state.facts.counters.per_tool == {"act": 1}
    assert world.done == ["try 1", "try 2", "try 3", "try 4"]
    assert len(set(world.keys)) == 1
    assert waiting.slept == [1, 3, 5]


async def test_the_last_failure_is_the_result(store_url: Url, world: World, waiting: NoWaiting) -> None:
    """And final, on record."""
    registry = failing(world, 9, NotDone("busy"), side_effects={"mutate"}, retry=Retry(attempts=2))
    async with opened(store_url) as (store, session):
        await reply(session, call("act"))
        (found,) = await registry.dispatch_step(session)
        assert (found.status, found.content) == ("failed", "act raised NotDone: busy")
        assert [one.final for one in await bodies(store, session, ToolFailed)] == [False, True]
        assert session.continuable
        assert results(session)[0].is_error
    assert world.done == ["try 1", "try 2"]


async def test_without_a_policy_a_mutating_tool_is_tried_once(
    store_url: Url, world: World, waiting: NoWaiting
) -> None:
    """Nobody said that it may be tried again."""
    registry = failing(world, 9, NotDone("busy"), side_effects={"mutate"})
    async with opened(store_url) as (_, session):
        await registry.dispatch("act", {}, session=session)
    assert world.done == ["try 1"]
    assert waiting.slept == []


async def test_an_idempotent_tool_is_tried_three_times_unless_it_says_otherwise(
    store_url: Url, world: World, waiting: NoWaiting
) -> None:
    """After any exception, with the same key; if none of them worked, it stays in doubt."""
    registry = failing(world, 9, ValueError("reset"), side_effects={"write"})
    async with opened(store_url) as (store, session):
        found = await registry.dispatch("act", {}, session=session)
        assert found.status == "in_doubt"
        assert (await kinds(store, session))[-6:] == ["tool.issued", "tool.in_doubt"] * 3
        assert len(session.in_doubt) == 1
    assert world.done == ["try 1", "try 2", "try 3"]
    assert len(set(world.keys)) == 1
    assert len(waiting.slept) == 2


async def test_an_exception_in_doubt_is_not_retried_without_a_key_that_is_recognised(
    store_url: Url, world: World, waiting: NoWaiting
) -> None:
    """However many attempts the policy allows."""
    registry = failing(world, 9, ValueError("reset"), side_effects={"mutate"}, retry=Retry(attempts=5))
    async with opened(store_url) as (_, session):
        assert (await registry.dispatch("act", {}, session=session)).status == "in_doubt"
    assert world.done == ["try 1"]


def test_pauses_grow_to_a_limit_and_are_spread() -> None:
    """So that a crowd that failed together does not come back together."""
    retry = Retry(attempts=9, backoff_s=1, factor=2, backoff_max_s=10, jitter=0.5)
    assert [retry.pause_s(attempt, 0.5) for attempt in range(1, 7)] == [1, 2, 4, 8, 10, 10]
    assert (retry.pause_s(1, 0), retry.pause_s(1, 1)) == (0.5, 1.5)


async def test_attempts_go_on_counting_after_a_restart(
    store_url: Url, world: World, waiting: NoWaiting
) -> None:
    """The context says which one it is."""
    registry = failing(world, 1, ValueError("reset"), side_effects={"write"}, retry=Retry(attempts=1))
    async with opened(store_url) as (_, session):
        await reply(session, call("act"))
        await registry.dispatch_step(session)
    async with opened(store_url) as (store, session):
        (found,) = await registry.dispatch_step(session)
        assert found.status == "completed"
        assert [one.attempt for one in await bodies(store, session, ToolIssued)] == [1, 2]
    assert world.done == ["try 1", "try 2"]
    assert len(set(world.keys)) == 1


async def test_nobody_else_takes_over_between_two_attempts(
    store_url: Url, world: World, waiting: NoWaiting
) -> None:
    """The second of two equal calls waits until the first has given up or got through, pauses included."""
    import anyio

    found: dict[str, Any] = {}
    paused = anyio.Event()
    waiting.during = paused.set
    registry = failing(world, 1, NotDone("busy"), side_effects={"mutate"}, retry=Retry(attempts=2))
    async with opened(store_url) as (_, session):

        async def second() -> None:
            await paused.wait()
            found["b"] = await registry.dispatch("act", {}, call_id="b", session=session)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(second)
            found["a"] = await registry.dispatch("act", {}, call_id="a", session=session)
    assert world.done == ["try 1", "try 2"]
    assert (found["a"].value, found["b"].value, found["b"].replay_of) == ("done", "done", "a")


class CannotConnect(Exception):
    """Nothing was sent."""


async def test_an_attempt_in_doubt_stays_so_when_the_next_surely_did_nothing(
    store_url: Url, world: World, waiting: NoWaiting
) -> None:
    """What counts is the operation: it may have landed the first time, and keeps its key."""

    @tool(
        side_effects={"mutate"},
        idempotent=True,
        harmless=[CannotConnect],
        retry=Retry(attempts=2),
    )
    async def charge(ctx: ToolContext[Any]) -> str:
        if len(world.log) == 1 and ctx.attempt == 2:
            raise CannotConnect("refused")
        world.do("charge", ctx.key)
        if ctx.attempt == 1:
            raise ConnectionError("the answer is lost")
        return "receipt"

    registry = Registry([charge])
    async with opened(store_url) as (_, session):
        found = await registry.dispatch("charge", {}, session=session)
        assert found.status == "in_doubt"
        found = await registry.dispatch("charge", {}, call_id="again", session=session)
        assert (found.status, found.value) == ("completed", "receipt")
    assert len(set(world.keys)) == 1


async def test_an_attempt_in_doubt_stays_so_when_the_next_is_not_begun(
    store_url: Url, world: World, waiting: NoWaiting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its intent cannot be written, and when somebody asks again, the service has forgotten the key."""

    @tool(side_effects={"mutate"}, idempotent=60, retry=Retry(attempts=2))
    async def charge(ctx: ToolContext[Any]) -> str:
        world.do("charge", ctx.key)
        raise ConnectionError("the answer is lost")

    registry = Registry([charge])
    async with opened(store_url) as (store, session):
        driver = engine_of(store).driver
        commit = driver.commit

        def broken(batch: Sequence[Append]) -> Sequence[Outcome]:
            if any("tool.issued" in kinds_of(item) for item in batch) and world.log:
                raise StoreFailed("disk full")
            return commit(batch)

        with monkeypatch.context() as disk:
            disk.setattr(driver, "commit", in_thread(broken))
            with pytest.raises(StoreFailed):
                await registry.dispatch("charge", {}, session=session)
        await session.flush()
        (row,) = session.in_doubt
        assert row.attempt == 2
        later(session, 61)
        found = await registry.dispatch("charge", {}, call_id="again", session=session)
        assert found.status == "in_doubt"
    assert world.done == ["charge"]


@pytest.mark.parametrize("verdict", ["landed", "gave_up"])
async def test_a_verdict_that_comes_before_the_next_attempt_counts(
    verdict: Verdict, store_url: Url, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who said that it landed does not see it land twice."""
    registry = failing(
        world, 9, ConnectionError("?"), side_effects={"mutate"}, idempotent=True, retry=Retry(attempts=3)
    )
    async with opened(store_url) as (store, session):

        async def pause(_: float) -> None:
            (row,) = session.in_doubt
            await store.resolve("s", row.issued, verdict, by="ann")
            await session.set("heard", 1)
            await session.flush()

        monkeypatch.setattr("holdfast.tools.runner.anyio.sleep", pause)
        found = await registry.dispatch("act", {}, session=session)
        assert found.status == ("completed" if verdict == "landed" else "in_doubt")
    assert world.done == ["try 1"]
