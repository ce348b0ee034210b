"""Tools of durable runs: what they declare, how they fail, and what becomes of their calls."""

from __future__ import annotations

import copy
import dataclasses
import logging
from types import SimpleNamespace
from typing import Any

import anyio
import pytest
from agents import (
    Agent,
    GuardrailFunctionOutput,
    ModelBehaviorError,
    OutputGuardrailTripwireTriggered,
    Runner,
    ToolOutputImage,
    ToolOutputText,
    UserError,
    function_tool,
    output_guardrail,
    set_trace_processors,
    set_tracing_disabled,
)
from agents.mcp import MCPServer
from agents.testing import ScriptedModel
from agents.tracing import CustomSpanData, Span, TracingProcessor

import holdfast
from holdfast.adapters.openai_agents import (
    DurableRunner,
    HoldfastSession,
    RunWaits,
    annotate,
    as_tools,
    current_effect,
    effects,
)
from holdfast.errors import BadInput, Fenced
from holdfast.tools import mutate

from .runs import Cut, answering, call, count_turns, get_root_cause, kinds_of, play, say

pytestmark = pytest.mark.anyio


@pytest.fixture
async def store() -> Any:
    """In memory: what is shown here is the same on every store."""
    async with holdfast.open_store("memory:") as opened:
        yield opened


def calling(*names: str, **args: Any) -> Any:
    """A model that calls these tools at once, and tells their outputs."""

    def reply(items: list[Any]) -> Any:
        if count_turns(items) == 0:
            return [call(name, f"t0-{name}", **args) for name in names]
        return say(" and ".join(str(one["output"]) for one in items if "output" in one))

    return answering(reply)


def make(*tools: Any, names: tuple[str, ...] = (), **args: Any) -> Agent[Any]:
    """An agent that calls each tool once."""
    chosen = names or tuple(tool.name for tool in tools)
    return Agent(name="clerk", model=calling(*chosen, **args), tools=list(tools))


async def test_a_failing_tool_that_reads_tells_the_model_or_ends_the_run(store: holdfast.Store) -> None:
    """As without a record."""

    @effects(side_effects="read")
    @function_tool(failure_error_function=lambda context, error: f"failed: {error}")
    def told() -> str:
        """Fail."""
        raise ValueError("no")

    @effects(side_effects="read")
    @function_tool(failure_error_function=None)
    def fatal() -> str:
        """Fail."""
        raise ValueError("no")

    session = HoldfastSession("ann", store)
    for _ in range(2):
        found = await DurableRunner.run(make(told), "Go.", session=session, run_key="k")
        assert found.final_output == "failed: no"
    with pytest.raises(UserError, match="Error running tool fatal: no"):
        await DurableRunner.run(make(fatal), "Go.", session=HoldfastSession("bob", store))
    assert [one async for one in store.in_doubt()] == []


async def test_a_failing_tool_that_acts_is_in_doubt_unless_it_says_that_nothing_was_done(
    store: holdfast.Store,
) -> None:
    @effects(side_effects="mutate", harmless=[ConnectionRefusedError])
    @function_tool(failure_error_function=lambda context, error: f"failed: {error}")
    def act(how: str) -> str:
        """Act."""
        raise {"refused": ConnectionRefusedError("refused"), "cut": ConnectionResetError("cut")}[how]

    fine = await DurableRunner.run(make(act, how="refused"), "Go.", session=HoldfastSession("a", store))
    assert fine.final_output == "failed: refused"
    with pytest.raises(RunWaits):
        await DurableRunner.run(make(act, how="cut"), "Go.", session=HoldfastSession("b", store))
    telling = DurableRunner.with_options(in_doubt="tell")
    told = await telling.run(make(act, how="cut"), "Go.", session=HoldfastSession("c", store))
    assert "not known" in told.final_output


async def test_a_model_that_misbehaves_inside_a_tool_that_acts_leaves_it_in_doubt(
    store: holdfast.Store,
) -> None:
    """The SDK refuses arguments by the same exception: only then nothing was run."""
    sent: list[int] = []

    @effects(side_effects="mutate")
    @function_tool
    def send(x: int) -> str:
        """Send, and then have a model sum up."""
        sent.append(x)
        raise ModelBehaviorError("the summary makes no sense")

    told = await DurableRunner.run(make(send, x="one"), "Go.", session=HoldfastSession("a", store))
    assert ("error" in told.final_output, sent) == (True, [])
    for _ in range(2):
        with pytest.raises(RunWaits):
            await DurableRunner.run(make(send, x=1), "Go.", session=HoldfastSession("b", store))
    assert sent == [1]


