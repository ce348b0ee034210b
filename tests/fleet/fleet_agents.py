"""Agents for processes that are killed: each session takes some steps, each with an effect in the world."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio

from holdfast import Agent, Landed, NotLanded, ToolContext, open_store, tool
from holdfast.agents import Prompt, ScriptedModel
from holdfast.messages import ToolCall
from holdfast.tools import Retry
from holdfast.workers import Worker, WorkEvent
from tests.crash.fork_server import Line

from .effect_service import Deed, World

AGENT = "builder"


def make_agent(world: World, steps: int, *, pause_s: float = 0.0) -> Agent[Any, Any]:
    """An agent that lays `steps` bricks, one a step, and is done."""

    def was_laid(ctx: ToolContext[Any], brick: int) -> Landed | NotLanded:
        if world.look(ctx.session.id, ctx.key, ctx.fence):
            return Landed(f"brick {brick} is there")
        # Final: the world refuses whoever is older than the one who asked.
        return NotLanded(final=True)

    @tool(side_effects={"mutate"}, verify=was_laid, timeout_s=20)
    async def lay(ctx: ToolContext[Any], brick: int) -> str:
        """Lay a brick."""
        await anyio.sleep(pause_s * random.random())
        deed = Deed(ctx.session.id, f"brick {brick}", ctx.key, ctx.fence, os.getpid())
        await anyio.to_thread.run_sync(world.do, deed)
        await anyio.sleep(pause_s * random.random())
        return f"brick {brick} is laid"

    def decide(prompt: Prompt) -> str | ToolCall:
        laid = sum(message.role == "assistant" for message in prompt.messages)
        if laid >= steps:
            return "the wall stands"
        return ToolCall(id=f"call_{laid}", name="lay", args={"brick": laid})

    model = ScriptedModel(decide, delay_s=pause_s)
    return Agent(model, name=AGENT, tools=[lay], max_steps=steps + 5, max_crashes=1000)


def work(
    line: Line,
    url: str,
    world: str,
    *,
    steps: int,
    lease_s: float = 2.0,
    concurrency: int = 4,
    pause_s: float = 0.0,
    drain_s: float = 20.0,
    silent: bool = False,
) -> dict[str, int]:
    """A worker until SIGTERM; what became of how many sessions. Unless it is `silent`, it tells of each."""
    tell = _say_nothing if silent else line.say
    return anyio.run(_work, tell, url, world, steps, lease_s, concurrency, pause_s, drain_s)


def _say_nothing(message: object) -> None:
    pass


async def _work(
    say: Callable[[object], None],
    url: str,
    world: str,
    steps: int,
    lease_s: float,
    concurrency: int,
    pause_s: float,
    drain_s: float,
) -> dict[str, int]:
    counts: dict[str, int] = {}

    def tell(event: WorkEvent) -> None:
        counts[event.kind] = counts.get(event.kind, 0) + 1
        say([event.kind, event.session, event.reason or event.error])

    agent = make_agent(World(Path(world)), steps, pause_s=pause_s)
    async with open_store(url, lease_s=lease_s) as store:
        worker = Worker(
            store,
            agent,
            concurrency=concurrency,
            drain_s=drain_s,
            retry=Retry(attempts=30, backoff_s=0.1, backoff_max_s=1.0),
            tell=tell,
        )
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_stop_on_signal, worker, say)
            await worker.run()
            tasks.cancel_scope.cancel()
    return counts


async def _stop_on_signal(worker: Worker, say: Callable[[object], None]) -> None:
    with anyio.open_signal_receiver(signal.SIGTERM) as signals:
        say(["ready", "", ""])
        async for _ in signals:
            worker.stop()
