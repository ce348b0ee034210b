"""Tools of graphs that ask the process to end."""

from __future__ import annotations

import asyncio
import sys
import threading
from typing import Any

import pytest
from langchain_core.messages import AIMessage
from langchain_core.tools import tool as langchain_tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import RetryPolicy

import holdfast
from holdfast import blocking
from holdfast.adapters.langgraph import durable_tools, effects
from holdfast.drivers.memory import MemoryDriver


@pytest.mark.parametrize("sync", [False, True])
def test_a_tool_that_ends_the_process_does_so_once_it_is_on_record(sync: bool) -> None:
    """With an event loop and without one; its neighbour gets its grace, and the call is in doubt."""
    began, url = threading.Event(), MemoryDriver()

    @langchain_tool
    def leave() -> str:
        """Leave."""
        assert began.wait(60)
        sys.exit(3)

    @langchain_tool
    def act() -> str:
        """Act."""
        began.set()
        return "acted"

    calls: list[Any] = [
        {"name": name, "args": {}, "id": f"c-{name}", "type": "tool_call"} for name in ("leave", "act")
    ]

    def build(store: Any) -> Any:
        declared = [effects(one, side_effects={"mutate"}) for one in (leave, act)]
        graph = StateGraph(MessagesState)
        graph.add_node("tools", ToolNode(durable_tools(declared, store=store, grace_s=60)))
        graph.add_edge(START, "tools")
        return graph.compile()

    given: Any = {"messages": [AIMessage("", tool_calls=calls)]}
    config: Any = {"configurable": {"thread_id": "t"}}

    async def main() -> None:
        async with holdfast.open_store(url) as store:
            await build(store).ainvoke(given, config)

    def without_loop() -> None:
        with blocking.open_store(url) as store:
            build(store).invoke(given, config)

    with pytest.raises(SystemExit) as caught:
        without_loop() if sync else asyncio.run(main())
    assert caught.value.code == 3

    async def check() -> None:
        async with holdfast.open_store(url) as store:
            (session,) = [head.session async for head in store.sessions()]
            rows = (await store.load(session)).facts.effects.rows.values()
            assert {row.tool: row.status for row in rows} == {"leave": "in_doubt", "act": "completed"}

    asyncio.run(check())


async def test_a_node_that_is_run_again_makes_the_same_call() -> None:
    """LangGraph limits how often: it is no loop."""
    tried: list[int] = []

    @langchain_tool
    async def fetch() -> str:
        """Fetch it."""
        tried.append(len(tried))
        if len(tried) < 4:
            raise ConnectionError("not yet")
        return "there"

    async with holdfast.open_store("memory:") as store:
        (durable,) = durable_tools([effects(fetch, side_effects={"read"})], store=store)

        async def node(state: MessagesState) -> Any:
            return {"messages": [AIMessage(await durable.ainvoke({}))]}

        graph = StateGraph(MessagesState)
        policy = RetryPolicy(max_attempts=6, initial_interval=0.001, retry_on=Exception)
        graph.add_node("fetch", node, retry_policy=policy)
        graph.add_edge(START, "fetch")
        config: Any = {"configurable": {"thread_id": "t"}}
        result = await graph.compile().ainvoke({"messages": []}, config)
    assert result["messages"][-1].content == "there"
    assert len(tried) == 4
