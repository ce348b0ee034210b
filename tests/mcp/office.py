"""A server made with the `mcp` package, in this process or behind an address on this machine."""

from __future__ import annotations

import base64
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import anyio
import mcp_types as types
import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import BaseModel

from holdfast.adapters.mcp import McpTools, mcp_tools
from tests.crash.fork_server import DEADLINE_S

PICTURE = b"\x89PNG\r\n\x1a\n" + bytes(2_000_000)
SOUND = b"RIFF....WAVE"


class Name(BaseModel):
    """What the server may ask for."""

    name: str


class Office:
    """The server, and what became of its calls."""

    def __init__(self, protocol: str = "auto") -> None:
        self.protocol = protocol
        self.mcp = MCPServer("office")
        self.server: Any = self.mcp
        self.paid: list[str] = []
        self.metas: list[dict[str, Any]] = []
        self.began, self.cancelled = threading.Event(), threading.Event()
        self._add_tools()

    def open(self, **options: Any) -> McpTools:
        """The tools of the server."""
        return mcp_tools(self.server, protocol=self.protocol, **options)

    def _add_tools(self) -> None:
        reads = types.ToolAnnotations(read_only_hint=True)
        tool = self.mcp.tool

        @tool(annotations=types.ToolAnnotations(destructive_hint=True))
        async def pay(to: str, cents: int, ctx: Context[Any, Any]) -> str:
            """Pay somebody."""
            self.metas.append(dict(ctx.request_context.meta or {}))
            self.paid.append(f"{to}:{cents}")
            return "paid"

        @tool(annotations=reads)
        async def look(to: str) -> dict[str, int]:
            """Look up what somebody was paid."""
            return {one: 1 for one in self.paid if one.startswith(to)}

        @tool(annotations=reads)
        async def is_paid(to: str) -> bool:
            """Whether somebody was paid."""
            return any(one.startswith(to) for one in self.paid)

        @tool(annotations=reads, structured_output=False)
        async def show() -> list[types.ContentBlock]:
            """Show something of every kind."""
            encoded = base64.b64encode(PICTURE).decode()
            page = types.TextResourceContents(uri="file:///page.txt", text="a page")
            blob = types.BlobResourceContents(
                uri="file:///a.pdf", blob=base64.b64encode(b"%PDF-").decode(), mime_type="application/pdf"
            )
            return [
                types.TextContent(type="text", text="this"),
                types.ImageContent(type="image", data=encoded, mime_type="image/png"),
                types.AudioContent(
                    type="audio", data=base64.b64encode(SOUND).decode(), mime_type="audio/wav"
                ),
                types.EmbeddedResource(type="resource", resource=page),
                types.EmbeddedResource(type="resource", resource=blob),
                types.ResourceLink(type="resource_link", name="more", uri="https://example.org/more"),
            ]

        @tool(annotations=reads)
        async def walk(ctx: Context[Any, Any]) -> str:
            """Say how far it is."""
            await ctx.report_progress(1, 2, "half way")
            await ctx.report_progress(2, 2)
            return "there"

        @tool()
        async def hang() -> str:
            """Take for ever."""
            self.began.set()
            try:
                await anyio.sleep(DEADLINE_S)
            finally:
                self.cancelled.set()
            return "never"

        @tool()
        async def fail(text: str) -> str:
            """Fail."""
            raise ToolError(text)

        @tool(annotations=reads)
        async def grow(name: str, ctx: Context[Any, Any]) -> str:
            """Add a tool to the server."""

            async def grown() -> str:
                return "grown"

            self.mcp.add_tool(grown, name=name, annotations=reads)
            if self.protocol == "legacy":
                await ctx.session.send_tool_list_changed()
            else:
                await ctx.notify_tools_changed()
            return "grown"


@contextmanager
def serve(server: MCPServer, port: int = 0) -> Iterator[str]:
    """The server over streamable HTTP, in a thread; its URL."""
    with socket.create_server(("127.0.0.1", port)) as listening:
        # Clients must not be able to tell a server that is gone from one that takes its time.
        app = server.streamable_http_app()
        config = uvicorn.Config(app, log_config=None, ws="none", lifespan="on", timeout_graceful_shutdown=1)
        running = uvicorn.Server(config)
        thread = threading.Thread(target=running.run, args=([listening],), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}/mcp"
        finally:
            running.should_exit = True
            thread.join(DEADLINE_S)
