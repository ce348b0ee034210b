"""Our messages as pydantic-ai's, and back, without losing what a provider must be sent again.

Data that our blocks have no field for (signatures, ids, details of the provider) goes into their `metadata`,
by pydantic-ai's names; data of the whole reply goes into the message's.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec
from pydantic import TypeAdapter, ValidationError
from pydantic_ai.messages import (
    AudioUrl,
    BinaryContent,
    DocumentUrl,
    FilePart,
    ImageUrl,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    ModelResponsePart,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
    VideoUrl,
)

from ..core.budget import Usage
from ..errors import BadInput
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
    UnknownBlock,
)
from .own_blocks import arguments, to_own_message, whole_text

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

FORMAT: Final = "pydantic-ai"
_PART: Final = "provider_part"
"""The kind of a block for parts that we have no block for, such as a call of a provider's own tool."""

# In our own fields, or about a run of pydantic-ai, which there is none of.
_NOT_KEPT: Final = frozenset({
    "content", "args", "tool_name", "tool_call_id", "part_kind", "parts", "usage", "timestamp", "kind",
    "state", "run_id", "conversation_id", "failed_attempts", "workspace_ref",
})  # fmt: skip

_part: TypeAdapter[ModelResponsePart] = TypeAdapter(ModelResponsePart)
_adapters: dict[type, TypeAdapter[Any]] = {
    kind: TypeAdapter(kind) for kind in (ModelResponse, TextPart, ThinkingPart, ToolCallPart, FilePart)
}
_T = TypeVar("_T", bound="DataclassInstance")


def message_from(response: ModelResponse) -> Message:
    """Make our message from a provider's response."""
    blocks = [block for part in response.parts if (block := _block_from(part)) is not None]
    metadata = _kept(ModelResponse, response)
    if _may_hold_secrets(metadata.get("provider_url", "")):
        del metadata["provider_url"]
    refusal = metadata.get("provider_details", {}).get("refusal")
    if not blocks and isinstance(refusal, str):
        blocks.append(Text(refusal))
    return Message(role="assistant", blocks=tuple(_with_distinct_ids(blocks)), metadata=metadata)


def usage_from(response: ModelResponse) -> Usage:
    """The tokens that a response took."""
    usage = response.usage
    return Usage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cache_read_tokens,
        cache_write_tokens=usage.cache_write_tokens,
    )


def response_from(message: Message) -> ModelResponse:
    """Restore the response that `message_from` read, or make one of any other message."""
    parts = [part for block in message.blocks if (part := _part_from(block)) is not None]
    return _restored(ModelResponse, message.metadata, parts=parts)


def _may_hold_secrets(url: str) -> bool:
    return "@" in url or "?" in url


def _block_from(part: ModelResponsePart) -> Block | None:
    if isinstance(part, TextPart):
        kept = _kept(TextPart, part)
        return Text(whole_text(part.content), kept) if part.content or kept else None
    if isinstance(part, ThinkingPart):
        return Reasoning(whole_text(part.content), _kept(ThinkingPart, part))
    if isinstance(part, ToolCallPart):
        return ToolCall(
            id=whole_text(part.tool_call_id),
            name=whole_text(part.tool_name),
            args=arguments(part.args),
            metadata=_kept(ToolCallPart, part),
        )
    if isinstance(part, FilePart):
        kept = _kept(FilePart, part)
        return Media(media_type=part.content.media_type, data=part.content.data, metadata=kept)
    return UnknownBlock({"kind": _PART, "part": _faithful(_part.dump_python(part, mode="json"))})


def _part_from(block: Block) -> ModelResponsePart | None:
    if isinstance(block, Text):
        return _restored(TextPart, block.metadata, content=block.text)
    if isinstance(block, Reasoning):
        return _restored(ThinkingPart, block.metadata, content=block.text)
    if isinstance(block, ToolCall):
        args = block.args if isinstance(block.args, str | dict) else json.dumps(block.args)
        return _restored(ToolCallPart, block.metadata, tool_name=block.name, tool_call_id=block.id, args=args)
    if isinstance(block, Media) and block.data is not None:
        content = BinaryContent(block.data, media_type=block.media_type)
        return _restored(FilePart, block.metadata, content=content)
    if isinstance(block, UnknownBlock) and block.data.get("kind") == _PART:
        return _part.validate_python(block.data["part"])
    if isinstance(block, UnknownBlock):
        return None  # Written by a newer version.
    kind = "a file by its URL" if isinstance(block, Media) else "a tool result"
    raise BadInput(f"no model can be shown a message in which an assistant gives {kind}")


