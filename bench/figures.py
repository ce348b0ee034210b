"""The figures of a run, as they are kept in `results.json`, and how several become one."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """A session of so many steps: time per step in its first and last 5 %, its bytes, and its loading.

    Loads of all subjects of a table were taken in turns: those of one index belong together.
    """

    steps: int
    first_ms: float
    last_ms: float
    total_s: float
    disk_bytes: int
    load_ms: list[float]
    """From the store that is open."""
    new_open_ms: list[float]
    """To open the store anew, in another process, …"""
    new_load_ms: list[float]
    """… and to load from it for the first time."""
    peek_ms: list[float] = []
    """To read the state and no message, from the store that is open."""
    new_peek_ms: list[float] = []
    """The same in another process, with the opening."""

    @property
    def new_ms(self) -> list[float]:
        """To open the store anew and to load from it."""
        return [sum(both) for both in zip(self.new_open_ms, self.new_load_ms, strict=True)]


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """The process waits for a word."""


class Times(msgspec.Struct, frozen=True, tag="times"):
    """How long each part of what was asked for took, in milliseconds."""

    ms: list[float]


class Stop(msgspec.Struct, frozen=True):
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


class Growth(msgspec.Struct, frozen=True, kw_only=True):
    """One session of one subject, from its beginning to the last mark it reached.

    All subjects of a table took rounds of so many steps in turns: rounds of one index belong together.
    """

    subject: str
    round_steps: int
    rounds_ms: list[float] = []
    """A step of each round: the mean."""
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
    rates: list[float]
    """Steps a second, all sessions of all processes together. Rounds of one index belong together."""


class Memory(msgspec.Struct, frozen=True):
    """What one more open session takes."""

    subject: str
    bytes: float


class Timed(msgspec.Struct, frozen=True):
    """How long something took, each time."""

    what: str
    wall_ms: list[float]
    cpu_ms: list[float] = []


class Call(msgspec.Struct, frozen=True):
    """A kind of call in one round, in microseconds: what passed (median), and the processors' time (mean)."""

    passed_us: float
    worked_us: float


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
    dispatch: dict[str, list[Call]] = {}
    """Of each round."""
    proxy: dict[str, list[float]] = {}
    """Microseconds that a request to an MCP server takes, of each round."""
    fleet: list[Fleet] = []
    crashes: Table | None = None
    crash_tests: Table | None = None
    renewed: dict[str, str] = {}
    """What was measured again after the run, and when."""

    def renew(self, part: Results) -> None:
        """Take the sections that `part` has measured anew. What was measured in turns stays together."""
        for section in part.sections:
            setattr(self, section.name, getattr(part, section.name))
            self.sections = [one for one in self.sections if one.name != section.name] + [section]
            self.renewed[section.name] = part.about["date"]


class Spread(NamedTuple):
    """The median of several figures, and its quartiles: half of the figures are between them."""

    median: float
    low: float
    high: float
    rounds: int

    @classmethod
    def of(cls, figures: Iterable[float]) -> Spread:
        """At least one figure."""
        found = list(figures)
        if len(found) == 1:
            return cls(found[0], found[0], found[0], 1)
        low, median, high = statistics.quantiles(found, n=4, method="inclusive")
        return cls(median, low, high, len(found))


def exponent(points: Sequence[tuple[float, float]]) -> float | None:
    """By which power of the first the second grows: 1 is in proportion, 2 with the square. Least squares on
    logarithms; None with fewer than two points."""
    logs = [(math.log(x), math.log(y)) for x, y in points if x > 0 and y > 0]
    if len({x for x, _ in logs}) < 2:
        return None
    return statistics.linear_regression(*zip(*logs, strict=True)).slope


def spoken(figure: float) -> str:
    """Three digits that count; a number of things in full."""
    if isinstance(figure, int):
        return f"{figure:,}"
    if figure == 0 or not math.isfinite(figure):
        return f"{figure:g}"
    digits = max(0, 2 - math.floor(math.log10(abs(figure))))
    return f"{figure:,.{digits}f}"
