"""A durable run that is killed around one of its commits, or in a tool, and made again in another process."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

from agents import Agent, function_tool, set_tracing_disabled

import holdfast
from holdfast.adapters.openai_agents import DurableRunner, HoldfastSession, current_effect, effects
from holdfast.drivers.directory import DirectoryDriver
from holdfast.drivers.postgres import PostgresDriver
from holdfast.drivers.sqlite import SqliteDriver

from ..crash.fork_server import Line
from .killed_sessions import url_of
from .runs import Item, answering, call, count_turns, play, say

_DRIVERS: dict[str, Any] = {"dir": DirectoryDriver, "sqlite": SqliteDriver, "postgresql": PostgresDriver}


class World:
    """What was done, one line each: it survives the process."""

    def __init__(self, folder: str, kill: str) -> None:
        self._folder, self._kill = Path(folder), kill

    def note(self, book: str, what: str) -> None:
        """Something happened."""
        with open(self._folder / book, "a") as file:
            file.write(f"{what}\n")

    def read(self, book: str) -> list[str]:
        """What happened."""
        path = self._folder / book
        return path.read_text().splitlines() if path.exists() else []

    def reach(self, place: str) -> None:
        """Die here, if that is asked for."""
        if place == self._kill:
            os.kill(os.getpid(), signal.SIGKILL)


def pay_twice(line: Line | None, folder: str, scheme: str, *, streamed: bool, kill: str = "") -> dict[str, Any]:
    """Run the agent. Die at this place: `before 3` and `after 3` are around a commit, others in a tool."""
    set_tracing_disabled(True)
    world = World(folder, kill)
    commits = _watch_commits(_DRIVERS[scheme], world)
    found = asyncio.run(_pay_twice(url_of(folder, scheme), world, streamed))
    return {**found, "commits": commits[0]}


def _watch_commits(driver: Any, world: World) -> list[int]:
    commit, count = driver.commit, [0]

    def committed(self: Any, *args: Any, **options: Any) -> Any:
        world.reach(f"before {count[0]}")
        outcome = commit(self, *args, **options)
        world.reach(f"after {count[0]}")
        count[0] += 1
        return outcome

    driver.commit = committed
    return count


def _make_agent(world: World) -> Agent[Any]:
    def was_paid(ctx: holdfast.ToolContext[Any], cents: int) -> holdfast.Landed | holdfast.NotLanded:
        return holdfast.Landed(f"paid {cents}") if ctx.key in world.read("paid") else holdfast.NotLanded()

    @effects(side_effects="mutate", verify=was_paid)
    @function_tool
    async def pay(cents: int) -> str:
        """Pay."""
        world.reach(f"pay {cents} began")
        world.note("paid", current_effect().key)
        world.reach(f"pay {cents} ended")
        return f"paid {cents}"

    @effects(side_effects="read")
    @function_tool
    def look() -> str:
        """Look."""
        return f"{len(world.read('paid'))} payments"

    def reply(items: list[Item]) -> Any:
        turn = count_turns(items)
        world.note("asked", str(turn))
        world.reach(f"asked {turn}")
        if turn == 0:
            return [call("pay", "t0-a", cents=1), call("pay", "t0-b", cents=2)]
        return [call("look", "t1-a")] if turn == 1 else say("Done.")

    return Agent(name="clerk", model=answering(reply), tools=[pay, look])


async def _pay_twice(url: str, world: World, streamed: bool) -> dict[str, Any]:
    session = HoldfastSession("ann", url)
    options: Any = {"session": session, "streamed": streamed, "run_key": "pay"}
    result = await play(DurableRunner, _make_agent(world), "Pay.", **options)
    items = await session.get_items()
    await session.aclose()
    return {
        "output": result.final_output,
        "items": items,
        "inputs": result.to_input_list(),
        "asked": world.read("asked"),
        "paid": world.read("paid"),
    }
