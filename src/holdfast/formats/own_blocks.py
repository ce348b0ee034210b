"""Messages of other formats as our own blocks."""

from __future__ import annotations

import base64
import binascii
import json
import mimetypes
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NoReturn

import msgspec

from ..errors import BadInput, BadMessage
from ..messages import (
    AnyMessage,
    Block,
    ForeignMessage,
    Json,
    Media,
    Message,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
    refuse_unfaithful,
    responses_items,
)


def to_own_message(message: AnyMessage) -> Message:
    """Convert a message to our blocks. Raise `BadInput` for a part that we have no block for."""
    if isinstance(message, Message):
        return message
    read = _READERS.get(message.format)
    if read is None:
        known = ", ".join(_READERS)
        raise BadInput(f"a message of the format {message.format!r} cannot be shown to a model; {known} can")
    try:
        return Message(role=message.role, blocks=tuple(read(message)))
    except (KeyError, TypeError, AttributeError, binascii.Error) as error:
        raise BadInput(
            f"a message of the format {message.format!r} is not as it should be: {error!r}"
        ) from error


def _openai(message: ForeignMessage) -> Iterable[Block]:
    data = message.data
    said = [_openai_part(part) for part in _parts(data.get("content"))]
    if message.role == "tool":
        yield ToolResult(call_id=data["tool_call_id"], content=_shown(said))
        return
    yield from said
    if data.get("refusal"):
        yield Text(data["refusal"])
    for call in data.get("tool_calls") or ():
        body = call.get("function") or call["custom"]
        args = arguments(body["arguments"]) if "arguments" in body else body["input"]
        yield ToolCall(id=call["id"], name=body["name"], args=args)


def _openai_part(part: Json) -> Text | Media:
    kind = part["type"]
    if kind == "text":
        return Text(part["text"])
    if kind == "refusal":
        return Text(part["refusal"])
    if kind == "image_url":
        return _linked(part["image_url"]["url"], "image/jpeg")
    if kind == "input_audio":
        sound = part["input_audio"]
        return _inline(sound["data"], f"audio/{sound['format']}")
    if kind == "file" and "file_data" in part["file"]:
        return _linked(part["file"]["file_data"], "application/pdf")
    raise _no_block("openai", kind)


def _anthropic(message: ForeignMessage) -> Iterable[Block]:
    for part in _parts(message.data["content"]):
        kind = part["type"]
        if kind == "tool_use":
            yield ToolCall(id=part["id"], name=part["name"], args=part["input"])
        elif kind == "tool_result":
            shown = [_anthropic_part(inner) for inner in _parts(part.get("content"))]
            failed = bool(part.get("is_error"))
            yield ToolResult(call_id=part["tool_use_id"], content=_shown(shown), is_error=failed)
        elif kind == "thinking":
            kept = {"signature": part["signature"], "provider_name": "anthropic"}
            yield Reasoning(part["thinking"], kept)
        elif kind == "redacted_thinking":
            kept = {"id": kind, "signature": part["data"], "provider_name": "anthropic"}
            yield Reasoning("", kept)
        else:
            yield _anthropic_part(part)


def _anthropic_part(part: Json) -> Text | Media:
    kind = part["type"]
    if kind == "text":
        return Text(part["text"])
    if kind not in ("image", "document"):
        raise _no_block("anthropic", kind)
    source = part["source"]
    if source["type"] == "base64":
        return _inline(source["data"], source["media_type"])
    if source["type"] == "text":
        return Media(media_type="text/plain", data=source["data"].encode())
    if source["type"] == "url":
        return _linked(source["url"], "image/jpeg" if kind == "image" else "application/pdf")
    raise _no_block("anthropic", f"{kind} from a {source['type']}")


def _responses(message: ForeignMessage) -> Iterable[Block]:
    for item in responses_items(message.data):
        kind = item.get("type", "message")
        if kind == "message":
            yield from (_responses_part(part) for part in _parts(item.get("content")))
        elif kind == "function_call":
            yield ToolCall(id=item["call_id"], name=item["name"], args=arguments(item["arguments"]))
        elif kind == "custom_tool_call":
            yield ToolCall(id=item["call_id"], name=item["name"], args=item["input"])
        elif kind in ("function_call_output", "custom_tool_call_output"):
            shown = [_responses_part(part) for part in _parts(item.get("output"))]
            yield ToolResult(call_id=item["call_id"], content=_shown(shown))
        elif kind == "reasoning":
            said = "\n\n".join(part["text"] for part in item.get("summary") or ())
            yield Reasoning(said, {"id": item["id"], "provider_name": "openai"} if "id" in item else {})
        else:
            raise _no_block("openai-responses", kind)


