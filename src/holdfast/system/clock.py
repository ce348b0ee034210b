"""Time, and which machine this is. No other module asks the operating system for either."""

from __future__ import annotations

import os
import sys
import time
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from msgspec import Struct

# Counts time asleep: a laptop whose lid was shut must find its lease run out.
# (On macOS the monotonic clock of clock_gettime counts sleep already.)
_SLEEPLESS = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def utc_now() -> datetime:
    """The wall clock, in UTC."""
    return datetime.now(UTC)


def monotonic_s() -> float:
    """Seconds on a clock that never goes back, for measuring waits inside this process."""
    return time.monotonic()


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


class Instant(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A moment, by clocks that no person sets: that of one boot, and the store's server's where it has one.

    `boot` names the clock of `boot_s`.
    """

    boot: str
    boot_s: float
    server_s: float | None = None

    def list_elapsed_s(self, since: Instant) -> list[float]:
        """How long it is since another moment, by every clock that both know."""
        found = [self.boot_s - since.boot_s] if self.boot == since.boot else []
        if self.server_s is not None and since.server_s is not None:
            found.append(self.server_s - since.server_s)
        return found
