"""holdfast's own agent: `run`, and after a death `resume`."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import holdfast
from holdfast import Agent, Landed, NotLanded, open_store
from holdfast.agents import Prompt, Reply
from holdfast.messages import Block, Message, Text, ToolCall, ToolResult

from .stage import ASKED, EFFECTS, FINISHED, PROMPT, SESSION, STEPS_MAX, TOOLS, Stage, number_of


class Script:
    """The scripted model."""

    name = "scripted"

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    async def ask(self, prompt: Prompt) -> AsyncGenerator[Reply, None]:
        """The next reply."""
        blocks = [block for message in prompt.messages for block in getattr(message, "blocks", ())]
        called = [block.id for block in blocks if isinstance(block, ToolCall)]
        results = {block.call_id: str(block.content) for block in blocks if isinstance(block, ToolResult)}
        calls: list[Block] = [
            ToolCall(id=id, name=name, args={"number": number_of(id)})
            for id, name in await self._stage.reply(called, results)
        ]
        yield Reply(message=Message(role="assistant", blocks=tuple(calls) or (Text("settled"),)))


def make_agent(stage: Stage) -> Agent[Any, Any]:
    """The clerk."""

    tools = [make_tool(stage, name) for name in TOOLS]
    return Agent(Script(stage), name="clerk", tools=tools, max_steps=STEPS_MAX)


def make_tool(stage: Stage, name: str) -> Any:
    """One of the clerk's tools, with a hook that asks the world, unless nobody can ask it."""

    async def body(number: int) -> str:
        """Do it."""
        return await stage.act(name, number)

    async def verify(number: int) -> Landed | NotLanded:
        return Landed(f"{name} done") if stage.has_happened(name) else NotLanded()

    if name not in EFFECTS:
        return holdfast.tool(name=name, side_effects={"read"})(body)
    hook = None if stage.variant == "no verify" else verify
    return holdfast.tool(name=name, side_effects={"mutate"}, verify=hook)(body)


async def work(stage: Stage) -> str:
    """The store is PostgreSQL where there is one."""
    url = stage.database or f"sqlite:{stage.folder}/agents.db"
    async with open_store(url, lease_s=stage.lease_s) as store:
        agent = make_agent(stage)
        try:
            outcome = await agent.resume(SESSION, store=store, wait_s=stage.wait_s)
        except holdfast.errors.NotFound:
            outcome = await agent.run(PROMPT, session=SESSION, store=store)
        if outcome.status == "completed":
            return FINISHED
        return ASKED if outcome.waiting else f"{outcome.status}: {outcome.reason}"
