"""A connection to one MCP server: opened by a task of its own, and again after it was lost.

The `mcp` package ties a connection to the task that opened it. So a task owns each connection from beginning
to end, and calls come from any other task.
"""

from __future__ import annotations

import logging
import math
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from contextvars import ContextVar, copy_context
from importlib.metadata import version
from typing import Any, Final, TypeAlias, cast

import anyio
import anyio.lowlevel
import mcp_types as types
from mcp import Client, MCPError
from mcp.client import ClientRequestContext, ClientSession, Transport
from mcp.client.session import ElicitationFnT, ListRootsFnT, SamplingFnT
from mcp.client.stdio import StdioServerParameters
from mcp.client.subscriptions import SubscriptionLost
from mcp.shared.dispatcher import ProgressFnT
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from msgspec import Struct
from pydantic import TypeAdapter, ValidationError

from ...limits import MCP_INPUT_ROUNDS_MAX, MCP_LISTEN_PAUSE_MAX_S, MCP_LISTEN_PAUSE_S, MCP_TOOLS_MAX
from ...mcp_proxy.delivery import find_delivery
from ...messages import Json
from ...reprs import describe_error
from ...system import aio
from .errors import CallLost, CallRefused, ServerUnreachable
from .servers import (
    HttpServer,
    KnownServer,
    StderrTail,
    connect,
    describe_server,
)

log = logging.getLogger("holdfast")

OnProgress: TypeAlias = ProgressFnT
_Answer: TypeAlias = types.CallToolResult | types.InputRequiredResult
_ANSWERS: Final[TypeAdapter[_Answer]] = TypeAdapter(types.CallToolResult | types.InputRequiredResult)

_REFUSALS: Final = frozenset(
    {
        types.METHOD_NOT_FOUND,
        types.INVALID_PARAMS,
        types.HEADER_MISMATCH,
        types.MISSING_REQUIRED_CLIENT_CAPABILITY,
        types.UNSUPPORTED_PROTOCOL_VERSION,
        types.URL_ELICITATION_REQUIRED,
    }
)
"""Errors with which a server says that it has not run the tool."""


class Callbacks(Struct, frozen=True):
    """What answers a server that asks for something during a call."""

    sampling: SamplingFnT | None = None
    elicitation: ElicitationFnT | None = None
    list_roots: ListRootsFnT | None = None


class _Sending(Struct):
    """One attempt to send a call."""

    is_sent: bool = False
    """Whether the request was handed to the transport."""


_sending: ContextVar[_Sending | None] = ContextVar("holdfast_mcp_sending", default=None)


