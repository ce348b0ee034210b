"""An agent at work that is killed at a chosen moment, and goes on in another process.

pay      a tool of the agent; changes the world, which is a file
look     changes nothing
post     is no tool of the agent: middleware carries out its calls
refund   changes the world once a person has agreed
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import BaseTool
from langchain_core.tools import tool as langchain_tool
from langgraph.types import Command

from holdfast import Landed, NotLanded, Store, ToolContext, open_store
from holdfast.adapters.langgraph import HoldfastMiddleware, HoldfastSaver, current_effect, mutate
from tests.crash.fork_server import Line
from tests.langgraph.killed_graphs import World, watch_commits
from tests.stores import open_driver

from .agents import ScriptedChat, Way, drive

KILLS: Final = (
    "in a tool, after its effect",
    "between a tool and its record",
    "in a batch, one done and one under way",
    "while a person is asked",
    "after a person agreed",
)
SCRIPT: Final[list[Any]] = [
    [("pay", {"order": "a"}), ("look", {"order": "a"}), ("post", {"order": "a"})],
    [("refund", {"order": "a"})],
    "all done",
]
SAID: Final = {"pay": "paid", "post": "posted", "refund": "refunded"}


class Posting(AgentMiddleware[Any, Any, Any]):
    """Carries out the calls of `post`; there is no such tool."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    async def awrap_tool_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        if request.tool_call["name"] != "post":
            return await handler(request)
        if self._world.kill == "in a batch, one done and one under way":
            await self._world.recorded.wait()
        return self._post(request.tool_call)

    def wrap_tool_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        return self._post(request.tool_call) if request.tool_call["name"] == "post" else handler(request)

    def _post(self, call: dict[str, Any]) -> ToolMessage:
        order = call["args"]["order"]
        _note(self._world, f"post {order}")
        self._world.die("in a batch, one done and one under way")
        return ToolMessage(f"posted {order}", tool_call_id=call["id"], name="post")


def _note(world: World, what: str) -> None:
    """It happens; with the key of its effect, unless the agent is one without the middleware."""
    world.note(f"{what} {'stock' if world.kill == 'stock' else current_effect().key}")


def make_tools(world: World) -> list[BaseTool]:
    """The tools of the agent."""

    @langchain_tool
    async def pay(order: str) -> str:
        """Pay."""
        _note(world, f"pay {order}")
        world.die("in a tool, after its effect")
        return f"paid {order}"

    @langchain_tool
    async def look(order: str) -> str:
        """Look."""
        return f"{order} is there"

    @langchain_tool
    def refund(order: str) -> str:
        """Refund, if a person agrees."""
        world.die("after a person agreed")
        _note(world, f"refund {order}")
        return f"refunded {order}"

    return [pay, look, refund]


def _declare(world: World) -> dict[str, Any]:
    def asker(name: str) -> Any:
        async def verify(ctx: ToolContext[Any], order: str) -> Landed | NotLanded:
            landed = f"{name} {order} {ctx.key}" in world.lines()
            return Landed(f"{SAID[name]} {order}") if landed else NotLanded()

        return verify

    return {
        "look": "read",
        "p[ao]y": mutate(verify=asker("pay")),
        "post*": mutate(verify=asker("post")),
        "refund": mutate(verify=asker("refund"), needs_approval=True),
    }


def _build(world: World, store: Store) -> Any:
    ours = HoldfastMiddleware(store, effects=_declare(world))
    model = ScriptedChat(script=SCRIPT, on_turn=lambda turn: world.note(f"model {turn}"))
    return create_agent(
        model, make_tools(world), middleware=[ours, Posting(world)], checkpointer=HoldfastSaver(store)
    )


async def _play(folder: str, kill: str | None, way: Way) -> dict[str, Any]:
    world = World(folder, kill)
    driver = open_driver(f"sqlite:{folder}/store.db")
    async with open_store(driver) as store:
        watch_commits(world, driver)
        agent = _build(world, store)
        config = {"configurable": {"thread_id": "t"}}
        found = await agent.aget_state(config)
        given: Any = None if found.values else {"messages": [HumanMessage("go", id="go")]}
        if found.interrupts:
            given = Command(resume=True)
        state = await drive(agent, given, way=way)
        while "__interrupt__" in state:
            world.die("while a person is asked")
            state = await drive(agent, Command(resume=True), way=way)
        return {
            "said": [[one.type, str(one.content), one.name] for one in state["messages"]],
            "world": [" ".join(one.split()[:2]) for one in world.lines()],
        }


def play(line: Line | None, folder: str, kill: str | None = None, way: Way = "ainvoke") -> dict[str, Any]:
    """Begin, or go on; what was said, and what has happened in the world."""
    return asyncio.run(_play(folder, kill, way))


async def _play_stock(folder: str, kill: bool) -> list[str]:
    world = World(folder, "stock")

    @langchain_tool
    async def pay(order: str) -> str:
        """Pay."""
        _note(world, f"pay {order}")
        if kill:
            world.die("stock")
        return f"paid {order}"

    async with open_store(f"sqlite:{folder}/store.db") as store:
        model = ScriptedChat(script=[[("pay", {"order": "a"})], "all done"])
        agent: Any = create_agent(model, [pay], checkpointer=HoldfastSaver(store))
        found = await agent.aget_state({"configurable": {"thread_id": "t"}})
        await drive(agent, None if found.values else {"messages": [HumanMessage("go", id="go")]})
    return world.lines()


def play_stock(line: Line | None, folder: str, kill: bool = False) -> list[str]:
    """The same without the middleware; what has happened in the world."""
    return asyncio.run(_play_stock(folder, kill))
