"""The figures of a run, as they are kept in `results.json`, and how several become one."""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

import msgspec


class Mark(msgspec.Struct, frozen=True, kw_only=True, tag="mark"):
    """A session of so many steps: time per step in its first and last 5 %, and what there is of it."""

    steps: int
    first_ms: float
    last_ms: float
    total_s: float
    load_ms: float
    disk_bytes: int


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """Everything is open; the word is waited for."""


class Stop(msgspec.Struct, frozen=True, tag="stop"):
    """Why a subject went no further."""

    steps: int
    reason: str


class Rate(msgspec.Struct, frozen=True, tag="rate"):
    """Steps in so many seconds."""

    steps: int
    seconds: float


class Size(msgspec.Struct, frozen=True, tag="size"):
    """What so many open sessions take of the memory."""

    sessions: int
    bytes: int


class Growth(msgspec.Struct, frozen=True):
    """One session of one subject, from its beginning to the last mark it reached."""

    subject: str
    marks: list[Mark] = []
    stop: Stop | None = None


class Syncs(msgspec.Struct, frozen=True):
    """How often a subject waited for the disk."""

    subject: str
    steps: int
    syncs: int


class Turns(msgspec.Struct, frozen=True):
    """Subjects that took steps in turns, in one process."""

    medians_ms: dict[str, float]


class Throughput(msgspec.Struct, frozen=True):
    """Steps of many sessions at once."""

    subject: str
    sessions: int
    processes: int
    batch: bool
    rate: float
    """Steps a second, all sessions of all processes together."""


class Memory(msgspec.Struct, frozen=True):
    """What one more open session takes."""

    subject: str
    bytes: float


class Timed(msgspec.Struct, frozen=True):
    """How long something took, each time."""

    what: str
    wall_ms: list[float]
    cpu_ms: list[float] = []


class LongSession(msgspec.Struct, frozen=True):
    """One session of many steps: the steps by tenths of its life, and what opening it costs."""

    subject: str
    steps: int
    tenths_ms: list[float]
    """Medians."""
    old_new: float
    """A step at its end, against one of a fresh session at the same moment."""
    open_ms: list[float]
    json_ms: list[float]
    typed_ms: list[float]


class Fleet(msgspec.Struct, frozen=True):
    """How long work waited for somebody to take it, each time."""

    store: str
    waits_ms: dict[str, list[float]]


class Table(msgspec.Struct, frozen=True):
    """A table that somebody else made."""

    title: str
    columns: list[str]
    rows: list[list[str]]
    notes: list[str] = []


class Section(msgspec.Struct, frozen=True):
    """How a part of the run went."""

    name: str
    seconds: float
    problems: list[str] = []


class Results(msgspec.Struct):
    """All that a run has found."""

    about: dict[str, str] = {}
    versions: dict[str, str] = {}
    quick: bool = False
    sections: list[Section] = []
    growth: list[Growth] = []
    syncs: list[Syncs] = []
    turns: list[Turns] = []
    throughput: list[Throughput] = []
    memory: list[Memory] = []
    startup: list[Timed] = []
    dispatch: dict[str, list[float]] = {}
    """Medians of each round, in microseconds."""
    long_sessions: list[LongSession] = []
    fleet: list[Fleet] = []
    crashes: Table | None = None
    renewed: dict[str, str] = {}
    """What was measured again after the run, and when."""

    def renew(self, part: Results, subjects: Collection[str]) -> None:
        """Take what `part` has measured anew: all of a section, or of its rows those of these subjects."""
        for section in part.sections:
            attribute = section.name.replace(" ", "_")
            new = getattr(part, attribute)
            if isinstance(new, list):
                new = [row for row in getattr(self, attribute) if _is_of_another(row, subjects)] + new
            setattr(self, attribute, new)
            self.sections = [one for one in self.sections if one.name != section.name] + [section]
            self.renewed[section.name] = part.about["date"]


def _is_of_another(row: object, subjects: Collection[str]) -> bool:
    return getattr(row, "subject", None) not in {None, *subjects}


class Spread(NamedTuple):
    """The median of several figures, the lowest and the highest."""

    median: float
    low: float
    high: float
    runs: int

    @classmethod
    def of(cls, figures: Iterable[float]) -> Spread:
        """At least one."""
        found = sorted(figures)
        return cls(statistics.median(found), found[0], found[-1], len(found))


def exponent(points: Sequence[tuple[float, float]]) -> float | None:
    """By which power of the first the second grows: 1 is in proportion, 2 with the square. Least squares on
    logarithms; None with fewer than two points."""
    logs = [(math.log(x), math.log(y)) for x, y in points if x > 0 and y > 0]
    if len({x for x, _ in logs}) < 2:
        return None
    return statistics.linear_regression(*zip(*logs, strict=True)).slope
