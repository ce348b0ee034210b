"""Retries of MCP servers: with `max_retry_attempts`, the SDK sends a call that failed again.

It does so also if the call was carried out, and only its answer was lost. Therefore a server makes no retries
while a tool that acts is called: then the call is in doubt, and the ledger decides.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

from agents import FunctionTool
from agents.mcp import MCPServer
from msgspec import Struct

from ...errors import BadInput
from ...tools.declaration import AnyTool

_RETRIES: Final = "max_retry_attempts"


class _PausedRetries(Struct):
    """A server that makes no retries now, and what it is set to."""

    server: MCPServer
    retries: int
    calls: int = 0


_held: dict[int, _PausedRetries] = {}
"""By the id of the server."""


def find_server(tool: FunctionTool, declared: AnyTool, body: object) -> MCPServer | None:
    """The server that must be asked once for each call of the tool; None if there is none. `body` is what the
    SDK calls for it."""
    if tool._mcp_tool_binding is None or not declared.changes_the_world or declared.idempotent_s is not None:
        return None
    first = body.args[0] if isinstance(body, partial) and body.args else None
    if not isinstance(first, MCPServer):
        raise BadInput(
            f"tool {tool.name!r}: this version of the openai-agents SDK makes tools of MCP servers in a way "
            "that holdfast does not know, so it cannot keep the server from repeating a call"
        )
    return first


@contextmanager
def without_retries(server: MCPServer) -> Iterator[None]:
    """Have the server make no retries, as long as a block is entered."""
    found: Any = server
    retries = getattr(found, _RETRIES, 0)
    if not retries and id(server) not in _held:
        yield
        return
    held = _held.setdefault(id(server), _PausedRetries(server, retries))
    held.calls += 1
    setattr(found, _RETRIES, 0)
    try:
        yield
    finally:
        held.calls -= 1
        if not held.calls:
            del _held[id(server)]
            setattr(found, _RETRIES, held.retries)
