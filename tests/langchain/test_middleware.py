"""`HoldfastMiddleware` in real agents: whatever their tools are, each call is in the ledger, and once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import (
    AgentMiddleware,
    HumanInTheLoopMiddleware,
    TodoListMiddleware,
    ToolErrorMiddleware,
    ToolRetryMiddleware,
)
from langchain.tools import ToolRuntime
from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool, InjectedToolCallId
from langchain_core.tools import tool as langchain_tool
from langgraph.config import get_stream_writer
from langgraph.prebuilt import InjectedState, InjectedStore
from langgraph.store.memory import InMemoryStore
from langgraph.types import Command, interrupt

import holdfast
from holdfast.adapters.langgraph import (
    HoldfastMiddleware,
    HoldfastSaver,
    current_effect,
    durable_tools,
    effects,
    mutate,
    read,
)
from holdfast.errors import BadInput

from .agents import (
    GO,
    WAYS,
    ScriptedChat,
    Way,
    agent_of,
    drive,
    durable_agent,
    list_arguments,
    list_effects,
    results,
)

done: list[str] = []
by_way = pytest.mark.parametrize("way", WAYS)


@pytest.fixture(autouse=True)
def _nothing_done() -> None:
    done.clear()


@langchain_tool
def pay(order: str, cents: int = 100) -> str:
    """Pay for an order."""
    done.append(f"{order} {cents} {current_effect().key[:6]}")
    return f"paid {cents} for {order}"


@langchain_tool
async def look(order: str) -> str:
    """Look at an order."""
    return f"{order} is open"


@langchain_tool
def send(to: str) -> str:
    """Send a letter."""
    done.append(to)
    raise ConnectionError("no answer")


# -- whatever a tool is ------------------------------------------------------------------------------------


@by_way
async def test_every_call_of_an_agent_goes_through_the_ledger(store: holdfast.Store, way: Way) -> None:
    """Calls at once, sync and async tools; the bodies are entered with the keys that are on record."""
    script = [[("pay", {"order": "a"}), ("look", {"order": "b"})], "ok"]
    agent = durable_agent(store, script, [pay, look], effects={"pay": "mutate", "look": "read"})
    assert results(await drive(agent, GO, way=way)) == ["paid 100 for a", "b is open"]
    rows = {row.tool: row for row in await list_effects(store)}
    assert {name: row.scope for name, row in rows.items()} == {"pay": "session", "look": "call"}
    assert done == [f"a 100 {rows['pay'].key[:6]}"]


@by_way
async def test_tools_get_what_the_graph_gives_them(store: holdfast.Store, way: Way) -> None:
    """State, runtime, long-term store and the id of the call: the record of the arguments has none of it."""

    @langchain_tool
    def tell(
        order: str,
        state: Annotated[dict[str, Any], InjectedState],
        memory: Annotated[Any, InjectedStore()],
        id: Annotated[str, InjectedToolCallId],
        runtime: ToolRuntime,
    ) -> str:
        """Tell what there is."""
        memory.put(("notes",), order, {"text": "seen"})
        assert runtime.store is memory
        return f"{order}: {len(state['messages'])} messages, {id}, {runtime.tool_call_id}"

    memory = InMemoryStore()
    ours = HoldfastMiddleware(store, effects={"tell": "mutate"})
    agent = agent_of(store, [[("tell", {"order": "a"})], "ok"], [tell], ours, store=memory)
    assert results(await drive(agent, GO, way=way)) == ["a: 2 messages, call_0_0, call_0_0"]
    assert await list_arguments(store) == [("tell", {"order": "a"})]
    assert memory.get(("notes",), "a") is not None


@by_way
async def test_a_tool_that_returns_directly_ends_the_run(store: holdfast.Store, way: Way) -> None:
    """As without the middleware."""

    @langchain_tool(return_direct=True)
    def final(order: str) -> str:
        """Give the last word."""
        return f"that was {order}"

    agent = durable_agent(store, [[("final", {"order": "a"})]], [final], effects={"final": "pure"})
    state = await drive(agent, GO, way=way)
    assert state["messages"][-1].content == "that was a"
    assert len(await list_effects(store)) == 1


@by_way
async def test_a_command_of_a_tool_is_for_the_call_that_it_answers(store: holdfast.Store, way: Way) -> None:
    """Also when a later call gets it from the ledger: its message names that one."""

    @langchain_tool
    def note(text: str, id: Annotated[str, InjectedToolCallId]) -> Command[Any]:
        """Write a note."""
        done.append(text)
        return Command(update={"messages": [ToolMessage(f"noted {text}", tool_call_id=id)]})

    script = [[("note", {"text": "x"})], [("note", {"text": "x"})], "ok"]
    state = await drive(durable_agent(store, script, [note], effects={"note": "mutate"}), GO, way=way)
    answered = [one.tool_call_id for one in state["messages"] if isinstance(one, ToolMessage)]
    assert answered == ["call_0_0", "call_1_0"]
    assert results(state) == ["noted x", "noted x"]
    assert done == ["x"]


async def test_a_stream_has_what_a_tool_writes(store: holdfast.Store) -> None:
    """Its own chunks, and the updates of the graph."""

    @langchain_tool
    async def count(to: int) -> str:
        """Count."""
        for one in range(to):
            get_stream_writer()(one)
        return "counted"

    agent = durable_agent(store, [[("count", {"to": 3})], "ok"], [count], effects={"count": "read"})
    config = {"configurable": {"thread_id": "t"}}
    written: list[int] = []
    nodes: list[list[str]] = []
    async for mode, chunk in agent.astream(GO, config, stream_mode=["custom", "updates"], durability="sync"):
        if mode == "custom":
            written.append(chunk)
        else:
            nodes.append([*chunk])
    assert written == [0, 1, 2]
    assert nodes == [["model"], ["tools"], ["model"]]


@by_way
async def test_a_tool_of_durable_tools_is_recorded_once(store: holdfast.Store, way: Way) -> None:
    """It has the ledger around it already; others beside it are the middleware's."""
    durable = durable_tools([effects(pay, side_effects="mutate")], store=store)
    script = [[("pay", {"order": "a"}), ("look", {"order": "a"})], "ok"]
    agent = durable_agent(store, script, [*durable, look], effects={"look": "read"})
    assert results(await drive(agent, GO, way=way)) == ["paid 100 for a", "a is open"]
    assert sorted(row.tool for row in await list_effects(store)) == ["look", "pay"]


