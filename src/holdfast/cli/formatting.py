"""Times, amounts and texts as people read them."""

from __future__ import annotations

from datetime import datetime

import msgspec

from ..messages import Json


def clock(at: datetime, now: datetime, *, seconds: bool = True) -> str:
    """Local time, with the date unless that is today."""
    there, here = at.astimezone(), now.astimezone()
    time = f"{there:%H:%M:%S}" if seconds else f"{there:%H:%M}"
    return time if there.date() == here.date() else f"{there:%Y-%m-%d} {time}"


def size(bytes: int) -> str:
    """A number of bytes, rounded."""
    amount = float(bytes)
    for unit in ("bytes", "kB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "bytes" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} TB"


def ago(at: datetime, now: datetime) -> str:
    """The time since then, rounded."""
    s = max(0.0, (now - at).total_seconds())
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if s >= length:
            return f"{s / length:.0f} {unit} ago"
    return f"{s:.0f} s ago"


def since(start: datetime, at: datetime) -> str:
    """The time from one moment to a later one, as it stands beside others."""
    s = max(0.0, (at - start).total_seconds())
    if s < 60:
        return f"{s:.1f} s"
    if s < 3600:
        return f"{int(s) // 60}:{int(s) % 60:02} min"
    if s < 86400:
        return f"{int(s) // 3600}:{int(s) % 3600 // 60:02} h"
    return f"{int(s) // 86400} d {int(s) % 86400 // 3600} h"


def span(s: float | None) -> str:
    """A duration."""
    if s is None:
        return ""
    if s < 1:
        return f"{s * 1000:.0f} ms"
    if s < 60:
        return f"{s:.1f} s"
    if s < 3600:
        return f"{s // 60:.0f} min {s % 60:.0f} s"
    return f"{s // 3600:.0f} h {s % 3600 / 60:.0f} min"


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


def compact(value: Json) -> str:
    """A value as JSON, on one line."""
    return msgspec.json.encode(value).decode()
