"""How much is measured: in full, and in the quick form that ends within five minutes."""

from __future__ import annotations

from typing import Final

import msgspec


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Counts, and times in seconds. Everything is bounded."""

    quick: bool
    marks: tuple[int, ...]
    """Steps at which a growing session is looked at."""
    message_marks: tuple[int, ...]
    """The same, for plain messages."""
    agent_marks: tuple[int, ...]
    """The same, for whole agents: most of what they take is the framework's, and grows with its history."""
    round_steps: int
    """Subjects that grow take so many steps in turns. Marks are multiples of it."""
    loads: int
    """How often a session is loaded in each way, at each mark."""
    soft_s: float
    """A growing session begins no further mark after so long in its steps, …"""
    hard_s: float
    """… and takes no further step after so long."""
    turn_rounds: int
    turn_steps: int
    """Of subjects that take steps in turns."""
    sessions: tuple[int, ...]
    """At once."""
    seconds: float
    """So long each row of the throughput is measured in each round."""
    rounds: int
    peer_rounds: int
    """Of the throughput, for peers: they take part in the first ones."""
    peer_sessions: tuple[int, ...]
    """At once, for peers."""
    processes: int
    """That share one SQLite file."""
    syncs_s: float
    """So long syncs are counted."""
    held: int
    """Open sessions, of which the memory is measured."""
    held_rounds: int
    starts: int
    """How often each start of an interpreter is measured."""


FULL: Final = Plan(
    quick=False,
    marks=(100, 300, 1000, 3000),
    message_marks=(100, 300, 1000, 3000, 10_000),
    agent_marks=(100, 300),
    round_steps=20,
    loads=5,
    soft_s=20,
    hard_s=100,
    turn_rounds=5,
    turn_steps=1000,
    sessions=(1, 10, 100, 1000),
    seconds=0.5,
    rounds=7,
    peer_rounds=2,
    peer_sessions=(1, 10, 100, 1000),
    processes=8,
    syncs_s=1.0,
    held=1000,
    held_rounds=1,
    starts=5,
)

QUICK: Final = Plan(
    quick=True,
    marks=(50, 200),
    message_marks=(50, 200),
    agent_marks=(50,),
    round_steps=10,
    loads=2,
    soft_s=1,
    hard_s=1.5,
    turn_rounds=1,
    turn_steps=150,
    sessions=(1, 100),
    seconds=0.2,
    rounds=3,
    peer_rounds=1,
    peer_sessions=(100,),
    processes=4,
    syncs_s=0.1,
    held=200,
    held_rounds=1,
    starts=1,
)
