"""Verify recipes for the tools of pydantic-ai."""

from __future__ import annotations

from typing import Any

from pydantic_ai.toolsets import FunctionToolset

import holdfast
from holdfast import recipes
from holdfast.adapters.pydantic_ai import Durable, current_effect, mutate
from holdfast.drivers.memory import MemoryDriver
from tests.tools.json_service import OrderService

from .scripted_runs import SESSION, Script, call, kill, killed, results


async def test_a_killed_tool_is_settled_by_a_recipe() -> None:
    """It is declared by a glob, and has its effect once."""
    driver = MemoryDriver()
    script = Script([call("order_tea", what="tea")], "done")
    with OrderService() as service:

        async def drive(store: holdfast.Store) -> Any:
            def order_tea(what: str) -> str:
                service.add({"what": what, "reference": current_effect().key})
                kill(store)
                return "never seen"

            found = recipes.find(
                service.url + "/orders",
                where={"reference": "{ctx.key}", "what": "{what}"},
                result="order {found[id]}",
            )
            durable = Durable(store, session=SESSION, effects={"order_*": mutate(verify=found)})
            return await script.agent(toolsets=[FunctionToolset([order_tea])]).run(
                "a", capabilities=[durable]
            )

        await killed(driver, drive)
        async with holdfast.open_store(driver) as store:
            result = await drive(store)
            assert results(result.all_messages()) == ["order 1"]
        assert len(service.orders) == 1