# -- tools of other middleware -----------------------------------------------------------------------------


class Adding(AgentMiddleware[Any, Any, Any]):
    """Middleware that offers the model a tool while the agent runs, and puts it into its calls."""

    def __init__(self, tool: BaseTool) -> None:
        super().__init__()
        self._tool = tool

    def wrap_model_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        return handler(request.override(tools=[*request.tools, self._tool]))

    async def awrap_model_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        return await handler(request.override(tools=[*request.tools, self._tool]))

    def wrap_tool_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        return handler(self._with_tool(request))

    async def awrap_tool_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        return await handler(self._with_tool(request))

    def _with_tool(self, request: Any) -> Any:
        mine = request.tool_call["name"] == self._tool.name
        return request.override(tool=self._tool) if mine else request


class Answering(AgentMiddleware[Any, Any, Any]):
    """Middleware that carries out the calls of `post` by itself: no tool is registered for them."""

    def wrap_tool_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        return self._answer(request) if request.tool_call["name"] == "post" else handler(request)

    async def awrap_tool_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        return self._answer(request) if request.tool_call["name"] == "post" else await handler(request)

    def _answer(self, request: Any) -> ToolMessage:
        call = request.tool_call
        done.append(f"{call['args']['to']} {current_effect().attempt}")
        return ToolMessage(f"posted to {call['args']['to']}", tool_call_id=call["id"], name=call["name"])


