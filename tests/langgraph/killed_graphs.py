"""A graph at work that is killed at a chosen moment, and goes on in another process.

pay, post   change the world, which is a file; both can be asked whether they did
look        changes nothing
refund      changes the world once a person has agreed
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import anyio
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import BaseTool
from langchain_core.tools import tool as langchain_tool
from langgraph.graph import END, START, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command

from holdfast import Landed, NotLanded, ToolContext, open_store
from holdfast.adapters.langgraph import HoldfastSaver, current_effect, durable_tools, effects
from holdfast.drivers.contract import Append, Driver, Outcome

from ..crash.fork_server import Line
from ..drivers import kinds_of
from ..stores import open_driver
from .graphs import Talk, thread

KILLS: Final = (
    "in a tool, after its effect",
    "between a tool and its record",
    "in a batch, one done and one under way",
    "before a reply is recorded",
    "after a reply is recorded",
    "while a person is asked",
    "after a person agreed",
)
ASKED_AGAIN: Final = "before a reply is recorded"
"""The only kill after which the model is asked once more: its first reply was not recorded."""


class World:
    """Everything that happened, in a folder that outlives the process."""

    def __init__(self, folder: str, kill: str | None) -> None:
        self.folder, self.kill = Path(folder), kill
        self.recorded = anyio.Event()

    def note(self, what: str) -> None:
        """It happens, for good."""
        with open(self.folder / "world", "a") as file:
            file.write(what + "\n")

    def lines(self) -> list[str]:
        """What has happened."""
        path = self.folder / "world"
        return path.read_text().splitlines() if path.exists() else []

    def die(self, moment: str) -> None:
        """The end, if this is the moment."""
        if moment == self.kill:
            os.kill(os.getpid(), signal.SIGKILL)


SCRIPT: Final[Sequence[Any]] = (
    [("pay", "a"), ("look", "a"), ("post", "a")],
    [("refund", "a")],
    "all done",
)


def _reply(turn: int) -> AIMessage:
    said = SCRIPT[turn]
    if isinstance(said, str):
        return AIMessage(said, id=f"reply {turn}")
    calls = [
        {"name": name, "args": {"order": order}, "id": f"call_{at}"} for at, (name, order) in enumerate(said)
    ]
    return AIMessage("", id=f"reply {turn}", tool_calls=calls)


def make_tools(world: World) -> list[BaseTool]:
    """The tools as LangChain has them."""

    @langchain_tool
    async def pay(order: str) -> str:
        """Pay."""
        world.note(f"pay {order} {current_effect().key}")
        world.die("in a tool, after its effect")
        return f"paid {order}"

    @langchain_tool
    async def look(order: str) -> str:
        """Look."""
        return f"{order} is there"

    @langchain_tool
    async def post(order: str) -> str:
        """Post."""
        if world.kill == "in a batch, one done and one under way":
            await world.recorded.wait()
        world.note(f"post {order} {current_effect().key}")
        world.die("in a batch, one done and one under way")
        return f"posted {order}"

    @langchain_tool
    def refund(order: str) -> str:
        """Refund, if a person agrees."""
        world.die("after a person agreed")
        world.note(f"refund {order} {current_effect().key}")
        return f"refunded {order}"

    return [pay, look, post, refund]


def _declare(world: World, tools: list[BaseTool]) -> list[Any]:
    """What each does, and how to find out whether it did."""

    said = {"pay": "paid", "post": "posted", "refund": "refunded"}

    def asker(name: str) -> Any:
        async def verify(ctx: ToolContext[Any], order: str) -> Landed | NotLanded:
            landed = f"{name} {order} {ctx.key}" in world.lines()
            return Landed(f"{said[name]} {order}") if landed else NotLanded()

        return verify

    return [
        effects(one, side_effects=())
        if one.name == "look"
        else effects(
            one, side_effects={"mutate"}, verify=asker(one.name), needs_approval=one.name == "refund"
        )
        for one in tools
    ]


def build(world: World, tools: list[BaseTool], saver: Any) -> Any:
    """The graph."""

    def model(state: Talk) -> dict[str, Any]:
        turn = sum(isinstance(one, AIMessage) for one in state["messages"])
        world.note(f"model {turn}")
        if turn == 1:
            world.die("before a reply is recorded")
        return {"messages": [_reply(turn)]}

    def go_on(state: Talk) -> str:
        last = state["messages"][-1]
        return "check" if isinstance(last, AIMessage) and last.tool_calls else END

    def check(state: Talk) -> dict[str, Any]:
        if len(state["messages"]) > 2:
            world.die("after a reply is recorded")
        return {"notes": ["checked"]}

    builder = StateGraph(Talk)
    builder.add_node("model", model)
    builder.add_node("check", check)
    builder.add_node("tools", ToolNode(tools))
    builder.add_edge(START, "model")
    builder.add_conditional_edges("model", go_on)
    builder.add_edge("check", "tools")
    builder.add_edge("tools", "model")
    return builder.compile(checkpointer=saver)


def watch_commits(world: World, driver: Driver) -> None:
    """Die between a tool and its record, or let the other one know that it is there."""
    # Between a tool and its record there is no call of the application.
    commit = driver.commit

    def watched(batch: Sequence[Append], *, wait: bool = True) -> Sequence[Outcome]:
        completed = any("tool.completed" in kinds_of(item) for item in batch)
        if completed:
            world.die("between a tool and its record")
        outcomes = commit(batch, wait=wait)
        if completed:
            loop.call_soon_threadsafe(world.recorded.set)
        return outcomes

    loop = asyncio.get_running_loop()
    driver.commit = watched  # type: ignore[method-assign]


@asynccontextmanager
async def _open(world: World, who: str, globs: bool) -> AsyncIterator[Any]:
    driver = open_driver(f"{who}:{world.folder / 'store'}")
    async with open_store(driver) as store:
        watch_commits(world, driver)
        tools = make_tools(world)
        declared = _declare(world, tools)
        if globs:
            by_name = {f"{one.tool.name[:-1]}*": one for one in declared}
            made = durable_tools(tools, store=store, effects=by_name)
        else:
            made = durable_tools(declared, store=store)
        yield build(world, made, HoldfastSaver(store))


async def _play(folder: str, who: str, kill: str | None, globs: bool) -> dict[str, Any]:
    world = World(folder, kill)
    async with _open(world, who, globs) as graph:
        found = await graph.aget_state(thread())
        given: Any = None if found.values else {"messages": [HumanMessage("go", id="go")]}
        if found.interrupts:
            given = Command(resume=True)
        state = await graph.ainvoke(given, thread(), durability="sync")
        while "__interrupt__" in state:
            world.die("while a person is asked")
            state = await graph.ainvoke(Command(resume=True), thread(), durability="sync")
        return {
            "said": [[one.type, str(one.content), one.name] for one in state["messages"]],
            "world": [" ".join(one.split()[:2]) for one in world.lines()],
        }


def play(
    line: Line | None, folder: str, who: str, kill: str | None = None, globs: bool = False
) -> dict[str, Any]:
    """Begin, or go on; what was said, and what has happened in the world. `globs`: how tools are declared."""
    return asyncio.run(_play(folder, who, kill, globs))
