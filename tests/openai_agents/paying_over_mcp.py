"""An agent of the SDK that pays by way of an MCP server, also in a process that the server kills."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import anyio
from agents import Agent, set_tracing_disabled
from agents.mcp import MCPServerStdio

import holdfast
from holdfast.adapters.openai_agents import DurableRunner, HoldfastSession, RunWaits
from tests.crash.fork_server import Line
from tests.mcp.killed_client import command

from .runs import answering, call, count_turns, say

RETRIES: Final = 2


@asynccontextmanager
async def serving(place: Path, **options: Any) -> AsyncIterator[MCPServerStdio]:
    """A server that writes down what it does. The SDK retries, and no limit of time is ever reached."""
    program, *args = command(place)
    params: Any = {"command": program, "args": args}
    async with MCPServerStdio(
        params,
        client_session_timeout_seconds=300,
        max_retry_attempts=RETRIES,
        retry_backoff_seconds_base=0,
        **options,
    ) as server:
        yield server


def make_agent(server: MCPServerStdio) -> Agent[Any]:
    """An agent that pays once, and tells what came of it."""

    def reply(items: list[Any]) -> Any:
        if count_turns(items) == 0:
            return [call("pay", "t0-a", to="ann", cents=5)]
        return say(str(next(item["output"] for item in items if "output" in item)))

    return Agent(name="clerk", model=answering(reply), mcp_servers=[server])


def work(line: Line, folder: str) -> str:
    """In a child: make the run, or go on with it; how that ended."""
    return anyio.run(_work, Path(folder))


async def _work(place: Path) -> str:
    set_tracing_disabled(True)
    async with holdfast.open_store(f"sqlite:{place}/store.db") as store, serving(place) as server:
        session = HoldfastSession("ann", store)
        try:
            found = await DurableRunner.run(make_agent(server), "Pay.", session=session)
        except RunWaits as waits:
            return ", ".join(one.kind for one in waits.waiting)
        return str(found.final_output)