@by_way
@pytest.mark.parametrize("order", ["last", "first"])
async def test_a_tool_that_is_added_while_the_agent_runs_is_in_the_ledger(
    store: holdfast.Store, way: Way, order: str
) -> None:
    """Wherever the middleware is that adds it: the agent itself knows no such tool."""
    ours = HoldfastMiddleware(store, effects={"p*": "mutate"})
    both = [Adding(pay), ours] if order == "last" else [ours, Adding(pay)]
    script = [[("pay", {"order": "a"})], [("pay", {"order": "a"})], "ok"]
    state = await drive(agent_of(store, script, [look], *both), GO, way=way)
    first, second = results(state)
    assert first == "paid 100 for a"
    assert second.startswith("[idempotent replay of ")
    (row,) = await list_effects(store)
    assert (row.tool, row.side_effects) == ("pay", ("mutate",))
    assert done == [f"a 100 {row.key[:6]}"]


@by_way
async def test_a_call_that_other_middleware_answers_is_in_the_ledger(store: holdfast.Store, way: Way) -> None:
    """If that comes after ours: its answer is the body of the call, with a hook for its arguments."""

    def was_posted(to: str, urgent: bool = False) -> holdfast.Landed | holdfast.NotLanded:
        return holdfast.NotLanded()

    ours = HoldfastMiddleware(store, effects={"post": mutate(verify=was_posted)})
    script = [[("post", {"to": "ann"})], [("post", {"to": "ann"})], "ok"]
    state = await drive(agent_of(store, script, [look], ours, Answering()), GO, way=way)
    first, second = results(state)
    assert first == "posted to ann"
    assert second.startswith("[idempotent replay of ")
    assert done == ["ann 1"]
    assert await list_arguments(store) == [("post", {"to": "ann"})]


@by_way
async def test_a_name_that_the_model_made_up_is_no_effect(
    store: holdfast.Store, way: Way, caplog: pytest.LogCaptureFixture
) -> None:
    """LangGraph tells the model which tools there are; nothing is recorded, nor warned of."""
    script = [[("pya", {"order": "a"})], "sorry"]
    state = await drive(durable_agent(store, script, [pay], effects={"pay": "mutate"}), GO, way=way)
    assert "pya is not a valid tool" in results(state)[0]
    assert await list_effects(store) == []
    assert caplog.records == []


@by_way
async def test_a_tool_that_other_middleware_passes_by_is_warned_of(
    store: holdfast.Store, way: Way, caplog: pytest.LogCaptureFixture
) -> None:
    """Such middleware must come before ours. It is warned of once."""

    @langchain_tool
    def post(to: str) -> str:
        """Post a letter."""
        raise AssertionError("the middleware answers in its place")

    class Silent(Answering):
        def _answer(self, request: Any) -> ToolMessage:
            return ToolMessage("posted", tool_call_id=request.tool_call["id"])

    ours = HoldfastMiddleware(store, effects={"post": "mutate"})
    script = [[("post", {"to": "ann"})], [("post", {"to": "bob"})], "ok"]
    await drive(agent_of(store, script, [post], ours, Silent()), GO, way=way)
    assert [one.getMessage() for one in caplog.records] == [
        (
            "tool 'post' was answered by middleware that comes after HoldfastMiddleware: what that did is "
            "not in the ledger, and may be done twice. Put HoldfastMiddleware last"
        )
    ]


async def test_the_tools_of_langchains_own_middleware_are_in_the_ledger(store: holdfast.Store) -> None:
    """A list of things to do is a command, which changes nothing but the graph's state."""
    todos = [{"content": "pay", "status": "in_progress"}]
    ours = HoldfastMiddleware(store, effects={"write_todos": "pure"})
    script = [[("write_todos", {"todos": todos})], "ok"]
    state = await drive(agent_of(store, script, [], TodoListMiddleware(), ours), GO)
    assert state["todos"] == todos
    assert [row.tool for row in await list_effects(store)] == ["write_todos"]


# -- errors, retries, people -------------------------------------------------------------------------------


