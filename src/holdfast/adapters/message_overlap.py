"""Where a list of messages goes on from another one."""

from __future__ import annotations

from collections.abc import Sequence


def overlap(known: Sequence[object], given: Sequence[object]) -> int:
    """How many of the given messages are the last known ones."""
    for count in range(min(len(known), len(given)), 0, -1):
        if known[-count:] == given[:count]:
            return count
    return 0
