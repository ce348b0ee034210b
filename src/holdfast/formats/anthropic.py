"""Our messages in Anthropic's format."""

from __future__ import annotations

import json
from collections.abc import Sequence

from ..messages import Block, Json, Media, Message, Reasoning, Text, ToolCall, ToolResult
from .outgoing import alone, base64_of, present, refuse_media, shown_parts, split_results


def make(messages: Sequence[Message]) -> list[Json]:
    """Make messages of ours. Results that follow each other are one message: they must come right after their
    calls."""
    made: list[Json] = []
    open_results: list[Json] | None = None
    for message in messages:
        results, rest = split_results(message)
        if results:
            parts = [_result(result) for result in results]
            if open_results is None:
                open_results = parts
                made.append({"role": "user", "content": open_results})
            else:
                open_results += parts
        if content := _content(message, rest):
            open_results = None
            role = "assistant" if message.role == "assistant" else "user"
            made.append({"role": role, "content": content})
    return made


def _content(message: Message, blocks: Sequence[Block]) -> Json:
    if message.role == "assistant":
        return alone(present(map(_reply_part, blocks)))
    if message.role == "system":
        # Not at the beginning, where the client takes it apart.
        text = "".join(block.text for block in blocks if isinstance(block, Text))
        return f"<system>{text}</system>" if text else ""
    return alone(present(map(_part, blocks)))


def _result(result: ToolResult) -> Json:
    content = alone(present(map(_part, shown_parts(result))))
    made: dict[str, Json] = {"type": "tool_result", "tool_use_id": result.call_id}
    if content:
        made["content"] = content
    return {**made, "is_error": True} if result.is_error else made


def _reply_part(block: Block) -> Json:
    if isinstance(block, ToolCall):
        return {"type": "tool_use", "id": block.id, "name": block.name, "input": _input(block)}
    if isinstance(block, Reasoning):
        return _thinking(block)
    return _part(block) if isinstance(block, Text) else None


def _input(call: ToolCall) -> Json:
    """The arguments as an object, which is what this format has."""
    found = call.args
    if isinstance(found, str):
        try:
            found = json.loads(found) if found else {}
        except ValueError:
            found = call.args
    return found if isinstance(found, dict) else {"arguments": found}


def _thinking(block: Reasoning) -> Json:
    """Only with Anthropic's own signature: no other is accepted."""
    signature = block.metadata.get("signature")
    if not signature or block.metadata.get("provider_name", "anthropic") != "anthropic":
        return None
    if block.metadata.get("id") == "redacted_thinking":
        return {"type": "redacted_thinking", "data": signature}
    return {"type": "thinking", "thinking": block.text, "signature": signature}


def _part(block: Block) -> Json:
    if isinstance(block, Text):
        # A text of white space alone is refused.
        return {"type": "text", "text": block.text} if block.text.strip() else None
    if not isinstance(block, Media):
        return None
    return {
        "type": "image" if block.media_type.startswith("image/") else "document",
        "source": _source(block),
    }


def _source(media: Media) -> Json:
    kind = media.media_type
    if not (kind.startswith(("image/", "text/")) or kind == "application/pdf"):
        raise refuse_media(media, "Anthropic")
    if media.data is None:
        if media.url is None or kind.startswith("text/"):
            raise refuse_media(media, "Anthropic")
        return {"type": "url", "url": media.url}
    if kind.startswith("text/"):
        return {"type": "text", "media_type": "text/plain", "data": media.data.decode(errors="replace")}
    return {"type": "base64", "media_type": kind, "data": base64_of(media.data)}
