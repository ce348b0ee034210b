"""Features of the SDK that a durable run shares with its own runner, also where they come from the record."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from types import new_class
from typing import Any

import pytest
from agents import (
    Agent,
    AgentHooks,
    RunContextWrapper,
    RunHooks,
    Runner,
    ToolGuardrailFunctionOutput,
    ToolInputGuardrailTripwireTriggered,
    ToolOutputGuardrailTripwireTriggered,
    ToolOutputImage,
    function_tool,
    tool_input_guardrail,
    tool_output_guardrail,
)
from agents.agent import AgentToolStreamEvent
from openai.types.responses.response_output_item import ImageGenerationCall
from pydantic import BaseModel

import holdfast
from holdfast.adapters.openai_agents import DurableRunner, HoldfastSession, effects
from holdfast.errors import BadInput, HoldfastError

from .runs import Cut, Office, answering, approve, call, count_turns, get_root_cause, play, say

pytestmark = pytest.mark.anyio
STREAMED = pytest.mark.parametrize("streamed", [False, True], ids=["at once", "streamed"])
LARGE = base64.b64encode(bytes(300_000)).decode()


@pytest.fixture
async def store() -> AsyncIterator[holdfast.Store]:
    """In memory: what is shown here is the same on every store."""
    async with holdfast.open_store("memory:") as opened:
        yield opened


def calling(name: str, **args: Any) -> Any:
    """A model that calls a tool, and tells its output."""

    def reply(items: list[Any]) -> Any:
        if count_turns(items) == 0:
            return [call(name, "t0-a", **args)]
        return say(str([item["output"] for item in items if "output" in item][-1]))

    return answering(reply)


async def run_thrice(
    make: Any, store: holdfast.Store, *, streamed: bool = False, **options: Any
) -> tuple[Any, Any, Any]:
    """Without a record, with one, and again from the record: the results. `make` gives the agent."""
    session = HoldfastSession("ann", store)
    plain = await play(Runner, make(), "Go.", streamed=streamed, **options)
    agent = make()
    durable, again = [
        await play(DurableRunner, agent, "Go.", streamed=streamed, session=session, run_key="k", **options)
        for _ in range(2)
    ]
    return plain, durable, again


# -- hooks -----------------------------------------------------------------------------------------------


class Noted:
    """What hooks were told, and by which objects of the caller."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.agents: list[Agent[Any]] = []
        self.tools: list[Any] = []


def make_hooks(kind: Any, noted: Noted) -> Any:
    """Hooks of a run or an agent that note all that they are told."""

    def make(name: str) -> Any:
        async def note(self: Any, context: Any, *args: Any, **named: Any) -> None:
            noted.events.append(name)
            given = [*args, *named.values()]
            noted.agents += [one for one in given if isinstance(one, Agent)]
            noted.tools += [one for one in given if hasattr(one, "on_invoke_tool")]

        return note

    names = [name for name in dir(kind) if name.startswith("on_")]
    return new_class(
        "Hooks", (kind,), exec_body=lambda body: body.update({name: make(name) for name in names})
    )()


@STREAMED
@pytest.mark.parametrize("kind", [RunHooks, AgentHooks])
async def test_hooks_are_told_the_same_of_the_agents_and_tools_of_the_caller(
    store: holdfast.Store, streamed: bool, kind: Any
) -> None:
    """Requests and replies among it, through a handoff, and again when everything comes from the record."""
    told: list[list[str]] = []
    for runner in (Runner, DurableRunner, DurableRunner):
        noted = Noted()
        hooks = make_hooks(kind, noted)
        of_agent = hooks if kind is AgentHooks else None

        @effects(side_effects="read")
        @function_tool
        def look() -> str:
            """Look."""
            return "looked"

        def cash(items: list[Any]) -> Any:
            return [call("look", "t1-a")] if count_turns(items) == 1 else say("Cashed.")

        cashier: Agent[Any] = Agent(name="cashier", model=answering(cash), tools=[look], hooks=of_agent)
        triage: Agent[Any] = Agent(
            name="triage",
            model=answering(lambda _: [call("transfer_to_cashier", "h0-a")]),
            handoffs=[cashier],
            hooks=of_agent,
        )
        options: Any = {} if runner is Runner else {"session": HoldfastSession("ann", store), "run_key": "k"}
        if kind is RunHooks:
            options["hooks"] = hooks
        await play(runner, triage, "Go.", streamed=streamed, **options)
        told.append(noted.events)
        assert all(one is triage or one is cashier for one in noted.agents)
        assert [one is look for one in noted.tools] == [True, True]
    assert told[1] == told[2] == told[0]
    assert told[0].count("on_llm_start") == told[0].count("on_llm_end") == 3


