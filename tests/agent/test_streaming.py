"""Events as they happen."""

from __future__ import annotations

import gc
from contextlib import aclosing

import anyio
import pytest

import holdfast
from holdfast.agents import Outcome, Retrying, TextDelta
from holdfast.errors import BadInput, ModelError
from holdfast.messages import ToolCall
from holdfast.records import Checkpoint
from holdfast.tools import Result
from tests.agent.scripted_agents import World, call, fresh_store, make


@pytest.fixture
def world() -> World:
    """The outside world."""
    return World()


async def test_everything_is_told_in_order_and_the_outcome_comes_last(world: World) -> None:
    agent = make([["Let me see.", call("look", what="x")], "All is fine."], world)
    async with fresh_store() as store:
        events = [event async for event in agent.stream("Go", session="s", store=store)]
        kinds = [type(event) for event in events]
        first = "".join(event.text for event in events if isinstance(event, TextDelta))
        assert first == "Let me see.All is fine."
        without_text = [kind for kind in kinds if kind is not TextDelta]
        assert without_text == [ToolCall, Result, Checkpoint, Checkpoint, Outcome]
        outcome = events[-1]
        assert isinstance(outcome, Outcome)
        assert outcome.output == "All is fine."
        resumed = [event async for event in agent.stream(session="s", store=store)]
        assert resumed == [outcome]


async def test_results_come_as_they_are_there(world: World) -> None:
    """A slow call does not hold back the others."""
    shown = anyio.Event()

    @holdfast.tool(side_effects={"read"})
    async def slow() -> str:
        """Ends once the other result was seen."""
        await shown.wait()
        return "slow"

    agent = make([[call("slow"), call("look", what="x")], "Done."], world, tools=[slow])
    names: list[str] = []
    async with fresh_store() as store:
        async for event in agent.stream("Go", session="s", store=store):
            if isinstance(event, Result):
                names.append(event.name)
                shown.set()
    assert names == ["look", "slow"]


async def test_a_resumed_stream_yields_the_result_of_a_call_in_doubt(world: World) -> None:
    """Its result comes before the step ends, whether `verify` knew it or the body was run again."""
    arrived = False

    def was_sent(what: str) -> holdfast.Landed | holdfast.Unsure:
        return holdfast.Landed(f"{what} arrived") if arrived else holdfast.Unsure()

    @holdfast.tool(side_effects={"mutate"}, verify=was_sent)
    async def send(what: str) -> str:
        """Send something."""
        raise OSError("the line went dead")

    @holdfast.tool(side_effects={"mutate"}, idempotent=True)
    async def book(what: str) -> str:
        """Book something, the second time."""
        if not arrived:
            raise OSError("the line went dead")
        return world.do(what)

    agent = make([[call("send", what="x"), call("book", what="y")], "Done."], world, tools=[send, book])
    async with fresh_store() as store:
        assert (await agent.run("Go", session="s", store=store)).status == "waiting"
        arrived = True
        events = [event async for event in agent.stream(session="s", store=store)]
    told = [event for event in events if not isinstance(event, TextDelta)]
    assert [type(event) for event in told] == [Result, Result, Checkpoint, Checkpoint, Outcome]
    results = {event.name: event.content for event in told if isinstance(event, Result)}
    assert results == {"send": "x arrived", "book": "y done"}


async def test_deltas_are_not_in_the_journal_and_whole_replies_are(world: World) -> None:
    agent = make(["All is fine."], world)
    async with fresh_store() as store:
        async for _ in agent.stream("Go", session="s", store=store):
            pass
        said = [entry async for entry in store.tail("s", follow=False) if entry.kind == "model.replied"]
        assert len(said) == 1


async def test_a_stream_says_that_a_reply_begins_anew(world: World) -> None:
    agent = make([ModelError("busy", retryable=True), "Fine."], world)
    async with fresh_store() as store:
        events = [event async for event in agent.stream("Go", session="s", store=store)]
        (retry,) = [event for event in events if isinstance(event, Retrying)]
        assert (retry.error, retry.attempt) == ("busy", 1)


async def test_an_error_reaches_the_reader_of_a_stream(world: World) -> None:
    agent = make([ZeroDivisionError("oops")], world)
    async with fresh_store() as store:
        with pytest.raises(ZeroDivisionError):
            async for _ in agent.stream("Go", session="s", store=store):
                pass


async def test_closing_a_stream_cancels_the_run(world: World) -> None:
    """What was done is durable; the session can be resumed."""
    agent = make([call("pay", what="42"), call("look", what="x"), "Done."], world)
    async with fresh_store() as store:
        async with aclosing(agent.stream("Go", session="s", store=store)) as events:
            async for event in events:
                if isinstance(event, Result):
                    break
        assert (await store.load("s")).status == "cancelled"
        assert (await agent.resume("s", store=store)).output == "Done."
    assert world.done == ["pay 42"]


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_stream_that_is_dropped_half_way_ends_by_itself(world: World) -> None:
    """Under trio it does so as well, with a warning of trio's own."""
    agent = make([call("pay", what="42"), call("look", what="x"), "Done."], world)
    async with fresh_store() as store:
        async for event in agent.stream("Go", session="s", store=store):
            if isinstance(event, Result):
                break
        del event
        gc.collect()
        with anyio.fail_after(60):
            outcome = await agent.resume("s", store=store, wait_s=60)
        assert outcome.output == "Done."


async def test_what_the_listener_does_is_not_part_of_the_run(world: World) -> None:
    """A run that it starts between two events has no parent."""
    agent = make(lambda prompt: "Fine.", world)
    async with fresh_store() as store:
        async for event in agent.stream("Go", session="a", store=store):
            if isinstance(event, TextDelta):
                await agent.run("Go", session="b", store=store)
        (run,) = [one async for one in store.runs(session="b")]
        assert run.parent is None


async def test_a_stream_needs_something_to_do(world: World) -> None:
    with pytest.raises(BadInput, match="needs a message"):
        async for _ in make([], world).stream():
            pass
