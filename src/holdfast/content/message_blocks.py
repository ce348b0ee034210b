"""The text, reasoning, calls, results and media of any message, as blocks: what people are shown of it.

Messages in the formats of other libraries are kept as they were given. This is the one place that reads them
for people, without the library: pydantic-ai, LangChain, OpenAI (chat completions, items of the Responses API
and of the Agents SDK) and Anthropic. Of a format that an application registered, it shows what its readers
find.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias
from urllib.parse import unquote

import msgspec
from msgspec.structs import replace

from ..errors import HoldfastError
from ..messages import (
    OPENAI_AGENTS,
    AnyMessage,
    Block,
    CallPart,
    ForeignMessage,
    Json,
    Media,
    Message,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
    calls_of,
    responses_items,
)
from .extract import unmark
from .lazy import peek_at
from .references import SCHEME, read_base64

LANGCHAIN: Final = "langchain"
"""The name of LangChain's format here: the fields of a message, with its class in `type`."""

_Data: TypeAlias = Mapping[str, Any]


def list_blocks(message: AnyMessage) -> Sequence[Block]:
    """The blocks of a message. Of one in a foreign format, blobs are not read; what makes no sense in its
    format is shown as JSON."""
    if isinstance(message, Message):
        return message.blocks
    data = peek_at(message)
    reader = _READERS.get(message.format)
    if reader is None or not isinstance(data, dict):
        return _read_unknown(message, data)
    try:
        return [block for block in reader(data) if not (isinstance(block, Text) and not block.text)]
    except (LookupError, TypeError, AttributeError, ValueError):
        return _read_unknown(message, data)


def list_stored_blocks(
    content: bytes, format: str, role: str = "user", parts: Sequence[Any] = ()
) -> Sequence[Block]:
    """The same of a message in a foreign format as the journal has it."""
    data = unmark(msgspec.json.decode(content))
    given: Any = role
    return list_blocks(ForeignMessage(format=format, data=data, role=given, parts=tuple(parts)))


def _read_unknown(message: ForeignMessage, data: Json) -> list[Block]:
    """A message of another format: its text and calls, as far as they can be found."""
    shown = ForeignMessage(format=message.format, data=data, role=message.role, parts=message.parts)
    blocks: list[Block] = [Text(shown.text)] if shown.text else []
    parts = [part for part in message.parts if isinstance(part, CallPart)]
    try:
        blocks += [replace(call, args=_read_args(call.args)) for call in calls_of(shown)]
    except (HoldfastError, LookupError, TypeError, AttributeError):  # No reader of this format's arguments.
        blocks += [ToolCall(id=part.id, name=part.name, args="…") for part in parts]
    return blocks or [Text(data if isinstance(data, str) else _compact(data))]


# -- pydantic-ai ---------------------------------------------------------------------------------------


def _read_pydantic_ai(data: _Data) -> Iterator[Block]:
    for part in data["parts"]:
        match part["part_kind"]:
            case "text" | "system-prompt":
                yield Text(part["content"])
            case "user-prompt":
                yield from _read_mixed(part["content"])
            case "thinking":
                yield Reasoning(part.get("content") or "")
            case "tool-call" | "builtin-tool-call":
                yield _call(part["tool_call_id"], part["tool_name"], part.get("args"))
            case "tool-return" | "builtin-tool-return":
                failed = part.get("outcome") in ("failed", "denied")
                yield _result(part["tool_call_id"], part.get("content"), failed)
            case "retry-prompt" if part.get("tool_name"):
                yield _result(part["tool_call_id"], part.get("content"), True)
            case "retry-prompt":
                yield Text(_as_text(part.get("content")))
            case "file":
                yield _media(part.get("content") or {})
            case _:
                yield Text(_as_text(part.get("content")))


def _read_mixed(content: Json) -> Iterator[Block]:
    """The content of a prompt: text, or a list of texts and media."""
    for one in content if isinstance(content, list) else [content]:
        if isinstance(one, str):
            yield Text(one)
        elif isinstance(one, dict) and isinstance(one.get("content"), str) and one.get("kind") == "text":
            yield Text(one["content"])
        elif isinstance(one, dict):
            yield _media(one)


