"""Graphs that the tests run: real ones, with scripted models."""

from __future__ import annotations

import operator
from typing import Annotated, Any

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import interrupt
from typing_extensions import TypedDict


class Talk(TypedDict, total=False):
    """A conversation, and what came of it."""

    messages: Annotated[list[AnyMessage], add_messages]
    notes: Annotated[list[str], operator.add]
    verdict: str


def thread(id: str = "t", **more: Any) -> RunnableConfig:
    """The config of a thread."""
    return {"configurable": {"thread_id": id, **more}}


def said(state: Any) -> list[str]:
    """What is in the messages of a state."""
    return [str(one.content) for one in state["messages"]]


def chat(saver: BaseCheckpointSaver[Any]) -> Any:
    """Answers each message with its number and length."""

    def answer(state: Talk) -> dict[str, Any]:
        last = state["messages"][-1]
        count = len(state["messages"])
        return {"messages": [AIMessage(f"{count}: {len(str(last.content))}", id=f"a{count}")]}

    builder = StateGraph(Talk)
    builder.add_node("answer", answer)
    builder.add_edge(START, "answer")
    builder.add_edge("answer", END)
    return builder.compile(checkpointer=saver)


def panel(saver: BaseCheckpointSaver[Any]) -> Any:
    """Two branches at once, one of them a subgraph, then a person decides."""

    def plan(state: Talk) -> dict[str, Any]:
        return {"messages": [AIMessage("plan", id="plan")], "notes": ["planned"]}

    def left(state: Talk) -> dict[str, Any]:
        return {"notes": ["left"]}

    def think(state: Talk) -> dict[str, Any]:
        return {"notes": [f"thought about {len(state['messages'])}"]}

    def decide(state: Talk) -> dict[str, Any]:
        answer = interrupt({"question": "well?", "notes": sorted(state["notes"])})
        return {"verdict": answer, "messages": [AIMessage(f"decided {answer}", id="decision")]}

    inner = StateGraph(Talk)
    inner.add_node("think", think)
    inner.add_edge(START, "think")

    def right(state: Talk, config: RunnableConfig) -> dict[str, Any]:
        found = subgraph.invoke({"messages": state["messages"], "notes": []}, config)
        return {"notes": found["notes"]}

    subgraph = inner.compile()
    builder = StateGraph(Talk)
    for name, node in (("plan", plan), ("left", left), ("right", right), ("decide", decide)):
        builder.add_node(name, node)
    builder.add_edge(START, "plan")
    builder.add_edge("plan", "left")
    builder.add_edge("plan", "right")
    builder.add_edge(["left", "right"], "decide")
    builder.add_edge("decide", END)
    return builder.compile(checkpointer=saver)


__all__ = ["HumanMessage", "Talk", "ToolMessage", "chat", "panel", "said", "thread"]