# -- guardrails of tools ---------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["input", "output"])
@pytest.mark.parametrize("how", ["reject", "raise"])
async def test_guardrails_of_tools_judge_what_goes_in_and_what_comes_out(
    store: holdfast.Store, where: str, how: str
) -> None:
    """As without a record. A call that was refused on its way in is not in the ledger; one whose output was
    refused is done."""
    acted: list[str] = []

    def judge(data: Any) -> ToolGuardrailFunctionOutput:
        if how == "raise":
            return ToolGuardrailFunctionOutput.raise_exception()
        return ToolGuardrailFunctionOutput.reject_content("Not that.")

    def make() -> Agent[Any]:
        @effects(side_effects="mutate")
        @function_tool(
            tool_input_guardrails=[tool_input_guardrail(judge)] if where == "input" else None,
            tool_output_guardrails=[tool_output_guardrail(judge)] if where == "output" else None,
        )
        def act() -> str:
            """Act."""
            acted.append("once")
            return "acted"

        return Agent(name="clerk", model=calling("act"), tools=[act])

    if how == "reject":
        found = await run_thrice(make, store)
        assert [one.final_output for one in found] == ["Not that."] * 3
    else:
        error: Any = {
            "input": ToolInputGuardrailTripwireTriggered, "output": ToolOutputGuardrailTripwireTriggered,
        }[where]  # fmt: skip
        with pytest.raises(error):
            await Runner.run(make(), "Go.")
        with pytest.raises(error):
            await DurableRunner.run(make(), "Go.", session=HoldfastSession("ann", store))
        (run,) = [one async for one in store.runs()]
        assert (run.status, run.reason) == ("failed", f"over: {error.__name__}")
    rows = (await store.load("ann")).facts.effects.rows.values()
    assert [row.status for row in rows] == (["completed"] if where == "output" else [])
    assert len(acted) == (2 if where == "output" else 0)


# -- context, usage, outputs -----------------------------------------------------------------------------


@dataclass
class Basket:
    """The context of a run."""

    owner: str
    notes: list[str] = field(default_factory=list)


async def test_a_context_object_is_given_anew_and_keeps_what_is_done_after_the_cut(
    store: holdfast.Store,
) -> None:
    """What a tool wrote into the first one is lost with it: the tool is not run again."""
    is_cut = [True]

    def reply(items: list[Any]) -> Any:
        turn = count_turns(items)
        if turn == 1 and is_cut[0]:
            raise Cut
        return [call("note", f"t{turn}-a", what=f"note {turn}")] if turn < 2 else say("Done.")

    @effects(side_effects="mutate")
    @function_tool
    async def note(ctx: RunContextWrapper[Basket], what: str) -> str:
        """Note something."""
        ctx.context.notes.append(what)
        return f"{what} for {ctx.context.owner}"

    agent: Agent[Basket] = Agent(name="clerk", model=answering(reply), tools=[note])
    session = HoldfastSession("ann", store)
    first, second = Basket("ann"), Basket("ann")
    work = DurableRunner.run(agent, "Go.", session=session, context=first)
    assert isinstance(await get_root_cause(work), Cut)
    is_cut[0] = False
    found = await DurableRunner.run(agent, "Go.", session=session, context=second)
    assert (first.notes, second.notes) == (["note 0"], ["note 1"])
    assert found.context_wrapper.context is second
    outputs = [item["output"] for item in await session.get_items() if "output" in item]  # type: ignore[typeddict-item]
    assert outputs == ["note 0 for ann", "note 1 for ann"]


async def test_a_session_counts_the_usage_of_each_reply_once(store: holdfast.Store) -> None:
    """However often the run is cut off and goes on, or its outcome is given again."""
    office, session = Office(cut="in a tool"), HoldfastSession("ann", store)
    options: Any = {"session": session, "run_key": "k"}
    await get_root_cause(DurableRunner.run(office.agent, "Pay.", **options))
    office.cut = "after the model"
    await get_root_cause(DurableRunner.run(office.agent, "Pay.", hooks=office.hooks, **options))
    office.cut = None
    for _ in range(2):
        found = await DurableRunner.run(office.agent, "Pay.", **options)
        assert found.context_wrapper.usage.total_tokens == 45
    assert len(office.model.calls) == 3
    assert (await store.load("ann")).budget.tokens == 45