# -- OpenAI --------------------------------------------------------------------------------------------


def _read_openai(data: _Data) -> Iterator[Block]:
    """A message of chat completions."""
    if data["role"] in ("tool", "function"):
        yield _result(data.get("tool_call_id") or data.get("name") or "", data.get("content"))
        return
    if isinstance(thought := data.get("reasoning_content"), str):  # Of servers that speak the same format.
        yield Reasoning(thought)
    yield from _read_parts(data.get("content"))
    yield from _read_parts(data.get("refusal"))
    for call in data.get("tool_calls") or ():
        of = call.get("function") or call["custom"]
        yield _call(call["id"], of["name"], of.get("arguments", of.get("input")))


def _read_openai_responses(data: _Data) -> Iterator[Block]:
    """Items of the Responses API, of an input or of a whole response."""
    for item in responses_items(data):
        yield from _read_openai_item(item)


def _read_openai_item(data: _Data) -> Iterator[Block]:
    kind: str = data.get("type", "message")
    if kind == "message":
        yield from _read_parts(data["content"])
    elif kind == "reasoning":
        yield Reasoning(
            "\n".join(one["text"] for one in [*data.get("summary", ()), *(data.get("content") or ())])
        )
    elif kind.endswith("_call_output"):
        yield _result(data["call_id"], data.get("output"))
    elif kind in ("function_call", "custom_tool_call"):
        yield _call(data["call_id"], data["name"], data.get("arguments", data.get("input")))
    elif kind.endswith("_call"):
        # A tool that the provider runs itself: a search, an image, code.
        more = {
            key: one for key, one in data.items() if key not in ("type", "id", "call_id", "status", "result")
        }
        yield _call(data.get("call_id") or data.get("id") or "", kind.removesuffix("_call"), more)
    else:
        yield Text(_compact(data))


def _read_openai_agents(data: _Data) -> Iterator[Block]:
    """Items of the OpenAI Agents SDK, which are those of the Responses API."""
    for item in data["items"]:
        yield from _read_openai_item(item)


def find_agent(data: Json, format: str) -> str | None:
    """The agent that gave a reply, in a format whose runs may have several."""
    reply = data.get("reply") if format == OPENAI_AGENTS and isinstance(data, dict) else None
    agent = reply.get("agent") if isinstance(reply, dict) else None
    return agent if isinstance(agent, str) and agent else None


# -- Anthropic -----------------------------------------------------------------------------------------


def _read_anthropic(data: _Data) -> Iterator[Block]:
    content = data["content"]
    for part in [{"type": "text", "text": content}] if isinstance(content, str) else content:
        kind: str = part["type"]
        if kind == "thinking":
            yield Reasoning(part.get("thinking") or "")
        elif kind == "redacted_thinking":
            yield Reasoning("[redacted]")
        elif kind.endswith("tool_use"):
            yield _call(part["id"], part["name"], part.get("input"))
        elif kind.endswith("tool_result"):
            yield _result(part["tool_use_id"], part.get("content"), bool(part.get("is_error")))
        else:
            yield from _read_parts([part])


# -- LangChain -----------------------------------------------------------------------------------------


def _read_langchain(data: _Data) -> Iterator[Block]:
    if data["type"] in ("tool", "function"):
        failed = data.get("status") == "error"
        yield _result(data.get("tool_call_id") or data.get("name") or "", data.get("content"), failed)
        return
    calls = data.get("tool_calls") or ()
    ids = {call.get("id") for call in calls}
    content = data.get("content")
    # Providers repeat the calls in the content; LangChain's own list of them is complete.
    given = [one for one in content if not _repeats(one, ids)] if isinstance(content, list) else content
    yield from _read_parts(given)
    for call in (*calls, *(data.get("invalid_tool_calls") or ())):
        yield _call(call.get("id") or "", call.get("name") or "", call.get("args"))