@by_way
@pytest.mark.parametrize("order", ["last", "first"])
async def test_langchains_retries_are_attempts_in_the_ledger(
    store: holdfast.Store, way: Way, order: str
) -> None:
    """A call that surely did nothing is tried again; one that may have done something never is."""

    @langchain_tool
    def search(query: str) -> str:
        """Search, at the third try."""
        done.append(query)
        if done.count(query) < 3:
            raise TimeoutError("no answer")
        return f"found {query}"

    ours = HoldfastMiddleware(store, effects={"search": "read", "send": "mutate"})
    retry = ToolRetryMiddleware(max_retries=4, initial_delay=0)
    both = [retry, ours] if order == "last" else [ours, retry]
    script = [[("search", {"query": "x"})], [("send", {"to": "ann"})], "ok"]
    state = await drive(agent_of(store, script, [search, send], *both), GO, way=way)
    assert results(state) == ["found x"]
    (asked,) = state["__interrupt__"]
    assert (asked.value["holdfast"], asked.value["tool"]) == ("outcome", "send")
    assert done == ["x", "x", "x", "ann"]


@by_way
async def test_an_error_of_a_harmless_call_is_handled_as_without_the_middleware(
    store: holdfast.Store, way: Way
) -> None:
    """By other middleware, if there is some; else the run ends with it, and is gone on with."""

    @langchain_tool
    def search(query: str) -> str:
        """Search, at the second try."""
        done.append(query)
        if len(done) == 1:
            raise KeyError(query)
        return f"found {query}"

    script = [[("search", {"query": "x"})], "ok"]
    ours = HoldfastMiddleware(store, effects={"search": "read"})
    handles = ToolErrorMiddleware(on_error=lambda error, request: f"handled {error!r}")
    state = await drive(agent_of(store, script, [search], handles, ours), GO, "handled", way)
    assert results(state) == ["handled KeyError('x')"]
    done.clear()
    agent = agent_of(store, script, [search], ours)
    with pytest.raises(KeyError, match="x"):
        await drive(agent, GO, "raised", way)
    assert results(await drive(agent, None, "raised", way)) == ["found x"]


@by_way
async def test_what_was_surely_not_done_is_told_to_the_model(store: holdfast.Store, way: Way) -> None:
    """`NotDone`, and arguments that are wrong: the model may correct them."""

    @langchain_tool
    def mail(to: str) -> str:
        """Mail."""
        raise holdfast.NotDone(f"{to} is not an address")

    script = [[("mail", {"to": "ann"}), ("mail", {"too": "ann"})], "ok"]
    state = await drive(durable_agent(store, script, [mail], effects={"mail": "mutate"}), GO, way=way)
    first, second = (one for one in state["messages"] if isinstance(one, ToolMessage))
    assert "ann is not an address" in first.content
    assert "did you mean 'to'" in second.content
    assert first.status == second.status == "error"


async def test_a_call_in_doubt_may_be_told_to_the_model(store: holdfast.Store) -> None:
    """With `in_doubt="tell"`, no exception and no interrupt."""
    agent = durable_agent(
        store, [[("send", {"to": "ann"})], "ok"], [send], effects={"send": "mutate"}, in_doubt="tell"
    )
    state = await drive(agent, GO)
    assert "is in doubt" in results(state)[0]
    assert "__interrupt__" not in state


@by_way
async def test_calls_at_once_that_need_approval_are_answered_one_by_one(
    store: holdfast.Store, way: Way
) -> None:
    """Each is an interrupt of its own, and LangGraph delivers the answers by their ids."""
    script = [[("pay", {"order": "a"}), ("pay", {"order": "b"})], "ok"]

    def agent() -> Any:
        return durable_agent(store, script, [pay], effects={"pay": mutate(needs_approval=True)})

    waiting = await drive(agent(), GO, way=way)
    asked = {one.value["call"].rpartition("/")[2]: one for one in waiting["__interrupt__"]}
    answers = {
        asked["call_0_0"].id: {"approve": True, "args": {"order": "a", "cents": 7}, "by": "ann"},
        asked["call_0_1"].id: {"approve": False, "reason": "not that one"},
    }
    state = await drive(agent(), Command(resume=answers), way=way)
    first, second = results(state)
    assert first == "paid 7 for a"
    assert "not that one" in second
    assert len(done) == 1


