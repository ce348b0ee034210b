"""LangChain's tools behind the gates and the ledger, in real graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, StructuredTool, ToolException
from langchain_core.tools import tool as langchain_tool
from langgraph.graph import END, START, StateGraph
from langgraph.prebuilt import InjectedState, ToolNode
from langgraph.types import Command, interrupt
from pydantic import BaseModel

import holdfast
from holdfast.adapters.langgraph import HoldfastSaver, current_effect, durable_tools, effects
from holdfast.adapters.langgraph.serde import CheckedSerializer
from holdfast.adapters.langgraph.tool_results import pack_result
from holdfast.adapters.langgraph.tool_session import InterruptAnswer
from holdfast.adapters.langgraph.tools import DurableTool
from holdfast.tools.declaration import SideEffects
from holdfast.tools.outcome import NoJsonForm

from .graphs import Talk, thread

done: list[str] = []


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
async def count(order: str, state: Annotated[dict[str, Any], InjectedState]) -> str:
    """Count the messages."""
    return f"{len(state['messages'])} messages about {order}"


def calls(*given: tuple[str, dict[str, Any]]) -> AIMessage:
    """A reply that makes calls; their ids are those that many providers give, and repeat."""
    listed = [{"name": name, "args": args, "id": f"call_{at}"} for at, (name, args) in enumerate(given)]
    return AIMessage("", tool_calls=listed)


def clerk(saver: HoldfastSaver, tools: list[BaseTool], script: list[AIMessage]) -> Any:
    """A model that says what the script says, and its tools."""

    def model(state: Talk) -> dict[str, Any]:
        turn = sum(isinstance(one, AIMessage) for one in state["messages"])
        return {"messages": [script[turn]]}

    def go_on(state: Talk) -> str:
        last = state["messages"][-1]
        return "tools" if isinstance(last, AIMessage) and last.tool_calls else END

    builder = StateGraph(Talk)
    builder.add_node("model", model)
    builder.add_node("tools", ToolNode(tools))
    builder.add_edge(START, "model")
    builder.add_conditional_edges("model", go_on)
    builder.add_edge("tools", "model")
    return builder.compile(checkpointer=saver)


def results(state: dict[str, Any]) -> list[str]:
    """What the tools answered."""
    return [str(one.content) for one in state["messages"] if isinstance(one, ToolMessage)]


GO: Any = {"messages": [HumanMessage("go", id="h")]}
MUTATES: dict[str, Any] = {"side_effects": "mutate"}


async def test_tools_of_a_graph_go_through_the_ledger(store: holdfast.Store) -> None:
    """Calls at once, sync and async tools, and arguments that the graph gives."""
    tools = durable_tools(
        [effects(pay, **MUTATES), effects(look, side_effects={"read"}), effects(count, side_effects=())],
        store=store,
    )
    script = [
        calls(("pay", {"order": "a"}), ("look", {"order": "a"}), ("count", {"order": "b"})),
        AIMessage("ok"),
    ]
    state = await clerk(HoldfastSaver(store), tools, script).ainvoke(GO, thread())
    assert results(state) == ["paid 100 for a", "a is open", "2 messages about b"]
    [session] = [one async for one in store.sessions(label={"adapter": "langgraph.tools"})]
    ledger = (await store.load(session.session)).facts.effects
    assert sorted(row.tool for row in ledger.rows.values()) == ["count", "look", "pay"]
    [paid] = [row for row in ledger.rows.values() if row.tool == "pay"]
    assert done == [f"a 100 {paid.key[:6]}"]


async def test_side_effects_are_a_name_or_a_set_of_names(store: holdfast.Store) -> None:
    """As in `holdfast.tool`; and what is wrong is refused at once."""
    spellings: list[SideEffects] = ["mutate", {"mutate"}]
    asked = calls(("pay", {"order": "a"}), ("pay", {"order": "b"})).tool_calls
    for call, given in zip(asked, spellings, strict=True):
        [paying] = durable_tools([effects(pay, side_effects=given)], store=store)
        assert isinstance(paying, DurableTool)
        await paying.ainvoke({**call}, thread())
    [session] = [one async for one in store.sessions(label={"adapter": "langgraph.tools"})]
    rows = (await store.load(session.session)).facts.effects.rows.values()
    assert [row.side_effects for row in rows] == [("mutate",)] * 2
    with pytest.raises(holdfast.errors.BadInput, match="unknown side effects"):
        durable_tools([effects(pay, side_effects={"destroy"})], store=store)  # type: ignore[arg-type]


async def test_the_effect_is_current_while_the_tool_runs(store: holdfast.Store) -> None:
    """Not before, nor after."""
    tools = durable_tools([effects(look, side_effects="read")], store=store)
    await tools[0].ainvoke({"order": "a"}, thread())
    with pytest.raises(holdfast.errors.BadInput, match=r"current_effect\(\) is for tools of durable_tools"):
        current_effect()


async def test_a_call_that_is_settled_by_running_it_again_has_what_its_node_gives(
    store: holdfast.Store,
) -> None:
    """The thread is settled when it is opened for a call, and that call brings the state of the graph."""

    @langchain_tool
    async def tally(order: str, state: Annotated[dict[str, Any], InjectedState]) -> str:
        """Count the messages, at the second try."""
        done.append(order)
        if len(done) == 1:
            raise ConnectionError("no answer")
        return f"{len(state['messages'])} messages about {order}"

    declared = effects(tally, **MUTATES, idempotent=True, retry=holdfast.tools.Retry(attempts=1))
    script = [calls(("tally", {"order": "a"})), AIMessage("ok")]
    graph = clerk(HoldfastSaver(store), durable_tools([declared], store=store), script)
    assert "__interrupt__" in await graph.ainvoke(GO, thread())
    state = await graph.ainvoke(None, thread())
    assert results(state) == ["2 messages about a"]
    assert done == ["a", "a"]


async def test_a_tool_that_asks_twice_is_answered_twice(store: holdfast.Store) -> None:
    """Also one that is tried again after an interrupt: the graph sees the first question of each run."""

    @langchain_tool
    async def transfer(to: str) -> str:
        """Ask for the amount, then for a confirmation."""
        amount = interrupt("how much?")
        sure = interrupt(f"really {amount}?")
        return f"{to} got {amount}: {sure}"

    tools = durable_tools([effects(transfer, **MUTATES, idempotent=True)], store=store)
    script = [calls(("transfer", {"to": "bob"})), AIMessage("ok")]
    graph = clerk(HoldfastSaver(store), tools, script)
    state = await graph.ainvoke(GO, thread())
    asked = []
    for answer in ("10", "yes"):
        asked += [one.value for one in state["__interrupt__"]]
        state = await graph.ainvoke(Command(resume=answer), thread())
    assert asked == ["how much?", "really 10?"]
    assert results(state) == ["bob got 10: yes"]


async def test_a_question_of_a_call_that_is_settled_first_reaches_the_graph(store: holdfast.Store) -> None:
    """It is asked before the question of the call that opened the thread."""
    tries: list[str] = []

    @langchain_tool
    async def settle_up(to: str) -> str:
        """Fail at first, then ask."""
        tries.append(to)
        if len(tries) == 1:
            raise ConnectionError("no answer")
        done.append(f"{to}: {interrupt(f'pay {to}?')}")
        return "paid"

    @langchain_tool
    async def greet(who: str) -> str:
        """Ask."""
        return f"{who}: {interrupt(f'greet {who}?')}"

    once = holdfast.tools.Retry(attempts=1)
    declared = [
        effects(settle_up, **MUTATES, idempotent=True, retry=once),
        effects(greet, **MUTATES, retry=once),
    ]
    tools = durable_tools(declared, store=store, in_doubt="tell")
    script = [calls(("settle_up", {"to": "ann"})), calls(("greet", {"who": "bob"})), AIMessage("ok")]
    graph = clerk(HoldfastSaver(store), tools, script)
    state = await graph.ainvoke(GO, thread())
    assert [one.value for one in state["__interrupt__"]] == ["pay ann?"]
    await graph.ainvoke(Command(resume="yes"), thread())
    assert done == ["ann: yes"]


async def test_a_call_that_another_one_settles_gives_a_message_all_the_same(store: holdfast.Store) -> None:
    """With its artifact, and whatever its tool returns."""

    @langchain_tool(response_format="content_and_artifact")
    async def pay_by_wire(to: str) -> Any:
        """Fail at first, then give a dictionary and an artifact."""
        done.append(to)
        if len(done) == 1:
            raise ConnectionError("no answer")
        return {"paid": to}, {"receipt": 42}

    @langchain_tool
    async def greet(who: str) -> str:
        """Greet."""
        return f"hello {who}"

    once = holdfast.tools.Retry(attempts=1)
    declared = [effects(greet, **MUTATES), effects(pay_by_wire, **MUTATES, idempotent=True, retry=once)]
    script = [calls(("greet", {"who": "bob"}), ("pay_by_wire", {"to": "ann"})), AIMessage("ok")]
    graph = clerk(HoldfastSaver(store), durable_tools(declared, store=store), script)
    await graph.ainvoke(GO, thread())
    state = await graph.ainvoke(None, thread())
    assert results(state) == ["hello bob", '{"paid": "ann"}']
    artifacts = [one.artifact for one in state["messages"] if isinstance(one, ToolMessage)]
    assert artifacts == [None, {"receipt": 42}]


class Address(BaseModel):
    """An argument of several parts."""

    name: str = "nobody"
    street: str | None = None


async def test_an_unknown_name_is_refused_at_every_depth(store: holdfast.Store) -> None:
    """LangChain would drop it, and the tool would be entered with a default."""

    @langchain_tool
    def ship(to: Address, also: list[Address] | None = None) -> str:
        """Ship it."""
        done.append(to.name)
        return f"shipped to {to.name}"

    tools = durable_tools([effects(ship, **MUTATES)], store=store)
    script = [
        calls(("ship", {"to": {"nmae": "ann"}}), ("ship", {"to": {}, "also": [{"stret": "x"}]})),
        calls(("ship", {"to": {"name": "ann"}})),
        AIMessage("ok"),
    ]
    state = await clerk(HoldfastSaver(store), tools, script).ainvoke(GO, thread())
    assert results(state) == [
        "ship: invalid arguments. args.to.nmae: unknown argument; did you mean 'name'?",
        "ship: invalid arguments. args.also[0].stret: unknown argument; did you mean 'street'?",
        "shipped to ann",
    ]
    assert done == ["ann"]


class Handle:
    """Something that lives in this process alone; its `repr` is where it is in memory."""


class Table:
    """Has a text of its own, as data frames have."""

    def __repr__(self) -> str:
        return "| order | cents |"


@pytest.mark.parametrize(
    "give",
    [Handle, lambda: {"handles": [Handle()]}, lambda: (one for one in "abc")],
    ids=["object", "nested", "generator"],
)
@pytest.mark.parametrize("is_async", [False, True])
async def test_a_result_that_cannot_be_kept_is_an_error_that_says_so(
    store: holdfast.Store, give: Callable[[], Any], is_async: bool
) -> None:
    """And not a text with an address in it: the model is told that the tool has run. It is not run again."""
    ran: list[str] = []

    def open_handle() -> Any:
        ran.append("once")
        return give()

    async def open_async() -> Any:
        return open_handle()

    def make() -> BaseTool:
        function: dict[str, Any] = {"coroutine": open_async} if is_async else {"func": open_handle}
        made = StructuredTool.from_function(**function, name="open_handle", description="Open it.")
        return durable_tools([made], store=store, effects={"open_handle": "mutate"})[0]

    call = {"type": "tool_call", "name": "open_handle", "args": {}, "id": "c1"}
    for _ in range(2):
        told = await make().ainvoke(call, thread())
        assert (told.status, told.tool_call_id) == ("error", "c1")
        assert told.content.startswith(
            "open_handle: it ran, and its side effects are done. Its result cannot be"
        )
        assert " at 0x" not in told.content
    assert ran == ["once"]
    with pytest.raises(ToolException, match="has no JSON form"):
        await make().ainvoke({}, thread("plain"))


async def test_a_result_with_a_text_of_its_own_is_that_text(store: holdfast.Store) -> None:
    """As LangChain shows it; an artifact beside it is no part of it."""

    @langchain_tool
    def read_table() -> Any:
        """Read it."""
        return Table()

    @langchain_tool(response_format="content_and_artifact")
    def load_table() -> tuple[str, dict[str, int]]:
        """Load it."""
        return "loaded", {"rows": 2}

    tools = durable_tools([read_table, load_table], store=store, effects={"*_table": "read"})
    shown = [
        (
            await one.ainvoke({"type": "tool_call", "name": one.name, "args": {}, "id": one.name}, thread())
        ).content
        for one in tools
    ]
    assert shown == ["| order | cents |", "loaded"]


def test_a_result_that_cannot_even_be_looked_at_is_an_error() -> None:
    """The tool has done what it does, and that must be recorded."""

    class Odd:
        def __repr__(self) -> str:
            raise SystemExit

        def __reduce_ex__(self, protocol: Any) -> Any:
            raise SystemExit

    assert isinstance(pack_result(Odd(), CheckedSerializer(())), NoJsonForm)
    assert isinstance(pack_result("as text", CheckedSerializer(()), Odd()), str)


def test_they_work_without_an_event_loop(url: str) -> None:
    """The same in a sync graph, whose tools run in threads."""
    with holdfast.blocking.open_store(url) as store:
        tools = durable_tools([effects(pay, **MUTATES), effects(look, side_effects={"read"})], store=store)
        script = [calls(("pay", {"order": "a"}), ("look", {"order": "b"})), AIMessage("ok")]
        state = clerk(HoldfastSaver(store), tools, script).invoke(GO, thread())
    assert results(state) == ["paid 100 for a", "b is open"]


async def test_what_was_done_is_not_done_again_in_the_same_thread(store: holdfast.Store) -> None:
    """The second call gets the first one's result, marked; another thread is another session."""
    tools = durable_tools([effects(pay, **MUTATES)], store=store)
    script = [calls(("pay", {"order": "a"})), calls(("pay", {"order": "a", "cents": 100})), AIMessage("ok")]
    graph = clerk(HoldfastSaver(store), tools, script)
    state = await graph.ainvoke(GO, thread())
    assert len(done) == 1
    assert results(state)[0] == "paid 100 for a"
    assert results(state)[1].startswith("[idempotent replay of ")
    assert results(state)[1].endswith("paid 100 for a")
    await graph.ainvoke(GO, thread("other"))
    assert len(done) == 2


