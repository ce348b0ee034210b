"""The server behind the proxy, where it has an address: streamable HTTP, in both eras of the protocol.

Each message is a request of its own. One that fails is answered in the server's place, and `find_delivery`
says of that answer what became of the request: the others go on.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import anyio
import httpx2
import msgspec
from anyio.abc import TaskGroup
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from msgspec import Struct

from ..limits import (
    MCP_CONNECT_S,
    MCP_LISTEN_PAUSE_MAX_S,
    MCP_LISTEN_PAUSE_S,
    MCP_MESSAGE_BYTES_MAX,
    MCP_RESUME_MAX,
)
from ..redact import show_address
from ..reprs import describe_error
from .delivery import Delivery, find_delivery, mark_delivery
from .http_headers import SESSION, VERSION, ParamHeaders, make_headers
from .http_transport import TellingTransport
from .json_rpc import (
    CONNECTION_CLOSED,
    MessageId,
    NoMessage,
    RpcMessage,
    as_line,
    parse,
)
from .pipes import PipeClosed
from .server_address import ServerAddress

log = logging.getLogger("holdfast")
_HOPS_MAX: Final = 3
_PAUSE_MIN_S: Final = 0.05
_LAST_ID: Final = "last-event-id"
_HEADERS: Final = {"accept": "application/json, text/event-stream", "content-type": "application/json"}


class _Request(Struct):
    """A request whose answer is awaited."""

    scope: anyio.CancelScope
    is_modern: bool


class _Place(Struct):
    """Where to go on with a stream that was cut off: after this event, if it has an id, and after a pause."""

    last_id: str | None
    pause_s: float


class RemoteServer:
    """A server behind an address. It has what `ServerProcess` has, and is its own pipes."""

    def __init__(
        self,
        address: ServerAddress,
        client: httpx2.AsyncClient,
        tasks: TaskGroup,
        sink: MemoryObjectSendStream[bytes],
        source: MemoryObjectReceiveStream[bytes],
    ) -> None:
        self._address, self._client, self._tasks = address, client, tasks
        self._sink, self._source = sink, source
        """What the server says, from the tasks that hear it to `read`."""
        self._session: str | None = None
        self._version: str | None = None
        """Of the protocol, as it was agreed on in the older era."""
        self._hello: bytes | None = None
        """The client's `initialize`, with which a session begins."""
        self._renewing = anyio.Lock()
        self._listening: anyio.CancelScope | None = None
        self._requests: dict[MessageId, _Request] = {}
        self._running: set[anyio.CancelScope] = set()
        self._params = ParamHeaders()
        self._is_closed = False

    @property
    def pipes(self) -> RemoteServer:
        """What is written to and read from."""
        return self

    async def let_end(self) -> None:
        """Tell the server that its session is over."""
        if self._session is None:
            return
        with suppress(httpx2.HTTPError):
            headers = {**self._session_headers(), "accept": "*/*"}
            async with self._request("DELETE", headers, read_s=MCP_CONNECT_S):
                pass

    async def end(self) -> int:
        """Let go of what is under way. The exit code of the proxy."""
        if not self._is_closed:
            self._is_closed = True
            for scope in self._running:
                scope.cancel()
            self._source.close()
        return 0

    def _start(self, work: Callable[..., Awaitable[None]], *args: Any) -> None:
        self._tasks.start_soon(self._run, work, args)

    async def _run(self, work: Callable[..., Awaitable[None]], args: tuple[Any, ...]) -> None:
        if self._is_closed:
            return
        with anyio.CancelScope() as scope:
            self._running.add(scope)
            try:
                await work(*args)
            finally:
                self._running.discard(scope)

    # -- the two pipes -----------------------------------------------------------------------------------

    async def read(self) -> bytes:
        """The next message of the server; nothing at the end."""
        try:
            return await self._source.receive()
        except (anyio.EndOfStream, anyio.ClosedResourceError):
            return b""

    async def write(self, data: bytes) -> None:
        """Send a message. What becomes of a request is in its answer."""
        if self._is_closed:
            raise PipeClosed(is_sent=False)
        message = parse(data)
        if isinstance(message, list):
            self._start(self._tell, data, None)
        elif message.method is None or message.id is None:
            await self._take_notification(data, message)
        else:
            if message.method == "initialize":
                self._hello, self._session, self._version = data, None, None
            is_modern = bool(make_headers(message, self._params))
            # A request with the id of another one: that one is no longer waited for.
            if (other := self._requests.get(message.id)) is not None:
                other.scope.cancel()
            request = self._requests[message.id] = _Request(anyio.CancelScope(), is_modern)
            self._start(self._ask, data, message, request)

    async def _take_notification(self, data: bytes, message: RpcMessage) -> None:
        if message.method == "notifications/cancelled":
            wanted: Any = message.params.get("requestId") if isinstance(message.params, dict) else None
            request = self._requests.get(wanted) if isinstance(wanted, str | int | float) else None
            if request is not None and request.is_modern:
                # In the newer era, to close the stream of a request is to take it back.
                request.scope.cancel()
                return
            if self._version is None and self._session is None:
                return
        if message.method == "notifications/initialized":
            # What comes next relies on it.
            await self._tell(data, message)
            self._start_listening()
        else:
            self._start(self._tell, data, message)

    # -- requests ----------------------------------------------------------------------------------------

    async def _ask(self, data: bytes, message: RpcMessage, request: _Request) -> None:
        """Send a request, and hand on everything up to its answer. There is one, unless it was taken back."""
        assert message.id is not None
        try:
            with request.scope:
                try:
                    await self._post(data, message, message.id)
                except _Failed as failed:
                    await self._answer(message.id, failed)
                except Exception as error:
                    # Such as an encoding that is none. The other requests must go on.
                    text = f"gave no answer that can be read: {describe_error(error)}"
                    await self._answer(message.id, _Failed("lost", 0, text))
        finally:
            if self._requests.get(message.id) is request:
                del self._requests[message.id]

    async def _post(self, data: bytes, message: RpcMessage, id: MessageId) -> None:
        session = self._session
        try:
            await self._post_once(data, message, id)
        except _Failed as failed:
            # The server has forgotten the session, such as by a new start. It has not taken up the request.
            is_forgotten = failed.status == 404 and failed.delivery == "refused" and session is not None
            if not is_forgotten or not await self._renew(session):
                raise
            await self._post_once(data, message, id)

    async def _post_once(self, data: bytes, message: RpcMessage, id: MessageId) -> None:
        headers = self._session_headers() | make_headers(message, self._params)
        async with self._request("POST", headers, content=data) as response:
            if response.status_code == 202:
                raise _Failed("lost", 202, "answered HTTP 202, which announces no answer")
            if message.method == "initialize":
                self._session = response.headers.get(SESSION)
            if not _is_stream(response):
                await self._give(await _read_body(response), message, id)
                return
            place = await self._follow(response, message, id)
        while place is not None:
            place = await self._resume(place, message, id)

    async def _follow(
        self, response: httpx2.Response, message: RpcMessage | None, id: MessageId | None
    ) -> _Place | None:
        """Hand on the messages of a stream. None once the answer was among them."""
        place = _Place(None, MCP_LISTEN_PAUSE_S)
        try:
            async for event in httpx2.EventSource(response, max_event_size=MCP_MESSAGE_BYTES_MAX):
                place.last_id = event.id or place.last_id
                if event.retry is not None:
                    place.pause_s = min(max(event.retry / 1000, _PAUSE_MIN_S), MCP_LISTEN_PAUSE_MAX_S)
                is_message = event.event == "message" and event.data
                if is_message and await self._give(event.data.encode(), message, id):
                    return None
        except httpx2.SSEError as error:
            raise _Failed("lost", 0, f"sent a stream that cannot be read: {describe_error(error)}") from error
        except httpx2.TransportError as error:
            log.info("a stream of the MCP server was cut off: %s", describe_error(error))
        return place

    async def _resume(self, place: _Place, message: RpcMessage, id: MessageId) -> _Place | None:
        """Go on with the stream of a request, where the server offers that."""
        if place.last_id is None:
            raise _Failed("lost", 0, "ended its stream without an answer")
        for _ in range(MCP_RESUME_MAX):
            await anyio.sleep(place.pause_s)
            headers = {**self._session_headers(), "accept": "text/event-stream", _LAST_ID: place.last_id}
            try:
                async with self._request("GET", headers) as response:
                    if response.status_code >= 400 or not _is_stream(response):
                        break
                    found = await self._follow(response, message, id)
                    if found is not None:
                        found.last_id = found.last_id or place.last_id
                    return found
            except httpx2.TransportError as error:
                log.info("the MCP server cannot be reached: %s", describe_error(error))
        raise _Failed("lost", 0, "cut off its stream, and did not go on with it")

    async def _tell(self, data: bytes, message: RpcMessage | None) -> None:
        """Send what has no answer."""
        headers = self._session_headers() | (make_headers(message, self._params) if message else {})
        what = "a batch" if message is None else message.method or "an answer"
        try:
            async with self._request("POST", headers, content=data, read_s=MCP_CONNECT_S) as response:
                if _is_stream(response):
                    await self._follow(response, None, None)
                    return
                body = await _read_body(response)
                if message is None and body.strip():
                    await self._give(body, None, None)
                elif response.status_code >= 400:
                    log.warning("the MCP server answered %s with HTTP %d", what, response.status_code)
        except (_Failed, httpx2.HTTPError) as error:
            log.warning("%s did not reach the MCP server: %s", what, describe_error(error))

    @asynccontextmanager
    async def _request(
        self,
        method: str,
        headers: Mapping[str, str],
        *,
        content: bytes | None = None,
        read_s: float | None = None,
    ) -> AsyncIterator[httpx2.Response]:
        """The response to a request; redirects within the same origin are followed."""
        limits = httpx2.Timeout(MCP_CONNECT_S, read=read_s)
        request = self._client.build_request(
            method, self._address.url, headers=dict(headers), content=content, timeout=limits
        )
        response = await self._client.send(request, stream=True, follow_redirects=False)
        for _ in range(_HOPS_MAX):
            following = response.next_request
            if following is None or not _is_safe_hop(request, following):
                break
            await response.aclose()
            request = following
            response = await self._client.send(request, stream=True, follow_redirects=False)
        try:
            if response.next_request is not None:
                place, status = show_address(str(response.next_request.url)), response.status_code
                # "See other" may be said of what was done.
                raise _Failed("lost" if status == 303 else "refused", status, f"points to {place}")
            yield response
        finally:
            with anyio.CancelScope(shield=True):
                await response.aclose()

    # -- sessions of the older era -----------------------------------------------------------------------

    def _session_headers(self) -> dict[str, str]:
        headers = dict(_HEADERS)
        if self._session is not None:
            headers[SESSION] = self._session
        if self._version is not None:
            headers[VERSION] = self._version
        return headers

    async def _renew(self, session: str | None) -> bool:
        """Begin another session, unless that was done meanwhile. False if it cannot be."""
        async with self._renewing:
            if self._session != session:
                return True
            hello = parse(self._hello) if self._hello is not None else None
            if not isinstance(hello, RpcMessage) or hello.id is None:
                return False
            try:
                async with self._request("POST", _HEADERS, content=hello.line) as response:
                    if response.status_code >= 400:
                        return False
                    renewed = response.headers.get(SESSION)
                    # The client has had such an answer before: this one is not for it.
                    if _is_stream(response):
                        async for event in httpx2.EventSource(response):
                            if event.data:
                                break
                    else:
                        await _read_body(response)
            except (_Failed, httpx2.HTTPError, httpx2.SSEError) as error:
                log.warning("no new session with the MCP server: %s", describe_error(error))
                return False
            self._session = renewed
            ready = as_line({"jsonrpc": "2.0", "method": "notifications/initialized"})
            await self._tell(ready, RpcMessage(ready, {"method": "notifications/initialized"}))
            log.info("the MCP server has forgotten its session; another one was begun")
            self._start_listening()
            return True

    def _start_listening(self) -> None:
        """Hear what belongs to no request, in a stream of its own, where the server has sessions."""
        if self._listening is not None:
            self._listening.cancel()
            self._listening = None
        if self._session is not None:
            self._listening = anyio.CancelScope()
            self._start(self._listen, self._listening)

    async def _listen(self, scope: anyio.CancelScope) -> None:
        last_id: str | None = None
        pause_s = MCP_LISTEN_PAUSE_S
        with scope:
            while True:
                headers = {**self._session_headers(), "accept": "text/event-stream"}
                if last_id is not None:
                    headers[_LAST_ID] = last_id
                try:
                    async with self._request("GET", headers) as response:
                        if response.status_code >= 400 or not _is_stream(response):
                            return  # It has none, or no such session: the next request will tell.
                        place = await self._follow(response, None, None)
                        if place is not None:
                            last_id, pause_s = place.last_id or last_id, place.pause_s
                except _Failed as failed:
                    log.warning("what the MCP server says by itself is not heard any more: it %s", failed)
                    return
                except httpx2.HTTPError:
                    pause_s = min(2 * pause_s, MCP_LISTEN_PAUSE_MAX_S)
                await anyio.sleep(pause_s)

    # -- what the server says ----------------------------------------------------------------------------

    async def _give(self, body: bytes, message: RpcMessage | None, id: MessageId | None) -> bool:
        """Hand on a message. True if it is the answer to the request with this id."""
        line = b" ".join(body.splitlines()).strip() + b"\n"
        if len(line) > MCP_MESSAGE_BYTES_MAX:
            raise _Failed("lost", 0, f"answered with more than {MCP_MESSAGE_BYTES_MAX:,} bytes")
        try:
            found = parse(line)
        except NoMessage as error:
            if id is None:
                log.warning("the MCP server sent something that is no JSON-RPC: %s", error)
                return False
            raise _Failed("lost", 0, f"answered with something that is no JSON-RPC: {error}") from error
        one = next((each for each in found if each.id == id), None) if isinstance(found, list) else found
        is_answer = one is not None and one.is_response and id is not None and one.id in (id, None)
        if is_answer:
            assert one is not None
            said: Any = one.error if isinstance(one.error, dict) else {}
            data: Any = said.get("data")
            if (delivery := find_delivery(data)) is not None:
                raise _Failed(delivery, data["status"], _explain(delivery, data["status"], said["message"]))
            if one.id is None and not isinstance(found, list):
                line = _with_id(line, id)
            self._learn(message, one)
        await self._sink.send(line)
        return is_answer

    def _learn(self, message: RpcMessage | None, answer: RpcMessage) -> None:
        if message is None or not isinstance(answer.result, dict):
            return
        if message.method == "tools/list":
            self._params.learn(answer.result)
        elif message.method == "initialize":
            version = answer.result.get("protocolVersion")
            self._version = version if isinstance(version, str) else None

    async def _answer(self, id: MessageId, failed: _Failed) -> None:
        text = f"holdfast: the MCP server at {show_address(self._address.url)} {failed}"
        data = mark_delivery(failed.delivery, failed.status)
        error = {"code": CONNECTION_CLOSED, "message": text, "data": data}
        await self._sink.send(as_line({"jsonrpc": "2.0", "id": id, "error": error}))


