"""Verify recipes for LangChain's tools."""

from __future__ import annotations

from langchain_core.tools import tool as langchain_tool

import holdfast
from holdfast.adapters.langgraph import current_effect, durable_tools, mutate
from tests.tools.json_service import OrderService, find_order

from .graphs import thread


async def test_a_tool_in_doubt_is_settled_by_a_recipe(store: holdfast.Store) -> None:
    """It is declared by a glob, and has its effect once."""
    with OrderService() as service:

        @langchain_tool
        def order_tea(what: str) -> str:
            """Order tea."""
            service.add({"what": what, "reference": current_effect().key})
            raise ConnectionError("no answer")

        [tool] = durable_tools(
            [order_tea], store=store, effects={"order_*": mutate(verify=find_order(service))}
        )
        assert await tool.ainvoke({"what": "tea"}, thread()) == "order 1"
        assert len(service.orders) == 1