async def test_one_tool_that_raises_leaves_its_neighbour_in_doubt(store: holdfast.Store) -> None:
    """The SDK cancels it in the middle. The same call settles it, and goes on."""
    sent: list[str] = []
    began = anyio.Event()
    is_broken = [True]

    def was_sent() -> holdfast.Landed | holdfast.NotLanded:
        return holdfast.Landed("sent") if sent else holdfast.NotLanded()

    @effects(side_effects="mutate", verify=was_sent)
    @function_tool
    async def send() -> str:
        """Send."""
        sent.append("mail")
        began.set()
        await anyio.sleep_forever()
        return "sent"

    @effects(side_effects="read")
    @function_tool(failure_error_function=None)
    async def look() -> str:
        """Look."""
        await began.wait()
        if is_broken[0]:
            raise Cut
        return "looked"

    agent, session = make(send, look), HoldfastSession("ann", store)
    runner = DurableRunner.with_options(grace_s=0)
    assert isinstance(await get_root_cause(runner.run(agent, "Go.", session=session)), Cut)
    is_broken[0] = False
    found = await runner.run(agent, "Go.", session=session)
    assert (found.final_output, sent) == ("sent and looked", ["mail"])


@pytest.mark.parametrize("acts", [False, True])
async def test_a_tool_that_exceeds_its_time_is_told_of_or_in_doubt(store: holdfast.Store, acts: bool) -> None:
    @effects(side_effects="mutate" if acts else "read")
    @function_tool(timeout=0.01)
    async def wait() -> str:
        """Wait."""
        await anyio.sleep_forever()
        return ""

    work = DurableRunner.run(make(wait), "Go.", session=HoldfastSession("ann", store))
    if acts:
        with pytest.raises(RunWaits):
            await work
    else:
        assert (await work).final_output == "Tool 'wait' timed out after 0.01 seconds."


async def test_tools_are_declared_by_decorator_by_name_and_by_glob(
    store: holdfast.Store, caplog: pytest.LogCaptureFixture
) -> None:
    keys: list[str] = []

    @function_tool
    async def pay() -> str:
        """Pay."""
        keys.append(current_effect().key)
        await annotate(vendor="v1")
        return "paid"

    @function_tool
    def search_web() -> str:
        """Search."""
        return "found"

    @holdfast.tool(side_effects="write")
    async def keep(ctx: holdfast.ToolContext[Any]) -> str:
        """Keep."""
        return f"kept for {ctx.deps}"

    @function_tool
    def untold() -> str:
        """Say nothing."""
        return "?"

    runner = DurableRunner.with_options(effects={"pay": mutate(scope="call"), "search_*": "read"})
    agent = make(pay, search_web, *as_tools(keep), untold)
    with caplog.at_level(logging.WARNING, logger="holdfast"):
        found = await runner.run(agent, "Go.", session=HoldfastSession("ann", store), context="bob")
    assert found.final_output == "paid and found and kept for bob and ?"
    rows = (await store.load("ann")).facts.effects.rows.values()
    assert {row.tool: set(row.side_effects) for row in rows} == {
        "pay": {"mutate"}, "search_web": {"read"}, "keep": {"write"}, "untold": {"mutate"},
    }  # fmt: skip
    assert next(row.notes for row in rows if row.tool == "pay") == {"vendor": "v1"}
    assert "tool 'untold' does not say" in caplog.text
    assert "@effects(side_effects" in caplog.text
    assert "'pay'" not in caplog.text
    with pytest.raises(BadInput, match="above @function_tool"):
        effects(side_effects="read")(print)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="current_effect"):
        current_effect()


async def test_a_declaration_stays_with_copies_of_its_tool_but_not_with_replacements(
    store: holdfast.Store, caplog: pytest.LogCaptureFixture
) -> None:
    """`dataclasses.replace` makes another tool; it is declared anew."""

    @effects(side_effects="read")
    @function_tool
    def look() -> str:
        """Look."""
        return "looked"

    anew = effects(side_effects="read")(dataclasses.replace(look, name="anew"))
    tools = [copy.copy(look), dataclasses.replace(look, name="other"), anew]
    with caplog.at_level(logging.WARNING, logger="holdfast"):
        await DurableRunner.run(make(*tools).clone(), "Go.", session=HoldfastSession("ann", store))
    rows = (await store.load("ann")).facts.effects.rows.values()
    assert {row.tool: set(row.side_effects) for row in rows} == {
        "look": {"read"}, "other": {"mutate"}, "anew": {"read"},
    }  # fmt: skip
    assert "tool 'other' does not say" in caplog.text


