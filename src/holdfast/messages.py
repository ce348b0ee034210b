"""Messages: holdfast's own blocks, and messages of other formats kept verbatim.

What the fold needs of a message is its *shape*: its role and, in order, the tool calls and results in it. The
shape is computed once, when the message is added (from the blocks, or by the reader of a foreign format), and
stored beside the message. The same journal therefore folds to the same state in a process that does not know
the format, and after the message was erased.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Literal, TypeAlias, get_args

import msgspec
from msgspec import Struct

from .errors import BadInput, BadMessage
from .limits import JSON_DEPTH_MAX

__all__ = [
    "Block",
    "CallPart",
    "ForeignMessage",
    "Json",
    "Media",
    "Message",
    "Reasoning",
    "ResultPart",
    "Role",
    "Shape",
    "Text",
    "ToolCall",
    "ToolResult",
    "UnknownBlock",
    "register_format",
]

Json: TypeAlias = Any
"""A JSON-like value: None, bool, int, finite float, str, list or dict with string keys."""

Role: TypeAlias = Literal["system", "user", "assistant", "tool"]
OWN: Final = "holdfast"
"""The name of holdfast's own message format."""
FINAL: Final = "final_result"
"""The tool with which a model gives its typed output, here and in pydantic-ai."""


class Text(Struct, frozen=True, gc=False, tag_field="kind", tag="text", omit_defaults=True):
    """Plain text."""

    text: str
    metadata: dict[str, Json] = {}


class Reasoning(Struct, frozen=True, gc=False, tag_field="kind", tag="reasoning", omit_defaults=True):
    """Reasoning of a model; `metadata` keeps signatures that the provider wants back."""

    text: str
    metadata: dict[str, Json] = {}


class ToolCall(
    Struct, frozen=True, gc=False, kw_only=True, tag_field="kind", tag="tool_call", omit_defaults=True
):
    """A request of a model to call a tool. The `id` is the provider's, and later replies may reuse it."""

    id: str
    name: str
    args: Json = {}
    metadata: dict[str, Json] = {}


class Media(Struct, frozen=True, gc=False, kw_only=True, tag_field="kind", tag="media", omit_defaults=True):
    """An image, audio or document: inline `data` or a `url`."""

    media_type: str
    data: bytes | None = None
    url: str | None = None
    name: str | None = None
    metadata: dict[str, Json] = {}


class ToolResult(
    Struct, frozen=True, gc=False, kw_only=True, tag_field="kind", tag="tool_result", omit_defaults=True
):
    """The result of a call: the text that the model is shown, and `value`, the same as data."""

    call_id: str
    content: str | tuple[Text | Media, ...] = ""
    is_error: bool = False
    value: Json = None
    replay_of: str | None = None
    metadata: dict[str, Json] = {}


class UnknownBlock(Struct, frozen=True, tag_field="kind", tag="unknown"):
    """A block of a kind that a newer version wrote, kept unchanged."""

    data: dict[str, Json]


Block: TypeAlias = Text | Reasoning | ToolCall | ToolResult | Media | UnknownBlock


