"""A provider's reply as our message, and back, without losing what the provider must be sent again.

Data that our blocks have no field for (signatures, ids, details of the provider) goes into their `metadata`,
by pydantic-ai's names; data of the whole reply goes into the message's.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

import msgspec
from pydantic import TypeAdapter, ValidationError
from pydantic_ai.messages import (
    BinaryContent,
    FilePart,
    ModelResponse,
    ModelResponsePart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
)

from ...core.budget import Usage
from ...errors import BadInput, BadMessage
from ...messages import (
    Block,
    Json,
    Media,
    Message,
    Reasoning,
    Text,
    ToolCall,
    UnknownBlock,
    refuse_unfaithful,
)
from ..model import Reply

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

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


def reply_from(response: ModelResponse) -> Reply:
    """Make our reply from a provider's response."""
    blocks = [block for part in response.parts if (block := _block_from(part)) is not None]
    metadata = _kept(ModelResponse, response)
    if _may_hold_secrets(metadata.get("provider_url", "")):
        del metadata["provider_url"]
    refusal = metadata.get("provider_details", {}).get("refusal")
    if not blocks and isinstance(refusal, str):
        blocks.append(Text(refusal))
    usage = response.usage
    return Reply(
        message=Message(role="assistant", blocks=tuple(_with_distinct_ids(blocks)), metadata=metadata),
        usage=Usage(
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            cache_read_tokens=usage.cache_read_tokens,
            cache_write_tokens=usage.cache_write_tokens,
        ),
        model=response.model_name,
    )


def response_from(message: Message) -> ModelResponse:
    """Restore the response that `reply_from` read, or make one of any other message."""
    parts = [part for block in message.blocks if (part := _part_from(block)) is not None]
    return _restored(ModelResponse, message.metadata, parts=parts)


def _may_hold_secrets(url: str) -> bool:
    return "@" in url or "?" in url


def _block_from(part: ModelResponsePart) -> Block | None:
    if isinstance(part, TextPart):
        kept = _kept(TextPart, part)
        return Text(_whole(part.content), kept) if part.content or kept else None
    if isinstance(part, ThinkingPart):
        return Reasoning(_whole(part.content), _kept(ThinkingPart, part))
    if isinstance(part, ToolCallPart):
        return ToolCall(
            id=_whole(part.tool_call_id),
            name=_whole(part.tool_name),
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
    return _whole(text)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


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
        return _whole(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {_whole(str(key)): _faithful(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_faithful(item) for item in value]
    return value


def _whole(text: str) -> str:
    """Replace lone surrogates, which UTF-8 cannot encode, by question marks."""
    return text if text.isascii() else text.encode(errors="replace").decode()
