"""Our messages as input items of OpenAI's Responses."""

from __future__ import annotations

from collections.abc import Sequence

from ..messages import Block, Json, Media, Message, Text, ToolCall, ToolResult
from .outgoing import alone, arguments_text, data_url, present, refuse_media, shown_parts, split_results


def make(messages: Sequence[Message]) -> list[Json]:
    """Make items of messages of ours."""
    made: list[Json] = []
    for message in messages:
        results, rest = split_results(message)
        made += [_result(result) for result in results]
        if message.role == "assistant":
            made += _reply(rest)
        elif content := present(map(_part, rest)):
            role = "system" if message.role == "system" else "user"
            made.append({"role": role, "content": alone(content)})
    return made


def _result(result: ToolResult) -> Json:
    output = alone(present(map(_part, shown_parts(result)))) or ""
    return {"type": "function_call_output", "call_id": result.call_id, "output": output}


def _reply(blocks: Sequence[Block]) -> list[Json]:
    """Text and calls, in order. Reasoning is left out: only the response that it came in can give it back."""
    made: list[Json] = []
    for block in blocks:
        if isinstance(block, Text) and block.text:
            made.append({"role": "assistant", "content": block.text})
        elif isinstance(block, ToolCall):
            call = {"call_id": block.id, "name": block.name, "arguments": arguments_text(block)}
            made.append({"type": "function_call", **call})
    return made


def _part(block: Block) -> Json:
    if isinstance(block, Text):
        return {"type": "input_text", "text": block.text} if block.text else None
    if not isinstance(block, Media):
        return None
    kind = block.media_type
    if kind.startswith("image/"):
        return {"type": "input_image", "image_url": data_url(block), "detail": "auto"}
    if kind.startswith("text/") and block.data is not None:
        return {"type": "input_text", "text": block.data.decode(errors="replace")}
    if kind.startswith(("audio/", "video/")):
        raise refuse_media(block, "an OpenAI response")
    if block.data is None:
        return {"type": "input_file", "file_url": data_url(block)}
    return {"type": "input_file", "filename": block.name or "file", "file_data": data_url(block)}
