"""Durable runs with several agents: handoffs, agents as tools, guardrails, hooks."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from agents import (
    Agent,
    GuardrailFunctionOutput,
    HandoffInputData,
    InputGuardrailTripwireTriggered,
    MaxTurnsExceeded,
    ModelProvider,
    OutputGuardrailTripwireTriggered,
    RunConfig,
    RunHooks,
    Runner,
    SQLiteSession,
    function_tool,
    handoff,
    input_guardrail,
    output_guardrail,
    set_trace_processors,
    set_tracing_disabled,
)
from agents.tool import (
    ApplyPatchTool,
    CodeInterpreterTool,
    ComputerTool,
    CustomTool,
    FileSearchTool,
    HostedMCPTool,
    ImageGenerationTool,
    LocalShellTool,
    ProgrammaticToolCallingTool,
    ShellTool,
    ToolSearchTool,
    WebSearchTool,
)
from agents.tracing import get_trace_provider, set_trace_provider
from agents.tracing.provider import DefaultTraceProvider

import holdfast
from holdfast.adapters.openai_agents import DurableRunner, HoldfastSession, RunWaits, effects
from holdfast.errors import BadInput

from .runs import Cut, answering, call, count_turns, get_root_cause, kinds_of, play, say

pytestmark = pytest.mark.anyio
STREAMED = pytest.mark.parametrize("streamed", [False, True], ids=["at once", "streamed"])


class Desk:
    """A triage that hands over to a cashier, who has a bookkeeper as a tool."""

    def __init__(self, cut: str = "") -> None:
        self.cut = cut
        self.booked: list[str] = []
        self.handed_over: list[str] = []
        self.seen: list[tuple[str, str]] = []
        self.bookkeeper: Agent[Any] = Agent(
            name="bookkeeper", model=answering(self.keep_books), tools=[self.make_tool()]
        )
        as_tool = self.bookkeeper.as_tool("books", "Keep the books", failure_error_function=None)
        self.cashier: Agent[Any] = Agent(name="cashier", model=answering(self.cash), tools=[as_tool])
        filtered = handoff(self.cashier, input_filter=self.filter)
        self.triage: Agent[Any] = Agent(
            name="triage",
            model=answering(lambda _: [call("transfer_to_cashier", "h0-a")]),
            handoffs=[filtered],
        )

    def filter(self, data: HandoffInputData) -> HandoffInputData:
        """The cashier sees the question only."""
        self.handed_over.append("filtered")
        return data.clone(pre_handoff_items=(), new_items=())

    def reach(self, place: str) -> None:
        """Fail here, if that is asked for."""
        if place == self.cut:
            raise Cut

    def cash(self, items: list[Any]) -> Any:
        """The cashier's replies."""
        self.reach(f"cashier {count_turns(items)}")
        return [call("books", "t0-a", input="Book 5.")] if count_turns(items) == 0 else say("Cashed.")

    def keep_books(self, items: list[Any]) -> Any:
        """The bookkeeper's replies."""
        self.reach(f"bookkeeper {count_turns(items)}")
        return [call("book", "t0-a", line="5")] if count_turns(items) == 0 else say("Booked.")

    def make_tool(self) -> Any:
        """The bookkeeper's tool."""

        def was_booked(line: str) -> holdfast.Landed | holdfast.NotLanded:
            return holdfast.Landed("done") if line in self.booked else holdfast.NotLanded()

        @effects(side_effects="mutate", verify=was_booked)
        @function_tool(failure_error_function=None)
        async def book(line: str) -> str:
            """Book."""
            self.booked.append(line)
            return "done"

        return book

    @property
    def hooks(self) -> RunHooks[Any]:
        """Hooks that note which agents they see."""
        return _Noting(self)