def _responses_part(part: Json) -> Text | Media:
    kind = part["type"]
    if kind in ("text", "input_text", "output_text"):
        return Text(part["text"])
    if kind == "refusal":
        return Text(part["refusal"])
    if kind == "input_image" and part.get("image_url"):
        return _linked(part["image_url"], "image/jpeg")
    if kind == "input_file" and (part.get("file_data") or part.get("file_url")):
        return _linked(part.get("file_data") or part["file_url"], "application/pdf")
    raise _no_block("openai-responses", kind)


def _pydantic_ai(message: ForeignMessage) -> Iterable[Block]:
    if message.role == "assistant":
        from . import pydantic_ai  # Only here: it needs the library.

        response = pydantic_ai.load(message.data)
        assert response.kind == "response"
        yield from pydantic_ai.message_from(response).blocks
        return
    for part in message.data["parts"]:
        kind = part["part_kind"]
        said = [_pydantic_ai_content(one) for one in _listed(part.get("content"))]
        if kind == "tool-return" or (kind == "retry-prompt" and part.get("tool_name")):
            failed = part.get("outcome", "retried") != "success"
            yield ToolResult(call_id=part["tool_call_id"], content=_shown(said), is_error=failed)
        else:
            yield from said


def _pydantic_ai_content(one: Json) -> Text | Media:
    kind = one.get("kind") if isinstance(one, dict) else None
    if kind == "binary":
        return Media(media_type=one["media_type"], data=base64.urlsafe_b64decode(one["data"]))
    if isinstance(kind, str) and kind.endswith("-url") and "url" in one:
        return _linked(one["url"], f"{kind.removesuffix('-url')}/*")
    return Text(one if isinstance(one, str) else msgspec.json.encode(one).decode())


def _listed(content: Json) -> list[Json]:
    if isinstance(content, list) and any(isinstance(one, str | dict) for one in content):
        return content
    return [] if content is None or content == "" else [content]


_READERS: Final[dict[str, Callable[[ForeignMessage], Iterable[Block]]]] = {
    "openai": _openai,
    "openai-responses": _responses,
    "anthropic": _anthropic,
    "pydantic-ai": _pydantic_ai,
}


def _parts(content: Json) -> Iterable[Json]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return content or []


def _shown(parts: list[Text | Media]) -> str | tuple[Text | Media, ...]:
    if all(isinstance(part, Text) for part in parts):
        return "".join(part.text for part in parts if isinstance(part, Text))
    return tuple(parts)


def _linked(url: str, otherwise: str) -> Media:
    if not url.startswith("data:"):
        return Media(media_type=mimetypes.guess_type(url)[0] or otherwise, url=url)
    head, _, data = url.removeprefix("data:").partition(",")
    return _inline(data, head.removesuffix(";base64") or otherwise)


def _inline(data: str, media_type: str) -> Media:
    return Media(media_type=media_type, data=base64.b64decode(data, validate=True))


def _no_block(format: str, kind: str) -> BadInput:
    return BadInput(f"a part {kind!r} of a message of the format {format!r} cannot be shown to other models")


def arguments(args: str | Mapping[str, Json] | None) -> Json:
    """The arguments of a call as an object; else the text as it came, which dispatch refuses."""
    if not args:
        return {}
    text = args if isinstance(args, str) else json.dumps(args)
    try:
        value = json.loads(text, parse_constant=_refuse)
        if isinstance(value, dict):
            refuse_unfaithful(value)
            msgspec.json.encode(value)
            return value
    except (ValueError, RecursionError, BadMessage):
        pass
    return whole_text(text)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def whole_text(text: str) -> str:
    """Replace lone surrogates, which UTF-8 cannot encode, by question marks."""
    return text if text.isascii() else text.encode(errors="replace").decode()
