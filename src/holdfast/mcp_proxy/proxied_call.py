"""One call of a tool on its way through the proxy, and how calls fail."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import anyio

from ..errors import HoldfastError
from ..messages import Json
from ..tools.outcome import Declined
from .delivery import Delivery, find_delivery
from .json_rpc import (
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    PROTOCOL_VERSION,
    MessageId,
    RpcMessage,
    get_meta,
)
from .verify_by_tool import get_text

KEY: Final = "holdfast/key"
"""In `_meta` of a call: its client's name for it. The same key is the same call, sent again."""
APPROVAL: Final = "holdfast/approval"
"""The name of the proxy's own question among those that a call is answered with, in the newer era."""
_REFUSALS: Final = frozenset({METHOD_NOT_FOUND, INVALID_PARAMS, -32020, -32021, -32022, -32042})
"""Errors with which a server says that it has not run the tool."""


class NotSent(Declined):
    """The server has not seen the call: nothing was done."""


class NotRun(Declined):
    """The server answered that it has not run the tool, or asks for something first: nothing was done."""


class ToolFailedItself(HoldfastError):
    """A tool answered with an error. Nothing says what it had done by then."""


class ToolDeclined(ToolFailedItself, Declined):
    """A tool answered with an error, and is believed that nothing was done."""


class AnswerLost(HoldfastError):
    """The server gave no answer, or none that says whether it ran the tool."""


_BY_DELIVERY: Final[Mapping[Delivery, type[HoldfastError]]] = {
    "unsent": NotSent,
    "refused": NotRun,
    "lost": AnswerLost,
}


class ProxiedCall:
    """A `tools/call` of the client. `id` is the client's, `call_id` the one on record."""

    def __init__(self, message: RpcMessage, call_id: str) -> None:
        self.message, self.call_id = message, call_id
        params: Any = message.params
        self.name: str = params["name"]
        self.arguments: dict[str, Json] = params.get("arguments") or {}
        self.meta = get_meta(params)
        said = params.get("inputResponses")
        self.person_said: Json = said.get(APPROVAL) if isinstance(said, dict) else None
        """What the person at the client said to the proxy's own question, in the newer era."""
        self.is_modern = PROTOCOL_VERSION in self.meta
        """Whether the client speaks the era without a handshake."""
        self.scope = anyio.CancelScope()
        """Cancelled if the client takes the call back before the server has seen it."""
        self.is_sent = False
        """Whether the server may have seen it."""
        self.is_cancelled = False
        """Whether the client has said that it no longer wants the result."""
        self.is_answered = False
        """Whether the client is being told how it ended."""
        self.answer: RpcMessage | None = None
        """The server's answer; of a task, what says how it has ended."""
        self.is_followed = False
        """Whether a task that carries it out later is waited for."""
        self.task: str | None = None
        """The id of that task. The client was answered with it, and this goes on."""
        self._known_end: RpcMessage | None = None
        """What is known of the end of the task if nothing says more."""
        self._failure: HoldfastError | None = None
        """Why there will be none."""
        self._changed = anyio.Event()

    @property
    def id(self) -> MessageId:
        """The client's id."""
        id = self.message.id
        assert id is not None
        return id

    @property
    def key(self) -> str | None:
        """The client's name for the call, if it has one."""
        key = self.meta.get(KEY)
        return key if isinstance(key, str) and key else None

    def make_line(self, arguments: dict[str, Json]) -> bytes:
        """What the server gets: the client's own line, unless a person was asked about it."""
        if arguments == self.arguments and self.person_said is None:
            return self.message.line
        params: Any = self.message.params
        if self.person_said is not None:
            # The server has not asked that.
            said = {key: value for key, value in params["inputResponses"].items() if key != APPROVAL}
            params = {key: value for key, value in params.items() if key != "inputResponses"}
            params = {**params, "inputResponses": said} if said else params
        return self.message.with_params({**params, "arguments": arguments})

    def set_answer(self, answer: RpcMessage) -> bool:
        """Take the server's answer. False if it has answered before."""
        if self.answer is not None or self._failure is not None:
            return False
        error: Any = answer.error if isinstance(answer.error, dict) else {}
        delivery = find_delivery(error.get("data"))
        if delivery is None:
            self.answer = answer
        else:
            # The transport says it, in the place of the server.
            text = str(error.get("message")).removeprefix("holdfast: ")
            self._failure = _BY_DELIVERY[delivery](text)
        self._changed.set()
        return True

    def note_end(self, known: RpcMessage) -> None:
        """Note that the task has ended. Its result may follow."""
        self._known_end = known

    def lose(self, why: str) -> None:
        """Say that there will be no answer."""
        self._failure = self._failure or AnswerLost(why)
        self._changed.set()

    async def wait(self) -> RpcMessage:
        """Wait for the server's answer; `AnswerLost` if there will be none."""
        await self._changed.wait()
        found = self.answer or self._known_end
        if found is not None:
            return found
        assert self._failure is not None
        raise self._failure


def judge(answer: RpcMessage, *, believes_errors: bool) -> dict[str, Json]:
    """The result in the answer to a call, or an exception that says what the answer says instead."""
    error, result = answer.error, answer.result
    if isinstance(error, dict):
        text = f"the server answered with error {error.get('code')}: {error.get('message')}"
        raise (NotRun if error.get("code") in _REFUSALS else AnswerLost)(text[:1000])
    if not isinstance(result, dict):
        raise AnswerLost("the server answered with something that is no result of a tool")
    if result.get("resultType") == "input_required":
        raise NotRun("the server asks for something before it runs the tool")
    if result.get("isError") is True:
        text = get_text(result)[:4000] or "it gave no reason"
        raise (ToolDeclined if believes_errors else ToolFailedItself)(text)
    return result
