"""An agent with the tools of an MCP server, in a process that is killed on the way."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import anyio

import holdfast
from holdfast.adapters.mcp import McpTools, mcp_tools, mutate
from holdfast.agents import ScriptedModel
from holdfast.messages import ToolCall
from tests.crash.fork_server import Line

SERVER = Path(__file__).with_name("plain_server.py")
SESSION = "payments"


def command(place: Path, era: str = "both") -> list[str]:
    """What starts the server."""
    return [sys.executable, "-S", "-E", str(SERVER), str(place), era]


def payments(place: Path) -> list[str]:
    """What the server has done."""
    book = place / "paid"
    return book.read_text().splitlines() if book.exists() else []


def open_tools(place: Path, *, verifies: bool, era: str = "both") -> McpTools:
    """The tools of the server. `verify` asks the server itself."""

    async def was_paid(to: str, cents: int) -> Any:
        found = await tools.get_tool("find_payment")(to=to, cents=cents)
        return holdfast.Landed("paid") if found == "yes" else holdfast.NotLanded()

    effects: dict[str, Any] = {"pay": mutate(verify=was_paid if verifies else None)}
    tools = mcp_tools(command(place, era), effects=effects)
    return tools


def pay(cents: int) -> ToolCall:
    """A call of the model."""
    return ToolCall(id=f"c{cents}", name="pay", args={"to": "ann", "cents": cents})


def work(line: Line, folder: str, *, verifies: bool, era: str = "both") -> dict[str, Any]:
    """Run or resume the agent; how it ended."""
    return anyio.run(_work, Path(folder), verifies, era)


async def _work(place: Path, verifies: bool, era: str) -> dict[str, Any]:
    async with open_tools(place, verifies=verifies, era=era) as tools:
        model = ScriptedModel([pay(1), [pay(2), pay(3)], pay(4), "Done."])
        agent = holdfast.Agent(model, tools=tools, name="clerk")
        async with holdfast.open_store(f"sqlite:{place}/store.db") as store:
            exists = [head async for head in store.sessions()]
            if exists:
                outcome = await agent.resume(SESSION, store=store)
            else:
                outcome = await agent.run("Pay ann.", session=SESSION, store=store)
            doubts = [doubt async for doubt in store.in_doubt()]
            return {"status": outcome.status, "doubts": len(doubts)}
