"""Time, and which machine this is. No other module asks the operating system for either."""

from __future__ import annotations

import os
import sys
import time
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

# Counts time asleep: a laptop whose lid was shut must find its lease run out.
# (On macOS the monotonic clock of clock_gettime counts sleep already.)
_SLEEPLESS = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def utc_now() -> datetime:
    """The wall clock, in UTC."""
    return datetime.now(UTC)


def boot_s() -> float:
    """Seconds since boot, time asleep included. Comparable only under one `boot_id`."""
    return time.clock_gettime(_SLEEPLESS)


@cache
def boot_id() -> str | None:
    """What names this boot of this kernel with this clock, or None where nothing does.

    A time namespace shifts `boot_s`, so it is part of the name.
    """
    if sys.platform != "linux":
        return None
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        namespace = os.readlink("/proc/self/ns/time") if os.path.lexists("/proc/self/ns/time") else ""
    except OSError:
        return None
    return f"{boot} {namespace}".strip()
