"""How calls to an MCP server fail, and what is known of the world then."""

from __future__ import annotations

from ...errors import HoldfastError
from ...tools.outcome import Declined, NotDone


class ServerUnreachable(NotDone):
    """An MCP server cannot be started or reached. Nothing was done; a retry helps when the cause is gone."""

    def __init__(self, server: str, why: str) -> None:
        super().__init__(f"the MCP server {server!r} {why}")
        self.server = server


class CallRefused(Declined):
    """An MCP server refused a call before it ran its tool: nothing was done."""


class McpToolError(HoldfastError):
    """A tool of an MCP server answered with an error. Nothing says what it had done by then."""


class ToolDidNothing(McpToolError, Declined):
    """A tool of an MCP server answered with an error, and is believed that nothing was done."""


class CallLost(HoldfastError):
    """The connection to an MCP server ended during a call, or the server gave no answer that can be read."""
