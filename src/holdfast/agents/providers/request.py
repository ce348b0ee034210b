"""A prompt as pydantic-ai asks it: our messages, and those of other formats, as its own."""

from __future__ import annotations

import base64
import binascii
import mimetypes
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, cast

import msgspec
from pydantic_ai.messages import (
    AudioUrl,
    BinaryContent,
    DocumentUrl,
    ImageUrl,
    InstructionPart,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    SystemPromptPart,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
    VideoUrl,
)
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition

from ...errors import BadInput
from ...messages import (
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
    UnknownBlock,
)
from ..model import Prompt
from .reply import arguments, reply_from, response_from


class ProviderRequest(NamedTuple):
    """What pydantic-ai's models are asked with."""

    messages: list[ModelMessage]
    settings: ModelSettings
    parameters: ModelRequestParameters


def build_request(prompt: Prompt, model: Model, settings: Mapping[str, Json]) -> ProviderRequest:
    """The prompt for this model."""
    opening, rest = _split(prompt.messages)
    texts = [text for text in (prompt.instructions, *opening) if text]
    parameters = ModelRequestParameters(
        function_tools=[
            ToolDefinition(
                name=tool.name, description=tool.description or None, parameters_json_schema=tool.schema
            )
            for tool in prompt.tools
        ],
        instruction_parts=[InstructionPart(content=text) for text in texts] or None,
    )
    messages = conversation(rest)
    if _needs_preparing(messages, model):
        messages = model.prepare_messages(messages, parameters)
    return ProviderRequest(messages, _settings(prompt, model, settings), parameters)


def _split(messages: Sequence[AnyMessage]) -> tuple[list[str], list[Message]]:
    """What is said by the system before anybody else: instructions; and all the rest."""
    ours = [to_own_message(message) for message in messages]
    first = next((index for index, message in enumerate(ours) if message.role != "system"), len(ours))
    return [message.text for message in ours[:first]], ours[first:]


def conversation(messages: Iterable[Message]) -> list[ModelMessage]:
    """The messages; those between two replies are one request, for results belong right after their reply."""
    made: list[ModelMessage] = []
    parts: list[ModelRequestPart] = []
    names: dict[str, str] = {}
    for message in messages:
        if message.role == "assistant":
            _close(parts, made)
            made.append(response_from(message))
            # An id may come again in a later reply, and means the later call then.
            names |= {call.id: call.name for call in message.tool_calls}
        else:
            parts += _request_parts(message, names)
    _close(parts, made)
    return made


def _close(parts: list[ModelRequestPart], made: list[ModelMessage]) -> None:
    """Results first, in the order of the calls; what else was said comes after them."""
    if not parts:
        return
    last = made[-1] if made else None
    calls = (
        [part.tool_call_id for part in last.tool_calls]
        if last is not None and last.kind == "response"
        else []
    )
    order = {call: index for index, call in enumerate(calls)}
    made.append(ModelRequest(parts=sorted(parts, key=lambda part: _place(part, order))))
    parts.clear()


def _place(part: ModelRequestPart, order: Mapping[str, int]) -> int:
    if isinstance(part, ToolReturnPart):
        return order.get(part.tool_call_id, len(order))
    return len(order) + 1


def _request_parts(message: Message, names: Mapping[str, str]) -> list[ModelRequestPart]:
    results: list[ModelRequestPart] = [
        _result(block, names) for block in message.blocks if isinstance(block, ToolResult)
    ]
    said = [block for block in message.blocks if not isinstance(block, ToolResult)]
    if message.role == "system":
        return [*results, *(SystemPromptPart(_text(block)) for block in said)]
    content = [content for block in said if (content := _content(block)) is not None]
    if not content:
        return results
    alone = content[0] if len(content) == 1 else None
    return [*results, UserPromptPart(alone if isinstance(alone, str) else content)]


def _result(result: ToolResult, names: Mapping[str, str]) -> ToolReturnPart:
    shown: Any = result.content
    if not isinstance(shown, str):
        shown = [content for part in shown if (content := _content(part)) is not None]
    return ToolReturnPart(
        tool_name=names.get(result.call_id, "unknown"),
        tool_call_id=result.call_id,
        content=shown,
        outcome="failed" if result.is_error else "success",
    )


def _text(block: Block) -> str:
    if isinstance(block, Text):
        return block.text
    raise BadInput(f"a system message is text, not {type(block).__name__}")


def _content(block: Block) -> UserContent | None:
    if isinstance(block, Text):
        return block.text
    if isinstance(block, Media):
        return _media(block)
    if isinstance(block, UnknownBlock):
        return None  # Of a newer version, which knew what it is.
    raise BadInput(f"only a reply of a model holds a {type(block).__name__}")


def _media(media: Media) -> UserContent:
    kind = media.media_type
    if media.data is not None:
        return BinaryContent(media.data, media_type=kind)
    if media.url is None:
        raise BadInput(f"a Media block ({kind}) without data and without a URL")
    for prefix, url in (("image/", ImageUrl), ("audio/", AudioUrl), ("video/", VideoUrl)):
        if kind.startswith(prefix):
            return url(media.url, media_type=kind)
    return DocumentUrl(media.url, media_type=kind)


def _needs_preparing(messages: Iterable[ModelMessage], model: Model) -> bool:
    """Whether there is something that not every provider takes as it is.

    Only then, because preparing also escapes tags that pydantic-ai speaks with wherever tools or users wrote
    them, and so changes what a model reads in a file.
    """
    try:
        profile = model.profile
    except NotImplementedError:
        return False  # It stands for several models, and prepares for each of them.
    if profile.get("tool_call_id_length") is not None:
        return True
    parts = (part for message in messages if message.kind == "request" for part in message.parts)
    return any(
        isinstance(part, SystemPromptPart) or (isinstance(part, ToolReturnPart) and part.files)
        for part in parts
    )


def _settings(prompt: Prompt, model: Model, settings: Mapping[str, Json]) -> ModelSettings:
    chosen: dict[str, Json] = dict(settings)
    if prompt.max_tokens is not None:
        chosen["max_tokens"] = prompt.max_tokens
    if "max_retries" not in model.unsupported_settings:
        # The loop tries again, and each try is in the journal.
        chosen["max_retries"] = 0
    return cast(ModelSettings, chosen)


# -- messages of other formats -------------------------------------------------------------------------


def to_own_message(message: AnyMessage) -> Message:
    """The message in our blocks, or `BadInput` if it holds something that we have no block for."""
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


def _pydantic_ai(message: ForeignMessage) -> Iterable[Block]:
    if message.role == "assistant":
        response = ModelMessagesTypeAdapter.validate_json(msgspec.json.encode([message.data]))[0]
        assert isinstance(response, ModelResponse)
        yield from reply_from(response).message.blocks
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
