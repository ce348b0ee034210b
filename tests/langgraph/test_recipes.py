"""Verify recipes for LangChain's tools."""

from __future__ import annotations

from langchain_core.tools import tool as langchain_tool

import holdfast
from holdfast import recipes
from holdfast.adapters.langgraph import current_effect, durable_tools, mutate
from tests.tools.json_service import OrderService

from .graphs import thread


async def test_a_tool_in_doubt_is_settled_by_a_recipe(store: holdfast.Store) -> None:
    """It is declared by a glob, and has its effect once."""
    with OrderService() as service:

        @langchain_tool
        def order_tea(what: str) -> str:
            """Order tea."""
            service.add({"what": what, "reference": current_effect().key})
            raise ConnectionError("no answer")

        found = recipes.find(
            service.url + "/orders",
            where={"reference": "{ctx.key}", "what": "{what}"},
            result="order {found[id]}",
        )
        [tool] = durable_tools([order_tea], store=store, effects={"order_*": mutate(verify=found)})
        assert await tool.ainvoke({"what": "tea"}, thread()) == "order 1"
        assert len(service.orders) == 1
