"""What an MCP server may be given as, and how to connect to it."""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import PurePath
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

import anyio
import httpx2
from mcp.client import Transport
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.server import Server
from mcp.server.mcpserver import MCPServer
from msgspec import Struct

from ...errors import BadInput
from ...limits import MCP_CONNECT_S, MCP_EVENT_BYTES_MAX, MCP_STDERR_CHARS
from ...mcp_proxy.http_transport import TellingTransport
from ...system import files

log = logging.getLogger("holdfast")
_RUNNERS: Final = re.compile(r"(uvx|pipx|npx|bunx|node|deno|python[\d.]*)")


class HttpServer(Struct, frozen=True):
    """An MCP server behind an address (streamable HTTP): `HttpServer(url, headers={"Authorization": …})`.

    `auth` is one of httpx2's, such as the `OAuthClientProvider` of the `mcp` package.
    """

    url: str
    headers: Mapping[str, str] = {}
    auth: Any = None

    def __repr__(self) -> str:
        return f"HttpServer({public_url(self.url)!r})"


AnyServer: TypeAlias = str | Sequence[str] | StdioServerParameters | HttpServer | Server[Any] | MCPServer
"""A URL, a command with its arguments, the same with options, or a server in this process."""
KnownServer: TypeAlias = StdioServerParameters | HttpServer | Server[Any] | MCPServer


def as_server(given: object) -> KnownServer:
    """The server in one of the forms below; `BadInput` if it is none."""
    if isinstance(given, StdioServerParameters | HttpServer | Server | MCPServer):
        return given
    if isinstance(given, str):
        if urlsplit(given).scheme in ("http", "https"):
            return HttpServer(given)
        raise BadInput(
            f"{given!r} is no URL of an MCP server. Give a command as a list, such as "
            '["uvx", "mcp-server-git"], or a URL, such as "http://127.0.0.1:8000/mcp"'
        )
    if isinstance(given, Sequence) and given and all(isinstance(one, str) for one in given):
        return StdioServerParameters(command=given[0], args=list(given[1:]))
    raise BadInput(
        f"{type(given).__name__} is no MCP server: give a command as a list, a URL, StdioServerParameters, "
        "HttpServer, or a server object of the mcp package"
    )


def name_server(server: KnownServer) -> str:
    """What to call a server that has no name."""
    match server:
        case StdioServerParameters():
            program = PurePath(server.command).stem
            if _RUNNERS.fullmatch(program):  # It says nothing about what it runs.
                started = (PurePath(one).stem for one in server.args if not one.startswith("-"))
                program = next(started, program)
            return program
        case HttpServer():
            return urlsplit(server.url).hostname or "server"
        case _:
            return server.name


def public_url(url: str) -> str:
    """The URL without what may be secret: user, password, query."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def describe_server(server: KnownServer) -> str:
    """Where it is, without arguments and headers: they may hold secrets."""
    match server:
        case StdioServerParameters():
            return f"(command {server.command!r})"
        case HttpServer():
            return f"(at {public_url(server.url)})"
        case _:
            return "(in this process)"


class StderrTail:
    """Reads what a server writes to its stderr into the log, and keeps the last of it."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.text = ""

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[Any]:
        """A file to give to the process."""
        source, sink = files.pipe()
        try:
            async with anyio.create_task_group() as tasks:
                with files.open_binary(sink, "wb") as file:
                    tasks.start_soon(self._follow, source)
                    yield file
                tasks.cancel_scope.cancel()
            self._read(source)  # The last words of a process that has just ended.
        finally:
            files.close(source)

    async def _follow(self, source: int) -> None:
        while True:
            await anyio.wait_readable(source)
            if not self._read(source):
                return

    def _read(self, source: int) -> bool:
        """Read what is there. False at the end."""
        try:
            data = files.read(source, 1 << 16)
        except BlockingIOError:
            return True
        text = data.decode(errors="replace")
        for line in text.splitlines():
            log.info("MCP server %s says %r", self._name, line)
        self.text = (self.text + text)[-MCP_STDERR_CHARS:]
        return bool(data)


def connect(server: StdioServerParameters | HttpServer, stderr: StderrTail) -> Transport:
    """The transport to a server that is not in this process."""
    return _over_pipes(server, stderr) if isinstance(server, StdioServerParameters) else _over_http(server)


@asynccontextmanager
async def _over_pipes(server: StdioServerParameters, stderr: StderrTail) -> AsyncIterator[Any]:
    async with stderr.reading() as file:
        async with stdio_client(server, errlog=file) as streams:
            yield streams


@asynccontextmanager
async def _over_http(server: HttpServer) -> AsyncIterator[Any]:
    # Without a limit on reading: a call has a limit of its own.
    client = httpx2.AsyncClient(
        headers=dict(server.headers),
        auth=server.auth,
        timeout=httpx2.Timeout(MCP_CONNECT_S, read=None),
        transport=TellingTransport(),
    )
    async with (
        client,
        streamable_http_client(
            server.url, http_client=client, max_sse_event_size=MCP_EVENT_BYTES_MAX
        ) as streams,
    ):
        yield streams
