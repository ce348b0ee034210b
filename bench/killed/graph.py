"""The clerk as a graph of LangGraph: a model, and a task of its own for each tool call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Send

from .stage import ASKED, FINISHED, PROMPT, SESSION, STEPS_MAX, TOOLS, Stage, number_of


def make_tools(stage: Stage) -> list[BaseTool]:
    """As LangChain has them."""

    def make(name: str) -> BaseTool:
        async def body(number: int) -> str:
            return await stage.act(name, number)

        return StructuredTool.from_function(coroutine=body, name=name, description="Do it.")

    return [make(name) for name in TOOLS]


def build(stage: Stage, tools: Sequence[BaseTool], saver: Any) -> Any:
    """The graph. `Send` gives each call a task, so that its result is recorded when it is there."""

    async def model(state: MessagesState) -> dict[str, Any]:
        messages = state["messages"]
        called = [
            str(call["id"]) for one in messages if isinstance(one, AIMessage) for call in one.tool_calls
        ]
        results = {one.tool_call_id: str(one.content) for one in messages if isinstance(one, ToolMessage)}
        calls = [
            {"name": name, "args": {"number": number_of(id)}, "id": id}
            for id, name in await stage.reply(called, results)
        ]
        return {"messages": [AIMessage("" if calls else "settled", tool_calls=calls)]}

    def go_on(state: MessagesState) -> Any:
        last = state["messages"][-1]
        calls = last.tool_calls if isinstance(last, AIMessage) else []
        return [Send("tools", [call]) for call in calls] or END

    builder = StateGraph(MessagesState)
    builder.add_node("model", model)
    builder.add_node("tools", ToolNode(tools))
    builder.add_edge(START, "model")
    builder.add_conditional_edges("model", go_on, ["tools", END])
    builder.add_edge("tools", "model")
    return builder.compile(checkpointer=saver)


async def invoke(graph: Any) -> str:
    """Begin, or go on with `None`, as the documentation says."""
    config = {"configurable": {"thread_id": SESSION}, "recursion_limit": STEPS_MAX}
    found = await graph.aget_state(config)
    given = None if found.values else {"messages": [HumanMessage(PROMPT)]}
    state = await graph.ainvoke(given, config, durability="sync")
    return ASKED if "__interrupt__" in state else FINISHED
