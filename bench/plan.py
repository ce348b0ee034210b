"""How much is measured: in full, and in the quick form that ends within five minutes."""

from __future__ import annotations

from typing import Final

import msgspec


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Counts, and times in seconds. Everything is bounded."""

    quick: bool
    rounds: int
    """How often each row is measured, all rows once before any row again."""
    marks: tuple[int, ...]
    """Steps at which a growing session is looked at."""
    soft_s: float
    """A growing session begins no further mark after so long in its steps, …"""
    hard_s: float
    """… and takes no further step after so long."""
    later_s: float
    """Both, from the second round on: what is slow is measured again as far as this allows."""
    turn_rounds: int
    turn_steps: int
    """Of subjects that take steps in turns."""
    sessions: tuple[int, ...]
    """At once."""
    seconds: float
    """So long each row of the throughput is measured."""
    peer_rounds: int
    """Of the throughput, for peers."""
    peer_sessions: tuple[int, ...]
    """At once, for peers."""
    processes: int
    """That share one SQLite file."""
    syncs_s: float
    """So long syncs are counted."""
    long_steps: tuple[int, ...]
    long_rounds: int
    """Of these, and of the memory."""
    held: int
    """Open sessions, of which the memory is measured."""
    starts: int
    """How often each start of an interpreter is measured."""


FULL: Final = Plan(
    quick=False,
    rounds=3,
    marks=(100, 300, 1000, 3000),
    soft_s=40,
    hard_s=300,
    later_s=5,
    turn_rounds=5,
    turn_steps=1000,
    sessions=(1, 10, 100, 1000),
    seconds=1.0,
    peer_rounds=2,
    peer_sessions=(1, 10, 100, 1000),
    processes=8,
    syncs_s=1.0,
    long_steps=(100, 1000, 10_000),
    long_rounds=2,
    held=1000,
    starts=5,
)

QUICK: Final = Plan(
    quick=True,
    rounds=1,
    marks=(30, 100, 300),
    soft_s=1.5,
    hard_s=2.5,
    later_s=1,
    turn_rounds=1,
    turn_steps=150,
    sessions=(1, 100),
    seconds=0.4,
    peer_rounds=1,
    peer_sessions=(100,),
    processes=4,
    syncs_s=0.1,
    long_steps=(100, 1000),
    long_rounds=1,
    held=200,
    starts=1,
)
