"""Calls of durable runs that wait for an approval: by a `RunState`, or by way of holdfast."""

from __future__ import annotations

import json
from typing import Any

import pytest
from agents import Agent, Runner, RunState, SQLiteSession, function_tool

import holdfast
from holdfast.adapters.openai_agents import DurableRunner, HoldfastSession, RunWaits, effects
from holdfast.errors import BadInput
from holdfast.store.approvals import find_waiting

from .runs import Cut, answering, call, count_turns, get_root_cause, kinds_of, play, say

pytestmark = pytest.mark.anyio
STREAMED = pytest.mark.parametrize("streamed", [False, True], ids=["at once", "streamed"])


class Till:
    """An agent that looks and pays back at once. Paying back needs an approval."""

    def __init__(self, *, nested: bool = False) -> None:
        self.paid_back, self.looked, self.cut = list[int](), 0, ""

        @effects(side_effects="mutate", verify=lambda cents, reason: holdfast.NotLanded())
        @function_tool(needs_approval=True, failure_error_function=None)
        async def refund(cents: int, reason: str = "none") -> str:
            """Pay back."""
            if self.cut == "in the tool":
                raise Cut
            self.paid_back.append(cents)
            return f"paid back {cents}"

        @effects(side_effects="read")
        @function_tool
        def look() -> str:
            """Look."""
            self.looked += 1
            return "looked"

        inner: Agent[Any] = Agent(name="till", model=answering(self.reply), tools=[refund, look])
        self.inner = inner
        self.agent = inner
        if nested:
            as_tool = inner.as_tool("till", "The till", failure_error_function=None)
            self.agent = Agent(name="clerk", model=answering(self.delegate), tools=[as_tool])

    def reply(self, items: list[Any]) -> Any:
        """The replies of the till."""
        if count_turns(items) == 0:
            return [call("look", "t0-a"), call("refund", "t0-b", cents=900)]
        if self.cut == "after the tool":
            raise Cut
        outputs = [item["output"] for item in items if item.get("type") == "function_call_output"]
        return say(" and ".join(outputs))

    def delegate(self, items: list[Any]) -> Any:
        """The replies of the clerk around it."""
        if count_turns(items) == 0:
            return [call("till", "t0-a", input="Refund.")]
        return say("Told: " + str([item.get("output") for item in items if "output" in item][-1]))


async def test_approved_in_another_process_the_run_goes_on(store: holdfast.Store) -> None:
    """As without a record, and the approved call is run once although the process is cut off twice."""
    wanted, items = await _run_without_record()
    till, session = Till(), HoldfastSession("ann", store)
    paused = await DurableRunner.run(till.agent, "Refund.", session=session)
    assert [item.name for item in paused.interruptions] == ["refund"]
    (waiting,) = [one async for one in _pending(store)]
    assert (waiting.tool, waiting.kind, waiting.args) == ("refund", "approval", {"cents": 900})
    kept = json.dumps(paused.to_state().to_json())

    async def resume() -> Any:
        state: Any = await RunState.from_json(till.agent, json.loads(kept))
        state.approve(state.get_interruptions()[0])
        return await DurableRunner.run(till.agent, state, session=session)

    for cut in ("in the tool", "after the tool"):
        till.cut = cut
        assert isinstance(await get_root_cause(resume()), Cut)
    till.cut = ""
    for _ in range(2):  # Once more after it had ended, too.
        found = await resume()
        assert found.final_output == wanted.final_output == "looked and paid back 900"
        assert found.context_wrapper.usage == wanted.context_wrapper.usage
    assert (till.paid_back, till.looked) == ([900], 1)
    assert await session.get_items() == items
    assert [one async for one in _pending(store)] == []


async def _run_without_record() -> tuple[Any, list[Any]]:
    till, session = Till(), SQLiteSession("ann")
    paused = await Runner.run(till.agent, "Refund.", session=session)
    state = paused.to_state()
    state.approve(paused.interruptions[0])
    found = await Runner.run(till.agent, state, session=session)
    items: list[Any] = list(await session.get_items())
    session.close()
    return found, items


async def _pending(store: holdfast.Store) -> Any:
    for one in await find_waiting(store):
        yield one


@STREAMED
@pytest.mark.parametrize("nested", [False, True], ids=["alone", "in a tool"])
async def test_approved_in_the_same_process_the_run_goes_on(
    store: holdfast.Store, streamed: bool, nested: bool
) -> None:
    till, session = Till(nested=nested), HoldfastSession("ann", store)
    paused = await play(DurableRunner, till.agent, "Refund.", session=session, streamed=streamed)
    state = paused.to_state()
    state.approve(paused.interruptions[0])
    found = await play(DurableRunner, till.agent, state, session=session, streamed=streamed)
    assert "paid back 900" in found.final_output
    assert (till.paid_back, till.looked) == ([900], 1)
    plain = Till(nested=nested)
    paused = await play(Runner, plain.agent, "Refund.", streamed=streamed)
    state = paused.to_state()
    state.approve(paused.interruptions[0])
    wanted = await play(Runner, plain.agent, state, streamed=streamed)
    assert found.final_output == wanted.final_output
    assert found.context_wrapper.usage == wanted.context_wrapper.usage


