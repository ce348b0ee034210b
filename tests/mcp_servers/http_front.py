"""A server on stdio, behind an address: streamable HTTP in front of one process for each session.

In the newer era there are no sessions: one process answers all requests, whose ids are made different first.
What a server says that is no answer goes to the request that it belongs to, as far as that can be known.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import socket
import threading
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, TypeAlias
from uuid import uuid4

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.crash.fork_server import DEADLINE_S

Json: TypeAlias = Any
VERSION, METHOD, SESSION = "mcp-protocol-version", "mcp-method", "mcp-session-id"
MODERN = "2026-07-28"
_META_VERSION = "io.modelcontextprotocol/protocolVersion"
_SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
_STATUS = {-32601: 404, -32602: 400, -32020: 400, -32021: 400, -32022: 400}
_LOCAL = ("127.0.0.1", "localhost", "[::1]")


class _Stdio:
    """A running server, and who waits for what it says."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._numbers = itertools.count(1)
        self._open: dict[Json, tuple[Json, Json, asyncio.Queue[Json]]] = {}
        """By the id on stdio: the client's id, its progress token, its stream."""
        self.others: asyncio.Queue[Json] = asyncio.Queue()
        """What belongs to no request."""
        self._reader = asyncio.ensure_future(self._read())

    async def say(self, message: Json) -> None:
        if message.get("method") == "notifications/cancelled":
            wanted = message["params"].get("requestId")
            ours = next((id for id, one in self._open.items() if one[0] == wanted), wanted)
            message = {**message, "params": {**message["params"], "requestId": ours}}
        await self._write(message)

    async def _write(self, message: Json) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message).encode() + b"\n")
        await self._process.stdin.drain()

    async def ask(self, message: Json) -> AsyncIterator[Json]:
        """What comes until the answer, and that."""
        id, heard = next(self._numbers), asyncio.Queue[Json]()
        meta = (message.get("params") or {}).get("_meta") or {}
        self._open[id] = message["id"], meta.get("progressToken"), heard
        try:
            await self.say({**message, "id": id})
            while True:
                found = await heard.get()
                yield found
                if "method" not in found:
                    return
        finally:
            if self._open.pop(id, None) is not None:
                with suppress(ConnectionError):
                    await self.say(
                        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}}
                    )

    async def end(self) -> None:
        self._reader.cancel()
        with suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()

    async def _read(self) -> None:
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            message = json.loads(line)
            if "method" not in message:
                asked = self._open.pop(message["id"], None)
                if asked is not None:
                    asked[2].put_nowait({**message, "id": asked[0]})
                continue
            params = message.get("params") or {}
            subscription = self._open.get((params.get("_meta") or {}).get(_SUBSCRIPTION))
            if subscription is not None:
                params["_meta"][_SUBSCRIPTION] = subscription[0]
                subscription[2].put_nowait(message)
                continue
            token = params.get("progressToken")
            fitting = [one for one in self._open.values() if token is not None and one[1] == token]
            newest = [*fitting, *reversed(self._open.values())]
            (newest[0][2] if newest else self.others).put_nowait(message)


class HttpFront:
    """The address, in front of as many processes as it needs."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command
        self._sessions: dict[str, _Stdio] = {}
        self._shared: _Stdio | None = None
        self._starting = asyncio.Lock()
        self.app = Starlette(
            routes=[Route("/mcp", self._take, methods=["GET", "POST", "DELETE"])], lifespan=self._live
        )

    @asynccontextmanager
    async def _live(self, app: Starlette) -> AsyncIterator[None]:
        yield
        for one in [*self._sessions.values(), *([self._shared] if self._shared else [])]:
            await one.end()

    async def _start(self) -> _Stdio:
        return _Stdio(
            await asyncio.create_subprocess_exec(*self._command, stdin=PIPE, stdout=PIPE, limit=1 << 24)
        )

    async def _take(self, request: Request) -> Response:
        host = request.headers.get("host", "").rpartition(":")[0]
        origin = request.headers.get("origin", "")
        if host not in _LOCAL or (origin and origin.partition("://")[2].rpartition(":")[0] not in _LOCAL):
            return Response(status_code=403)
        if request.method == "POST":
            return await self._take_message(request, await request.json())
        session = self._sessions.get(request.headers.get(SESSION, ""))
        if session is None:
            return Response(status_code=405 if SESSION not in request.headers else 404)
        if request.method == "DELETE":
            del self._sessions[request.headers[SESSION]]
            await session.end()
            return Response(status_code=200)
        return _stream(_forever(session.others))

    async def _take_message(self, request: Request, message: Json) -> Response:
        meta = (message.get("params") or {}).get("_meta") or {}
        if request.headers.get(VERSION) == MODERN or _META_VERSION in meta:
            return await self._take_modern(request, message, meta)
        headers: dict[str, str] = {}
        if message.get("method") == "initialize":
            headers[SESSION] = uuid4().hex
            self._sessions[headers[SESSION]] = await self._start()
        session = self._sessions.get(headers.get(SESSION) or request.headers.get(SESSION, ""))
        if session is None:
            return Response(status_code=400 if SESSION not in request.headers else 404)
        if "method" not in message or "id" not in message:
            await session.say(message)
            return Response(status_code=202)
        return _stream(session.ask(message), headers)

    async def _take_modern(self, request: Request, message: Json, meta: Json) -> Response:
        async with self._starting:
            if self._shared is None:
                self._shared = await self._start()
        if "id" not in message:
            await self._shared.say(message)
            return Response(status_code=202)
        wrong = [
            name
            for name, said in ((VERSION, meta.get(_META_VERSION)), (METHOD, message.get("method")))
            if said is not None and request.headers.get(name, said) != said
        ]
        if wrong:
            error = {"code": -32020, "message": f"{wrong} and the message differ"}
            return JSONResponse({"jsonrpc": "2.0", "id": message["id"], "error": error}, 400)
        answers = self._shared.ask(message)
        first = await anext(answers)
        if "method" not in first:
            with suppress(StopAsyncIteration):
                await anext(answers)
            return JSONResponse(first, _STATUS.get(first.get("error", {}).get("code"), 200))
        return _stream(_chain(first, answers))


async def _chain(first: Json, following: AsyncIterator[Json]) -> AsyncIterator[Json]:
    yield first
    async for one in following:
        yield one


async def _forever(heard: asyncio.Queue[Json]) -> AsyncIterator[Json]:
    while True:
        yield await heard.get()


def _stream(messages: AsyncIterator[Json], headers: dict[str, str] | None = None) -> Response:
    async def events() -> AsyncIterator[bytes]:
        async for one in messages:
            yield f"event: message\ndata: {json.dumps(one)}\n\n".encode()

    return StreamingResponse(events(), media_type="text/event-stream", headers=headers)


@contextmanager
def behind_address(command: Sequence[str]) -> Iterator[str]:
    """The server that the command starts, behind a URL on this machine."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        config = uvicorn.Config(
            HttpFront(command).app, log_config=None, ws="none", lifespan="on", timeout_graceful_shutdown=1
        )
        running = uvicorn.Server(config)
        thread = threading.Thread(target=running.run, args=([listening],), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}/mcp"
        finally:
            running.should_exit = True
            thread.join(DEADLINE_S)
