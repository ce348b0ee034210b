"""Tools from MCP servers (extra `mcp`).

`async with mcp_tools(["uvx", "mcp-server-git"]) as tools` gives the tools of a server to an `Agent` or a
`Registry`. A server is a command, a URL, or an object in this process.
"""

from ...tools.effects_by_name import mutate, pure, read, write
from ..compat import check_versions

check_versions("holdfast.adapters.mcp", "mcp", {"mcp": ((2, 3), 3)})

from .errors import CallLost, CallRefused, McpToolError, ServerUnreachable, ToolDidNothing  # noqa: E402
from .servers import HttpServer  # noqa: E402
from .tools import McpTools, mcp_tools  # noqa: E402

__all__ = [
    "CallLost",
    "CallRefused",
    "HttpServer",
    "McpToolError",
    "McpTools",
    "ServerUnreachable",
    "ToolDidNothing",
    "mcp_tools",
    "mutate",
    "pure",
    "read",
    "write",
]
