"""Threads are read without LangGraph: the same checkpoints and messages as its own saver gives."""

from __future__ import annotations

import dataclasses
import operator
from datetime import UTC, datetime
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, RemoveMessage, ToolMessage
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Command, Send, interrupt

import holdfast
from holdfast.adapters.langgraph import HoldfastSaver
from holdfast.adapters.langgraph_threads import ThreadHistory, fold_thread, thread_labels


@dataclasses.dataclass
class Cart:
    """A class of the application."""

    items: list[str]


class State(TypedDict, total=False):
    """Of all kinds of values."""

    messages: Annotated[list[AnyMessage], add_messages]
    notes: Annotated[list[Any], operator.add]
    numbers: list[float]
    seen: set[str]
    when: datetime
    cart: Cart
    raw: bytes


def config(thread: str = "t/1 ü") -> Any:
    return {"configurable": {"thread_id": thread}}


async def read(store: holdfast.Store, thread: str = "t/1 ü") -> ThreadHistory:
    (head,) = [head async for head in store.sessions(label=thread_labels(thread))]
    return fold_thread([entry async for entry in store.tail(head.session, follow=False)])


def look_of(message: Any) -> tuple[str, Any, Any]:
    data = message.data
    return data["type"], data["content"], data.get("tool_calls") or None


def look_of_theirs(message: Any) -> tuple[str, Any, Any]:
    return message.type, message.content, getattr(message, "tool_calls", None) or None


def build(saver: HoldfastSaver) -> Any:
    """Ten turns, then tasks that are sent, then a question."""

    def talk(state: State) -> Any:
        turn = len(state["messages"])
        call = {"name": "look", "args": {"n": turn}, "id": f"c{turn}", "type": "tool_call"}
        said = [
            AIMessage([{"type": "text", "text": f"turn {turn}"}], tool_calls=[call], id=f"a{turn}"),
            ToolMessage(f"result {turn}", tool_call_id=f"c{turn}", id=f"t{turn}"),
        ]
        return {
            "messages": said,
            "notes": [turn, {"deep": [turn, None, True]}],
            "numbers": [0.5] * (turn + 20),
        }

    def go_on(state: State) -> Any:
        if len(state["messages"]) < 12:
            return "talk"
        return [Send("work", {"messages": [], "notes": [one]}) for one in ("x", "y")]

    def work(state: State) -> Any:
        return {"notes": [("sent", state["notes"][0])]}

    def ask(state: State) -> Any:
        answer = interrupt({"question": "Really?"})
        drop = [RemoveMessage(id=state["messages"][0].id or "")]
        return {
            "messages": drop,
            "seen": {answer},
            "when": datetime(2026, 1, 2, tzinfo=UTC),
            "cart": Cart(["a"]),
            "raw": b"\0\1",
        }

    builder = StateGraph(State)
    builder.add_node("talk", talk)
    builder.add_node("work", work)
    builder.add_node("ask", ask)
    builder.add_edge(START, "talk")
    builder.add_conditional_edges("talk", go_on, ["talk", "work"])
    builder.add_edge("work", "ask")
    builder.add_edge("ask", END)
    return builder.compile(checkpointer=saver)


@pytest.mark.parametrize("durability", ["sync", "exit"])
@pytest.mark.filterwarnings("ignore:.*deserializ.*")
async def test_what_is_read_is_what_the_saver_gives(durability: Any) -> None:
    """Steps, sources, messages and plain values of every checkpoint; what waits, and what runs next."""
    async with holdfast.open_store("memory:") as store:
        saver = HoldfastSaver(store, allow=[Cart])
        graph = build(saver)
        given = {"messages": [HumanMessage("go", id="h")]}
        await graph.ainvoke(given, config(), durability=durability)
        history = await read(store)
        latest = history.latest
        assert latest is not None
        assert latest.unanswered == [{"question": "Really?"}]
        assert latest.next == ["ask"]
        assert not latest.is_last
        await graph.ainvoke(Command(resume="yes"), config(), durability=durability)
        history = await read(store)
        theirs = {one.checkpoint["id"]: one async for one in saver.alist(config())}
    assert history.thread == "t/1 ü"
    assert history.checkpoints.keys() == theirs.keys()
    for id, mine in history.checkpoints.items():
        its = theirs[id]
        assert (mine.step, mine.source) == (its.metadata["step"], its.metadata["source"])
        values = history.get_channels(id)
        expected = its.checkpoint["channel_values"]
        assert values.keys() == expected.keys()
        for name in ("notes", "numbers"):
            plain = expected.get(name)
            listed = [list(one) if isinstance(one, tuple) else one for one in plain or []]
            assert values.get(name, []) == listed
    assert history.latest is not None
    final = theirs[history.latest.id].checkpoint["channel_values"]
    assert [look_of(one) for one in history.messages] == [look_of_theirs(one) for one in final["messages"]]
    assert history.latest.is_last
    assert history.latest.removed == 1 or durability == "exit"
    changed = history.latest.values
    assert (changed["seen"], changed["cart"], changed["raw"]) == (
        ["yes"],
        {"Cart": {"items": ["a"]}},
        "[2 bytes]",
    )
    if durability == "sync":
        nodes = [one.nodes for one in history.checkpoints.values()]
        assert nodes == [[], [], *[["talk"]] * 6, ["work"], ["ask"]]


async def test_a_thread_that_was_pruned_is_read_from_what_is_left() -> None:
    """The latest checkpoint, with its messages and its step."""
    async with holdfast.open_store("memory:") as store:
        saver = HoldfastSaver(store, allow=[Cart])
        graph = build(saver)
        await graph.ainvoke({"messages": [HumanMessage("go", id="h")]}, config(), durability="sync")
        before = await read(store)
        await saver.aprune(["t/1 ü"])
        after = await read(store)
    assert before.latest is not None
    assert list(after.checkpoints) == [before.latest.id]
    assert after.latest is not None
    assert after.latest.step == before.latest.step
    assert after.latest.unanswered == before.latest.unanswered
    assert [one.data for one in after.messages] == [one.data for one in before.messages]