async def test_a_call_with_bad_arguments_is_told_all_that_is_wrong(store: holdfast.Store) -> None:
    """The body is not entered; the model sees an error."""
    tools = durable_tools([effects(pay, **MUTATES)], store=store)
    script = [calls(("pay", {"ordre": "a", "cents": "many"})), AIMessage("sorry")]
    state = await clerk(HoldfastSaver(store), tools, script).ainvoke(GO, thread())
    [answer] = [one for one in state["messages"] if isinstance(one, ToolMessage)]
    assert answer.status == "error"
    assert "args.cents" in str(answer.content)
    assert "order" in str(answer.content)
    assert done == []


@pytest.mark.parametrize("answer", [True, {"approve": True}])
async def test_an_approval_is_an_interrupt(store: holdfast.Store, answer: object) -> None:
    """The graph waits; it is resumed with the answer, perhaps in another process."""
    script = [calls(("pay", {"order": "a"})), AIMessage("ok")]

    def graph() -> Any:
        tools = durable_tools([effects(pay, **MUTATES, needs_approval=True)], store=store)
        return clerk(HoldfastSaver(store), tools, script)

    waiting = await graph().ainvoke(GO, thread())
    [asked] = waiting["__interrupt__"]
    assert (asked.value["holdfast"], asked.value["tool"]) == ("approval", "pay")
    assert done == []
    state = await graph().ainvoke(Command(resume=answer), thread())
    assert results(state) == ["paid 100 for a"]
    assert len(done) == 1


