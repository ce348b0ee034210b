"""An agent of strands with a `FileSessionManager`: made again with the same session id, and spoken to."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

from strands import Agent, tool
from strands.models import Model
from strands.session.file_session_manager import FileSessionManager

from .stage import FINISHED, GO_ON, PROMPT, SESSION, TOOLS, Stage, number_of


class Script(Model):
    """The scripted model."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    def update_config(self, **model_config: Any) -> None:
        """There is none."""

    def get_config(self) -> Any:
        """There is none."""
        return {}

    def structured_output(self, *args: Any, **named: Any) -> Any:
        """Nobody asks for it here."""
        raise NotImplementedError

    async def stream(self, messages: Any, *more: Any, **named: Any) -> AsyncIterator[Any]:
        """The next reply."""
        blocks = [block for message in messages for block in message["content"]]
        called = [block["toolUse"]["toolUseId"] for block in blocks if "toolUse" in block]
        results = {
            block["toolResult"]["toolUseId"]: block["toolResult"]["content"][0]["text"]
            for block in blocks
            if "toolResult" in block
        }
        calls = await self._stage.reply(called, results)
        yield {"messageStart": {"role": "assistant"}}
        for id, name in calls:
            yield {"contentBlockStart": {"start": {"toolUse": {"toolUseId": id, "name": name}}}}
            yield {
                "contentBlockDelta": {"delta": {"toolUse": {"input": json.dumps({"number": number_of(id)})}}}
            }
            yield {"contentBlockStop": {}}
        if not calls:
            yield {"contentBlockStart": {"start": {}}}
            yield {"contentBlockDelta": {"delta": {"text": "settled"}}}
            yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "tool_use" if calls else "end_turn"}}


def make_tool(stage: Stage, name: str) -> Any:
    """One of the clerk's tools."""

    @tool(name=name, description="Do it.")
    async def body(number: int) -> str:
        """Do it."""
        return await stage.act(name, number)

    return body


async def work(stage: Stage) -> str:
    """Begin with the order; where there is a conversation already, ask to go on."""
    sessions = FileSessionManager(session_id=SESSION, storage_dir=str(stage.folder / "sessions"))
    agent = Agent(
        model=Script(stage),
        tools=[make_tool(stage, name) for name in TOOLS],
        session_manager=sessions,
        agent_id="clerk",
        callback_handler=None,
    )
    go_on = None if stage.variant == "no prompt" else GO_ON
    await agent.invoke_async(go_on if agent.messages else PROMPT)
    return FINISHED