class Server(MCPServer):
    """A server of tools, as the SDK sees one."""

    def __init__(self, tools: list[Any]) -> None:
        super().__init__()
        self._tools, self.called = tools, list[str]()

    name = "office"

    async def connect(self) -> None: ...

    async def cleanup(self) -> None: ...

    async def list_tools(self, run_context: Any = None, agent: Any = None) -> list[Any]:
        return self._tools

    async def call_tool(self, tool_name: str, arguments: Any, meta: Any = None) -> Any:
        from mcp.types import CallToolResult, TextContent

        self.called.append(tool_name)
        return CallToolResult(content=[TextContent(type="text", text=f"did {tool_name}")])

    async def list_prompts(self) -> Any:
        raise NotImplementedError

    async def get_prompt(self, name: str, arguments: Any = None) -> Any:
        raise NotImplementedError


async def test_tools_of_mcp_servers_pass_the_ledger_and_their_hints_count(store: holdfast.Store) -> None:
    """`readOnlyHint` is believed, `idempotentHint` only with `trust`."""
    from mcp.types import Tool

    hints: dict[str, Any] = {
        "read": {"readOnlyHint": True},
        "again": {"idempotentHint": True, "destructiveHint": False},
        "plain": None,
    }
    schema: Any = {"type": "object", "properties": {}}
    tools = [
        Tool.model_validate({"name": name, "inputSchema": schema, "annotations": one})
        for name, one in hints.items()
    ]
    wanted = {False: {"read": "read", "again": "mutate", "plain": "mutate"}}
    wanted[True] = {**wanted[False], "again": "write"}
    for trust, expected in wanted.items():
        server = Server(tools)
        agent: Agent[Any] = Agent(name="clerk", model=calling(*hints), mcp_servers=[server])
        runner = DurableRunner.with_options(trust=trust)
        session = HoldfastSession(f"trust {trust}", store)
        for _ in range(2):
            found = await runner.run(agent, "Go.", session=session, run_key="k")
            assert "did read" in found.final_output
        assert sorted(server.called) == ["again", "plain", "read"]
        ids = [head.session async for head in store.sessions(label={"session": f"trust {trust}"})]
        rows = (await store.load(ids[0])).facts.effects.rows.values()
        assert {row.tool: next(iter(row.side_effects)) for row in rows} == expected


async def test_outputs_come_back_as_they_were(store: holdfast.Store) -> None:
    """What the model is shown of them is the same when they come from the record."""
    values: dict[str, Any] = {
        "text": "a text",
        "number": 3,
        "nothing": None,
        "data": {"a": [1, 2.5, None], "b": "ü"},
        "pair": (1, "two"),
        "object": Cut("why"),
        "part": ToolOutputText(text="part"),
        "image": [ToolOutputText(text="an image"), ToolOutputImage(image_url="https://example.org/x.png")],
    }

    def give(name: str) -> Any:
        @effects(side_effects="mutate")
        @function_tool(name_override=name)
        def tool() -> Any:
            """Give."""
            return values[name]

        return tool

    agent: Agent[Any] = Agent(
        name="clerk",
        model=answering(
            lambda items: (
                say("Done.") if count_turns(items) else [call(name, f"t0-{name}") for name in values]
            )
        ),
        tools=[give(name) for name in values],
    )
    session = HoldfastSession("ann", store)
    wanted = await Runner.run(agent, "Go.")
    for _ in range(2):
        found = await DurableRunner.run(agent, "Go.", session=session, run_key="k")
        assert found.to_input_list() == wanted.to_input_list()


async def test_a_call_that_was_begun_counts_also_if_its_tool_is_gone(store: holdfast.Store) -> None:
    """It keeps its outcome, or waits while it is in doubt."""
    is_cut = [True]

    @effects(side_effects="mutate")
    @function_tool
    def act() -> str:
        """Act."""
        return "acted"

    @effects(side_effects="read")
    @function_tool(failure_error_function=None)
    async def look() -> str:
        """Look."""
        await anyio.lowlevel.checkpoint()
        if is_cut[0]:
            raise Cut
        return "looked"

    session = HoldfastSession("ann", store)
    assert isinstance(await get_root_cause(DurableRunner.run(make(act, look), "Go.", session=session)), Cut)
    is_cut[0] = False
    found = await DurableRunner.run(make(look, names=("act", "look")), "Go.", session=session)
    assert found.final_output == "acted and looked"


