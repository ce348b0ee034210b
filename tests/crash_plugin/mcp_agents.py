"""An agent of holdfast whose tools come from an MCP server, which is a process of its own."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import holdfast
from holdfast.adapters.mcp import mcp_tools, mutate
from holdfast.agents import ScriptedModel
from holdfast.crash_test import HttpWorld
from holdfast.messages import ToolCall

SERVER = Path(__file__).with_name("refund_server.py")


async def durable_mcp(world: HttpWorld) -> Any:
    """The agent asks the server itself what became of a call."""

    async def was_paid(to: str, cents: int) -> Any:
        found = await tools.get_tool("find_payment")(to=to, cents=cents)
        return holdfast.Landed("yes") if found == "yes" else holdfast.NotLanded()

    command = [sys.executable, "-S", "-E", str(SERVER), str(world.agent_dir), world.url.partition("//")[2]]
    pay = ToolCall(id="call_0", name="pay", args={"to": "ann", "cents": 500})
    async with mcp_tools(command, effects={"pay": mutate(verify=was_paid)}) as tools:
        agent = holdfast.Agent(ScriptedModel([pay, "Paid."]), tools=tools)
        async with holdfast.open_store(f"sqlite:{world.agent_dir}/agent.db") as store:
            return (await agent.run("Pay ann", session="s", key="1", store=store)).output
