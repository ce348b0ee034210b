"""An agent of LangChain's `create_agent`, with LangGraph's own saver, and with holdfast's middleware."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.checkpoint.sqlite import SqliteSaver

import holdfast
from holdfast.adapters.langgraph import HoldfastMiddleware, HoldfastSaver, mutate
from holdfast.crash_test import HttpWorld

from .langgraph_agents import THREAD, make_graph_tool
from .own_agents import was_posted

ASKED: Any = {"messages": [HumanMessage("Refund order 42", id="question")]}


class ChatModel(BaseChatModel):
    """Calls the tool, then answers."""

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Sequence[Any], **options: Any) -> Any:
        """It knows the tool already."""
        return self

    def _generate(self, messages: list[BaseMessage], *args: Any, **options: Any) -> ChatResult:
        said = AIMessage("Order 42 is refunded.", id="answer")
        if not any(isinstance(one, AIMessage) for one in messages):
            asked = {"name": "refund", "args": {"order": "42"}, "id": "call_0"}
            said = AIMessage("", tool_calls=[asked], id="asking")
        return ChatResult(generations=[ChatGeneration(message=said)])


def stock_langchain(world: HttpWorld) -> str:
    """LangChain alone: its agent goes on where its last checkpoint is."""
    with closing(sqlite3.connect(world.agent_dir / "graph.db", check_same_thread=False)) as connection:
        tools = [make_graph_tool(world, keyed=False)]
        agent: Any = create_agent(ChatModel(), tools, checkpointer=SqliteSaver(connection))
        begun = agent.get_state(THREAD).created_at is not None
        return str(agent.invoke(None if begun else ASKED, THREAD, durability="sync")["messages"][-1].content)


async def durable_langchain(world: HttpWorld) -> str:
    """The same with the middleware and holdfast's saver."""

    async def was_refunded(
        ctx: holdfast.ToolContext[Any], order: str
    ) -> holdfast.Landed | holdfast.NotLanded:
        return holdfast.Landed(order) if was_posted(world, "/refunds", ctx.key) else holdfast.NotLanded()

    async with holdfast.open_store(f"sqlite:{world.agent_dir}/agent.db") as store:
        rules: Any = {"refund": mutate(verify=was_refunded)}
        middleware: Any = [HoldfastMiddleware(store, effects=rules)]
        tools = [make_graph_tool(world, keyed=True)]
        saver = HoldfastSaver(store)
        agent: Any = create_agent(ChatModel(), tools, middleware=middleware, checkpointer=saver)
        begun = (await agent.aget_state(THREAD)).created_at is not None
        found = await agent.ainvoke(None if begun else ASKED, THREAD, durability="sync")
        return str(found["messages"][-1].content)
