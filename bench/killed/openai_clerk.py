"""The clerk as an agent of the OpenAI Agents SDK."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from typing import Any

from agents import Agent, FunctionTool, Model, ModelResponse, Usage
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

from .stage import TOOLS, Stage, number_of


class Script(Model):
    """The scripted model."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    async def get_response(self, system_instructions: Any, input: Any, *more: Any, **named: Any) -> Any:
        """The next reply."""
        items = [] if isinstance(input, str) else input
        called = [item["call_id"] for item in items if item.get("type") == "function_call"]
        results = {
            item["call_id"]: str(item["output"])
            for item in items
            if item.get("type") == "function_call_output"
        }
        calls = await self._stage.reply(called, results)
        output: list[Any] = [
            ResponseFunctionToolCall(
                arguments=json.dumps({"number": number_of(id)}), call_id=id, name=name, type="function_call"
            )
            for id, name in calls
        ]
        if not output:
            text = ResponseOutputText(annotations=[], text="settled", type="output_text")
            output = [
                ResponseOutputMessage(
                    id="last", content=[text], role="assistant", status="completed", type="message"
                )
            ]
        return ModelResponse(output=output, usage=Usage(), response_id=None)

    def stream_response(self, *args: Any, **named: Any) -> AsyncIterator[Any]:
        """Nobody streams here."""
        raise NotImplementedError


def number_in(arguments: str) -> int:
    """The argument of every tool."""
    number: int = json.loads(arguments)["number"]
    return number


def make_tool(stage: Stage, name: str) -> Any:
    """One of the clerk's tools."""

    async def invoke(context: Any, arguments: str) -> str:
        return await stage.act(name, number_in(arguments))

    schema = {
        "type": "object",
        "properties": {"number": {"type": "integer"}},
        "required": ["number"],
        "additionalProperties": False,
    }
    # Errors go up: a failure of this script must not look like a result.
    return FunctionTool(
        name=name,
        description="Do it.",
        params_json_schema=schema,
        on_invoke_tool=invoke,
        strict_json_schema=True,
    )


def make_agent(
    stage: Stage, declare: Callable[[FunctionTool], FunctionTool] = lambda tool: tool
) -> Agent[Any]:
    """The agent; `declare` says what its tools do."""
    tools = [declare(make_tool(stage, name)) for name in TOOLS]
    return Agent(name="clerk", model=Script(stage), tools=[*tools])
