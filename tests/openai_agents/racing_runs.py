"""In children: processes that make the same durable run of the SDK at the same time."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.to_thread
from agents import Agent, set_tracing_disabled

from holdfast.adapters.openai_agents import DurableRunner, HoldfastSession
from holdfast.errors import HoldfastError

from ..crash.fork_server import Line
from ..matrix import boundaries
from ..matrix.boundaries import Point
from ..matrix.matrix_process import Life, open_life
from ..matrix.matrix_tools import keep_gates
from .matrix_runs import PROMPT, SESSION, Script, Turns, toolbox, what

LEASE_S: Final = 0.7
"""Of a process that is stopped: the next one waits for no more than this."""


def make_clerk(folder: str, *tools: str) -> Agent[Any]:
    """An agent that calls one tool after another."""
    turns: Turns = [*([(name, what("1"))] for name in tools), "All is done."]
    return Agent(
        name="clerk",
        model=Script(Path(folder)).model("clerk", turns),
        tools=[*toolbox(*dict.fromkeys(tools))],
    )


def make_run(
    line: Line, folder: str, scheme: str, *tools: str, run_key: str | None = None, streamed: bool = False
) -> dict[str, Any]:
    """Make the run once, and say what came of it. A tool that waits says so on the line."""
    keep_gates(line, Path(folder))

    async def act(life: Life) -> dict[str, Any]:
        return await _try(life, make_clerk(folder, *tools), run_key=run_key, streamed=streamed)

    return open_life(folder, scheme, act)


async def _try(
    life: Life, agent: Agent[Any], *, run_key: str | None, streamed: bool = False
) -> dict[str, Any]:
    set_tracing_disabled(True)
    session = HoldfastSession(SESSION, life.store)
    try:
        if streamed:
            result: Any = DurableRunner.run_streamed(agent, PROMPT, session=session, run_key=run_key)
            async for _ in result.stream_events():
                pass
        else:
            result = await DurableRunner.run(agent, PROMPT, session=session, run_key=run_key)
    except HoldfastError as error:
        return {"refused": type(error).__name__, "why": str(error)}
    return {"output": result.final_output, "items": await session.get_items()}


def sleep_through_lease(line: Line, folder: str, scheme: str, target: Sequence[Any]) -> dict[str, Any]:
    """Make the run, be stopped on the way, and go on when awake again as if nothing had happened."""

    async def act(life: Life) -> dict[str, Any]:
        boundaries.path.arm(Point(*target), signal.SIGSTOP)
        return await _try(life, make_clerk(folder, "charge", "bill"), run_key=None)

    return open_life(folder, scheme, act, lease_s=LEASE_S)


def take_over(line: Line, folder: str, scheme: str) -> dict[str, Any]:
    """Make the same run as soon as the session is free."""

    async def act(life: Life) -> dict[str, Any]:
        while True:
            found = await _try(life, make_clerk(folder, "charge", "bill"), run_key=None)
            if found.get("refused") != "LeaseHeld":
                return found
            await anyio.sleep(0.02)

    return open_life(folder, scheme, act, lease_s=LEASE_S)


def race(line: Line, folder: str, scheme: str) -> None:
    """Again and again: when the test says so, make a run under the key that it says."""

    async def act(life: Life) -> None:
        line.say("ready")
        while (key := await anyio.to_thread.run_sync(line.hear)) is not None:
            place = Path(folder) / key
            place.mkdir(exist_ok=True)
            agent = make_clerk(str(place), "send", "charge")
            session = HoldfastSession(key, life.store)
            set_tracing_disabled(True)
            try:
                result = await DurableRunner.run(agent, f"{PROMPT} {key}", session=session, run_key=key)
            except HoldfastError as error:
                line.say({"refused": type(error).__name__})
            else:
                line.say({"output": result.final_output})

    open_life(folder, scheme, act)
