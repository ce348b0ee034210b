"""The tools of a server, asked for without a client: for `holdfast mcp check`."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

import anyio

from ..errors import HoldfastError
from ..limits import MCP_OPEN_S, MCP_TOOLS_MAX
from ..messages import Json
from ..redact import show_address
from ..reprs import describe_error
from .json_rpc import (
    CLIENT_CAPABILITIES,
    METHOD_NOT_FOUND,
    PROTOCOL_VERSION,
    NoMessage,
    RpcMessage,
    as_line,
    error_line,
    parse,
    request,
    result_line,
)
from .pipes import LineTooLong, PipeClosed, iter_lines
from .server import Pipe, find_server
from .server_address import ServerAddress

log = logging.getLogger("holdfast")
_LEGACY: Final = "2025-11-25"
_MODERN: Final = "2026-07-28"


class NoToolsListed(HoldfastError):
    """A server did not list its tools: it ended, it took too long, or it refused. The text says which."""


async def list_tools(
    command: Sequence[str], address: ServerAddress | None = None, *, limit_s: float = MCP_OPEN_S
) -> list[dict[str, Json]]:
    """Start a server, or go to its address, ask for its tools in the era that it speaks, and let go of it."""
    name = repr(command[0]) if address is None else f"at {show_address(address.url)}"
    async with find_server(command, address) as server:
        try:
            with anyio.fail_after(limit_s):
                return await _Conversation(server.pipes).list_tools()
        except TimeoutError:
            kind = "on stdio" if address is None else "with streamable HTTP"
            why = f"did not list its tools within {limit_s:g} s. Is it an MCP server {kind}?"
        except PipeClosed:
            code = await server.end()
            why = f"ended with exit code {code} before it listed its tools; what it wrote to stderr says why"
        except _ServerRefused as error:
            why = f"did not list its tools: {error}"
        finally:
            with anyio.CancelScope(shield=True):
                if address is not None:
                    await server.let_end()
                await server.end()
        raise NoToolsListed(f"the MCP server {name} {why}")


class _ServerRefused(Exception):
    """The server answered with an error."""


class _Conversation:
    def __init__(self, pipes: Pipe) -> None:
        self._pipes = pipes
        self._messages = self._read_messages()
        self._sent = 0

    async def list_tools(self) -> list[dict[str, Json]]:
        """All tools, page by page."""
        hello = {
            "protocolVersion": _LEGACY,
            "capabilities": {},
            "clientInfo": {"name": "holdfast", "version": "check"},
        }
        meta: dict[str, Json] = {}
        try:
            await self._ask("initialize", hello)
            await self._pipes.write(as_line({"jsonrpc": "2.0", "method": "notifications/initialized"}))
        except _ServerRefused:
            # It speaks only the era without a handshake, in which each request says what it is.
            meta = {PROTOCOL_VERSION: _MODERN, CLIENT_CAPABILITIES: {}}
        found: list[dict[str, Json]] = []
        cursor: Json = None
        while True:
            params: dict[str, Json] = {"_meta": meta} if meta else {}
            answer = await self._ask("tools/list", params if cursor is None else {**params, "cursor": cursor})
            page: Any = answer.result
            tools = page.get("tools") if isinstance(page, dict) else None
            if not isinstance(tools, list):
                raise _ServerRefused("its answer holds no list of tools")
            found += [one for one in tools if isinstance(one, dict)]
            cursor = page.get("nextCursor")
            if not isinstance(cursor, str) or not cursor:
                return found
            if len(found) > MCP_TOOLS_MAX or not tools:
                log.warning("the list of tools has no end; the first %d are shown", len(found))
                return found

    async def _ask(self, method: str, params: Json) -> RpcMessage:
        self._sent += 1
        id = self._sent
        await self._pipes.write(request(id, method, params))
        async for message in self._messages:
            if message.is_response and message.id == id:
                if message.error is not None:
                    raise _ServerRefused(_describe(message.error))
                return message
            if message.method is not None and message.id is not None:
                # A client that can do nothing but answer.
                is_ping = message.method == "ping"
                answer = (
                    result_line(message.id, {})
                    if is_ping
                    else error_line(message.id, METHOD_NOT_FOUND, "Method not found")
                )
                await self._pipes.write(answer)
        raise PipeClosed(is_sent=True)

    async def _read_messages(self) -> AsyncIterator[RpcMessage]:
        async for line in iter_lines(self._pipes.read):
            if isinstance(line, LineTooLong):
                raise _ServerRefused("it wrote a message that is longer than the proxy takes")
            if not line.strip():
                continue
            try:
                found = parse(line)
            except NoMessage as error:
                log.warning("the server wrote something that is no message: %s", describe_error(error))
                continue
            for one in found if isinstance(found, list) else [found]:
                yield one


def _describe(error: Json) -> str:
    return f"{error.get('message')} ({error.get('code')})" if isinstance(error, dict) else "an error"