class _Noting(RunHooks[Any]):
    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def _note(self, event: str, agent: Any) -> None:
        known = {id(one): one.name for one in (self._desk.triage, self._desk.cashier, self._desk.bookkeeper)}
        self._desk.seen.append((event, known[id(agent)]))

    async def on_agent_start(self, context: Any, agent: Any) -> None:
        self._note("start", agent)

    async def on_handoff(self, context: Any, from_agent: Any, to_agent: Any) -> None:
        self._note("from", from_agent)
        self._note("to", to_agent)

    async def on_tool_start(self, context: Any, agent: Any, tool: Any) -> None:
        self._note("tool", agent)
        assert tool in self._desk.cashier.tools

    async def on_agent_end(self, context: Any, agent: Any, output: Any) -> None:
        self._note("end", agent)


@STREAMED
@pytest.mark.parametrize("cut", ["", "cashier 0", "bookkeeper 0", "bookkeeper 1", "cashier 1"])
async def test_a_run_through_several_agents_goes_on_where_it_was(
    store: holdfast.Store, streamed: bool, cut: str
) -> None:
    """Through a handoff with a filter, and in an agent that is a tool: the items, the result and the usage
    are those of the SDK's own runner."""
    plain, theirs = Desk(), SQLiteSession("ann")
    wanted = await play(Runner, plain.triage, "Cash it.", session=theirs, streamed=streamed)
    desk, session = Desk(cut), HoldfastSession("ann", store)
    options: Any = {"session": session, "streamed": streamed}
    if cut:
        assert isinstance(await get_root_cause(play(DurableRunner, desk.triage, "Cash it.", **options)), Cut)
        desk.cut = ""
        desk.seen.clear()
    found = await play(DurableRunner, desk.triage, "Cash it.", hooks=desk.hooks, **options)
    assert found.final_output == wanted.final_output == "Cashed."
    assert await session.get_items() == await theirs.get_items()
    assert found.to_input_list() == wanted.to_input_list()
    assert found.context_wrapper.usage == wanted.context_wrapper.usage
    assert found.last_agent is desk.cashier
    assert desk.booked == ["5"]
    asked = [len(one.model.calls) for one in (desk.triage, desk.cashier, desk.bookkeeper)]  # type: ignore[union-attr]
    again = {
        "cashier 0": [0, 1, 0],
        "bookkeeper 0": [0, 0, 1],
        "bookkeeper 1": [0, 0, 1],
        "cashier 1": [0, 1, 0],
    }
    assert asked == [a + b for a, b in zip([1, 2, 2], again.get(cut, [0, 0, 0]), strict=True)]
    assert desk.seen == [
        ("start", "triage"), ("from", "triage"), ("to", "cashier"), ("start", "cashier"), ("tool", "cashier"),
        ("end", "cashier"),
    ]  # fmt: skip
    theirs.close()


async def test_runs_know_their_parents_agents_and_groups(store: holdfast.Store) -> None:
    desk = Desk()
    config = RunConfig(group_id="thread-7", workflow_name="cashing")
    await DurableRunner.run(desk.triage, "Cash it.", session=HoldfastSession("ann", store), run_config=config)
    runs = [run async for run in store.runs()]
    outer, inner = sorted(runs, key=lambda run: run.agent or "", reverse=True)
    assert (outer.agent, inner.agent, outer.session) == ("triage", "bookkeeper", "ann")
    assert (outer.config["group_id"], outer.config["workflow_name"]) == ("thread-7", "cashing")
    assert inner.parent is not None
    assert (inner.parent.session, inner.parent.run) == ("ann", outer.run)


