"""The relay: two streams of messages that pass each other, and the few of them that it looks into."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, TypeGuard

import anyio

from ..errors import HoldfastError
from ..ids import fresh_call_id
from ..limits import (
    MCP_CALLS_MAX,
    MCP_CANCEL_S,
    MCP_DRAIN_S,
    MCP_KILL_S,
    MCP_MESSAGE_BYTES_MAX,
    MCP_OPEN_S,
    MCP_TOOLS_MAX,
)
from ..messages import Json
from ..reprs import describe_error
from ..system import aio, randomness
from ..tools.context import AnyContext
from ..tools.declaration import Hook
from .answers import error_result, fit_era
from .json_rpc import (
    CLIENT_CAPABILITIES,
    INVALID_PARAMS,
    INVALID_REQUEST,
    PARSE_ERROR,
    MessageId,
    NoMessage,
    RpcMessage,
    as_line,
    describe_error_response,
    error_line,
    list_reserved,
    parse,
    request,
    result_line,
)
from .pipes import LineTooLong, PipeClosed, iter_lines
from .proxied_call import APPROVAL, AnswerLost, NotSent, ProxiedCall, judge
from .proxy_ledger import ProxyAnswer, ProxyLedger
from .server import Pipe
from .tasks import TaskEnd, find_asked, find_end, find_task, find_told
from .tool_catalogue import ProxyTool, ToolCatalogue

log = logging.getLogger("holdfast")
_SHOWN_CHARS: Final = 200
_LISTINGS_MAX: Final = 1_000
"""Requests for a list of tools, and about tasks, that are remembered until they are answered."""
_ENDED_MAX: Final = 1_000
"""Calls that are remembered after their end, because the server may still answer them."""


class _Side:
    """One of the two sides, to which one message is written at a time."""

    def __init__(self, pipe: Pipe) -> None:
        self.pipe = pipe
        self.is_gone = False
        self._lock = anyio.Lock()

    async def send(self, line: bytes, on_begin: Callable[[], None] | None = None) -> None:
        """Write a message, or raise `PipeClosed`. `on_begin` is called just before."""
        async with self._lock:
            if self.is_gone:
                raise PipeClosed(is_sent=False)
            if on_begin is not None:
                on_begin()
            try:
                await self.pipe.write(line)
            except PipeClosed:
                self.is_gone = True
                raise


class _OwnRequest:
    """A request of the proxy's own to the server."""

    def __init__(self) -> None:
        self._answer: RpcMessage | None = None
        self._changed = anyio.Event()

    def set_answer(self, answer: RpcMessage) -> None:
        """Take the server's answer."""
        self._answer = answer
        self._changed.set()

    def lose(self) -> None:
        """Say that there will be no answer."""
        self._changed.set()

    async def wait(self) -> RpcMessage:
        """Wait for the answer; `AnswerLost` if there will be none."""
        await self._changed.wait()
        if self._answer is None:
            raise AnswerLost("the server has ended")
        return self._answer