async def test_a_tool_may_interrupt_by_itself(store: holdfast.Store) -> None:
    """It is called again when the agent is resumed; that it was interrupted is no doubt."""

    @langchain_tool
    async def ask(order: str) -> str:
        """Ask a person."""
        return f"{order}: {interrupt('which one?')}"

    agent = durable_agent(store, [[("ask", {"order": "a"})], "ok"], [ask], effects={"ask": "mutate"})
    waiting = await drive(agent, GO)
    assert [one.value for one in waiting["__interrupt__"]] == ["which one?"]
    assert results(await drive(agent, Command(resume="the blue one"))) == ["a: the blue one"]


@by_way
@pytest.mark.parametrize("mode", ["batched", "per_call"])
@pytest.mark.parametrize("order", ["last", "first"])
async def test_langchains_own_approval_works_beside_it(
    store: holdfast.Store, way: Way, mode: Any, order: str, caplog: pytest.LogCaptureFixture
) -> None:
    """What a person has edited there is what is done, and what is on record: also if that is another tool."""

    @langchain_tool
    def pay_later(order: str, cents: int) -> str:
        """Pay next month."""
        done.append(order)
        return f"{cents} for {order} will be paid"

    asks = HumanInTheLoopMiddleware(interrupt_on={"pay": True}, interrupt_mode=mode)
    ours = HoldfastMiddleware(store, effects={"pay*": "mutate"})
    both = [asks, ours] if order == "last" else [ours, asks]
    agent = agent_of(store, [[("pay", {"order": "a"})], "ok"], [pay, pay_later], *both)
    waiting = await drive(agent, GO, way=way)
    assert done == []
    (asked,) = waiting["__interrupt__"]
    name = "pay_later" if mode == "batched" else "pay"  # Only there may it be another tool.
    edited = {"name": name, "args": {"order": "a", "cents": 7}}
    decision: Any = {"type": "edit", "edited_action": edited}
    answer = {"decisions": [decision]} if mode == "batched" else decision
    state = await drive(agent, Command(resume={asked.id: answer}), way=way)
    assert "7 for a" in results(state)[0]
    assert await list_arguments(store) == [(name, {"order": "a", "cents": 7})]
    assert len(done) == 1
    assert caplog.records == []


# -- declarations ------------------------------------------------------------------------------------------


async def test_tools_are_declared_by_name_and_glob_and_others_are_warned_of(
    store: holdfast.Store, caplog: pytest.LogCaptureFixture
) -> None:
    """Once, at the first call, in the words of this adapter, with the name that may have been meant."""

    @langchain_tool
    def look_up(order: str) -> str:
        """Look it up."""
        return order

    given: Any = {"look*": "read", "snd": "mutate"}
    script = [[("look", {"order": "a"})], [("look_up", {"order": "b"})], "ok"]
    agent = durable_agent(store, script, [look, look_up, send], effects=given)
    for thread in ("t", "u"):
        await drive(agent, GO, thread)
    assert {row.side_effects for row in await list_effects(store)} == {("read",)}
    assert [one.getMessage() for one in caplog.records] == [
        (
            "tool 'send' does not say what it does to the world: treated as side_effects='mutate', "
            "scope='call'. If it only reads, write HoldfastMiddleware(store, effects={'send': \"read\"}). "
            "effects={…} has 'snd': did you mean 'send'?"
        )
    ]


async def test_a_star_warns_of_the_tools_that_it_covers(
    store: holdfast.Store, caplog: pytest.LogCaptureFixture
) -> None:
    """Unless it is careful."""
    script = [[("look", {"order": "a"})], "ok"]
    await drive(durable_agent(store, script, [look, pay], effects={"*": "mutate"}), GO, "careful")
    assert caplog.records == []
    await drive(durable_agent(store, script, [look, pay, send], effects={"*": read(), "pay": "mutate"}), GO)
    assert [one.getMessage() for one in caplog.records] == [
        (
            "effects={'*': …} covers look, send: they are run again after a crash. "
            'Give those that act a "mutate" of their own.'
        )
    ]


def test_what_cannot_be_meant_is_refused_when_it_is_made() -> None:
    """And not in the middle of a run."""
    store = holdfast.open_store("memory:")
    with pytest.raises(BadInput, match="Write scope='call'"):
        HoldfastMiddleware(store, effects={"pay": mutate(scope="run")})
    with pytest.raises(BadInput, match="effects="):
        HoldfastMiddleware(store, effects={"pay": "pays"})  # type: ignore[dict-item]
    with pytest.raises(BadInput, match="memory:"):
        HoldfastMiddleware("memory:")


