"""An agent of pydantic-ai with the tools of a server. Its model calls one tool, whatever it is told.

python with_pydantic_ai.py TOOL ARGUMENTS TIMES COMMAND …
"""

import asyncio
import json
import sys

from fastmcp.client.transports import StdioTransport
from pydantic_ai import Agent
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    RetryPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel


async def main(tool: str, arguments: str, times: str, *, command: list[str]) -> None:
    """Run the agent; one line of JSON."""
    found: dict[str, list[object]] = {"tools": [], "said": []}
    left = int(times)

    def reply(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        nonlocal left
        found["tools"] = [one.name for one in info.function_tools]
        for part in messages[-1].parts:
            if isinstance(part, ToolReturnPart | RetryPromptPart):
                found["said"].append(
                    [part.content if isinstance(part.content, str) else json.dumps(part.content)]
                )
        if left == 0:
            return ModelResponse(parts=[TextPart("done")])
        left -= 1
        return ModelResponse(parts=[ToolCallPart(tool, json.loads(arguments))])

    # A busy machine takes longer than what is waited for by default.
    transport = StdioTransport(command[0], command[1:])
    toolset = MCPToolset(transport, max_retries=5, init_timeout=120, read_timeout=120)
    async with Agent(FunctionModel(reply), toolsets=[toolset]) as agent:
        await agent.run("Go.")
    print(json.dumps(found))


asyncio.run(main(*sys.argv[1:4], command=sys.argv[4:]))
