"""The output of an agent: text, or a value of a type, which the model gives by calling a tool."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Generic

import msgspec
from msgspec import Struct

from ..errors import BadInput
from ..messages import FINAL, AnyMessage, Json, Message, Text, ToolResult
from ..tools.declaration import AnyTool, tool
from ..tools.schema import BadArguments
from .outcome import OutputT

if TYPE_CHECKING:
    from pydantic import TypeAdapter

NUDGE: Final = f"Give your answer by calling {FINAL}; plain text is not read."
_NUDGE_MARK: Final = {"holdfast": "nudge"}
_NUDGES_MAX: Final = 3
"""A model that ignores three reminders ignores the next ones, too."""


class FinalOutput(Struct, frozen=True):
    """The model has given its output."""

    output: Any


class MissingOutput(Struct, frozen=True):
    """The model has stopped without giving its output; `final`: it was reminded often enough."""

    why: str
    final: bool


class Output(Generic[OutputT]):
    """Finds the output in a transcript. For any type but text, the model ends by calling `tool`."""

    def __init__(self, type: type[OutputT] | None) -> None:
        self._adapter: TypeAdapter[Any] | None = None
        self._wrapped = False
        self.tool: AnyTool | None = None
        if type is not None and type is not str:
            self._adapter, schema = _adapt(type)
            self.tool = self._make_tool(schema)

    def _make_tool(self, schema: dict[str, Any]) -> AnyTool:
        self._wrapped = schema.get("type") != "object"
        if self._wrapped:
            definitions = schema.pop("$defs", {})
            schema = {"type": "object", "properties": {"result": schema}, "required": ["result"]}
            if definitions:
                schema["$defs"] = definitions

        async def final_result(**given: Any) -> Json:
            self._read(given)  # Runs the type's own validators, which a schema cannot express.
            return given

        declare = tool(
            name=FINAL,
            description="Give the final answer. Call it once, when everything else is done.",
            schema=schema,
            side_effects=(),
            pollable=True,  # Equal answers to several questions are no loop.
        )
        return declare(final_result)

    def _read(self, given: Mapping[str, Json]) -> Any:
        assert self._adapter is not None
        # As JSON: from Python values, a strict type would refuse text for a date.
        return self._adapter.validate_json(msgspec.json.encode(given["result"] if self._wrapped else given))

    def _read_text(self, text: str) -> Any:
        """Read the output from the text of a reply, by the same rules as from a call."""
        assert self._adapter is not None
        assert self.tool is not None
        given = msgspec.json.decode(text)
        self.tool.arguments.check({"result": given} if self._wrapped else given)
        return self._adapter.validate_json(text)

    def find(self, seen: Sequence[AnyMessage]) -> FinalOutput | MissingOutput | None:
        """Find the output in the messages `seen`, in which every call has its result; None if the model is to
        be asked."""
        if not seen:
            return None
        last = seen[-1]
        if last.role == "tool":
            return self._find_result(seen)
        if last.role != "assistant":
            return None
        if self._adapter is None:
            return FinalOutput(last.text)
        try:
            return FinalOutput(self._read_text(last.text))
        except (ValueError, BadArguments):
            return self._miss(seen)

    def _find_result(self, seen: Sequence[AnyMessage]) -> FinalOutput | None:
        reply, results = (seen[-2] if len(seen) > 1 else None), seen[-1]
        if self.tool is None or not isinstance(reply, Message) or not isinstance(results, Message):
            return None
        for call, given in zip(reply.tool_calls, results.blocks, strict=False):
            if call.name == FINAL and _is_value(given):
                assert isinstance(given, ToolResult)
                # A value of another type, of another agent or of an earlier version, is no output.
                with suppress(ValueError, KeyError):
                    return FinalOutput(self._read(given.value))
        return None

    def _miss(self, seen: Sequence[AnyMessage]) -> MissingOutput:
        nudges = 0
        for place in range(len(seen) - 1, -1, -1):
            message = seen[place]
            if message.role == "user":
                if not is_nudge(message):
                    break
                nudges += 1
        return MissingOutput(f"the model stopped without calling {FINAL}", final=nudges >= _NUDGES_MAX)


def make_nudge() -> Message:
    """Make a reminder. It is recorded, as all that the model is shown."""
    return Message(role="user", blocks=(Text(NUDGE),), metadata=_NUDGE_MARK)


def is_nudge(message: object) -> bool:
    """Whether a message is a reminder."""
    return isinstance(message, Message) and message.metadata == _NUDGE_MARK


def _is_value(block: object) -> bool:
    return isinstance(block, ToolResult) and not block.is_error and isinstance(block.value, dict)


def _adapt(type: Any) -> tuple[TypeAdapter[Any], dict[str, Any]]:
    from pydantic import PydanticUserError, TypeAdapter  # Only here: importing it takes a while.

    try:
        adapter = TypeAdapter(type)
        return adapter, adapter.json_schema()
    except PydanticUserError as error:
        why = error.message.partition("\n")[0]
        raise BadInput(f"output_type={type!r} cannot be described to a model: {why}") from error
