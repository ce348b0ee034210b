"""Requests to models that are cut off on the way: by another run, a guardrail, a time limit."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import anyio
import pytest
from agents import (
    Agent,
    GuardrailFunctionOutput,
    InputGuardrailTripwireTriggered,
    ModelBehaviorError,
    ModelRetrySettings,
    ModelSettings,
    ModelTimeoutError,
    function_tool,
    input_guardrail,
    retry_policies,
)
from agents.testing import ModelStep, ScriptedModel, assistant_message

import holdfast
from holdfast.adapters.openai_agents import DurableRunner, HoldfastSession, effects
from holdfast.adapters.openai_agents.agent_copies import DurableModel
from holdfast.adapters.openai_agents.recorded_run import Asked, begin
from holdfast.agents import experiment_log
from holdfast.cli.entry_text import describe
from holdfast.cli.outline import outline
from holdfast.cli.session_report import read_report
from holdfast.core.entries import ModelReplied
from holdfast.session.writer import SessionWriter

from .items_by_hand import user
from .runs import Cut, Office, answering, call, get_root_cause, kinds_of, play, say

pytestmark = pytest.mark.anyio
STREAMED = pytest.mark.parametrize("streamed", [False, True], ids=["at once", "streamed"])
BEFORE_ITS_END = 0.3
"""A time limit for a request that is held up until it has passed."""


@STREAMED
async def test_a_run_after_an_abandoned_one_is_shown_nothing_of_it(
    store: holdfast.Store, streamed: bool
) -> None:
    """Neither at once nor when it is cut off, too, and goes on: both times, the model is shown the same."""
    is_cut = [True]

    @effects(side_effects="mutate")
    @function_tool(failure_error_function=None)
    async def pay() -> str:
        """Pay."""
        raise Cut

    def reply(items: list[Any]) -> Any:
        if items[-1]["content"] == "Pay.":
            return [assistant_message("I pay at once."), call("pay", "t0-a")]
        if is_cut[0]:
            raise Cut
        return say("You are welcome.")

    model = answering(reply)
    agent: Agent[Any] = Agent(name="clerk", model=model, tools=[pay])
    options: Any = {"session": HoldfastSession("ann", store), "streamed": streamed}
    assert isinstance(await get_root_cause(play(DurableRunner, agent, "Pay.", **options)), Cut)
    assert isinstance(await get_root_cause(play(DurableRunner, agent, "Thanks.", **options)), Cut)
    is_cut[0] = False
    found = await play(DurableRunner, agent, "Thanks.", **options)
    assert found.final_output == "You are welcome."
    shown = [one.input for one in model.calls[1:]]
    assert shown == [[user("Pay."), user("Thanks.")]] * 2
    assert kinds_of(await options["session"].get_items()) == ["user", "user", "assistant"]


async def test_a_message_that_arrives_as_an_unfinished_run_is_abandoned_is_in_the_history(
    store: holdfast.Store,
) -> None:
    """It came by way of the inbox, after the session was opened."""

    @effects(side_effects="read")
    @function_tool(failure_error_function=None)
    async def look() -> str:
        """Look."""
        raise Cut

    agent: Agent[Any] = Agent(name="clerk", model=answering(lambda _: [call("look", "t0-a")]), tools=[look])
    work = DurableRunner.run(agent, "Look.", session=HoldfastSession("ann", store))
    assert isinstance(await get_root_cause(work), Cut)
    async with store.session("ann") as session:
        await store.submit("ann", "Hurry up.")
        asked: Any = Asked([user("Thanks.")], None, False)
        found, history = await begin(session, asked, has_history=True)
        assert [item["content"] for item in history] == ["Look.", "Hurry up."]
        assert found.said == 0
        assert found.since == session.state.seq


@STREAMED
async def test_a_guardrail_that_trips_during_a_request_ends_the_run(
    store: holdfast.Store, streamed: bool
) -> None:
    """The SDK runs both at the same time, and cuts the request off (a stream, once there is an event). The
    same call begins another run."""
    trips, asked, judged = [True], [anyio.Event()], anyio.Event()

    @input_guardrail
    async def polite(context: Any, agent: Any, given: Any) -> GuardrailFunctionOutput:
        await asked[-1].wait()
        judged.set()
        return GuardrailFunctionOutput(output_info=None, tripwire_triggered=trips[0])

    async def respond(call: Any) -> ModelStep:
        asked[-1].set()
        await judged.wait()
        if trips[0] and not streamed:
            await anyio.sleep_forever()
        return ModelStep(output=say("Good day."), response_id="r")

    model = ScriptedModel([ModelStep.respond(respond)] * 2)
    agent: Agent[Any] = Agent(name="clerk", model=model, input_guardrails=[polite])
    session = HoldfastSession("ann", store)
    with pytest.raises(InputGuardrailTripwireTriggered):
        await play(DurableRunner, agent, "Damn.", session=session, streamed=streamed)
    trips[0] = False
    asked.append(anyio.Event())
    found = await play(DurableRunner, agent, "Damn.", session=session, streamed=streamed)
    assert found.final_output == "Good day."
    first, second = sorted([run async for run in store.runs()], key=lambda run: run.started_at)
    assert (first.status, first.reason) == ("failed", "over: InputGuardrailTripwireTriggered")
    assert second.config["openai_agents"]["drive"] is None, "it goes on with the one that was refused"
    assert kinds_of(await session.get_items()) == ["user", "assistant"]


@STREAMED
async def test_a_request_that_failed_is_made_again_by_the_same_run(
    store: holdfast.Store, streamed: bool
) -> None:
    """Also if it failed with an exception that ends a run where the runner raises it."""
    failing = [True]

    def reply(_: list[Any]) -> Any:
        if failing.pop() if failing else False:
            raise ModelBehaviorError("the provider sent nonsense")
        return say("Good day.")

    agent: Agent[Any] = Agent(name="clerk", model=answering(reply))
    session = HoldfastSession("ann", store)
    with pytest.raises(ModelBehaviorError, match="nonsense"):
        await play(DurableRunner, agent, "Hello.", session=session, streamed=streamed)
    await play(DurableRunner, agent, "Hello.", session=session, streamed=streamed)
    first, second = sorted([run async for run in store.runs()], key=lambda run: run.started_at)
    assert (first.status, first.reason) == ("failed", "error")
    assert second.config["openai_agents"]["drive"] == first.run


@STREAMED
async def test_a_reply_whose_time_runs_out_while_it_is_recorded_is_not_asked_for_again(
    store: holdfast.Store, streamed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The SDK cancels the request, and makes another attempt, which is given what is on record. Where it has
    shown the beginning of a reply, it ends the run; the same call goes on with what is on record."""
    attempts: list[asyncio.Task[Any]] = []

    def respond(_: Any) -> ModelStep:
        task = asyncio.current_task()
        assert task is not None
        attempts.append(task)
        return ModelStep(output=say(f"Reply {len(attempts)}."), response_id=f"r{len(attempts)}")

    flush, is_held_up = SessionWriter.flush, [True]

    async def flush_late(self: SessionWriter) -> None:
        if attempts and is_held_up[0]:
            is_held_up[0] = False
            while not attempts[0].cancelling():  # noqa: ASYNC110 - no event tells of it
                await asyncio.sleep(0.01)
        await flush(self)

    monkeypatch.setattr(SessionWriter, "flush", flush_late)
    model = ScriptedModel([ModelStep.respond(respond)] * 20)
    retry = ModelRetrySettings(
        max_retries=9, policy=retry_policies.network_error(), backoff={"initial_delay": 0}
    )
    settings = ModelSettings(timeout=BEFORE_ITS_END, retry=retry)
    agent: Agent[Any] = Agent(name="clerk", model=model, model_settings=settings)
    options: Any = {"session": HoldfastSession("ann", store), "run_key": "k", "streamed": streamed}
    if streamed:
        with pytest.raises(ModelTimeoutError):
            await play(DurableRunner, agent, "Hello.", **options)
    found = await play(DurableRunner, agent, "Hello.", **options)
    assert attempts[0].cancelling(), "the time limit did not end it"
    again = await play(DurableRunner, agent, "Hello.", **options)
    assert (found.final_output, again.final_output) == ("Reply 1.", "Reply 1.")
    replies = [one async for one in store.tail("ann", follow=False) if isinstance(one.body, ModelReplied)]
    assert (len(replies), len(attempts)) == (1, 1)