@STREAMED
async def test_large_media_and_outputs_are_the_same_from_the_record(
    store: holdfast.Store, streamed: bool
) -> None:
    """An image in a reply, an image and a long text that tools gave. The journal holds none of them."""
    picture = ImageGenerationCall(id="i", type="image_generation_call", status="completed", result=LARGE)

    def make() -> Agent[Any]:
        @effects(side_effects="mutate")
        @function_tool
        def draw() -> Any:
            """Draw."""
            return ToolOutputImage(image_url=f"data:image/png;base64,{LARGE}")

        @effects(side_effects="read")
        @function_tool
        def read() -> str:
            """Read."""
            return "long " * 100_000

        def reply(items: list[Any]) -> Any:
            if count_turns(items):
                return say("Done.")
            # Their scripted model streams no images.
            return [*([] if streamed else [picture]), call("draw", "t0-a"), call("read", "t0-b")]

        return Agent(name="clerk", model=answering(reply), tools=[draw, read])

    plain, durable, again = await run_thrice(make, store, streamed=streamed)
    assert durable.to_input_list() == again.to_input_list() == plain.to_input_list()
    journal = [one async for one in store.tail("ann", follow=False)]
    assert max(len(bytes(one.content or b"")) for one in journal) < 50_000


# -- agents as tools -------------------------------------------------------------------------------------


class Order(BaseModel):
    """What an agent as a tool is given."""

    cents: int


async def test_an_agent_as_a_tool_takes_parameters_and_shows_its_events(store: holdfast.Store) -> None:
    """From the record, its run is not made again, so there are none."""
    seen: list[list[str]] = []

    async def show(event: AgentToolStreamEvent) -> None:
        assert event["agent"].name == "inner"
        seen[-1].append(event["event"].type)

    def make() -> Agent[Any]:
        inner: Agent[Any] = Agent(name="inner", model=answering(lambda items: say(items[-1]["content"])))
        as_tool = inner.as_tool("books", "Keep the books", on_stream=show, parameters=Order)
        return Agent(name="clerk", model=calling("books", cents=5), tools=[as_tool])

    outputs: list[Any] = []
    session, agent = HoldfastSession("ann", store), make()
    for runner, one, options in (
        (Runner, make(), {}),
        (DurableRunner, agent, {"session": session, "run_key": "k"}),
        (DurableRunner, agent, {"session": session, "run_key": "k"}),
    ):
        seen.append([])
        options_: Any = options
        outputs.append((await play(runner, one, "Go.", **options_)).final_output)
    assert outputs[0] == outputs[1] == outputs[2]
    assert "5" in outputs[0]
    assert seen[0]
    assert seen[1] == seen[0]
    assert seen[2] == []


@pytest.mark.parametrize("by_state", [True, False], ids=["state", "holdfast"])
async def test_an_agent_as_a_tool_may_need_an_approval(store: holdfast.Store, by_state: bool) -> None:
    """Before it is run, by a `RunState` or by way of the store."""
    inner: Agent[Any] = Agent(name="inner", model=answering(lambda _: say("Booked.")))
    as_tool = inner.as_tool("books", "Keep the books", needs_approval=True)
    agent: Agent[Any] = Agent(name="clerk", model=calling("books", input="Book."), tools=[as_tool])
    session = HoldfastSession("ann", store)
    paused = await DurableRunner.run(agent, "Go.", session=session)
    assert [one.name for one in paused.interruptions] == ["books"]
    assert len(inner.model.calls) == 0  # type: ignore[union-attr]
    given = await approve(store, paused, by_state=by_state) or "Go."
    found = await DurableRunner.run(agent, given, session=session)
    assert found.final_output == "Booked."
    assert len(inner.model.calls) == 1  # type: ignore[union-attr]


# -- what is refused -------------------------------------------------------------------------------------


async def test_the_history_stays_here(store: holdfast.Store) -> None:
    agent, session = Office().agent, HoldfastSession("ann", store)
    with pytest.raises(BadInput, match="auto_previous_response_id keeps the history at OpenAI"):
        await DurableRunner.run(agent, "Pay.", session=session, auto_previous_response_id=True)
    with pytest.raises(BadInput, match="auto_previous_response_id"):
        DurableRunner.run_streamed(agent, "Pay.", session=session, auto_previous_response_id=True)
    assert [one async for one in store.sessions()] == []


def test_nor_is_it_kept_there_without_an_event_loop() -> None:
    session = HoldfastSession("ann", "memory:")
    with pytest.raises(BadInput, match="auto_previous_response_id"):
        DurableRunner.run_sync(Office().agent, "Pay.", session=session, auto_previous_response_id=True)
    session.close()


async def test_a_key_alone_needs_a_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the variable, and no model is asked."""
    monkeypatch.delenv("HOLDFAST_STORE", raising=False)
    office = Office()
    for streamed in (False, True):
        with pytest.raises(HoldfastError, match="HOLDFAST_STORE"):
            await play(DurableRunner, office.agent, "Pay.", run_key="k", streamed=streamed)
    assert len(office.model.calls) == 0
