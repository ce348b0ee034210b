"""In children: an agent whose spans go to a backend, as docs/telemetry.md says; it is killed in a tool."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import anyio

import holdfast
from holdfast import Agent
from holdfast.agents import ScriptedModel
from tests.agent.scripted_agents import call
from tests.crash.fork_server import Line

SECRET = "s3cret"
"""It is in everything that people, the model and the tools say."""


def make_agent(line: Line | None, flush: Any) -> Agent[Any, Any]:
    """It takes a step, sends its spans, and says so in the middle of the next one."""

    @holdfast.tool(side_effects="read")
    def look(where: str) -> str:
        """Look."""
        return f"{SECRET} result of {where}"

    @holdfast.tool(side_effects="read")
    def wait(why: str) -> str:
        """Wait."""
        if line is not None:
            flush()
            line.say("waiting")
            line.wait_for_the_end()
        raise ValueError(f"{SECRET} error")

    steps: list[Any] = [
        call("look", where=f"{SECRET} place"),
        call("wait", why=f"{SECRET} reason"),
        f"The answer is {SECRET}.",
    ]
    return Agent(
        ScriptedModel(steps), name="clerk", instructions=f"{SECRET} instructions", tools=[look, wait]
    )


def work(line: Line, url: str, source: str, environment: Mapping[str, str], *, killed: bool) -> str:
    """A life under the settings of a page: `source` is its Python, `environment` what its shell exports."""
    os.environ.update(environment)
    names: dict[str, Any] = {"__name__": "page"}
    exec(source, names)
    providers = [names[name]("clerk service") for name in ("send_traces", "send_metrics")]

    async def live() -> str:
        async with holdfast.open_store(url) as store:
            agent = make_agent(line if killed else None, providers[0].force_flush)
            if killed:
                await agent.run(f"{SECRET} question", session="s", store=store)
                raise AssertionError("it was to be killed")
            outcome = await agent.resume("s", store=store)
            return f"{outcome.status}: {outcome.output}"

    found = anyio.run(live)
    for provider in providers:
        provider.shutdown()
    return found