class Relay:
    """Everything between one client and one server. `run` returns when one of them is gone."""

    def __init__(self, client: Pipe, server: Pipe, catalogue: ToolCatalogue) -> None:
        self._client, self._server = _Side(client), _Side(server)
        self._catalogue = catalogue
        self._ledger: ProxyLedger | None = None
        self._calls: dict[MessageId, ProxiedCall] = {}
        """The calls under way, by the ids that the client gave them."""
        self._ended: dict[MessageId, None] = {}
        """The last calls that the server has seen and the client was told the end of, the oldest first."""
        self._listings: dict[MessageId, None] = {}
        """The client's requests for a list of tools."""
        self._tasks: dict[str, ProxiedCall] = {}
        """The calls that the server carries out as tasks, by the ids of these."""
        self._task_requests: dict[MessageId, tuple[str, ProxiedCall]] = {}
        """The client's requests about these: the method, and the call."""
        self._own_prefix = f"holdfast-{randomness.token_hex(16)}-"
        """What the ids of the proxy's own requests begin with: their answers pass to the other side neither
        while they are awaited nor later."""
        self._own_count = 0
        self._own: dict[MessageId, _OwnRequest] = {}
        """Requests of the proxy's own to the server."""
        self._asked: dict[MessageId, _OwnRequest] = {}
        """Requests of the proxy's own to the client."""
        self._capabilities: Json = None
        """What the client can do, as it said in the older era."""
        self._listing = anyio.Lock()
        self._has_listed = False
        """Whether the proxy has asked for the list itself."""
        self._reserved: dict[str, Json] = {}
        """What the client's last call says about it, in the newer era."""
        self._has_ended_input = False
        self._idle = anyio.Event()

    async def run(self, ledger: ProxyLedger) -> None:
        """Relay until the client or the server is gone, and the calls under way have ended."""
        self._ledger = ledger
        async with anyio.create_task_group() as calls:
            async with anyio.create_task_group() as pumps:

                async def from_client() -> None:
                    await self._follow_client(calls.start_soon)
                    self._has_ended_input = True
                    for own in list(self._asked.values()):
                        own.lose()
                    awaited = [call for _, call in self._task_requests.values()]
                    for call in self._tasks.values():
                        if call not in awaited:
                            call.lose(
                                "its client is gone, and the server has not said how its task has ended"
                            )
                    # What the server still answers is on record then, and not in doubt.
                    with anyio.move_on_after(MCP_DRAIN_S):
                        await self._wait_for_calls()
                    self._end_calls("its client is gone, and the server has not answered")
                    with anyio.move_on_after(MCP_KILL_S):
                        await self._wait_for_calls()
                    calls.cancel_scope.cancel()  # And the other direction, in the group inside of it.

                async def from_server() -> None:
                    await self._follow_server()
                    self._server.is_gone = True
                    self._end_calls("the server ended during the call")
                    for own in list(self._own.values()):
                        own.lose()
                    await self._wait_for_calls()
                    calls.cancel_scope.cancel()

                pumps.start_soon(from_client)
                pumps.start_soon(from_server)
                pumps.start_soon(ledger.follow_inbox)

    def _end_calls(self, why: str) -> None:
        """Let go of the calls under way: what was sent gets no answer, and what was not is not sent."""
        for call in list(self._calls.values()):
            if call.is_sent:
                call.lose(why)
            elif not call.is_answered:
                call.scope.cancel()

    async def _wait_for_calls(self) -> None:
        while self._calls:
            self._idle = anyio.Event()
            await self._idle.wait()

    # -- from the client -------------------------------------------------------------------------------

    async def _follow_client(self, start: Callable[..., object]) -> None:
        async for line in iter_lines(self._client.pipe.read):
            try:
                if isinstance(line, LineTooLong):
                    why = f"a message has more than {MCP_MESSAGE_BYTES_MAX:,} bytes, and was not passed on"
                    await self._client.send(error_line(None, INVALID_REQUEST, f"holdfast: {why}"))
                elif line.strip():
                    await self._take_from_client(line, start)
            except PipeClosed:
                # The server's end is noticed where it is read from; a client that does not listen may go on.
                if self._server.is_gone:
                    return

    async def _take_from_client(self, line: bytes, start: Callable[..., object]) -> None:
        try:
            message = parse(line)
        except NoMessage as error:
            await self._client.send(error_line(None, PARSE_ERROR, f"holdfast: this is no JSON-RPC: {error}"))
            return
        if isinstance(message, list):
            await self._take_batch(line, message)
        elif message.method == "tools/call":
            call = await self._begin_call(message)
            if call is not None:
                start(self._serve, call)
        elif message.method == "notifications/cancelled":
            await self._take_cancellation(message)
        elif message.is_response and self._is_own(message.id):
            if (asked := self._asked.get(message.id)) is not None:
                asked.set_answer(message)
        else:
            if message.method == "initialize" and isinstance(message.params, dict):
                self._capabilities = message.params.get("capabilities")
            self._forget_ended(message)
            is_listing = message.method == "tools/list" and len(self._listings) < _LISTINGS_MAX
            if is_listing and message.id is not None:
                self._listings[message.id] = None
            task = self._tasks.get(find_asked(message) or "")
            if task is not None and message.id is not None and len(self._task_requests) < _LISTINGS_MAX:
                self._task_requests[message.id] = (message.method or "", task)
            await self._server.send(line)

    async def _take_batch(self, line: bytes, batch: list[RpcMessage]) -> None:
        if all(one.method not in ("tools/call", "notifications/cancelled") for one in batch):
            for one in batch:
                self._forget_ended(one)
            await self._server.send(line)
            return
        why = "holdfast: calls of tools and cancellations are sent one by one, not in a batch"
        errors = [
            describe_error_response(one.id, INVALID_REQUEST, why)
            for one in batch
            if one.method is not None and one.id is not None
        ]
        if errors:
            await self._client.send(as_line(errors))
        else:
            log.warning("a batch of the client was not passed on: %s", why)

    def _forget_ended(self, message: RpcMessage) -> None:
        """Let answers pass to a request that has the id of an earlier call."""
        if message.method is not None and message.id is not None:
            self._ended.pop(message.id, None)

    async def _begin_call(self, message: RpcMessage) -> ProxiedCall | None:
        """The call in the message, from now on under way; None if it was refused."""
        params: Any = message.params
        why, code = "", INVALID_REQUEST
        if message.id is None:
            log.warning("a call of a tool without an id was not passed on: its outcome could not be told")
            return None
        if message.id in self._calls:
            why = f"the id {message.id!r} belongs to a call that is still under way"
        elif len(self._calls) >= MCP_CALLS_MAX:
            why = f"{MCP_CALLS_MAX:,} calls are under way; wait for some of them"
        elif not isinstance(params, dict) or not isinstance(params.get("name"), str):
            why, code = "params.name is the name of a tool", INVALID_PARAMS
        elif not isinstance(params.get("arguments") or {}, dict):
            why, code = "params.arguments is an object", INVALID_PARAMS
        if why:
            await self._client.send(error_line(message.id, code, f"holdfast: {why}"))
            return None
        call = self._calls[message.id] = ProxiedCall(message, fresh_call_id())
        self._reserved = list_reserved(call.meta)
        return call

    async def _take_cancellation(self, message: RpcMessage) -> None:
        params: Any = message.params
        wanted = params.get("requestId") if isinstance(params, dict) else None
        call = None
        if isinstance(wanted, str | int | float) and not isinstance(wanted, bool):
            call = self._calls.get(wanted)
        if call is None or call.task is not None:
            await self._server.send(message.line)
            return
        call.is_cancelled = True
        if call.is_sent:
            await self._server.send(message.line)
            # The server may be done in this moment: it has a while to say so.
            why = "its client has taken it back, and the server has not answered"
            aio.call_later(MCP_CANCEL_S, lambda: call.lose(why))
        elif not call.is_answered:
            call.scope.cancel()

    # -- from the server -------------------------------------------------------------------------------

    async def _follow_server(self) -> None:
        async for line in iter_lines(self._server.pipe.read):
            if isinstance(line, LineTooLong):
                log.error(
                    "the MCP server wrote a message of more than %s bytes: the connection ends",
                    f"{MCP_MESSAGE_BYTES_MAX:,}",
                )
                return
            if line.strip():
                await self._take_from_server(line)

    async def _take_from_server(self, line: bytes) -> None:
        try:
            message = parse(line)
        except NoMessage:
            shown = line[:_SHOWN_CHARS].decode(errors="replace").strip()
            log.warning(
                "the MCP server wrote something that is no JSON-RPC, which is not passed on: %r", shown
            )
            return
        if not isinstance(message, list):
            if not self._keep_answer(message):
                await self._tell_client(line)
            return
        # A batch: what the proxy waits for is taken out of it.
        left = [one for one in message if not self._keep_answer(one)]
        if len(left) == len(message):
            await self._tell_client(line)
        else:
            for one in left:
                await self._tell_client(one.line)

    def _keep_answer(self, message: RpcMessage) -> bool:
        """Note what the message says. True if it must not reach the client, or not yet."""
        if message.method == "notifications/tools/list_changed":
            self._catalogue.is_stale = True
        if not message.is_response or message.id is None:
            told = self._tasks.get(find_told(message) or "")
            return told is not None and self._note_end(told, find_end(message))
        if self._is_own(message.id):
            if (own := self._own.get(message.id)) is not None:
                own.set_answer(message)
            return True
        call = self._calls.get(message.id)
        if call is not None:
            task = find_task(message.result) if call.is_followed else None
            is_awaited = call.is_sent and call.task is None and call.answer is None
            if is_awaited and task is not None:
                call.task, self._tasks[task] = task, call
                return False
            if not is_awaited or not call.set_answer(message):
                log.warning("the MCP server answered a call that it was not asked; that is not passed on")
            return True
        if message.id in self._ended:
            log.warning(
                "the MCP server answered a call again, or too late: its client was told how it ended, and "
                "that answer is not passed on"
            )
            return True
        if message.id in self._listings:
            del self._listings[message.id]
            self._catalogue.learn(message.result)
        if message.id in self._task_requests:
            method, call = self._task_requests.pop(message.id)
            if call in self._tasks.values():
                return self._note_end(call, find_end(message, asked=method))
        return False

    def _note_end(self, call: ProxiedCall, end: TaskEnd | None) -> bool:
        """Note what a message says of the end of a task. True if it is passed on later, with the outcome on
        record."""
        if end is None:
            return False
        if not end.is_whole:
            call.note_end(end.answer)
            return False
        return call.set_answer(end.answer)

    async def _tell_client(self, line: bytes) -> None:
        with suppress(PipeClosed):  # It has gone, or does not listen; calls under way go on to their end.
            await self._client.send(line)

    # -- calls -----------------------------------------------------------------------------------------

    async def _serve(self, call: ProxiedCall) -> None:
        assert self._ledger is not None
        try:
            with call.scope:
                tool = await self._find_tool(call)
                await self._ledger.serve(call, tool, lambda answer: self._deliver(call, answer))
        except Exception as error:
            # The record cannot be written, or the code of a user is wrong. Nothing unrecorded is told.
            if call.is_answered:
                log.warning("%r: that its outcome was delivered is not on record: %s", call.name, error)
                return
            if not isinstance(error, HoldfastError):
                log.exception("a call of %r failed in the proxy", call.name)
            said = (
                "it was sent to the server, and what became of it could not be recorded"
                if call.is_sent
                else "it was not sent to the server"
            )
            text = f"{call.name}: {said}. {describe_error(error)}"
            await self._deliver(call, ProxyAnswer(error_result(text)))
        finally:
            del self._calls[call.id]
            if call.task is not None and self._tasks.get(call.task) is call:
                del self._tasks[call.task]
            if call.is_sent:
                self._ended.pop(call.id, None)
                self._ended[call.id] = None
                if len(self._ended) > _ENDED_MAX:
                    del self._ended[next(iter(self._ended))]
            if not self._calls:
                self._idle.set()

    async def _deliver(self, call: ProxiedCall, answer: ProxyAnswer) -> bool:
        """Write the answer to the client. False if it surely or probably does not get it."""
        if answer.result is None:
            assert call.answer is not None
            line = call.answer.line
        else:
            line = result_line(call.id, fit_era(answer.result, is_modern=call.is_modern))
        if call.is_cancelled and call.answer is None:
            return False
        if call.task is not None:
            # The call itself was answered with the handle. What is left is the message about its task.
            if call.answer is None:
                return False
            line = call.answer.line
        call.is_answered = True
        try:
            await self._client.send(line)
        except PipeClosed:
            return False
        if call.task is not None and answer.result is not None:
            return False
        # A client that ends its stdin is about to end, and one that has cancelled does not look at it. One
        # whose server is gone is told so right behind the answer, and some drop it then.
        is_closing = self._has_ended_input or self._server.is_gone
        return not is_closing and not call.is_cancelled

    async def elicit(self, call: ProxiedCall, text: str) -> bool | dict[str, Json] | None:
        """Ask the person at the client: what was said, a result that asks, or None if the client cannot."""
        asked: dict[str, Json] = {"message": text, "requestedSchema": {"type": "object", "properties": {}}}
        if call.is_modern:
            if not _can_elicit(call.meta.get(CLIENT_CAPABILITIES)):
                return None
            if call.person_said is not None:
                return _read_action(call.person_said)
            form = {"method": "elicitation/create", "params": {"mode": "form", **asked}}
            return {"resultType": "input_required", "inputRequests": {APPROVAL: form}}
        if not _can_elicit(self._capabilities):
            return None
        id = self._make_own_id()
        own = self._asked[id] = _OwnRequest()
        try:
            await self._client.send(request(id, "elicitation/create", asked))
            return _read_action((await own.wait()).result)
        except (PipeClosed, AnswerLost):
            return None
        finally:
            del self._asked[id]

    def make_body(self, call: ProxiedCall, tool: ProxyTool) -> Hook:
        """The body of a call: hand it to the server, and wait for the answer."""
        changes = tool.tool.changes_the_world
        call.is_followed = changes
        believes_errors = tool.tool.verify is None

        async def forward(arguments: dict[str, Json]) -> Json:
            if call.is_sent:
                raise NotSent("it was sent before")  # Each message has one id, which is answered once.
            await self._hand_over(call, arguments)
            answer = await call.wait()
            try:
                result = judge(answer, believes_errors=believes_errors or not changes)
            except HoldfastError as error:
                if tool.keeps_results:
                    raise
                raise type(error)("the server answered with an error, which is not on record") from None
            if changes and not tool.keeps_results:
                return "its result is not on record (redact_results)"
            return result if changes else f"a result of {len(answer.line):,} bytes, which is not kept"

        async def acting(ctx: AnyContext, /, **arguments: Any) -> Json:
            return await forward(arguments)

        async def reading(**arguments: Any) -> Json:
            return await forward(arguments)

        return Hook(acting, True, True) if changes else Hook(reading, True, False)

    async def _hand_over(self, call: ProxiedCall, arguments: dict[str, Json]) -> None:
        line = call.make_line(arguments)

        def note() -> None:
            call.is_sent = True

        try:
            await self._server.send(line, note)
        except PipeClosed as error:
            if not error.is_sent:
                raise NotSent("the server has ended") from error
            raise AnswerLost("the server ended while the call was sent to it") from error
        except anyio.get_cancelled_exc_class():
            if call.is_sent:
                raise
            raise NotSent("its client has taken it back, or is gone") from None

    # -- requests of the proxy's own ---------------------------------------------------------------------

    async def _find_tool(self, call: ProxiedCall) -> ProxyTool:
        """How to treat the tool; the server is asked for its list first, if that is not known."""
        async with self._listing:
            known = self._has_listed or self._catalogue.knows(call.name)
            if self._catalogue.is_stale or not known:
                await self._list_tools(list_reserved(call.meta))
        return self._catalogue.get_tool(call.name)

    async def _list_tools(self, meta: dict[str, Json]) -> None:
        cursor: Json = None
        self._catalogue.is_stale = False  # What changes from now on is told again.
        with anyio.move_on_after(MCP_OPEN_S) as scope:
            for _ in range(MCP_TOOLS_MAX):
                params: dict[str, Json] = {"_meta": meta} if meta else {}
                answer = await self._ask(
                    "tools/list", params if cursor is None else {**params, "cursor": cursor}
                )
                page: Any = answer.result
                if not isinstance(page, dict):
                    log.warning("the MCP server does not list its tools: %s", answer.error)
                    break
                self._catalogue.learn(page)
                cursor = page.get("nextCursor")
                if not isinstance(cursor, str) or not cursor:
                    break
        if scope.cancelled_caught:
            log.warning("the MCP server did not list its tools within %g s", MCP_OPEN_S)
        self._has_listed = True

    async def ask_tool(self, name: str, arguments: dict[str, Json]) -> Json:
        """Call a tool of the server for a verify hook; its result."""
        meta = self._reserved
        params: dict[str, Json] = {"name": name, "arguments": arguments}
        answer = await self._ask("tools/call", {**params, "_meta": meta} if meta else params)
        return judge(answer, believes_errors=True)

    def _make_own_id(self) -> str:
        self._own_count += 1
        return f"{self._own_prefix}{self._own_count}"

    def _is_own(self, id: MessageId | None) -> TypeGuard[str]:
        return isinstance(id, str) and id.startswith(self._own_prefix)

    async def _ask(self, method: str, params: Json) -> RpcMessage:
        """Ask the server something, and wait for the answer, which the client does not see."""
        id = self._make_own_id()
        own = self._own[id] = _OwnRequest()
        try:
            await self._server.send(request(id, method, params))
            return await own.wait()
        except PipeClosed as error:
            raise AnswerLost("the server has ended") from error
        finally:
            del self._own[id]


def _can_elicit(capabilities: Json) -> bool:
    """Whether a client can ask its person for a form."""
    said = capabilities.get("elicitation") if isinstance(capabilities, dict) else None
    return isinstance(said, dict) and ("form" in said or "url" not in said)


def _read_action(said: Json) -> bool | None:
    """What a person said to a question: yes, no, or nothing."""
    action = said.get("action") if isinstance(said, dict) else None
    return {"accept": True, "decline": False}.get(action) if isinstance(action, str) else None
