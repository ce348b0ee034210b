"""How many tokens a prompt may be, before anybody counted them."""

from __future__ import annotations

from typing import Final

import msgspec

from ..messages import (
    AnyMessage,
    Block,
    ForeignMessage,
    Media,
    Message,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
)
from .model import Prompt

# English prose has about four bytes a token, code and JSON three, text of other scripts two to three, hex and
# base64 less than two.
_BYTES_PER_TOKEN: Final = 2

# Roles, separators, and what a provider adds around a message, a tool or the whole prompt.
_FRAME_TOKENS: Final = 16
_TOOL_FRAME_TOKENS: Final = 48
_PROMPT_FRAME_TOKENS: Final = 512

# The largest image of the dearest provider. A page of a document counts as an image and as its text.
_MEDIA_TOKENS: Final = 5_000
_MEDIA_BYTES_PER_TOKEN: Final = 8

_encode = msgspec.json.Encoder(enc_hook=str).encode


def estimate_input_tokens(prompt: Prompt) -> int:
    """How many tokens the prompt may be, rather too many than too few; for ordinary text about double."""
    tools = sum(_TOOL_FRAME_TOKENS + _text(_encode(tool)) for tool in prompt.tools)
    messages = sum(_FRAME_TOKENS + _message(message) for message in prompt.messages)
    return _PROMPT_FRAME_TOKENS + _text(prompt.instructions) + tools + messages


def _message(message: AnyMessage) -> int:
    if isinstance(message, ForeignMessage):
        return _text(_encode(message.data))
    return sum(_FRAME_TOKENS + _block(block) for block in message.blocks) + _kept(message)


def _block(block: Block) -> int:
    if isinstance(block, Media):
        return _media(block)
    if isinstance(block, Text | Reasoning):
        return _text(block.text) + _kept(block)
    if isinstance(block, ToolCall):
        return _text(block.id) + _text(block.name) + _text(_encode(block.args)) + _kept(block)
    if isinstance(block, ToolResult):
        shown = block.content if not isinstance(block.content, str) else (Text(block.content),)
        return _text(block.call_id) + sum(_FRAME_TOKENS + _block(part) for part in shown)
    return _text(_encode(block.data))


def _kept(of: Message | Text | Reasoning | ToolCall) -> int:
    """What the provider gets back of its own: the encrypted reasoning among it may be long."""
    return _text(_encode(of.metadata)) if of.metadata else 0


def _media(media: Media) -> int:
    size = len(media.data or b"")
    if media.media_type.startswith("text/"):
        return size // _BYTES_PER_TOKEN
    if media.media_type.startswith("image/"):
        return _MEDIA_TOKENS
    return max(_MEDIA_TOKENS, size // _MEDIA_BYTES_PER_TOKEN)


def _text(text: str | bytes) -> int:
    size = len(text) if isinstance(text, bytes) or text.isascii() else len(text.encode(errors="replace"))
    return -(-size // _BYTES_PER_TOKEN)