@pytest.mark.parametrize("order", [("call_0", "call_1"), ("call_1", "call_0")])
async def test_a_person_may_correct_the_arguments_or_refuse(
    order: tuple[str, str], store: holdfast.Store
) -> None:
    """Two calls of one reply wait; each answer names its call, in whatever order. What the first one gave is
    given once more when the node is run again, and is not called a replay: it is the same call."""
    tools = durable_tools([effects(pay, **MUTATES, needs_approval=True)], store=store)
    script = [calls(("pay", {"order": "a"}), ("pay", {"order": "b"})), AIMessage("ok")]
    graph = clerk(HoldfastSaver(store), tools, script)
    state = await graph.ainvoke(GO, thread())
    task = state["__interrupt__"][0].value["call"].rpartition("/")[0]
    answers = {
        "call_0": {"approve": True, "args": {"order": "a", "cents": 7}, "by": "ann"},
        "call_1": {"approve": False, "reason": "not that one"},
    }
    # Whichever of them is quicker interrupts the graph, and the other one may not have asked yet.
    for name in (*order, *order):
        if "__interrupt__" in state:
            answer = {"call": f"{task}/{name}", **answers[name]}
            state = await graph.ainvoke(Command(resume=answer), thread())
    assert results(state)[0] == "paid 7 for a"
    assert "not that one" in results(state)[1]
    assert len(done) == 1


