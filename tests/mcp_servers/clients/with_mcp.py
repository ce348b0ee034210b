"""The client of the `mcp` package.

python with_mcp.py TOOL ARGUMENTS TIMES COMMAND …
"""

import asyncio
import json
import os
import sys

from mcp import Client
from mcp.client.stdio import StdioServerParameters


async def main(tool: str, arguments: str, times: str, *, command: list[str]) -> None:
    """List the tools, and call one so often; one line of JSON."""
    server = StdioServerParameters(command=command[0], args=command[1:], env=dict(os.environ))
    async with Client(server) as client:
        tools = (await client.list_tools()).tools
        said = []
        for _ in range(int(times)):
            result = await client.call_tool(tool, json.loads(arguments))
            said.append([getattr(block, "text", "") for block in result.content])
        print(json.dumps({"tools": [one.name for one in tools], "said": said}))


asyncio.run(main(*sys.argv[1:4], command=sys.argv[4:]))