async def test_approved_in_another_process_an_agent_in_a_tool_goes_on(store: holdfast.Store) -> None:
    till, session = Till(nested=True), HoldfastSession("ann", store)
    paused = await DurableRunner.run(till.agent, "Refund.", session=session)
    kept = json.dumps(paused.to_state().to_json())
    for cut in ("in the tool", "after the tool", ""):
        till.cut = cut
        state: Any = await RunState.from_json(till.agent, json.loads(kept))
        state.approve(state.get_interruptions()[0])
        work = DurableRunner.run(till.agent, state, session=session)
        if cut:
            assert isinstance(await get_root_cause(work), Cut)
        else:
            assert (await work).final_output == "Told: looked and paid back 900"
    # Passed once more, it gives the outcome: the agent in the tool does not ask again.
    state = await RunState.from_json(till.agent, json.loads(kept))
    state.approve(state.get_interruptions()[0])
    again = await DurableRunner.run(till.agent, state, session=session)
    assert (again.interruptions, again.final_output) == ([], "Told: looked and paid back 900")
    assert (till.paid_back, till.looked) == ([900], 1)


@STREAMED
@pytest.mark.parametrize("nested", [False, True], ids=["alone", "in a tool"])
@pytest.mark.parametrize("answer", ["approve", "refuse"])
async def test_answered_by_way_of_holdfast_the_same_call_goes_on(
    store: holdfast.Store, streamed: bool, nested: bool, answer: str
) -> None:
    """No `RunState` is needed; a call with arguments that the SDK would not look at goes on, too."""
    till, session = Till(nested=nested), HoldfastSession("ann", store)
    for _ in range(2):
        paused = await play(DurableRunner, till.agent, "Refund.", session=session, streamed=streamed)
        assert [item.name for item in paused.interruptions] == ["refund"]
    (waiting,) = [one async for one in _pending(store)]
    if answer == "approve":
        await store.approve(waiting.session, waiting.call, by="ann")
    else:
        await store.refuse(waiting.session, waiting.call, by="ann", reason="Not this month.")
    found = await play(DurableRunner, till.agent, "Refund.", session=session, streamed=streamed)
    assert not found.interruptions
    assert ("paid back 900" if answer == "approve" else "Not this month.") in found.final_output
    assert till.paid_back == ([900] if answer == "approve" else [])
    assert till.looked == 1


async def test_a_person_may_correct_the_arguments(store: holdfast.Store) -> None:
    till, session = Till(), HoldfastSession("ann", store)
    await DurableRunner.run(till.agent, "Refund.", session=session)
    (waiting,) = [one async for one in _pending(store)]
    (asked,) = (await store.load(waiting.session)).facts.effects.questions.values()
    assert "cents" in asked.schema["properties"], "by which a correction can be checked"
    await store.approve(waiting.session, waiting.call, by="ann", args={"cents": 90})
    found = await DurableRunner.run(till.agent, "Refund.", session=session)
    assert (found.final_output, till.paid_back) == ("looked and paid back 90", [90])


async def test_rejected_in_a_run_state_the_question_is_closed(store: holdfast.Store) -> None:
    till, session = Till(), HoldfastSession("ann", store)
    paused = await DurableRunner.run(till.agent, "Refund.", session=session)
    state = paused.to_state()
    state.reject(paused.interruptions[0], rejection_message="No.")
    found = await DurableRunner.run(till.agent, state, session=session)
    assert (found.final_output, till.paid_back) == ("looked and No.", [])
    assert [one async for one in _pending(store)] == []
    assert kinds_of(await session.get_items()) == [
        "user", "function_call", "function_call", "function_call_output", "function_call_output", "assistant",
    ]  # fmt: skip


async def test_a_state_of_another_run_is_refused(store: holdfast.Store) -> None:
    till, session = Till(), HoldfastSession("ann", store)
    paused = await DurableRunner.run(till.agent, "Refund.", session=session)
    state = paused.to_state()
    with pytest.raises(BadInput, match="no run that this RunState is of"):
        await DurableRunner.run(till.agent, state, session=HoldfastSession("bob", store))
    await DurableRunner.run(Agent(name="x", model=answering(lambda _: say("Hi."))), "Hello.", session=session)
    with pytest.raises(BadInput, match="not of its last run"):
        await DurableRunner.run(till.agent, state, session=session)


async def test_a_declared_approval_waits_for_a_person(store: holdfast.Store) -> None:
    """`effects(needs_approval=True)` asks in holdfast's own words."""
    sent: list[str] = []

    @effects(side_effects="mutate", needs_approval=True)
    @function_tool
    async def send(to: str) -> str:
        """Send."""
        sent.append(to)
        return "sent"

    def reply(items: list[Any]) -> Any:
        return say("Done.") if count_turns(items) else [call("send", "t0-a", to="ann")]

    agent: Agent[Any] = Agent(name="clerk", model=answering(reply), tools=[send])
    session = HoldfastSession("ann", store)
    with pytest.raises(RunWaits) as waits:
        await DurableRunner.run(agent, "Send.", session=session)
    (waiting,) = waits.value.waiting
    await store.approve("ann", waiting.call, by="cat")
    found = await DurableRunner.run(agent, "Send.", session=session)
    assert (found.final_output, sent) == ("Done.", ["ann"])