class Connection:
    """The connection to one server. `on_change` is called when its tools were listed again."""

    def __init__(
        self,
        name: str,
        server: KnownServer,
        *,
        protocol: str,
        open_timeout_s: float,
        callbacks: Callbacks,
        on_change: Callable[[Connection], object],
    ) -> None:
        self.name, self.server = name, server
        self.protocol, self.open_timeout_s, self.callbacks = protocol, open_timeout_s, callbacks
        self.listed: list[types.Tool] | None = None
        """The tools, as they were listed last."""
        self._on_change = on_change
        self._life: _Life | None = None
        self.is_closed = False
        # That of a call must not stay with the task of a connection that is opened during the call.
        self._context = copy_context()

    def note(self, listed: list[types.Tool]) -> None:
        """Take in a list of tools."""
        is_first, self.listed = self.listed is None, listed
        if is_first:
            return
        try:
            self._on_change(self)
        except Exception as error:  # That of an application. The connection must not end with it.
            log.error("on_change of the MCP server %r raised %s", self.name, describe_error(error))

    async def open(self) -> None:
        """Connect, unless it is connected; `ServerUnreachable` says why it cannot."""
        await self._find_life()

    async def close(self) -> None:
        """End the connection, and the process of the server."""
        self.is_closed = True
        if self._life is not None:
            self._life.stop()
            with anyio.CancelScope(shield=True):
                await self._life.ended.wait()

    async def _find_life(self) -> _Life:
        """The connection as it is now, opened if there is none."""
        for _ in range(3):
            life = self._life
            if life is None or life.is_over:
                if life is not None:
                    # A process that is being ended could still act beside the new one.
                    await life.ended.wait()
                if self.is_closed:
                    raise ServerUnreachable(
                        self.name, "is closed: call its tools inside of `async with mcp_tools(…)`"
                    )
                if self._life is life:
                    self._life = _Life(self)
                    self._context.copy().run(aio.spawn, self._life.run)
                continue
            await life.opened.wait()
            if life.session is not None and not life.is_over:
                return life
            if life.failure is not None:
                raise ServerUnreachable(self.name, life.failure)
        raise ServerUnreachable(self.name, f"{describe_server(self.server)} ends as soon as it has started")

    async def call(
        self,
        tool: str,
        arguments: Mapping[str, Json],
        *,
        meta: Mapping[str, Json],
        on_progress: OnProgress | None,
    ) -> types.CallToolResult:
        """Call a tool, and return the server's answer, also if that is an error of the tool.

        `ServerUnreachable` and `CallRefused` mean that the tool surely did not run.
        """
        has_tried = False
        while True:
            life = await self._find_life()
            sending = _Sending(is_sent=not life.is_watched)
            token = _sending.set(sending)
            try:
                return await life.call(tool, arguments, meta, on_progress)
            except MCPError as error:
                delivery = find_delivery(error.data) or ("lost" if sending.is_sent else "unsent")
                status = _status_of(error)
                if status == 404 and delivery == "refused":
                    life.end()  # Its session is gone: the next connection begins another one.
                    delivery = "unsent"
                if delivery == "unsent":
                    if has_tried or not life.is_over:
                        raise ServerUnreachable(
                            self.name, f"cannot be reached {describe_server(self.server)}: {error}"
                        ) from error
                elif delivery == "refused" or error.code in _REFUSALS:
                    raise CallRefused(f"the MCP server {self.name!r} refused: {_describe(error)}") from error
                else:
                    raise CallLost(f"the MCP server {self.name!r}: {_describe(error)}") from error
            except ValidationError as error:
                raise CallLost(
                    f"the MCP server {self.name!r} answered with something that is no result of a tool: "
                    f"{describe_error(error)}"
                ) from None
            finally:
                _sending.reset(token)
            has_tried = True


def _status_of(error: MCPError) -> int | None:
    return error.data.get("status") if find_delivery(error.data) is not None else None


def _describe(error: MCPError) -> str:
    urls: list[str] = []
    if error.code == types.URL_ELICITATION_REQUIRED and isinstance(error.data, dict):
        asked = error.data.get("elicitations")
        urls = (
            [str(one.get("url")) for one in asked if isinstance(one, dict)] if isinstance(asked, list) else []
        )
    return f"{error.message} ({error.code})" + (f". Visit {', '.join(urls)}" if urls else "")


