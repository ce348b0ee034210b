"""The client of the OpenAI Agents SDK over stdio, which makes failed calls again by itself.

python with_openai_agents.py TOOL ARGUMENTS TIMES COMMAND …    TIMEOUT_S in the environment: that of a call
"""

import asyncio
import json
import os
import sys

from agents.mcp import MCPServerStdio, MCPServerStdioParams


async def main(tool: str, arguments: str, times: str, *, command: list[str]) -> None:
    """List the tools, and call one so often; one line of JSON."""
    params = MCPServerStdioParams(command=command[0], args=command[1:], env=dict(os.environ))
    timeout_s = float(os.environ.get("TIMEOUT_S", "120"))
    async with MCPServerStdio(
        params, max_retry_attempts=2, client_session_timeout_seconds=timeout_s, name="server"
    ) as server:
        tools = await server.list_tools()
        said = []
        for _ in range(int(times)):
            result = await server.call_tool(tool, json.loads(arguments))
            said.append([getattr(block, "text", "") for block in result.content])
        print(json.dumps({"tools": [one.name for one in tools], "said": said}))


asyncio.run(main(*sys.argv[1:4], command=sys.argv[4:]))
