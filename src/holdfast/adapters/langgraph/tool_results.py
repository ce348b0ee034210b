"""Results of LangChain tools in the ledger: as text where they are text, else by LangGraph's serializer."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from langchain_core.messages import ToolMessage
from langgraph.types import Command

from ...messages import Json
from ...reprs import attempt, describe_value, find_nameless
from ...tools.outcome import NoJsonForm, no_json_form
from .serde import CheckedSerializer

_TAG: Final = "$langgraph"


def pack_result(found: Any, serde: CheckedSerializer, returned: Any = None) -> Json | NoJsonForm:
    """What a tool gave, as JSON. A message of plain text becomes that text. Never raises: what the tool did
    is done, and must be recorded. What cannot be serialized is an error that says so.

    `returned` is what the tool's function returned, of which LangChain may have made a text.
    """
    nameless = find_nameless(returned)
    if nameless is not None:
        return no_json_form(nameless)
    return attempt(lambda: _pack(found, serde), lambda: no_json_form(found))


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


def address_result(found: Any, old: str, new: str) -> Any:
    """The result for another call than the one that it was given to: its messages name the call `new`.

    A call of a command is named by its messages only, beside those that are for other calls.
    """
    if isinstance(found, ToolMessage):
        return found.model_copy(update={"tool_call_id": new})
    if isinstance(found, Command) and isinstance(found.update, Mapping):
        update = {key: _address_all(value, old, new) for key, value in found.update.items()}
        return replace(found, update=update)
    return _address_all(found, old, new)


def _address_all(found: Any, old: str, new: str) -> Any:
    if isinstance(found, list):
        return [_address_all(one, old, new) for one in found]
    if isinstance(found, ToolMessage):
        return found.model_copy(update={"tool_call_id": new}) if found.tool_call_id == old else found
    return address_result(found, old, new) if isinstance(found, Command) else found