def _with_distinct_ids(blocks: Sequence[Block]) -> list[Block]:
    """Give each call an id of its own. Small servers repeat ids or leave them out, and results need them."""
    seen: set[str] = set()
    distinct: list[Block] = []
    for block in blocks:
        if isinstance(block, ToolCall):
            wanted, number = block.id or "call", 1
            name = block.id or "call-1"
            while name in seen:
                number += 1
                name = f"{wanted}-{number}"
            seen.add(name)
            block = block if name == block.id else msgspec.structs.replace(block, id=name)
        distinct.append(block)
    return distinct


def _kept(kind: type[_T], value: _T) -> dict[str, Json]:
    """The fields that are not ours and have a value."""
    dumped: dict[str, Json] = _adapters[kind].dump_python(value, mode="json", exclude=set(_NOT_KEPT))
    return {name: _faithful(field) for name, field in dumped.items() if field is not None}


def _restored(kind: type[_T], metadata: Mapping[str, Json], **ours: Any) -> _T:
    """Make a part with our fields and the provider's, which are in `metadata`."""
    names = {field.name for field in fields(kind)} - _NOT_KEPT
    theirs = {name: value for name, value in metadata.items() if name in names}
    if theirs:
        try:
            theirs = _theirs(kind, theirs, ours)
        except ValidationError:
            theirs = {}  # Metadata of an application, by the same names.
    return kind(**ours, **theirs)


def _theirs(kind: type[_T], theirs: Mapping[str, Json], ours: Mapping[str, Any]) -> dict[str, Any]:
    plain = {**ours, "parts": []} if kind is ModelResponse else ours
    made = _adapters[kind].validate_python({**plain, **theirs})
    return {name: getattr(made, name) for name in theirs}


def _faithful(value: Json) -> Json:
    """A value that the journal accepts: a paid reply must not be lost because of a bad value in it."""
    if isinstance(value, str):
        return whole_text(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {whole_text(str(key)): _faithful(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_faithful(item) for item in value]
    return value


# -- a conversation ------------------------------------------------------------------------------------


def load(data: Json) -> ModelMessage:
    """The message that pydantic-ai wrote as JSON, in whatever version."""
    return ModelMessagesTypeAdapter.validate_json(msgspec.json.encode([data]))[0]


def dump(message: ModelMessage) -> Json:
    """The message as pydantic-ai writes it as JSON."""
    return msgspec.json.decode(ModelMessagesTypeAdapter.dump_json([message]))[0]


def to_pydantic_ai(messages: Iterable[AnyMessage]) -> list[ModelMessage]:
    """A transcript as pydantic-ai's history. Its own messages are as they were given."""
    found: list[ModelMessage] = []
    for theirs, group in groupby(messages, key=lambda message: message.format == FORMAT):
        if theirs:
            found += [load(message.data) for message in group if isinstance(message, ForeignMessage)]
        else:
            found += conversation([to_own_message(message) for message in group])
    return found


def conversation(messages: Iterable[Message]) -> list[ModelMessage]:
    """Convert messages. Those between two replies become one request: results must follow their reply."""
    made: list[ModelMessage] = []
    parts: list[ModelRequestPart] = []
    names: dict[str, str] = {}
    for message in messages:
        if message.role == "assistant":
            _close(parts, made)
            made.append(response_from(message))
            # If a later reply uses an id again, the id means the later call.
            names |= {call.id: call.name for call in message.tool_calls}
        else:
            parts += _request_parts(message, names)
    _close(parts, made)
    return made


def _close(parts: list[ModelRequestPart], made: list[ModelMessage]) -> None:
    """Add a request: results first, in the order of the calls, then the other parts."""
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
        return None  # Written by a newer version.
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
