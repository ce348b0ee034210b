"""Amounts, values and texts as people read them, on terminals and on pages."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

import msgspec

from .limits import PAGE_TEXT_CHARS
from .messages import Json

BEYOND_ASCII: Final = (
    "\x7f-\x9f"  # DEL and the C1 controls
    "\xad\u061c\u180e\u200b\u200e\u200f"  # invisible, or marks of a direction
    "\u2028-\u202e\u2060-\u206f"  # line separators, overrides of the direction, invisible operators
    "\ufeff\ufff9-\ufffb\U000e0000-\U000e007f"  # byte order mark, annotations, invisible copies of ASCII
)
_HIDDEN: Final = re.compile(f"[\\x00-\\x1f{BEYOND_ASCII}\\ud800-\\udfff]")
_HIDDEN_IN_LINES: Final = re.compile(f"[\\x00-\\x08\\x0b-\\x1f{BEYOND_ASCII}\\ud800-\\udfff]")
_ESCAPES: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def span(s: float | None) -> str:
    """A duration."""
    if s is None:
        return ""
    if s < 0.9995:
        return f"{s * 1000:.0f} ms"
    if s < 59.95:
        return f"{s:.1f} s"
    if s < 3599.5:
        return f"{round(s) // 60} min {round(s) % 60} s"
    return f"{round(s / 60) // 60:,} h {round(s / 60) % 60} min"


def utc_text(at: datetime) -> str:
    """A time in UTC, to the second, for pages that are read elsewhere and later."""
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S}"


def usd(amount: float) -> str:
    """Money; with fractions of cents below a dollar."""
    if amount == 0:
        return "–"
    return f"${amount:,.2f}" if amount >= 1 else f"${amount:.4f}"


def count(number: int, one: str, many: str | None = None) -> str:
    """`1 step`, `2 steps`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def shorten(text: str, width: int) -> str:
    """The text on one line of at most `width` characters."""
    flat = " ".join(text.split())
    return flat if len(flat) <= width else flat[: max(1, width - 1)] + "…"


def cut_text(said: str, chars_max: int = PAGE_TEXT_CHARS) -> str:
    """The text; of a long one, beginning and end."""
    if len(said) <= chars_max:
        return said
    half = chars_max // 2
    return f"{said[:half]}\n[… {len(said) - 2 * half:,} characters left out …]\n{said[-half:]}"


def indented(value: Json) -> str:
    """A value as JSON on several lines; a text as it is."""
    if isinstance(value, str):
        return value
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def compact(value: Json) -> str:
    """A value as JSON, on one line."""
    return msgspec.json.encode(value).decode()


def short_args(args: Json) -> str:
    """Arguments as in a Python call."""
    if isinstance(args, dict):
        return ", ".join(f"{key}={compact(value)}" for key, value in args.items())
    return args if isinstance(args, str) else compact(args)


def visible(text: str, *, lines: bool = False) -> str:
    """Escape every character that a terminal or a browser would act on: `\\x1b`, `\\u202e`.

    With `lines`, ends of lines and tabs stay, for text of several lines.
    """
    if text.isascii() and text.isprintable():
        return text
    if lines:
        return _HIDDEN_IN_LINES.sub(_escape, text.replace("\r\n", "\n"))
    return _HIDDEN.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    one = found[0]
    code = ord(one)
    if code < 0x100:
        return _ESCAPES.get(one) or f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
