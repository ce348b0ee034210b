"""A run of `DurableRunner` that is killed in one of its tools, and made again in another process.

clerk    looks and charges at once, asks the scout (an agent as a tool), and answers
scout    charges, and answers
"""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from agents import Agent, function_tool, set_tracing_disabled

import holdfast
from holdfast.adapters.openai_agents import DurableRunner, HoldfastSession, annotate, current_effect, effects

from ..crash.fork_server import Line
from .runs import answering, call, count_turns, say

STORE: Final = "sqlite:store.db"
Place: TypeAlias = Literal["clerk", "scout"]


def play(
    line: Line | None,
    folder: str,
    *,
    kill: Place | None = None,
    run_key: str | None = None,
    knows: bool = True,
) -> str:
    """Run the clerk in a folder; its answer. `kill`: die when this agent has charged, and before its record.
    `knows`: whether the tool can find out what it has done."""
    os.chdir(folder)
    set_tracing_disabled(True)
    return asyncio.run(_play(kill, run_key, knows))


async def _play(kill: Place | None, run_key: str | None, knows: bool) -> str:
    session = None if run_key is not None else HoldfastSession("order-7", STORE)
    runner = DurableRunner.with_options(store=STORE)
    result = await runner.run(_make(kill, knows), "Settle order 7.", session=session, run_key=run_key)
    if session is not None:
        await session.aclose()
    return str(result.final_output)


def _make(kill: Place | None, knows: bool) -> Agent[Any]:
    def was_charged(ctx: holdfast.ToolContext[Any], what: str) -> holdfast.Landed | holdfast.NotLanded:
        if not knows:
            raise OSError("the bank is closed")
        return holdfast.Landed(f"charged {what}") if ctx.key in list_deeds() else holdfast.NotLanded()

    def make_charge(place: Place) -> Any:
        @effects(side_effects="mutate", verify=was_charged)
        @function_tool
        async def charge(what: str) -> str:
            """Charge."""
            await annotate(vendor=f"v-{what}")
            _note_deed(current_effect().key)
            if kill == place:
                if place == "clerk":
                    await _wait_for_look()
                os.kill(os.getpid(), signal.SIGKILL)
            return f"charged {what}"

        return charge

    @effects(side_effects="read")
    @function_tool
    def look(what: str) -> dict[str, int]:
        """Look."""
        return {"cents": 500}

    def scout_reply(items: list[Any]) -> Any:
        turn = count_turns(items)
        return say("It is at the door.") if turn else [call("charge", "t0-s", what="door")]

    def reply(items: list[Any]) -> Any:
        match count_turns(items):
            case 0:
                return [call("look", "t0-a", what="order"), call("charge", "t0-b", what="order")]
            case 1:
                return [call("ask_scout", "t1-a", input="Where is it?")]
            case _:
                return say("All is settled.")

    scout: Agent[Any] = Agent(name="scout", model=answering(scout_reply), tools=[make_charge("scout")])
    ask = scout.as_tool("ask_scout", "Find out where something is.")
    return Agent(name="clerk", model=answering(reply), tools=[look, make_charge("clerk"), ask])


async def _wait_for_look() -> None:
    """Wait until the call beside this one is on record: it is not what the kill cuts off."""
    async with holdfast.open_store(STORE) as store:
        async for entry in store.tail("order-7"):
            if entry.kind == "tool.completed":
                return


def _note_deed(key: str) -> None:
    with Path("deeds").open("a") as file:
        file.write(f"{key}\n")


def list_deeds() -> list[str]:
    """The keys of the charges that have happened."""
    return Path("deeds").read_text().splitlines() if Path("deeds").exists() else []
