"""Our messages in the format of OpenAI's chat completions, which many servers speak."""

from __future__ import annotations

from collections.abc import Sequence

from ..messages import Block, Json, Media, Message, Text, ToolCall
from .outgoing import (
    alone,
    arguments_text,
    base64_of,
    data_url,
    present,
    refuse_media,
    shown_parts,
    split_results,
)

_AUDIO = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}


def make(messages: Sequence[Message]) -> list[Json]:
    """Make messages of ours. Media in results follow in a user message: a `tool` message is text."""
    made: list[Json] = []
    files: list[Json] = []
    for message in messages:
        results, rest = split_results(message)
        for result in results:
            shown = shown_parts(result)
            text = "".join(part.text for part in shown if isinstance(part, Text))
            media = [part for part in shown if isinstance(part, Media)]
            if media and not text:
                text = "It is shown in the next message."
            files += [_media(part) for part in media]
            made.append({"role": "tool", "tool_call_id": result.call_id, "content": text})
        if rest and files:
            made.append({"role": "user", "content": files})
            files = []
        made += _message(message, rest)
    if files:
        made.append({"role": "user", "content": files})
    return made


def _message(message: Message, blocks: Sequence[Block]) -> list[Json]:
    if message.role == "assistant":
        return _reply(blocks)
    content = present(map(_part, blocks))
    role = "system" if message.role == "system" else "user"
    return [{"role": role, "content": alone(content)}] if content else []


def _reply(blocks: Sequence[Block]) -> list[Json]:
    """Reasoning and media are left out: this format has no place for them."""
    text = "".join(block.text for block in blocks if isinstance(block, Text))
    calls = [
        {
            "id": block.id,
            "type": "function",
            "function": {"name": block.name, "arguments": arguments_text(block)},
        }
        for block in blocks
        if isinstance(block, ToolCall)
    ]
    if not (text or calls):
        return []
    return [{"role": "assistant", "content": text or None, **({"tool_calls": calls} if calls else {})}]


def _part(block: Block) -> Json:
    if isinstance(block, Text):
        return {"type": "text", "text": block.text} if block.text else None
    return _media(block) if isinstance(block, Media) else None


def _media(media: Media) -> Json:
    kind = media.media_type
    if kind.startswith("image/"):
        return {"type": "image_url", "image_url": {"url": data_url(media)}}
    if media.data is None:
        raise refuse_media(media, "an OpenAI chat")
    if kind in _AUDIO:
        return {"type": "input_audio", "input_audio": {"data": base64_of(media.data), "format": _AUDIO[kind]}}
    if kind.startswith("text/"):
        return {"type": "text", "text": media.data.decode(errors="replace")}
    file = {"filename": media.name or "file", "file_data": data_url(media)}
    return {"type": "file", "file": file}
