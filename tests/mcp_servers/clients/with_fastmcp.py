"""fastmcp's client, as its documentation has it.

python with_fastmcp.py TOOL ARGUMENTS TIMES COMMAND …
"""

import asyncio
import json
import sys

from fastmcp import Client
from fastmcp.client.transports import StdioTransport


async def main(tool: str, arguments: str, times: str, *, command: list[str]) -> None:
    """List the tools, and call one so often; one line of JSON."""
    async with Client(StdioTransport(command[0], command[1:])) as client:
        tools = await client.list_tools()
        said = []
        for _ in range(int(times)):
            result = await client.call_tool(tool, json.loads(arguments), raise_on_error=False)
            said.append([getattr(block, "text", "") for block in result.content])
        print(json.dumps({"tools": [one.name for one in tools], "said": said}))


asyncio.run(main(*sys.argv[1:4], command=sys.argv[4:]))
