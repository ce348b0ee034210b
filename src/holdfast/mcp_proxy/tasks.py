"""Tasks: calls that a server answers at once with a handle, and carries out later.

A handle is no outcome: the effect is still to come. So such a call is under way until a message about its
task passes that says how it has ended. One era of the protocol has tasks in itself (`tasks/result` gives the
result), the other as an extension (`tasks/get` does).
"""

from __future__ import annotations

from typing import Any, Final

from msgspec import Struct

from ..messages import Json
from .delivery import find_delivery
from .json_rpc import INTERNAL_ERROR, RpcMessage

_OVER: Final = ("completed", "failed", "cancelled")
_REQUESTS: Final = ("tasks/get", "tasks/result", "tasks/cancel")
_NOTIFICATIONS: Final = ("notifications/tasks/status", "notifications/tasks")


class TaskEnd(Struct, frozen=True):
    """How a task has ended, as far as a message says. `answer` is judged as the answer to a call.

    `is_whole`: the message has the result itself, so that what comes later says nothing more.
    """

    answer: RpcMessage
    is_whole: bool


def find_task(result: Json) -> str | None:
    """The id of the task in the result of a call, if that is a handle and the task goes on."""
    if not isinstance(result, dict):
        return None
    task: Any = result.get("task")
    if not isinstance(task, dict) or isinstance(result.get("content"), list):
        task = result if result.get("resultType") == "task" else None
    return None if task is None or task.get("status") in _OVER else _get_id(task)


def find_asked(message: RpcMessage) -> str | None:
    """The id of the task that a request is about."""
    return _get_id(message.params) if message.method in _REQUESTS else None


def find_told(message: RpcMessage) -> str | None:
    """The id of the task that a notification is about."""
    return _get_id(message.params) if message.method in _NOTIFICATIONS else None


def find_end(message: RpcMessage, *, asked: str = "") -> TaskEnd | None:
    """What a message about a task says of its end; None if it goes on. `asked`: the method of the request
    that it answers."""
    error: Any = message.error
    if asked and error is not None:
        if isinstance(error, dict) and find_delivery(error.get("data")) is not None:
            return None  # The request about the task has failed on its way, not the task.
        # Of `tasks/result`, it is that of the call, or says that the result is no longer kept.
        return _lose(message, error) if asked == "tasks/result" else None
    if asked == "tasks/result":
        return TaskEnd(message, is_whole=True)
    state = message.result if asked else message.params
    if not isinstance(state, dict) or state.get("status") not in _OVER:
        return None
    said = str(state.get("statusMessage") or "")
    if state["status"] == "cancelled":
        return _lose(message, {"message": said or "the task was cancelled"})
    if isinstance(state.get("error"), dict):
        return _lose(message, state["error"])
    if isinstance(state.get("result"), dict):
        return TaskEnd(RpcMessage(message.line, {"result": state["result"]}), is_whole=True)
    has_failed = state["status"] == "failed"
    text = said or ("the task has failed" if has_failed else "the task is completed")
    known: dict[str, Json] = {"content": [{"type": "text", "text": text}]}
    if has_failed:
        known["isError"] = True
    return TaskEnd(RpcMessage(message.line, {"result": known}), is_whole=False)


def _lose(message: RpcMessage, error: Json) -> TaskEnd:
    """An end of which nothing says what was done by then: also a code that would refuse a call."""
    text = error.get("message") if isinstance(error, dict) else None
    return TaskEnd(
        RpcMessage(message.line, {"error": {"code": INTERNAL_ERROR, "message": str(text or "no reason")}}),
        is_whole=True,
    )


def _get_id(params: Json) -> str | None:
    found = params.get("taskId") if isinstance(params, dict) else None
    return found if isinstance(found, str) else None