async def test_an_answer_that_somebody_gave_meanwhile_is_not_given_again(
    store: holdfast.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LangGraph hands an answer to every call of a node that asks, and those run at once."""
    tools = durable_tools([effects(pay, **MUTATES, needs_approval=True)], store=store)
    graph = clerk(HoldfastSaver(store), tools, [calls(("pay", {"order": "a"})), AIMessage("ok")])
    state = await graph.ainvoke(GO, thread())
    asked = state["__interrupt__"][0].value
    # The moment between looking and answering, in which another answer comes.
    look = InterruptAnswer._others

    async def look_and_be_overtaken(
        question: InterruptAnswer, opened: holdfast.Store
    ) -> tuple[set[str], bool]:
        found = await look(question, opened)
        await store.approve(asked["session"], asked["call"], by="somebody quicker")
        async with store.session(asked["session"]):
            return found

    with monkeypatch.context() as patched:
        patched.setattr(InterruptAnswer, "_others", look_and_be_overtaken)
        await InterruptAnswer(
            store, asked["session"], "approval", asked["call"], {"approve": True}
        ).answered()
    state = await graph.ainvoke(None, thread())
    assert results(state) == ["paid 100 for a"]


async def test_a_call_that_is_made_again_is_not_called_a_replay(store: holdfast.Store) -> None:
    """A node that is run again makes the same call; another call for the same is one."""
    [paying] = durable_tools([effects(pay, **MUTATES)], store=store)
    call, other = calls(("pay", {"order": "a"}), ("pay", {"order": "a"})).tool_calls
    given = [(await paying.ainvoke({**one}, thread())).content for one in (call, call, other)]
    assert given[:2] == ["paid 100 for a"] * 2
    assert given[2].startswith("[idempotent replay of ")
    assert len(done) == 1


async def test_an_answer_that_names_no_call_goes_to_nobody_else(store: holdfast.Store) -> None:
    """LangGraph hands an answer out again when the node is run again: it must not approve another call."""
    tools = durable_tools([effects(pay, **MUTATES, needs_approval=True)], store=store)
    script = [calls(("pay", {"order": "a"}), ("pay", {"order": "b"})), AIMessage("ok")]
    graph = clerk(HoldfastSaver(store), tools, script)
    await graph.ainvoke(GO, thread())
    for _ in range(3):
        state = await graph.ainvoke(Command(resume=True), thread())
    assert "__interrupt__" in state
    assert done == []


async def test_an_approval_may_come_from_the_command_line(store: holdfast.Store) -> None:
    """An answer in the store answers the graph: it is run again, and asks no more."""
    tools = durable_tools([effects(pay, **MUTATES, needs_approval=True)], store=store)
    graph = clerk(HoldfastSaver(store), tools, [calls(("pay", {"order": "a"})), AIMessage("ok")])
    waiting = await graph.ainvoke(GO, thread())
    asked = waiting["__interrupt__"][0].value
    await store.approve(asked["session"], asked["call"], by="ann")
    state = await graph.ainvoke(None, thread())
    assert results(state) == ["paid 100 for a"]


async def test_a_tool_may_interrupt_by_itself(store: holdfast.Store) -> None:
    """It is called again when the graph is resumed; that it was interrupted is no doubt."""

    @langchain_tool
    async def ask(order: str) -> str:
        """Ask a person."""
        return f"{order}: {interrupt('which one?')}"

    tools = durable_tools([effects(ask, **MUTATES)], store=store)
    graph = clerk(HoldfastSaver(store), tools, [calls(("ask", {"order": "a"})), AIMessage("ok")])
    waiting = await graph.ainvoke(GO, thread())
    assert waiting["__interrupt__"][0].value == "which one?"
    state = await graph.ainvoke(Command(resume="the blue one"), thread())
    assert results(state) == ["a: the blue one"]


async def test_what_raised_is_in_doubt_and_a_person_says_what_happened(store: holdfast.Store) -> None:
    """An exception is not "nothing happened": the graph waits for a person."""

    @langchain_tool
    async def send(order: str) -> str:
        """Send it."""
        done.append(order)
        raise ConnectionError("cut off")

    tools = durable_tools([effects(send, **MUTATES)], store=store)
    graph = clerk(HoldfastSaver(store), tools, [calls(("send", {"order": "a"})), AIMessage("ok")])
    waiting = await graph.ainvoke(GO, thread())
    asked = waiting["__interrupt__"][0].value
    assert asked["holdfast"] == "outcome"
    answer = {"call": asked["call"], "outcome": "landed", "result": "sent as 17", "by": "ann"}
    state = await graph.ainvoke(Command(resume=answer), thread())
    assert results(state) == ["sent as 17"]
    assert done == ["a"]


async def test_nodes_of_ones_own_call_them_too(store: holdfast.Store) -> None:
    """Without a tool call: each call of a node is named by its place, and two alike are two."""
    [paying] = durable_tools([effects(pay, **MUTATES, scope="call")], store=store)

    async def node(state: Talk, config: RunnableConfig) -> dict[str, Any]:
        first = await paying.ainvoke({"order": "a"}, config)
        second = await paying.ainvoke({"order": "a"})
        if not state.get("notes"):
            interrupt("wait")
        return {"notes": [first, second]}

    builder = StateGraph(Talk)
    builder.add_node("node", node)
    builder.add_edge(START, "node")
    graph: Any = builder.compile(checkpointer=HoldfastSaver(store))
    await graph.ainvoke(GO, thread())
    assert len(done) == 2
    state = await graph.ainvoke(Command(resume="go on"), thread())
    assert state["notes"] == ["paid 100 for a", "paid 100 for a"]
    assert len(done) == 2


async def test_results_come_back_as_they_were(store: holdfast.Store) -> None:
    """Artifacts, commands and content blocks, also when they are from the ledger."""

    @langchain_tool(response_format="content_and_artifact")
    async def draw(what: str) -> tuple[str, dict[str, bytes]]:
        """Draw it."""
        done.append(what)
        return f"a drawing of {what}", {"png": b"\x00\x01"}

    tools = durable_tools([effects(draw, **MUTATES)], store=store)
    script = [calls(("draw", {"what": "cat"})), calls(("draw", {"what": "cat"})), AIMessage("ok")]
    state = await clerk(HoldfastSaver(store), tools, script).ainvoke(GO, thread())
    drawn = [one for one in state["messages"] if isinstance(one, ToolMessage)]
    assert [one.artifact for one in drawn] == [{"png": b"\x00\x01"}] * 2
    assert [one.tool_call_id for one in drawn] == ["call_0", "call_0"]
    assert done == ["cat"]


async def test_holdfasts_own_tools_are_tools_of_a_graph(store: holdfast.Store) -> None:
    """One declared with `@holdfast.tool` needs no LangChain tool around it."""

    @holdfast.tool(side_effects={"mutate"})
    async def refund(ctx: holdfast.ToolContext[str], order: str) -> str:
        """Give the money back."""
        return f"{ctx.deps} refunded {order}"

    tools = durable_tools([refund], store=store, deps="bank")
    state = await clerk(
        HoldfastSaver(store), tools, [calls(("refund", {"order": "a"})), AIMessage("ok")]
    ).ainvoke(GO, thread())
    assert results(state) == ["bank refunded a"]


async def test_a_thread_that_is_deleted_takes_its_ledger_along_and_a_copy_has_it(
    store: holdfast.Store,
) -> None:
    """Made anew under the same id, it knows nothing of what was done; a copy does."""
    saver = HoldfastSaver(store)
    tools = durable_tools([effects(pay, **MUTATES)], store=store)
    graph = clerk(saver, tools, [calls(("pay", {"order": "a"})), AIMessage("ok"), *[AIMessage("?")] * 3])
    await graph.ainvoke(GO, thread())
    await saver.acopy_thread("t", "copy")
    config = thread("copy")
    assert (
        "replay" in (await tools[0].ainvoke({**calls(("pay", {"order": "a"})).tool_calls[0]}, config)).content
    )
    await saver.adelete_thread("t")
    await graph.ainvoke(GO, thread())
    assert len(done) == 2


async def test_tools_that_were_made_apart_share_the_ledger_of_a_thread(store: holdfast.Store) -> None:
    """A call in the body of another one does not wait for the lease, and what was cut off is settled when its
    tool is known."""
    asked: list[str] = []

    @langchain_tool
    async def wire(to: str) -> str:
        """Wire some money."""
        done.append(to)
        raise ConnectionError("no answer")

    def was_wired(to: str) -> holdfast.Landed | holdfast.Unsure:
        asked.append(to)
        return holdfast.Unsure() if len(asked) == 1 else holdfast.Landed("wired")

    (call,) = calls(("wire", {"to": "ann"})).tool_calls
    given = effects(wire, **MUTATES, verify=was_wired)
    [wiring] = durable_tools([given], store=store, in_doubt="tell")
    assert "is in doubt" in (await wiring.ainvoke({**call}, thread())).content

    @langchain_tool
    async def delegate(task: str) -> str:
        """Have it done."""
        [again] = durable_tools([given], store=store, wait_s=0)
        return str((await again.ainvoke({**call}, thread())).content)

    [delegating] = durable_tools([effects(delegate, side_effects=())], store=store)
    assert await delegating.ainvoke({"task": "wire"}, thread()) == "wired"
    assert (asked, done) == (["ann", "ann"], ["ann"])


async def test_a_tool_outside_of_a_thread_is_refused(store: holdfast.Store) -> None:
    """Without a thread there is no ledger to look into."""
    [paying] = durable_tools([effects(pay, **MUTATES)], store=store)
    with pytest.raises(holdfast.errors.BadInput, match="must know its thread"):
        await paying.ainvoke({"order": "a"})
    with pytest.raises(ToolException, match="args"):
        await paying.ainvoke({"ordre": "a"}, thread())