@STREAMED
async def test_what_a_guardrail_refused_is_not_in_the_history(store: holdfast.Store, streamed: bool) -> None:
    """As without a record: the reply is in the journal, and no model is shown it."""

    @output_guardrail
    async def polite(context: Any, agent: Any, output: Any) -> GuardrailFunctionOutput:
        return GuardrailFunctionOutput(output_info=None, tripwire_triggered=output == "Damn.")

    @input_guardrail
    async def short(context: Any, agent: Any, given: Any) -> GuardrailFunctionOutput:
        return GuardrailFunctionOutput(output_info=None, tripwire_triggered="long" in str(given[-1]))

    def reply(items: list[Any]) -> Any:
        return say("Damn." if items[-1]["content"] == "Swear." else "Good day.")

    def make() -> Agent[Any]:
        return Agent(
            name="clerk", model=answering(reply), output_guardrails=[polite], input_guardrails=[short]
        )

    theirs, ours = SQLiteSession("ann"), HoldfastSession("ann", store)
    for runner, session in ((Runner, theirs), (DurableRunner, ours)):
        agent = make()
        for given, error in (
            ("Swear.", OutputGuardrailTripwireTriggered),
            ("A long story.", InputGuardrailTripwireTriggered),
            ("Swear.", OutputGuardrailTripwireTriggered),
        ):
            with pytest.raises(error):
                await play(runner, agent, given, session=session, streamed=streamed)
        await play(runner, agent, "Hello.", session=session, streamed=streamed)
    assert await ours.get_items() == await theirs.get_items()
    theirs.close()


async def test_too_many_turns_end_a_run_as_without_a_record(store: holdfast.Store) -> None:
    def make() -> Agent[Any]:
        desk = Desk()
        return desk.cashier

    theirs, ours = SQLiteSession("ann"), HoldfastSession("ann", store)
    for runner, session in ((Runner, theirs), (DurableRunner, ours)):
        for _ in range(2):
            with pytest.raises(MaxTurnsExceeded):
                await play(runner, make(), "Cash it.", session=session, max_turns=1)
    assert kinds_of(await ours.get_items()) == kinds_of(await theirs.get_items())
    theirs.close()


@STREAMED
async def test_a_run_may_end_on_the_output_of_a_tool(store: holdfast.Store, streamed: bool) -> None:
    """`tool_use_behavior`: the value is the same when it comes from the record."""

    @effects(side_effects="read")
    @function_tool
    def look() -> dict[str, int]:
        """Look."""
        return {"found": 3}

    agent: Agent[Any] = Agent(
        name="clerk",
        model=answering(lambda _: [call("look", "t0-a")]),
        tools=[look],
        tool_use_behavior="stop_on_first_tool",
    )
    session = HoldfastSession("ann", store)
    first = await play(DurableRunner, agent, "Look.", session=session, run_key="k", streamed=streamed)
    again = await play(DurableRunner, agent, "Look.", session=session, run_key="k", streamed=streamed)
    wanted = await Runner.run(agent, "Look.")
    assert again.final_output == first.final_output == wanted.final_output
    assert again.new_items[-1].raw_item == first.new_items[-1].raw_item == wanted.new_items[-1].raw_item


async def test_models_by_name_and_of_the_run_are_recorded(store: holdfast.Store) -> None:
    class Provider(ModelProvider):
        def __init__(self) -> None:
            self.models = {name: answering(lambda _, name=name: say(name)) for name in ("a", "b")}  # type: ignore[misc]

        def get_model(self, model_name: str | None) -> Any:
            return self.models[str(model_name)]

    provider, session = Provider(), HoldfastSession("ann", store)
    agent: Agent[Any] = Agent(name="clerk", model="a")
    for model, wanted in ((None, "a"), ("b", "b"), (answering(lambda _: say("c")), "c")):
        config = RunConfig(model_provider=provider, model=model)
        for _ in range(2):
            found = await DurableRunner.run(
                agent, "Hello.", session=session, run_config=config, run_key=wanted
            )
            assert found.final_output == wanted
    assert [len(provider.models[name].calls) for name in ("a", "b")] == [1, 1]


