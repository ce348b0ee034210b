"""Results of LangChain tools in the ledger: as text where they are text, else by LangGraph's serializer."""

from __future__ import annotations

from base64 import b64decode, b64encode
from typing import Any, Final

from langchain_core.messages import ToolMessage

from ...messages import Json
from ...reprs import attempt, describe_value
from .serde import CheckedSerializer

_TAG: Final = "$langgraph"


def pack_result(found: Any, serde: CheckedSerializer) -> Json:
    """What a tool gave, as JSON. A message of plain text becomes that text. Never raises: what the tool did
    is done, and must be recorded."""
    return attempt(lambda: _pack(found, serde), lambda: describe_value(found))


def _pack(found: Any, serde: CheckedSerializer) -> Json:
    if isinstance(found, str | int | float | bool | None):
        return found
    if isinstance(found, ToolMessage) and _is_plain(found):
        return found.content
    form, data = serde.dumps_typed(found)
    shown = found.text[:500] if isinstance(found, ToolMessage) else describe_value(found)
    return {_TAG: [form, b64encode(data).decode()], "shown": shown}


def _is_plain(message: ToolMessage) -> bool:
    bare = ToolMessage(message.content, name=message.name, tool_call_id=message.tool_call_id)
    return isinstance(message.content, str) and message == bare


def open_result(value: Json, serde: CheckedSerializer) -> Any:
    """What a tool gave, from the ledger."""
    if isinstance(value, dict) and _TAG in value:
        form, data = value[_TAG]
        return serde.loads_typed((form, b64decode(data)))
    return value