class _Life:
    """A connection from its beginning to its end, in the task that `run` is in."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.opened, self.ended = anyio.Event(), anyio.Event()
        """`opened` is set once it is clear whether there is a connection."""
        self.is_watched = isinstance(connection.server, StdioServerParameters | HttpServer)
        """Whether it is known of a call that it was not sent."""
        self.session: ClientSession | None = None
        self.failure: str | None = None
        """Why it could not be opened."""
        self.is_over = False
        self._over = anyio.Event()
        self._changed = anyio.Event()
        self._scope = anyio.CancelScope()
        self._stderr = StderrTail(connection.name)

    def end(self) -> None:
        """Let the task end a connection that is of no more use."""
        self.is_over = True
        self._over.set()

    def stop(self) -> None:
        """Let the task end the connection, also if it is being opened."""
        self.end()
        if not self.opened.is_set():
            self._scope.cancel()

    # -- the task ------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Open the connection, and keep it until it is lost or closed. Never raises an `Exception`."""
        connection = self._connection
        self._scope.deadline = anyio.current_time() + connection.open_timeout_s
        error: Exception | None = None
        try:
            with self._scope:
                async with AsyncExitStack() as stack:
                    client = await stack.enter_async_context(self._make_client())
                    connection.note(await self._list(client.session))
                    self._scope.deadline = math.inf
                    self.session = client.session
                    self.opened.set()
                    await self._stay(client)
        except Exception as found:
            error = found
        finally:
            self.is_over = True
            if self.session is None:
                self.failure = self._explain(error)
            elif error is not None:
                log.info("the MCP server %r was lost: %s", connection.name, describe_error(error))
            self.opened.set()
            self.ended.set()

    def _make_client(self) -> Client:
        connection = self._connection
        server, callbacks = connection.server, connection.callbacks
        given: Any = server
        if isinstance(server, StdioServerParameters | HttpServer):
            given = self._watch(connect(server, self._stderr))
        return Client(
            given,
            mode=connection.protocol,
            cache=None,
            client_info=types.Implementation(name="holdfast", version=version("holdfast")),
            message_handler=self._on_message,
            sampling_callback=callbacks.sampling,
            elicitation_callback=callbacks.elicitation,
            list_roots_callback=callbacks.list_roots,
        )

    @asynccontextmanager
    async def _watch(self, transport: Transport) -> AsyncIterator[Any]:
        """The transport, with a note of when it ends and of what is sent over it."""
        async with transport as (incoming, outgoing):
            yield _Incoming(incoming, self.end), _Outgoing(outgoing)

    async def _list(self, session: ClientSession) -> list[types.Tool]:
        found: list[types.Tool] = []
        cursor: str | None = None
        while True:
            page = await session.list_tools(params=types.PaginatedRequestParams(cursor=cursor))
            found += page.tools
            if page.next_cursor in (None, "", cursor):
                return found
            if len(found) > MCP_TOOLS_MAX or not page.tools:
                log.warning("the list of tools of the MCP server %r has no end", self._connection.name)
                return found
            cursor = page.next_cursor

    async def _stay(self, client: Client) -> None:
        async with anyio.create_task_group() as tasks:
            offered = client.server_capabilities.tools
            tells = offered is not None and offered.list_changed
            if tells and client.protocol_version in MODERN_PROTOCOL_VERSIONS:
                tasks.start_soon(self._listen, client)
            tasks.start_soon(self._follow_changes, client.session)
            await self._over.wait()
            tasks.cancel_scope.cancel()

    async def _on_message(self, message: object) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            self._changed.set()

    async def _listen(self, client: Client) -> None:
        """Hear of changed tools, where a server tells of them in a stream of its own."""
        pause_s = MCP_LISTEN_PAUSE_S
        while True:
            try:
                async with client.listen(tools_list_changed=True) as changes:
                    async for _ in changes:
                        pause_s = MCP_LISTEN_PAUSE_S
                        self._changed.set()
            except SubscriptionLost:
                pass
            except MCPError as error:
                if error.code in _REFUSALS:
                    return
            await anyio.sleep(pause_s)
            pause_s = min(2 * pause_s, MCP_LISTEN_PAUSE_MAX_S)
            self._changed.set()  # What was said meanwhile is not said again.

    async def _follow_changes(self, session: ClientSession) -> None:
        while True:
            await self._changed.wait()
            self._changed = anyio.Event()
            try:
                self._connection.note(await self._list(session))
            except (MCPError, ValidationError) as error:
                log.warning(
                    "the changed tools of the MCP server %r cannot be listed: %s",
                    self._connection.name,
                    describe_error(error),
                )

    def _explain(self, error: Exception | None) -> str:
        """Why there is no connection, and what to do."""
        server, waited_s = self._connection.server, self._connection.open_timeout_s
        if error is None:
            why = f"has not listed its tools within {waited_s:g} s; pass open_timeout_s=… to wait longer."
        else:
            why = _explain(server, _innermost(error))
        said = self._stderr.text.strip()
        return f"{describe_server(server)} {why}" + (f" It said: {said!r}" if said else "")

    # -- calls, from any task ------------------------------------------------------------------------

    async def call(
        self,
        tool: str,
        arguments: Mapping[str, Json],
        meta: Mapping[str, Json],
        on_progress: OnProgress | None,
    ) -> types.CallToolResult:
        """Call a tool, and answer what the server asks for meanwhile."""
        session = self.session
        assert session is not None
        answers: dict[str, Any] | None = None
        state: str | None = None
        for _ in range(MCP_INPUT_ROUNDS_MAX + 1):
            params = types.CallToolRequestParams(
                name=tool,
                arguments=dict(arguments),
                input_responses=answers,
                request_state=state,
                _meta=cast(Any, dict(meta) or None),
            )
            result = await self._send(session, params, on_progress)
            if isinstance(result, types.CallToolResult):
                return result
            answers, state = await self._answer(session, result), result.request_state
        raise CallRefused(
            f"the MCP server {self._connection.name!r} asked for input more than {MCP_INPUT_ROUNDS_MAX} "
            "times in one call"
        )

    async def _send(
        self, session: ClientSession, params: types.CallToolRequestParams, on_progress: OnProgress | None
    ) -> _Answer:
        # Not with `call_tool`, which raises where a result does not fit the schema of the tool's output. The
        # tool has run by then, and its result must be kept.
        request = types.CallToolRequest(params=params)
        try:
            return await session.send_request(request, _ANSWERS, progress_callback=on_progress)
        except MCPError as error:
            if error.code != types.HEADER_MISMATCH:
                raise
        self._connection.note(await self._list(session))
        return await session.send_request(request, _ANSWERS, progress_callback=on_progress)

    async def _answer(
        self, session: ClientSession, asked: types.InputRequiredResult
    ) -> dict[str, Any] | None:
        """What the server asked for, in the place of a result."""
        if not asked.input_requests:
            await anyio.sleep(_STATE_ONLY_S)
            return None
        answers: dict[str, Any] = {}
        for key, request in asked.input_requests.items():
            context = ClientRequestContext(session=session, request_id=key)
            found = await session.dispatch_input_request(context, request)
            if isinstance(found, types.ErrorData):
                raise CallRefused(
                    f"the MCP server {self._connection.name!r} asks for {request.method}, and there is no "
                    f"answer: {found.message}"
                )
            answers[key] = found
        return answers