@pytest.mark.parametrize("streamed", [False, True], ids=["at once", "streamed"])
async def test_a_writer_that_lost_the_session_begins_no_effect(store: holdfast.Store, streamed: bool) -> None:
    """It was stalled, and another process has taken over."""
    acted: list[str] = []

    @effects(side_effects="mutate")
    @function_tool(failure_error_function=None)
    def act() -> str:
        """Act."""
        acted.append("once")
        return "acted"

    def reply(items: list[Any]) -> Any:
        engine = store._engine  # Nothing public loses a lease.
        engine.channels["ann"].lost = Fenced("ann", fence=1)  # type: ignore[index]
        return [call("act", "t0-a")]

    agent: Agent[Any] = Agent(name="clerk", model=answering(reply), tools=[act])
    with pytest.raises(Fenced):
        await play(DurableRunner, agent, "Go.", session=HoldfastSession("ann", store), streamed=streamed)
    assert acted == []


async def test_a_cancelled_run_goes_on(store: holdfast.Store) -> None:
    began, is_slow = anyio.Event(), [True]

    @effects(side_effects="read")
    @function_tool
    async def look() -> str:
        """Look."""
        began.set()
        if is_slow[0]:
            await anyio.sleep_forever()
        return "looked"

    agent, session = make(look), HoldfastSession("ann", store)
    async with anyio.create_task_group() as group:
        group.start_soon(lambda: DurableRunner.run(agent, "Go.", session=session))
        await began.wait()
        group.cancel_scope.cancel()
    is_slow[0] = False
    found = await DurableRunner.run(agent, "Go.", session=session)
    assert found.final_output == "looked"
    assert len(agent.model.calls) == 2  # type: ignore[union-attr]


@pytest.mark.parametrize(("mode", "reason"), [("after_turn", "after_turn"), ("immediate", "CancelledError")])
async def test_a_stream_that_is_stopped_goes_on(store: holdfast.Store, mode: Any, reason: str) -> None:
    """After a turn, or at once: the record says which."""

    @effects(side_effects="read")
    @function_tool
    def look() -> str:
        """Look."""
        return "looked"

    agent, session = make(look), HoldfastSession("ann", store)
    stream = DurableRunner.run_streamed(agent, "Go.", session=session)
    if mode == "after_turn":
        stream.cancel(mode=mode)
    async for event in stream.stream_events():
        if getattr(event, "name", "") == "tool_called":
            stream.cancel(mode=mode)
    assert stream.final_output is None
    await anyio.wait_all_tasks_blocked()
    (run,) = [one async for one in store.runs()]
    assert (run.status, run.reason) == ("cancelled", reason)
    found = await DurableRunner.run(agent, "Go.", session=session)
    assert found.final_output == "looked"
    assert len(agent.model.calls) == 2  # type: ignore[union-attr]
    assert kinds_of(await session.get_items()) == [
        "user", "function_call", "function_call_output", "assistant",
    ]  # fmt: skip