async def test_the_caller_may_choose_what_of_the_history_is_shown(store: holdfast.Store) -> None:
    """`session_input_callback` is given the history as it was when the run began."""
    shown: list[list[str]] = []

    def choose(history: list[Any], new: list[Any]) -> list[Any]:
        said = [item.get("content") for item in history]
        shown.append([one if isinstance(one, str) else "…" for one in said])
        return [*history[-2:], *new]

    cut = [False]

    def reply(items: list[Any]) -> Any:
        if cut[0]:
            raise Cut
        return say(f"{len(items)} items")

    agent: Agent[Any] = Agent(name="clerk", model=answering(reply))
    session, config = HoldfastSession("ann", store), RunConfig(session_input_callback=choose)
    for number in range(3):
        cut[0] = number == 2
        work = DurableRunner.run(agent, str(number), session=session, run_config=config)
        await get_root_cause_or_none(work)
    cut[0] = False
    found = await DurableRunner.run(agent, "2", session=session, run_config=config)
    assert found.final_output == "3 items"
    assert shown == [[], ["0", "…"], ["0", "…", "1", "…"], ["0", "…", "1", "…"]]
    assert kinds_of(await session.get_items()) == ["user", "assistant"] * 3


async def get_root_cause_or_none(work: Any) -> BaseException | None:
    """What an awaitable raised, if it did."""
    try:
        await work
    except Exception as error:
        return error
    return None


class _Screen:
    environment = "browser"
    dimensions = (1, 1)


async def _act(*given: Any) -> Any:
    raise AssertionError


_anything: Any = _Screen()
_ACTING: list[Any] = [
    LocalShellTool(executor=_act),
    ComputerTool(computer=_anything),
    ShellTool(executor=_act),
    ShellTool(executor=_act, environment={"type": "local"}),
    ApplyPatchTool(editor=_anything),
    CustomTool(name="custom", description="", on_invoke_tool=_act),
    # One of a later version of the SDK.
    type("NewTool", (), {"name": "new"})(),
]
_HOSTED: list[Any] = [
    WebSearchTool(),
    FileSearchTool(vector_store_ids=["v"]),
    CodeInterpreterTool(tool_config={"type": "code_interpreter", "container": {"type": "auto"}}),
    ImageGenerationTool(tool_config={"type": "image_generation"}),
    HostedMCPTool(tool_config={"type": "mcp", "server_label": "s", "server_url": "https://example.org"}),
    ToolSearchTool(),
    ProgrammaticToolCallingTool(),
    ShellTool(environment={"type": "container_auto"}),
]


@pytest.mark.parametrize("tool", _ACTING, ids=lambda tool: type(tool).__name__)
async def test_tools_that_act_without_a_record_are_refused(tool: Any) -> None:
    async with holdfast.open_store("memory:") as store:
        agent: Agent[Any] = Agent(name="clerk", model=answering(lambda _: say("Hi.")), tools=[tool])
        with pytest.raises(BadInput, match="acts on this machine"):
            await DurableRunner.run(agent, "Hello.", session=HoldfastSession("ann", store))


@pytest.mark.parametrize("tool", _HOSTED, ids=lambda tool: type(tool).__name__)
async def test_tools_that_the_provider_runs_are_passed_on(tool: Any) -> None:
    async with holdfast.open_store("memory:") as store:
        model = answering(lambda _: say("Hi."))
        agent: Agent[Any] = Agent(name="clerk", model=model, tools=[tool])
        found = await DurableRunner.run(agent, "Hello.", session=HoldfastSession("ann", store))
        assert found.final_output == "Hi."
        assert [one is tool for one in model.calls[-1].tools] == [True]


async def test_an_agent_of_a_tool_has_a_session_of_ours_or_none(store: holdfast.Store) -> None:
    desk, theirs = Desk(), SQLiteSession("books")
    for session in (theirs, HoldfastSession("ann", store)):
        desk.cashier.tools = [desk.bookkeeper.as_tool("books", "Keep the books", session=session)]
        with pytest.raises(BadInput, match="ession"):
            await DurableRunner.run(desk.cashier, "Cash it.", session=HoldfastSession("ann", store))
    own = HoldfastSession("books", store)
    desk.cashier.tools = [desk.bookkeeper.as_tool("books", "Keep the books", session=own)]
    await DurableRunner.run(desk.cashier, "Cash it again.", session=HoldfastSession("bob", store))
    assert kinds_of(await own.get_items()) == ["user", "function_call", "function_call_output", "assistant"]
    theirs.close()


