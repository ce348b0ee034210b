"""A harmless call whose body never waits is one line; any other has its intent on record while it runs."""

from __future__ import annotations

from typing import Any

import anyio
import anyio.lowlevel
import pytest

from holdfast import Registry, tool
from holdfast.tools import Retry
from tests.tools.example_tools import Url, call, die, kinds, opened, reply, results


@tool(side_effects=())
async def double(number: int) -> int:
    """Never waits."""
    return 2 * number


async def test_it_is_one_line_with_everything_in_it(store_url: Url) -> None:
    """The row of the ledger, the result in the transcript, the counters."""
    async with opened(store_url) as (store, session):
        await reply(session, call("double", {"number": 4}))
        (result,) = await Registry([double]).dispatch_step(session)
        assert (result.status, result.value) == ("completed", 8)
        assert (await kinds(store, session))[-1] == "tool.ran"
    async with opened(store_url) as (_, session):
        (row,) = session.state.facts.effects.rows.values()
        assert (row.tool, row.status, row.outcome) == ("double", "completed", row.issued)
        assert [one.content for one in results(session)] == ["8"]
        assert session.continuable
        assert session.state.facts.counters.per_tool == {"double": 1}


async def test_a_caller_who_names_the_call_gets_the_recorded_outcome_again(store_url: Url) -> None:
    """In another process as well."""
    ran: list[int] = []

    @tool(side_effects={"read"})
    async def look() -> int:
        ran.append(len(ran))
        return ran[-1]

    for _ in range(2):
        async with opened(store_url) as (_, session):
            result = await Registry([look]).dispatch("look", {}, call_id="mine", session=session)
            assert (result.status, result.value) == ("completed", 0)
    assert ran == [0]


async def test_the_third_of_a_row_is_stopped(store_url: Url) -> None:
    """The gate counts calls that are one line, one after another and side by side."""
    async with opened(store_url) as (_, session):
        registry = Registry([double])
        found = [await registry.dispatch("double", {"number": 1}, session=session) for _ in range(3)]
        assert [one.status for one in found] == ["completed", "completed", "refused"]
        await reply(session, *(call("double", {"number": 2}, f"c{index}") for index in range(3)))
        found = await registry.dispatch_step(session)
        assert [one.status for one in found] == ["completed", "completed", "refused"]


async def test_one_that_waits_has_its_intent_on_record_meanwhile(store_url: Url) -> None:
    """Recorded when it first waits; somebody who looks then sees what is being run."""
    waiting, go_on = anyio.Event(), anyio.Event()

    @tool(side_effects={"read"})
    async def slow() -> str:
        with anyio.move_on_after(60):  # Belongs to the task that made the first step.
            waiting.set()
            await go_on.wait()
        return "done"

    async with opened(store_url) as (store, session), anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: Registry([slow]).dispatch("slow", {}, session=session))
        await waiting.wait()
        await anyio.lowlevel.checkpoint()
        assert (await kinds(store, session))[-1] == "tool.issued"
        go_on.set()
    async with opened(store_url) as (store, session):
        assert (await kinds(store, session))[-4:-2] == ["tool.issued", "tool.completed"]


async def test_what_a_body_is_sent_and_what_is_raised_in_it_reach_it(store_url: Url) -> None:
    """It goes on as if it had never been begun by hand: values, errors, cancellation, its own clean-up."""
    seen: list[str] = []
    sender, receiver = anyio.create_memory_object_stream[str]()

    @tool(side_effects={"read"})
    async def listen() -> str:
        try:
            with anyio.fail_after(0.01):
                await anyio.sleep_forever()
        except TimeoutError:
            seen.append("timed out")
        async with receiver:
            return await receiver.receive()

    @tool(side_effects={"read"})
    async def endless() -> None:
        try:
            scope.cancel()
            await anyio.sleep_forever()
        finally:
            seen.append("cleaned up")

    async with opened(store_url) as (store, session):
        async with sender, anyio.create_task_group() as tasks:
            tasks.start_soon(sender.send, "word")
            result = await Registry([listen]).dispatch("listen", {}, session=session)
        assert (result.status, result.value) == ("completed", "word")
        with anyio.CancelScope() as scope:
            await Registry([endless]).dispatch("endless", {}, session=session)
        assert seen == ["timed out", "cleaned up"]
        assert (await kinds(store, session))[-1] == "tool.discarded"


@pytest.mark.parametrize("first", [True, False])
async def test_one_that_raises_has_intent_and_failure(store_url: Url, first: bool) -> None:
    """Whether it raised at once, or after it had waited."""

    @tool(side_effects=())
    async def broken() -> None:
        if not first:
            await anyio.lowlevel.checkpoint()
        raise ValueError("no")

    async with opened(store_url) as (store, session):
        result = await Registry([broken]).dispatch("broken", {}, session=session)
        assert (result.status, result.content) == ("failed", "broken raised ValueError: no")
        assert (await kinds(store, session))[-2:] == ["tool.issued", "tool.failed"]


async def test_a_retry_begins_anew(store_url: Url) -> None:
    """The attempt that failed at once is on record like any other."""
    tries: list[int] = []

    @tool(side_effects=(), retry=Retry(attempts=3, backoff_s=0))
    async def shaky() -> int:
        tries.append(len(tries))
        if len(tries) < 3:
            raise ConnectionError("not yet")
        return len(tries)

    async with opened(store_url) as (store, session):
        result = await Registry([shaky]).dispatch("shaky", {}, session=session)
        assert (result.status, result.value) == ("completed", 3)
        assert (await kinds(store, session)).count("tool.issued") == 3


async def test_what_is_made_again_after_a_restart_has_its_intent_first(store_url: Url) -> None:
    """It may be what killed the process: the gate against that counts intents."""
    async with opened(store_url) as (store, session):
        await reply(session, call("double", {"number": 4}))
        await session.flush()
        die(store)
    async with opened(store_url) as (store, session):
        await Registry([double]).dispatch_step(session)
        assert (await kinds(store, session))[-2:] == ["tool.issued", "tool.completed"]


@pytest.mark.parametrize(
    "options",
    [
        {"side_effects": {"mutate"}, "scope": "call"},
        {"side_effects": {"read"}, "scope": "session"},
        {"side_effects": {"read"}, "timeout_s": 60.0},
    ],
    ids=str,
)
async def test_what_somebody_would_miss_has_its_intent_first(store_url: Url, options: dict[str, Any]) -> None:
    """What changes the world, what is done once a session, and what may be cut off, wait or not."""

    @tool(**options)
    async def act() -> str:
        return "done"

    async with opened(store_url) as (store, session):
        result = await Registry([act]).dispatch("act", {}, session=session)
        assert result.value == "done"
        await session.flush()
        assert (await kinds(store, session))[-2:] == ["tool.issued", "tool.completed"]
