"""Clocks, and the identity of this boot. No other module reads them from the operating system."""

from __future__ import annotations

import os
import sys
import time
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from msgspec import Struct

# Counts suspended time: after a suspend, a laptop must find its lease expired.
# (On macOS the monotonic clock of clock_gettime counts it already.)
_SLEEPLESS = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def utc_now() -> datetime:
    """The wall clock, in UTC."""
    return datetime.now(UTC)


def monotonic_s() -> float:
    """Seconds on a monotonic clock, for waits inside this process."""
    return time.monotonic()


def boot_s() -> float:
    """Seconds since boot, suspended time included. Comparable only under one `boot_id`."""
    return time.clock_gettime(_SLEEPLESS)


@cache
def boot_id() -> str | None:
    """Identifies this boot of this kernel and its clock; None if the system offers no such id.

    A time namespace shifts `boot_s`, so it is part of the id.
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
    """A moment by clocks that are never set: that of one boot, and of the store's server if it has one.

    `boot` identifies the clock of `boot_s`.
    """

    boot: str
    boot_s: float
    server_s: float | None = None

    def list_elapsed_s(self, since: Instant) -> list[float]:
        """Seconds since another moment, by every clock that both have."""
        found = [self.boot_s - since.boot_s] if self.boot == since.boot else []
        if self.server_s is not None and since.server_s is not None:
            found.append(self.server_s - since.server_s)
        return found
