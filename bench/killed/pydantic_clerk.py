"""The clerk as an agent of pydantic-ai."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    ModelResponsePart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.tools import Tool
from pydantic_ai.usage import UsageLimits

from .stage import TOOLS, Stage, number_of

LIMITS = UsageLimits(request_limit=None)


def make_agent(stage: Stage, declare: Callable[[str], Mapping[str, Any] | None]) -> Agent[None, str]:
    """The same whoever makes it durable; `declare` gives a tool's metadata."""

    async def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        parts = [part for message in messages for part in message.parts]
        called = [part.tool_call_id for part in parts if isinstance(part, ToolCallPart)]
        results = {part.tool_call_id: str(part.content) for part in parts if isinstance(part, ToolReturnPart)}
        calls = await stage.reply(called, results)
        said: list[ModelResponsePart] = [
            ToolCallPart(name, {"number": number_of(id)}, tool_call_id=id) for id, name in calls
        ]
        return ModelResponse(parts=said or [TextPart("settled")])

    def make_tool(name: str) -> Tool[None]:
        async def body(number: int) -> str:
            """Do it."""
            return await stage.act(name, number)

        metadata = declare(name)
        return Tool(body, name=name, metadata=None if metadata is None else dict(metadata))

    return Agent(FunctionModel(model), name="clerk", tools=[make_tool(name) for name in TOOLS])