class Message(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """One message. Without an `id` or `at`, it gets those of its journal entry."""

    role: Role
    blocks: tuple[Block, ...]
    id: str | None = None
    at: datetime | None = None
    agent: str | None = None
    metadata: dict[str, Json] = {}

    @property
    def format(self) -> str:
        """The name of holdfast's own format."""
        return OWN

    @property
    def text(self) -> str:
        """The text blocks, joined."""
        if len(self.blocks) == 1 and isinstance(block := self.blocks[0], Text):
            return block.text  # The common case.
        return "".join([block.text for block in self.blocks if isinstance(block, Text)])

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The tool calls, in order."""
        return tuple(block for block in self.blocks if isinstance(block, ToolCall))


class CallPart(Struct, frozen=True, gc=False, array_like=True, tag="call"):
    """Stands for a tool call in the shape of a message."""

    id: str
    name: str


class ResultPart(Struct, frozen=True, gc=False, array_like=True, tag="result"):
    """Stands for a tool result in the shape of a message."""

    call_id: str


Part: TypeAlias = CallPart | ResultPart


class Shape(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """What the fold needs of a message."""

    role: Role
    parts: tuple[Part, ...] = ()


class ForeignMessage(Struct, frozen=True, kw_only=True):
    """A message in another format, as it was given. `data` is its JSON value, or (in adapters, which encode
    it themselves) the JSON as `msgspec.Raw`."""

    format: str
    data: Json
    role: Role
    parts: tuple[Part, ...] = ()
    id: str | None = None
    at: datetime | None = None

    @property
    def text(self) -> str:
        """Its text, if it is in a usual field (`content`, `refusal`, or parts with `text`)."""
        if not isinstance(self.data, dict):
            return ""
        found = self.data.get("content") or self.data.get("parts") or self.data.get("refusal")
        return _text_of(found)


Reader: TypeAlias = Callable[[Json], Shape]
CallReader: TypeAlias = Callable[[Json], Sequence[ToolCall]]
AnyMessage: TypeAlias = Message | ForeignMessage


def gives_output(call: CallPart, format: str) -> bool:
    """Whether the model gives its typed output with this call. pydantic-ai adds the name of the type if there
    are several."""
    return call.name == FINAL or (format == "pydantic-ai" and call.name.startswith(f"{FINAL}_"))


def shape_of(message: AnyMessage) -> Shape:
    """The shape of a message."""
    if isinstance(message, ForeignMessage):
        return Shape(role=message.role, parts=message.parts)
    parts: list[Part] = []
    for block in message.blocks:
        if isinstance(block, ToolCall):
            parts.append(CallPart(block.id, block.name))
        elif isinstance(block, ToolResult):
            parts.append(ResultPart(block.call_id))
    return Shape(role=message.role, parts=tuple(parts))


def refuse_unfaithful(value: Json, path: str = "message", depth: int = 0) -> None:
    """Raise `BadMessage` where JSON would change a value or refuse it: NaN, infinities, odd keys and types,
    lone surrogates, values that hold themselves."""
    if depth > JSON_DEPTH_MAX:
        raise BadMessage(f"{path[:40]}… is nested more than {JSON_DEPTH_MAX} levels deep")
    if isinstance(value, str):
        if not value.isascii():
            _refuse_surrogates(value, path)
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise BadMessage(f"{path} is {value}, which JSON cannot hold")
    elif isinstance(value, Mapping):
        for key, item in value.items():
            if not isinstance(key, str):
                raise BadMessage(f"{path} has the key {key!r}; keys must be strings")
            if not key.isascii():
                _refuse_surrogates(key, f"a key of {path}")
            refuse_unfaithful(item, f"{path}.{key}", depth + 1)
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            refuse_unfaithful(item, f"{path}[{index}]", depth + 1)
    elif value is not None and not isinstance(value, int):
        raise BadMessage(f"{path} is a {type(value).__name__}, which is not JSON-like")


def _refuse_surrogates(text: str, path: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        half = f"U+{ord(text[error.start]):04X}"
        raise BadMessage(f"{path} holds half a character ({half}), which UTF-8 cannot say") from None


_encode = msgspec.json.Encoder().encode
_decode_own = msgspec.json.Decoder(Message).decode
_decode_block: Callable[[bytes], Block] = msgspec.json.Decoder(Block).decode
_decode_shape = msgspec.json.Decoder(Shape).decode


def _is_plain(message: Message) -> bool:
    """Whether the message is only text, as almost every one: then no further check is needed."""
    if message.role not in _ROLES or message.id or message.at or message.agent or message.metadata:
        return False
    for block in message.blocks:
        if block.__class__ is not Text or block.text.__class__ is not str or block.metadata:
            return False
    return True


_ROLES: Final = frozenset(get_args(Role))


def _encode_own(message: Message) -> bytes:
    if _is_plain(message):
        return _encode(message)
    for index, block in enumerate(message.blocks):
        _refuse_unfaithful_block(block, f"blocks[{index}]")
    refuse_unfaithful(message.metadata, "metadata")
    known = [block for block in message.blocks if not isinstance(block, UnknownBlock)]
    encoded = _encode(msgspec.structs.replace(message, blocks=known))
    _decode_own(encoded)  # msgspec does not check the types of fields when a struct is made.
    if len(known) == len(message.blocks):
        return encoded
    data = msgspec.json.decode(encoded)
    for index, block in enumerate(message.blocks):
        if isinstance(block, UnknownBlock):
            data["blocks"].insert(index, block.data)
    return _encode(data)


def _refuse_unfaithful_block(block: Block, place: str) -> None:
    """Check the fields that can hold arbitrary values."""
    if isinstance(block, UnknownBlock):
        refuse_unfaithful(block.data, place)
        return
    if block.metadata:
        refuse_unfaithful(block.metadata, f"{place}.metadata")
    if isinstance(block, ToolCall):
        refuse_unfaithful(block.args, f"{place}.args")
    elif isinstance(block, ToolResult):
        refuse_unfaithful(block.value, f"{place}.value")
        if not isinstance(block.content, str):
            for index, part in enumerate(block.content):
                _refuse_unfaithful_block(part, f"{place}.content[{index}]")


def encode_message(message: AnyMessage) -> bytes:
    """The message as the content of an entry, or `BadMessage` if it would not be read back unchanged."""
    try:
        if isinstance(message, ForeignMessage):
            if isinstance(message.data, msgspec.Raw):
                return bytes(message.data)
            refuse_unfaithful(message.data)
            return _encode(message.data)
        return _encode_own(message)
    except (TypeError, AttributeError, UnicodeEncodeError, RecursionError, msgspec.DecodeError) as error:
        if isinstance(error, UnicodeEncodeError):
            refuse_unfaithful(msgspec.to_builtins(message))  # Its error names the field.
        raise BadMessage(f"the message cannot be written as JSON: {error}") from error


def encode_plain(message: AnyMessage) -> bytes | None:
    """The same, if the message is only text; else None: then use `encode_message`."""
    if message.__class__ is not Message or not _is_plain(message):
        return None
    try:
        return _encode(message)
    except UnicodeEncodeError:
        return None


def decode_message(data: bytes | msgspec.Raw) -> Message:
    """The message that `encode_message` wrote; blocks of unknown kinds are kept."""
    try:
        return _decode_own(data)
    except msgspec.ValidationError:
        raw = msgspec.json.decode(data)
        blocks = tuple(_lenient_block(block) for block in raw["blocks"])
        return msgspec.structs.replace(_decode_own(_encode({**raw, "blocks": []})), blocks=blocks)


def _lenient_block(data: dict[str, Json]) -> Block:
    try:
        return _decode_block(_encode(data))
    except msgspec.ValidationError:
        return UnknownBlock(data)


def _read_openai(data: Json) -> Shape:
    """Chat-completion messages: `tool_calls` on the assistant's, `tool_call_id` on the tool's."""
    role = {"developer": "system", "function": "tool"}.get(data["role"], data["role"])
    parts: list[Part] = [
        CallPart(call["id"], (call.get("function") or call.get("custom") or {}).get("name", ""))
        for call in data.get("tool_calls") or ()
    ]
    if role == "tool":
        parts.append(ResultPart(data["tool_call_id"]))
    return Shape(role=role, parts=tuple(parts))


def _read_openai_item(data: Json) -> Shape:
    """Items of the Responses API, input or output: one message each."""
    kind = data.get("type", "message")
    if kind in _RESPONSES_CALLS:
        return Shape(role="assistant", parts=(CallPart(data["call_id"], data["name"]),))
    if kind in _RESPONSES_RESULTS:
        return Shape(role="tool", parts=(ResultPart(data["call_id"]),))
    if kind != "message":
        return Shape(role="assistant")
    return Shape(role="system" if data["role"] == "developer" else data["role"])


_RESPONSES_CALLS: Final = ("function_call", "custom_tool_call")
_RESPONSES_RESULTS: Final = ("function_call_output", "custom_tool_call_output")


def _read_anthropic(data: Json) -> Shape:
    """Messages with content blocks: `tool_use` and `tool_result`."""
    content = data["content"]
    parts: list[Part] = []
    if not isinstance(content, str):
        for block in content:
            if block["type"] == "tool_use":
                parts.append(CallPart(block["id"], block["name"]))
            elif block["type"] == "tool_result":
                parts.append(ResultPart(block["tool_use_id"]))
    return Shape(role=data["role"], parts=tuple(parts))


def _read_pydantic_ai(data: Json) -> Shape:
    """A request or response of pydantic-ai: parts that call a tool, answer a call, or ask for another try."""
    parts: list[Part] = []
    for part in data["parts"]:
        kind = part["part_kind"]
        if kind == "tool-call":
            parts.append(CallPart(part["tool_call_id"], part["tool_name"]))
        elif kind == "tool-return" or (kind == "retry-prompt" and part.get("tool_name")):
            parts.append(ResultPart(part["tool_call_id"]))
    if data["kind"] == "response":
        return Shape(role="assistant", parts=tuple(parts))
    kinds = {part["part_kind"] for part in data["parts"]}
    role: Role = "tool" if parts else "system" if kinds == {"system-prompt"} else "user"
    return Shape(role=role, parts=tuple(parts))


def _text_of(content: Json) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list | tuple):
        return ""
    texts = (_text_of_part(part) for part in content if isinstance(part, dict))
    return "".join(text for text in texts if isinstance(text, str))


def _text_of_part(part: dict[str, Json]) -> Json:
    if part.get("part_kind") not in ("text", "user-prompt"):
        return part.get("text") or part.get("refusal")
    said = part.get("content")
    return " ".join(one for one in said if isinstance(one, str)) if isinstance(said, list) else said


def _calls_openai(data: Json) -> list[ToolCall]:
    return [
        ToolCall(id=call["id"], name=call["function"]["name"], args=call["function"]["arguments"])
        if "function" in call
        else ToolCall(id=call["id"], name=call["custom"]["name"], args=call["custom"]["input"])
        for call in data.get("tool_calls") or ()
    ]


def _calls_openai_item(data: Json) -> list[ToolCall]:
    if data.get("type") not in _RESPONSES_CALLS:
        return []
    args = data["arguments"] if "arguments" in data else data["input"]
    return [ToolCall(id=data["call_id"], name=data["name"], args=args)]


def _calls_anthropic(data: Json) -> list[ToolCall]:
    return [
        ToolCall(id=block["id"], name=block["name"], args=block["input"])
        for block in data["content"]
        if isinstance(block, dict) and block["type"] == "tool_use"
    ]


def _calls_pydantic_ai(data: Json) -> list[ToolCall]:
    return [
        ToolCall(id=part["tool_call_id"], name=part["tool_name"], args=part.get("args") or {})
        for part in data["parts"]
        if part["part_kind"] == "tool-call"
    ]


_readers: dict[str, Reader] = {
    "openai": _read_openai,
    "openai-responses": _read_openai_item,
    "anthropic": _read_anthropic,
    "pydantic-ai": _read_pydantic_ai,
}
_call_readers: dict[str, CallReader] = {
    "openai": _calls_openai,
    "openai-responses": _calls_openai_item,
    "anthropic": _calls_anthropic,
    "pydantic-ai": _calls_pydantic_ai,
}


def register_format(name: str, reader: Reader, *, calls: CallReader | None = None) -> None:
    """Register a reader that finds tool calls and results in messages of the format `name`.

    `calls` returns the calls with their arguments, for `Registry.dispatch_step`, in the order of the reader's
    parts. Arguments may be an object or JSON text.
    """
    if name == OWN:
        raise BadInput(f"{OWN!r} is holdfast's own format; give the other one another name")
    _readers[name] = reader
    if calls is not None:
        _call_readers[name] = calls


def calls_of(message: AnyMessage) -> Sequence[ToolCall]:
    """The tool calls in a message, with their arguments."""
    if isinstance(message, Message):
        return message.tool_calls
    if not any(isinstance(part, CallPart) for part in message.parts):
        return ()
    reader = _call_readers.get(message.format)
    if reader is None:
        raise BadInput(f"no reader for the calls of {message.format!r} messages: register_format(…, calls=…)")
    return reader(message.data)


def foreign(data: Json, format: str) -> ForeignMessage:
    """A foreign message with its shape, or `BadMessage` if the reader of its format fails."""
    reader = _readers.get(format)
    if reader is None:
        known = ", ".join(sorted(_readers))
        raise BadInput(f"unknown message format {format!r}; known are {known}; see register_format()")
    try:
        shape = _decode_shape(_encode(reader(data)))
    except Exception as error:  # Any error of a reader means that the message is not of its format.
        raise BadMessage(f"not a message of the format {format!r}: {error!r}") from error
    return ForeignMessage(format=format, data=data, role=shape.role, parts=shape.parts)


def as_message(message: Json, format: str | None = None, *, role: Role = "user") -> AnyMessage:
    """The argument of a caller as a message; a plain string becomes a text of `role`."""
    if format is not None and format != OWN:
        return foreign(message, format)
    if isinstance(message, str):
        return Message(role=role, blocks=(Text(message),))
    if isinstance(message, Message | ForeignMessage):
        return message
    kind = type(message).__name__
    raise BadInput(
        f"expected a string or a holdfast.messages.Message, got {kind}; a foreign message needs format=…"
    )