def _repeats(part: Json, ids: Iterable[str | None]) -> bool:
    return isinstance(part, dict) and (part.get("call_id") or part.get("id")) in ids and "name" in part


# -- shared by them ------------------------------------------------------------------------------------


def _read_parts(content: Json) -> Iterator[Block]:
    """Content as text, or as parts with a `type`."""
    for part in content if isinstance(content, list | tuple) else [content]:
        if isinstance(part, str):
            yield Text(part)
        elif isinstance(part, dict):
            yield _read_part(part)
        elif part is not None:
            yield Text(_compact(part))


def _read_part(part: _Data) -> Block:
    for name in ("text", "refusal", "transcript"):
        if isinstance(part.get(name), str):
            return Text(part[name])
    for name in ("thinking", "reasoning"):
        if isinstance(part.get(name), str):
            return Reasoning(part[name])
    return _media(part)


_SOURCES: Final = ("image_url", "input_audio", "file", "audio", "source", "image", "document", "video")


def _media(part: _Data) -> Block:
    """An image, a document, audio: its bytes, or where it is."""
    inner = next((part[name] for name in _SOURCES if isinstance(part.get(name), dict)), None)
    found: dict[str, Any] = {**part, **(inner or {})}
    place = _find_text(found, ("url", *_SOURCES))
    data = _find_text(found, ("data", "base64", "file_data"))
    name = _find_text(found, ("filename", "identifier", "name", "file_id"))
    if place is None and data is None and name is None:
        return Text(_compact(part))
    kind = _find_text(found, ("media_type", "mime_type", "mimeType", "kind", "type")) or "media"
    for text in (place, data):
        if text is not None and text.startswith("data:"):
            kind, place, data = text[5:].partition(",")[0].partition(";")[0], None, text.partition(",")[2]
        elif text is not None and text.startswith(SCHEME):  # The bytes are in a blob.
            place, data = text.partition("?")[0], None
            before = unquote(text.partition("after=")[2])
            kind = before[5:].partition(";")[0] if before.startswith("data:") else kind
    decoded = None if data is None else read_base64(data)
    return Media(media_type=kind, url=place, data=decoded[0] if decoded else None, name=name)


def _find_text(found: _Data, names: Iterable[str]) -> str | None:
    """The first of these fields that is a text, and not empty."""
    return next((found[name] for name in names if isinstance(found.get(name), str) and found[name]), None)


def _call(id: str, name: str, args: Json) -> ToolCall:
    return ToolCall(id=id, name=name, args={} if args is None else _read_args(args))


def _read_args(args: Json) -> Json:
    """The arguments as an object, also where the format has them as text."""
    if not isinstance(args, str):
        return args
    try:
        return msgspec.json.decode(args) if args else {}
    except msgspec.DecodeError:
        return args


def _result(call: str, content: Json, failed: bool = False) -> ToolResult:
    if isinstance(content, list) and any(isinstance(one, dict) and "type" in one for one in content):
        blocks = tuple(one for one in _read_parts(content) if isinstance(one, Text | Media))
        if not any(isinstance(one, Media) for one in blocks):
            return ToolResult(call_id=call, content="".join(map(_text_of, blocks)), is_error=failed)
        return ToolResult(call_id=call, content=blocks, is_error=failed)
    return ToolResult(call_id=call, content=_as_text(content), is_error=failed)


def _text_of(block: Text | Media) -> str:
    return block.text if isinstance(block, Text) else ""


def _as_text(content: Json) -> str:
    return content if isinstance(content, str) else "" if content is None else _compact(content)


def _compact(value: Json) -> str:
    return msgspec.json.encode(value).decode()


_READERS: Final[Mapping[str, Callable[[Any], Iterable[Block]]]] = {
    "pydantic-ai": _read_pydantic_ai,
    "openai": _read_openai,
    "openai-responses": _read_openai_responses,
    OPENAI_AGENTS: _read_openai_agents,
    "anthropic": _read_anthropic,
    LANGCHAIN: _read_langchain,
}
FORMATS: Final = frozenset(_READERS)
"""The formats that are read here."""
