"""A prompt as pydantic-ai asks it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, cast

from pydantic_ai.messages import (
    AudioUrl,
    BinaryContent,
    DocumentUrl,
    ImageUrl,
    InstructionPart,
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
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
from ...messages import AnyMessage, Block, Json, Media, Message, Text, ToolResult, UnknownBlock
from ..model import Prompt
from .foreign_messages import own
from .reply import response_from


class Request(NamedTuple):
    """What pydantic-ai's models are asked with."""

    messages: list[ModelMessage]
    settings: ModelSettings
    parameters: ModelRequestParameters


def request_for(prompt: Prompt, model: Model, settings: Mapping[str, Json]) -> Request:
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
    return Request(messages, _settings(prompt, model, settings), parameters)


def _split(messages: Sequence[AnyMessage]) -> tuple[list[str], list[Message]]:
    """What is said by the system before anybody else: instructions; and all the rest."""
    ours = [own(message) for message in messages]
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
