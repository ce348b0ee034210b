"""In children: an agent that is killed in a tool, under a tracer of its own."""

from __future__ import annotations

from typing import Any

import anyio
from opentelemetry import trace

import holdfast
from holdfast import Agent
from holdfast.agents import ScriptedModel
from tests.agent.scripted_agents import call
from tests.crash.fork_server import Line
from tests.telemetry.exporters import listen


def make_agent(line: Line | None) -> Agent[Any, Any]:
    """It says where it is in its first life, and goes on in the second."""

    @holdfast.tool(side_effects={"read"})
    def look() -> str:
        """Look."""
        if line is not None:
            line.say(f"{trace.get_current_span().get_span_context().trace_id:032x}")
            line.wait_for_the_end()
        return "fine"

    return Agent(ScriptedModel([call("look"), "Done."]), name="clerk", tools=[look])


def work(line: Line, url: str) -> None:
    """The first life."""

    async def live() -> None:
        async with holdfast.open_store(url) as store:
            await make_agent(line).run("Go", session="s", store=store)

    with listen():
        anyio.run(live)
