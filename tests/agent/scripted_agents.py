"""Agents, tools and a world for the tests of the loop."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import holdfast
from holdfast import Agent, Store
from holdfast.agents import Prompt, ScriptedModel
from holdfast.messages import Message, ToolCall


class World:
    """What was done in it, in order."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def do(self, what: str) -> str:
        self.done.append(what)
        return f"{what} done"


class Counting(ScriptedModel):
    """A scripted model that keeps the prompts it was given."""

    def __init__(self, script: Any, **options: Any) -> None:
        super().__init__(script, **options)
        self.prompts: list[Prompt] = []

    def ask(self, prompt: Prompt) -> Any:
        self.prompts.append(prompt)
        return super().ask(prompt)


def call(name: str, id: str | None = None, **args: Any) -> ToolCall:
    """A model's wish."""
    return ToolCall(id=id or f"c-{name}", name=name, args=args)


def make_tools(world: World) -> list[Any]:
    """One of each kind."""

    @holdfast.tool(side_effects={"read"})
    async def look(what: str) -> str:
        """Look something up."""
        return f"{what} is fine"

    @holdfast.tool(side_effects={"mutate"})
    async def pay(what: str) -> str:
        """Pay for something."""
        return world.do(f"pay {what}")

    @holdfast.tool(side_effects={"mutate"}, needs_approval=True)
    async def fire(what: str) -> str:
        """Fire an employee."""
        return world.do(f"fire {what}")

    @holdfast.tool(side_effects={"mutate"})
    async def vanish(what: str) -> str:
        """Does it, and fails."""
        world.do(f"vanish {what}")
        raise OSError("the line went dead")

    return [look, pay, fire, vanish]


def make(script: Any, world: World | None = None, **options: Any) -> Agent[Any, Any]:
    """An agent with the tools of this stage."""
    model = script if isinstance(script, ScriptedModel) else ScriptedModel(script)
    options.setdefault("retry", holdfast.tools.Retry(attempts=3, backoff_s=0.0, jitter=0.0))
    tools = [*options.pop("tools", ()), *make_tools(world or World())]
    return Agent(model, tools=tools, **options)


@asynccontextmanager
async def fresh_store() -> AsyncIterator[Store]:
    """A store in memory."""
    async with holdfast.open_store("memory:") as store:
        yield store


async def texts(store: Store, session: str) -> Sequence[str]:
    """What was said, roles first."""
    found: list[str] = []
    for message in (await store.load(session)).transcript:
        assert isinstance(message, Message)
        said = [_block(block) for block in message.blocks]
        found.append(f"{message.role}: {', '.join(said)}")
    return found


def _block(block: Any) -> str:
    if isinstance(block, holdfast.messages.Text):
        return block.text
    if isinstance(block, ToolCall):
        return f"{block.name}({', '.join(map(str, block.args.values()))})"
    return str(block.content)
