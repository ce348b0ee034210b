"""A run of the SDK that is killed around one of its commits, and made again in another process."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Any

from agents import Agent, Runner, function_tool, set_tracing_disabled
from agents.testing import ScriptedModel, assistant_message, function_call

from holdfast.adapters.openai_agents import HoldfastSession
from holdfast.drivers.directory import DirectoryDriver
from holdfast.drivers.postgres import PostgresDriver
from holdfast.drivers.sqlite import SqliteDriver

from ..crash.fork_server import Line
from ..stores import schema_of, server_url

_DRIVERS: dict[str, Any] = {"dir": DirectoryDriver, "sqlite": SqliteDriver, "postgresql": PostgresDriver}


def url_of(folder: str, scheme: str) -> str:
    """The store of a folder."""
    return server_url(schema_of(f"{folder}/store")) if scheme == "postgresql" else f"{scheme}:{folder}/store"


def play(
    line: Line | None,
    folder: str,
    scheme: str,
    *,
    streamed: bool,
    kill: int | None = None,
    late: bool = False,
) -> dict[str, Any]:
    """Ask the agent. Die before the commit of this number, or (`late`) after it."""
    set_tracing_disabled(True)
    commits = _count_commits(_DRIVERS[scheme], kill, late)
    found = asyncio.run(_play(url_of(folder, scheme), streamed))
    return {**found, "commits": commits[0]}


def _count_commits(driver: Any, kill: int | None, late: bool) -> list[int]:
    commit, count = driver.commit, [0]

    def committed(self: Any, *args: Any, **options: Any) -> Any:
        if count[0] == kill and not late:
            os.kill(os.getpid(), signal.SIGKILL)
        outcome = commit(self, *args, **options)
        if count[0] == kill:
            os.kill(os.getpid(), signal.SIGKILL)
        count[0] += 1
        return outcome

    driver.commit = committed
    return count


@function_tool
def look(place: str) -> str:
    """Look."""
    return f"nothing at {place}"


async def _play(url: str, streamed: bool) -> dict[str, Any]:
    calls = [function_call("look", {"place": place}, call_id=f"c-{place}") for place in ("home", "work")]
    model = ScriptedModel([calls, [assistant_message("Nowhere.", item_id="m1")]])
    agent = Agent(name="clerk", model=model, tools=[look])
    session = HoldfastSession("ann", url)
    if streamed:
        result = Runner.run_streamed(agent, "Where is it?", session=session)
        async for _ in result.stream_events():
            pass
    else:
        await Runner.run(agent, "Where is it?", session=session)
    items = await session.get_items()
    await session.aclose()
    return {"items": items, "inputs": [call.input for call in model.calls]}


def read(folder: str, scheme: str) -> list[Any]:
    """What the session has."""

    async def get() -> list[Any]:
        session = HoldfastSession("ann", url_of(folder, scheme))
        found: list[Any] = list(await session.get_items())
        await session.aclose()
        return found

    return asyncio.run(get())