async def test_an_agent_without_a_thread_is_refused(store: holdfast.Store) -> None:
    """Without a thread there is no ledger to look into."""
    ours = HoldfastMiddleware(store, effects={"pay": "mutate"})
    bare: Any = create_agent(ScriptedChat(script=[[("pay", {"order": "a"})]]), [pay], middleware=[ours])
    with pytest.raises(BadInput, match="must know its thread"):
        await bare.ainvoke(GO)
    assert done == []


async def test_a_run_that_does_not_wait_for_its_checkpoints_is_warned_of(
    store: holdfast.Store, caplog: pytest.LogCaptureFixture
) -> None:
    """Once, and only where a tool has side effects: a kill could lose the checkpoint with its call."""
    script = [[("look", {"order": "a"})], [("pay", {"order": "a"})], [("pay", {"order": "b"})], "ok"]
    agent = durable_agent(store, script, [look, pay], effects={"pay": "mutate", "look": "read"})
    await drive(agent, GO)
    assert caplog.records == []
    await agent.ainvoke(GO, {"configurable": {"thread_id": "u"}})
    (warned,) = caplog.records
    assert "durability='async'" in warned.getMessage()


# -- where it runs -----------------------------------------------------------------------------------------


def test_one_middleware_serves_several_event_loops(tmp_path: Path) -> None:
    """One after another, and two at once beside code without one."""
    url = f"sqlite:{tmp_path}/agents.db"
    ours = HoldfastMiddleware(url, effects={"pay": "mutate", "look": "read"})
    script = [[("pay", {"order": "a"}), ("look", {"order": "a"})], [("pay", {"order": "b"})], "ok"]
    with HoldfastSaver.from_url(url) as saver:
        agent: Any = create_agent(
            ScriptedChat(script=script), [pay, look], middleware=[ours], checkpointer=saver
        )

        def run(way: Way, thread: str) -> list[str]:
            return results(asyncio.run(drive(agent, GO, thread, way)))

        def run_all() -> list[list[str]]:
            places: list[tuple[Way, str]] = [
                ("ainvoke", "c"),
                ("ainvoke", "d"),
                ("invoke", "e"),
                ("invoke", "f"),
            ]
            with ThreadPoolExecutor() as pool:
                return [*pool.map(lambda place: run(*place), places)]

        said = ["paid 100 for a", "a is open", "paid 100 for b"]
        assert [run("ainvoke", "a"), run("ainvoke", "b"), run("invoke", "a2")] == [said] * 3
        assert run_all() == [said] * 4
    assert len(done) == 2 * 7


@by_way
async def test_an_agent_in_a_tool_has_its_calls_in_the_same_ledger(store: holdfast.Store, way: Way) -> None:
    """With middleware of its own: a call inside of another one does not wait for the thread's lease."""
    inner: Any = agent_of(
        store,
        [[("pay", {"order": "a"})], "inner ok"],
        [pay],
        HoldfastMiddleware(store, effects={"pay": "mutate"}, wait_s=0),
    )
    inner.checkpointer = None  # As a part of the outer agent, it has its checkpoints there.

    @langchain_tool
    async def delegate(task: str) -> str:
        """Have it done."""
        state = await inner.ainvoke({"messages": [("user", task)]})
        return str(state["messages"][-1].content)

    @langchain_tool
    def delegate_sync(task: str) -> str:
        """Have it done."""
        return str(inner.invoke({"messages": [("user", task)]})["messages"][-1].content)

    name = "delegate" if way == "ainvoke" else "delegate_sync"
    ours = HoldfastMiddleware(store, effects={"delegate*": "pure"}, wait_s=0)
    agent = agent_of(store, [[(name, {"task": "pay"})], "ok"], [delegate, delegate_sync], ours)
    assert results(await drive(agent, GO, way=way)) == ["inner ok"]
    assert sorted(row.tool for row in await list_effects(store)) == [name, "pay"]
    assert len(done) == 1