def test_without_an_event_loop(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """`run_sync`, and `HOLDFAST_STORE`: the outcome is given again by its key."""
    monkeypatch.setenv("HOLDFAST_STORE", f"sqlite:{tmp_path}/store")

    @effects(side_effects="read")
    @function_tool
    def look() -> str:
        """Look."""
        return "looked"

    agent = make(look)
    for _ in range(2):
        assert DurableRunner.run_sync(agent, "Go.", run_key="job 7").final_output == "looked"
    assert len(agent.model.calls) == 2  # type: ignore[union-attr]
    with holdfast.blocking.open_store() as opened:
        (head,) = opened.sessions()
        assert head.labels["run_key"] == "job 7"


async def test_run_sync_in_an_event_loop_is_refused(store: holdfast.Store) -> None:
    with pytest.raises(RuntimeError, match="event loop is running"):
        DurableRunner.run_sync(make(names=("x",)), "Go.", session=HoldfastSession("ann", store))


async def test_a_tool_that_ends_the_process_does_so_once_it_is_on_record(store: holdfast.Store) -> None:
    """Its call is in doubt, and the session is closed in good order."""

    @effects(side_effects="mutate")
    @function_tool
    async def leave() -> str:
        """Leave."""
        raise SystemExit(3)

    session = HoldfastSession("ann", store)
    with pytest.raises(SystemExit):
        await DurableRunner.run(make(leave), "Go.", session=session)
    assert [one.effect.tool async for one in store.in_doubt()] == ["leave"]
    assert (await store.head("ann")).lease is None


async def test_a_history_is_compacted_as_without_a_record(store: holdfast.Store) -> None:
    """In the middle of a run that is cut off after it, too: it is compacted once."""
    is_cut = [True]

    class Compactor:
        """The part of OpenAI's client that compacts."""

        def __init__(self) -> None:
            self.inputs: list[int] = []
            self.responses = self

        async def compact(self, **request: Any) -> Any:
            """Compact."""
            self.inputs.append(len(request["input"]))
            made = {"type": "compaction", "id": f"cmp_{len(self.inputs)}", "encrypted_content": "all"}
            return SimpleNamespace(output=[made], usage=None)

    @effects(side_effects="read")
    @function_tool
    def look() -> str:
        """Look."""
        return "looked"

    def reply(items: list[Any]) -> Any:
        if not any(item.get("type") == "function_call_output" for item in items):
            return [call("look", "t0-a")]
        if is_cut[0]:
            raise Cut
        return say("Done.")

    agent: Agent[Any] = Agent(name="clerk", model=answering(reply), tools=[look])
    options: Any = {"compaction_mode": "input", "should_trigger_compaction": lambda context: True}
    theirs, ours = Compactor(), Compactor()
    plain = HoldfastSession("bob", store, compaction={**options, "client": theirs})
    session = HoldfastSession("ann", store, compaction={**options, "client": ours})
    assert isinstance(await get_root_cause(DurableRunner.run(agent, "Go.", session=session)), Cut)
    is_cut[0] = False
    found = await DurableRunner.run(agent, "Go.", session=session)
    wanted = await Runner.run(agent, "Go.", session=plain)
    assert found.final_output == wanted.final_output == "Done."
    assert await session.get_items() == await plain.get_items()
    assert ours.inputs == theirs.inputs


@pytest.mark.parametrize("how", ["refused", "compacted", "compacted twice"])
async def test_a_message_that_is_sent_during_a_run_is_in_the_history_of_the_next(
    store: holdfast.Store, how: str
) -> None:
    """Also if the run leaves less in the history than it has recorded, or something else."""

    class Compactor:
        """The part of OpenAI's client that compacts."""

        def __init__(self) -> None:
            self.responses = self

        async def compact(self, **request: Any) -> Any:
            """Compact."""
            return SimpleNamespace(
                output=[{"type": "compaction", "id": "c", "encrypted_content": "x"}], usage=None
            )

    @effects(side_effects="read")
    @function_tool
    async def look() -> str:
        """Look."""
        await store.submit("ann", "By the way.")
        return "looked"

    @output_guardrail
    async def polite(context: Any, agent: Any, output: Any) -> GuardrailFunctionOutput:
        return GuardrailFunctionOutput(output_info=None, tripwire_triggered=how == "refused")

    turns = [
        [call("look", "t0-a")],
        *([[call("look", "t1-a")]] if how == "compacted twice" else []),
        say("Ok."),
    ]
    model = ScriptedModel(turns)
    agent: Agent[Any] = Agent(name="clerk", model=model, tools=[look], output_guardrails=[polite])
    compaction = {
        "compaction_mode": "input", "should_trigger_compaction": lambda context: True, "client": Compactor(),
    }  # fmt: skip
    session = HoldfastSession("ann", store, compaction=None if how == "refused" else compaction)
    work = DurableRunner.run(agent, "Go.", session=session)
    if how == "refused":
        with pytest.raises(OutputGuardrailTripwireTriggered):
            await work
    else:
        await work
    said: list[Any] = [item.get("content") for item in await session.get_items()]
    assert said.count("By the way.") == len(turns) - 1


async def test_the_trace_says_what_comes_from_the_record(store: holdfast.Store) -> None:
    class Noting(TracingProcessor):
        """Notes the spans of our own."""

        def __init__(self) -> None:
            self.spans: list[dict[str, Any]] = []

        def on_span_end(self, span: Span[Any]) -> None:
            if isinstance(span.span_data, CustomSpanData):
                self.spans.append({"name": span.span_data.name, **span.span_data.data})

        def on_span_start(self, span: Any) -> None: ...

        def on_trace_start(self, trace: Any) -> None: ...

        def on_trace_end(self, trace: Any) -> None: ...

        def shutdown(self) -> None: ...

        def force_flush(self) -> None: ...

    @effects(side_effects="mutate")
    @function_tool
    def act() -> str:
        """Act."""
        return "acted"

    noting, agent, session = Noting(), make(act), HoldfastSession("ann", store)
    set_trace_processors([noting])
    set_tracing_disabled(False)
    try:
        await DurableRunner.run(agent, "Go.", session=session, run_key="k")
        assert noting.spans == []
        await DurableRunner.run(agent, "Go.", session=session, run_key="k")
    finally:
        set_tracing_disabled(True)
        set_trace_processors([])
    assert [one["name"] for one in noting.spans] == ["holdfast replay"] * 3
    assert all(one["replayed"] for one in noting.spans)
    assert [one["tool"] for one in noting.spans if "tool" in one] == ["act"]