_STATE_ONLY_S: Final = 0.1
"""The pause before a call is sent again to a server that only asked for that."""


def _innermost(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    return error


def _explain(server: KnownServer, error: BaseException) -> str:
    """What went wrong while a connection was opened, and what to do."""
    if isinstance(server, StdioServerParameters):
        if isinstance(error, OSError):
            return (
                f"cannot be started: {describe_error(error)}. Give the full path of the command if it is not "
                "in the PATH of this process."
            )
        if isinstance(error, MCPError) and error.code == types.CONNECTION_CLOSED:
            return "ended before it had listed its tools. Does this command start an MCP server on stdio?"
    if isinstance(server, HttpServer) and isinstance(error, MCPError):
        status = _status_of(error)
        if find_delivery(error.data) == "unsent":
            return f"cannot be reached: {error.message}. Is the server running, and is this its address?"
        if status in (401, 403):
            return (
                f"answered {error.message}: it wants to know who asks. Pass HttpServer(url, "
                'headers={"Authorization": …}) or auth=….'
            )
        if status is not None:
            return f"answered {error.message}. Is this the address of its MCP endpoint, often …/mcp?"
    return f"gave no list of tools: {describe_error(error)}."


class _Incoming:
    """What a server sends; `on_end` is called when it sends no more."""

    def __init__(self, inner: Any, on_end: Callable[[], object]) -> None:
        self._inner, self._on_end = inner, on_end

    @property
    def last_context(self) -> Any:
        """The context of what was received last, where the transport keeps it."""
        return getattr(self._inner, "last_context", None)

    async def receive(self) -> Any:
        """The next message."""
        try:
            return await self._inner.receive()
        except (anyio.EndOfStream, anyio.ClosedResourceError):
            self._on_end()
            raise

    def __aiter__(self) -> _Incoming:
        return self

    async def __anext__(self) -> Any:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def aclose(self) -> None:
        """Receive no more."""
        await self._inner.aclose()

    async def __aenter__(self) -> _Incoming:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


class _Outgoing:
    """What is sent to a server. The call in whose context a request is sent is marked before."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    async def send(self, item: Any, /) -> None:
        """Hand a message to the transport."""
        await anyio.lowlevel.checkpoint()  # The end of a server that has ended is noticed first.
        sending = _sending.get()
        if sending is not None and isinstance(item.message, types.JSONRPCRequest):
            sending.is_sent = True
        await self._inner.send(item)

    async def aclose(self) -> None:
        """Send no more."""
        await self._inner.aclose()

    async def __aenter__(self) -> _Outgoing:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()
