"""An agent of LangGraph, as its own documentation has it, and with holdfast."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import StructuredTool
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode

import holdfast
from holdfast.adapters.langgraph import HoldfastSaver, current_effect, durable_tools, effects
from holdfast.crash_test import HttpWorld

from .own_agents import post, was_posted

THREAD: Any = {"configurable": {"thread_id": "order-42"}}


def graph_model(state: MessagesState) -> dict[str, Any]:
    """Calls the tool, then answers."""
    if len(state["messages"]) > 1:
        return {"messages": [AIMessage("Order 42 is refunded.", id="answer")]}
    asked = {"name": "refund", "args": {"order": "42"}, "id": "call_0"}
    return {"messages": [AIMessage("", tool_calls=[asked], id="asking")]}


def next_node(state: MessagesState) -> str:
    """To the tools, if there are calls."""
    return "tools" if getattr(state["messages"][-1], "tool_calls", None) else END


def make_graph(tools: list[Any], saver: Any) -> Any:
    """Model and tools in turn."""
    builder = StateGraph(MessagesState)
    builder.add_node("model", graph_model)
    builder.add_node("tools", ToolNode(tools))
    builder.add_edge(START, "model")
    builder.add_conditional_edges("model", next_node)
    builder.add_edge("tools", "model")
    return builder.compile(checkpointer=saver)


def make_graph_tool(world: HttpWorld, *, keyed: bool) -> StructuredTool:
    """The tool, which hands the key of its effect to the service if it has one."""

    async def refund(order: str) -> str:
        """Give the money back."""
        post(world, "/refunds", {"order": order}, current_effect().key if keyed else "")
        return order

    def refund_here(order: str) -> str:
        """Give the money back."""
        post(world, "/refunds", {"order": order})
        return order

    if keyed:
        return StructuredTool.from_function(coroutine=refund, name="refund")
    return StructuredTool.from_function(refund_here, name="refund")


def stock_langgraph(world: HttpWorld) -> str:
    """LangGraph with its own saver, which goes on where its last checkpoint is."""
    with closing(sqlite3.connect(world.agent_dir / "graph.db", check_same_thread=False)) as connection:
        graph = make_graph([make_graph_tool(world, keyed=False)], SqliteSaver(connection))
        begun = graph.get_state(THREAD).created_at is not None
        message = None if begun else {"messages": [HumanMessage("Refund order 42", id="question")]}
        return str(graph.invoke(message, THREAD, durability="sync")["messages"][-1].content)


async def durable_langgraph(world: HttpWorld) -> str:
    """The same with holdfast's saver and tools."""

    async def was_refunded(
        ctx: holdfast.ToolContext[Any], order: str
    ) -> holdfast.Landed | holdfast.NotLanded:
        return holdfast.Landed(order) if was_posted(world, "/refunds", ctx.key) else holdfast.NotLanded()

    async with holdfast.open_store(f"sqlite:{world.agent_dir}/agent.db") as store:
        declared = effects(make_graph_tool(world, keyed=True), side_effects={"mutate"}, verify=was_refunded)
        graph = make_graph(durable_tools([declared], store=store), HoldfastSaver(store))
        begun = (await graph.aget_state(THREAD)).created_at is not None
        message = None if begun else {"messages": [HumanMessage("Refund order 42", id="question")]}
        found = await graph.ainvoke(message, THREAD, durability="sync")
        return str(found["messages"][-1].content)
