"""What a request costs: its tokens, estimated before it is sent, and their price."""

from __future__ import annotations

import math
from typing import Final

import msgspec
from msgspec import Struct

from ..core.budget import Usage
from ..errors import BadInput
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

_MTOK: Final = 1_000_000

# English prose has about four bytes per token, code and JSON three, other scripts two to three, hex and
# base64 less than two.
_BYTES_PER_TOKEN: Final = 2

# Roles, separators, and what a provider adds around a message, a tool or the whole prompt.
_FRAME_TOKENS: Final = 16
_TOOL_FRAME_TOKENS: Final = 48
_PROMPT_FRAME_TOKENS: Final = 512

# The largest image of the most expensive provider. A page of a document counts as an image and as its text.
_MEDIA_TOKENS: Final = 5_000
_MEDIA_BYTES_PER_TOKEN: Final = 8

_encode = msgspec.json.Encoder(enc_hook=str).encode


class Price(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The price of a model, in USD per million tokens. Cached input costs the same unless it has a price."""

    input_usd_per_mtok: float
    output_usd_per_mtok: float
    cache_read_usd_per_mtok: float | None = None
    cache_write_usd_per_mtok: float | None = None

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            usd = getattr(self, name)
            if usd is not None and not (usd >= 0 and math.isfinite(usd)):
                raise BadInput(f"Price({name}={usd!r}): a price is a finite number, zero or more")

    def cost_usd(self, usage: Usage) -> float:
        """The cost of the tokens. Tokens read from or written to the cache are part of the input tokens."""
        read, written = usage.cache_read_tokens, usage.cache_write_tokens
        plain = max(usage.input_tokens - read - written, 0)
        usd = (
            plain * self.input_usd_per_mtok
            + read * _or(self.cache_read_usd_per_mtok, self.input_usd_per_mtok)
            + written * _or(self.cache_write_usd_per_mtok, self.input_usd_per_mtok)
            + usage.output_tokens * self.output_usd_per_mtok
        )
        return usd / _MTOK


def _or(usd: float | None, otherwise: float) -> float:
    return otherwise if usd is None else usd


def find_cost_usd(model: str, usage: Usage, *, price: Price | None = None) -> float | None:
    """The cost of a reply at `price`, or else at the published price of the model; None if it is not known.

    Published prices are those in the installed `genai-prices` (extra `models`); nothing is fetched.
    """
    return price.cost_usd(usage) if price is not None else _find_published_usd(model, usage)


def find_reserve_usd(
    model: str, *, input_tokens: int, output_tokens: int, price: Price | None = None
) -> float | None:
    """The most that a request of this size can cost; None if the price is not known.

    Some providers cache prompts without being asked, charge for writing the cache, and report it only
    afterwards. So the higher of the two costs counts.
    """
    plain = Usage(input_tokens=input_tokens, output_tokens=output_tokens)
    written = Usage(input_tokens=input_tokens, output_tokens=output_tokens, cache_write_tokens=input_tokens)
    costs = [find_cost_usd(model, usage, price=price) for usage in (plain, written)]
    return max((usd for usd in costs if usd is not None), default=None)


def _find_published_usd(model: str, usage: Usage) -> float | None:
    try:
        import genai_prices  # Large, and installed only with the extra.
    except ImportError:
        return None
    provider, colon, name = model.removeprefix("gateway/").partition(":")
    try:
        found = genai_prices.calc_price(
            genai_prices.Usage(
                input_tokens=usage.input_tokens,
                output_tokens=usage.output_tokens,
                cache_read_tokens=usage.cache_read_tokens,
                cache_write_tokens=usage.cache_write_tokens,
            ),
            name if colon else model,
            provider_id=provider if colon else None,
        )
    except (LookupError, ValueError):  # An unknown model, or counts that contradict each other.
        return None
    return float(found.total_price)


# -- tokens ----------------------------------------------------------------------------------------------


def estimate_input_tokens(prompt: Prompt) -> int:
    """An upper estimate of the tokens of a prompt; for ordinary text about double."""
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
    """The provider's own data, which it is sent back. Encrypted reasoning may be long."""
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