class _Failed(Exception):
    """A request has no answer of the server's. The text goes on a sentence that begins with the server."""

    def __init__(self, delivery: Delivery, status: int, text: str) -> None:
        super().__init__(text)
        self.delivery, self.status = delivery, status


def _explain(delivery: Delivery, status: int, text: str) -> str:
    if status in (401, 403):
        return (
            f"answered {text}: it wants to know who asks. Start the proxy with --header "
            "Authorization=VARIABLE, where the environment variable holds what the header is to say, such as "
            "'Bearer …'. The proxy does not sign in by itself (OAuth)"
        )
    if delivery == "unsent":
        return f"cannot be reached: {text}. Is it running, and is this its address?"
    if delivery == "refused":
        place = ". Is this the address of its MCP endpoint, often …/mcp?" if status in (404, 405) else ""
        return f"answered {text}{place}"
    return f"gave no answer that says what became of this request: {text}"


def _is_stream(response: httpx2.Response) -> bool:
    kind: str = response.headers.get("content-type", "")
    return kind.partition(";")[0].strip().lower() == "text/event-stream"


async def _read_body(response: httpx2.Response) -> bytes:
    body = bytearray()
    try:
        async for part in response.aiter_bytes():
            body += part
            if len(body) > MCP_MESSAGE_BYTES_MAX:
                raise _Failed("lost", 0, f"answered with more than {MCP_MESSAGE_BYTES_MAX:,} bytes")
    except httpx2.TransportError as error:
        raise _Failed("lost", 0, f"broke off in its answer: {describe_error(error)}") from error
    return bytes(body)


def _is_safe_hop(request: httpx2.Request, following: httpx2.Request) -> bool:
    """Whether a redirect keeps the message, and leads to nobody else who would see the headers."""
    here, there = request.url, following.url
    same = (here.scheme, here.host, here.port) == (there.scheme, there.host, there.port)
    return same and request.method == following.method and not there.userinfo


def _with_id(line: bytes, id: MessageId | None) -> bytes:
    """The answer to a request whose id the server could not read."""
    members: dict[str, Any] = msgspec.json.decode(line)
    return as_line({**members, "id": id})


@asynccontextmanager
async def connected(address: ServerAddress) -> AsyncIterator[RemoteServer]:
    """A server behind an address, until the end of the block. Nothing is sent to it yet."""
    client = httpx2.AsyncClient(headers=dict(address.headers), transport=TellingTransport())
    sink, source = anyio.create_memory_object_stream[bytes](0)
    async with client, sink, source, anyio.create_task_group() as tasks:
        server = RemoteServer(address, client, tasks, sink, source)
        try:
            yield server
        finally:
            with anyio.CancelScope(shield=True):
                await server.end()