async def test_a_durable_run_in_a_tool_is_found_again(store: holdfast.Store) -> None:
    """It has a session of its own, derived from the call."""
    cut, asked = [True], list[str]()

    def help_out(items: list[Any]) -> Any:
        asked.append("helper")
        return say("Helped.")

    helper: Agent[Any] = Agent(name="helper", model=answering(help_out))

    @effects(side_effects=())
    @function_tool(failure_error_function=None)
    async def help_me() -> str:
        """Help."""
        result = await DurableRunner.run(helper, "Help.")
        if cut[0]:
            raise Cut
        return str(result.final_output)

    agent: Agent[Any] = Agent(
        name="clerk",
        model=answering(lambda items: say("Thanks.") if count_turns(items) else [call("help_me", "t0-a")]),
        tools=[help_me],
    )
    session = HoldfastSession("ann", store)
    assert isinstance(await get_root_cause(DurableRunner.run(agent, "Go.", session=session)), Cut)
    cut[0] = False
    found = await DurableRunner.run(agent, "Go.", session=session)
    assert (found.final_output, asked) == ("Thanks.", ["helper"])
    with pytest.raises(BadInput, match="session=HoldfastSession"):
        await DurableRunner.run(helper, "Help.")


@pytest.mark.parametrize("tracing", ["on", "off", "other provider"])
async def test_a_plain_run_in_a_durable_tool_is_warned_of(
    store: holdfast.Store, caplog: pytest.LogCaptureFixture, tracing: str
) -> None:
    """Once in a run, and whatever the program does about tracing. A durable run there is not."""
    helper: Agent[Any] = Agent(name="helper", model=answering(lambda _: say("Helped.")))
    kinds: list[Any] = [Runner, DurableRunner]

    @effects(side_effects=())
    @function_tool
    async def help_me() -> str:
        """Help."""
        for _ in range(2):
            result = await kinds[0].run(helper, "Help.")
        return str(result.final_output)

    def reply(items: list[Any]) -> Any:
        return say("Thanks.") if count_turns(items) else [call("help_me", "t0-a")]

    agent: Agent[Any] = Agent(name="clerk", model=answering(reply), tools=[help_me])
    before = get_trace_provider()
    if tracing == "other provider":
        set_trace_provider(DefaultTraceProvider())
    set_tracing_disabled(tracing == "off")
    try:
        with caplog.at_level(logging.WARNING, logger="holdfast"):
            for name in ("ann", "cat"):
                set_trace_processors([])
                caplog.clear()
                await DurableRunner.run(agent, "Go.", session=HoldfastSession(name, store))
                assert caplog.text.count("'helper' runs inside a durable tool by way of Runner") == 1
            caplog.clear()
            kinds.pop(0)
            await DurableRunner.run(agent, "Go.", session=HoldfastSession("bob", store))
            await Runner.run(helper, "Help.")
            assert "by way of Runner" not in caplog.text
    finally:
        set_trace_provider(before)
        set_tracing_disabled(True)
        set_trace_processors([])


async def test_two_agents_that_are_in_doubt_of_one_effect_say_what_they_wait_for(
    store: holdfast.Store,
) -> None:
    """Both make the call; the ledger has it once, as that of the one that was first."""
    sent: list[str] = []

    @effects(side_effects="mutate")
    @function_tool
    async def send() -> str:
        """Send."""
        sent.append("mail")
        raise TimeoutError

    inner: Agent[Any] = Agent(name="inner", model=answering(lambda _: [call("send", "t0-a")]), tools=[send])
    asking = [call("ask", "t0-a", input="Ann"), call("ask", "t0-b", input="Bob")]
    as_tool = inner.as_tool("ask", "Ask", failure_error_function=None)
    outer: Agent[Any] = Agent(name="outer", model=answering(lambda _: asking), tools=[as_tool])
    for _ in range(2):
        with pytest.raises(RunWaits) as found:
            await DurableRunner.run(outer, "Go.", session=HoldfastSession("ann", store))
        assert {(one.tool, one.kind) for one in found.value.waiting} == {("send", "in_doubt")}
    assert sent == ["mail"]
