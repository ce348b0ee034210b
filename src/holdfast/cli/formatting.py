"""Times and sizes as people read them on a terminal; amounts and texts are in `holdfast.formatting`."""

from __future__ import annotations

from datetime import datetime

from ..formatting import compact as compact
from ..formatting import count as count
from ..formatting import shorten as shorten
from ..formatting import span as span
from ..formatting import usd as usd


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