async def test_a_reply_that_is_lost_on_its_way_to_the_runner_is_given_again(
    store: holdfast.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is on record when the time of its request runs out: the next attempt is given it, and the next
    request is another one."""
    get_response, is_lost = DurableModel.get_response, [True]

    async def lose(self: DurableModel, *args: Any, **options: Any) -> Any:
        response = await get_response(self, *args, **options)
        if is_lost.pop() if is_lost else False:
            raise ModelTimeoutError(BEFORE_ITS_END)
        return response

    monkeypatch.setattr(DurableModel, "get_response", lose)
    office = Office()
    office.agent.model_settings = ModelSettings(
        retry=ModelRetrySettings(
            max_retries=1, policy=retry_policies.network_error(), backoff={"initial_delay": 0}
        )
    )
    session = HoldfastSession("ann", store)
    found = await DurableRunner.run(office.agent, "Pay.", session=session, run_key="k")
    assert (found.final_output, len(office.model.calls)) == ("Paid [1, 2].", 3)
    again = await DurableRunner.run(office.agent, "Pay.", session=session, run_key="k")
    assert again.to_input_list() == found.to_input_list()
    assert (await store.load("ann")).budget.tokens == 45


async def test_each_reply_says_which_agent_gave_it(store: holdfast.Store) -> None:
    """Also after a handoff, where the run is that of the first agent."""
    cashier: Agent[Any] = Agent(name="cashier", model=answering(lambda _: say("Cashed.")))
    triage: Agent[Any] = Agent(
        name="triage", model=answering(lambda _: [call("transfer_to_cashier", "h0-a")]), handoffs=[cashier]
    )
    await DurableRunner.run(triage, "Cash it.", session=HoldfastSession("ann", store))
    replies = [one async for one in store.tail("ann", follow=False) if isinstance(one.body, ModelReplied)]
    said = [json.loads(bytes(one.content or b""))["reply"]["agent"] for one in replies]
    assert said == ["triage", "cashier"]
    told = [describe(one) for one in replies]
    assert told == ["reply of triage: → transfer_to_cashier()", "reply of cashier: Cashed."]
    head = await store.head("ann")
    timeline = (await read_report(store, head, brief=False)).timeline
    assert timeline is not None
    replied = [moment.what for moment in timeline.moments if moment.kind == "model"]
    assert replied == ["→ transfer_to_cashier()", "cashier: Cashed."]
    assert [row.what for row in outline(timeline) if row.kind == "model"][-1] == "cashier: Cashed."
    assert [one["agent_id"] async for one in experiment_log(store, "ann")] == ["triage", "cashier"]
