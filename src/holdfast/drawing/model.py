"""What a drawing of a session consists of, and the scale of its time."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from ..core.lease_periods import LeasePeriod

BarKind: TypeAlias = Literal["model", "tool", "node", "delegate", "wait", "doubt"]
Status: TypeAlias = Literal["ok", "failed", "doubt", "cut", "running", "waiting"]
"""`doubt`: the outcome is not known. `cut`: the process died, and nothing can have happened twice."""

MarkKind: TypeAlias = Literal["good", "bad", "open", "plain"]
EventKind: TypeAlias = Literal["message", "rewind", "failed", "waits", "other"]


class Bar(Struct, kw_only=True):
    """Something that took time. `note` is shown when it is pointed at."""

    kind: BarKind
    start: datetime
    end: datetime
    status: Status = "ok"
    note: str = ""

    @property
    def took_s(self) -> float:
        """The duration."""
        return (self.end - self.start).total_seconds()


class Mark(Struct, kw_only=True):
    """A moment: the verdict on a call in doubt, the answer of a person."""

    at: datetime
    kind: MarkKind
    text: str


class Row(Struct, kw_only=True):
    """The requests of a step to its model, or one call with all its attempts."""

    kind: BarKind
    label: str
    detail: str = ""
    bars: list[Bar] = []
    marks: list[Mark] = []
    link: str = ""
    """The part of the page that says more, as `#id`."""
    inside: Drawing | None = None
    """Of a delegate: its own timeline."""

    @property
    def is_notable(self) -> bool:
        """Whether a long drawing shows it in any case."""
        return bool(self.marks) or any(bar.status != "ok" or bar.kind == "wait" for bar in self.bars)


class Step(Struct, kw_only=True):
    """A step, or the part of it before or after a gap."""

    seq: int
    number: int
    at: datetime
    continued: bool = False
    rows: list[Row] = []
    usd: float = 0.0
    tokens: int = 0
    version: int | None = None
    checkpoint_at: datetime | None = None
    left_behind: bool = False
    """A rewind went back to a version before it."""

    @property
    def is_notable(self) -> bool:
        """Whether a long drawing shows it in any case."""
        return self.continued or any(row.is_notable for row in self.rows)


class Event(Struct, kw_only=True):
    """Something between steps. `to` is the moment that a rewind went back to."""

    seq: int
    at: datetime
    kind: EventKind
    text: str
    to: datetime | None = None

    @property
    def is_notable(self) -> bool:
        """Whether a long drawing shows it in any case."""
        return self.kind in ("rewind", "failed")


class Gap(Struct, kw_only=True):
    """The holder died without releasing its lease. `until` is None while no process has taken over."""

    seq: int
    at: datetime
    until: datetime | None
    text: str
    is_notable: bool = True


Item: TypeAlias = Step | Event | Gap


class Spent(Struct, kw_only=True):
    """The totals of the session at some moment."""

    at: datetime
    usd: float
    tokens: int


class Drawing(Struct, kw_only=True):
    """A session as it is drawn."""

    session: str
    start: datetime
    end: datetime
    items: list[Item] = []
    periods: list[LeasePeriod] = []
    spent: list[Spent] = []
    cap_usd: float | None = None

    @property
    def steps(self) -> list[Step]:
        """The steps, in parts where gaps divide them."""
        return [item for item in self.items if isinstance(item, Step)]

    @property
    def gaps(self) -> list[Gap]:
        """The gaps."""
        return [item for item in self.items if isinstance(item, Gap)]

    def iter_bars(self) -> Iterator[Bar]:
        """All bars, those of delegates aside."""
        for step in self.steps:
            for row in step.rows:
                yield from row.bars


def find_span(items: Iterable[Item]) -> tuple[datetime, datetime]:
    """When the first of the items began, and the last ended."""
    times = [at for item in items for at in _list_times(item)]
    return min(times), max(times)


def _list_times(item: Item) -> Iterator[datetime]:
    yield item.at
    if isinstance(item, Step):
        for row in item.rows:
            for bar in row.bars:
                yield from (bar.start, bar.end)
            yield from (mark.at for mark in row.marks)
    elif isinstance(item, Gap) and item.until is not None:
        yield item.until


# -- the scale of time --------------------------------------------------------------------------------


class Stretch(Struct, frozen=True, kw_only=True):
    """A part of the time axis. One that is `shortened` is drawn shorter, or longer, than it was."""

    start: float
    end: float
    left: float
    width: float
    shortened: bool


_BREAK: Final = 0.06
"""The width of a shortened stretch, as a part of all time that something took."""
_BREAKS_MAX: Final = 0.5
"""The most that all shortened stretches take, as a part of it."""


class TimeScale:
    """Where a moment is drawn, from 0 to 1.

    Time in which a model or a tool worked has one scale, so that bars compare. Stretches in which nothing
    worked are drawn as breaks if they are long; gaps always are, so that the shortest can be seen.
    """

    def __init__(
        self,
        start: datetime,
        end: datetime,
        busy: Iterable[tuple[datetime, datetime]],
        gaps: Iterable[tuple[datetime, datetime]],
    ) -> None:
        self._zero = start
        last = max(self._since(end), 0.001)
        lost = list(_join(self._clip(gaps, last)))
        worked = list(_subtract(_join(self._clip(busy, last)), lost))
        idle = list(_subtract(_between(worked, last), lost))
        busy_s = sum(b - a for a, b in worked)
        # Instants alone, as with scripted models: then all of it is to scale.
        unit_s = busy_s or sum(b - a for a, b in idle) or last
        is_long = [bool(busy_s) and b - a > 1.5 * _BREAK * unit_s for a, b in idle]
        break_s = min(_BREAK, _BREAKS_MAX / max(sum(is_long) + len(lost), 1)) * unit_s
        parts = [(*one, False) for one in worked]
        parts += [(*one, long) for one, long in zip(idle, is_long, strict=True)]
        parts += [(*one, True) for one in lost]
        self.stretches = list(_lay_out(_merge(sorted(parts)), break_s))
        self._ends = [one.end for one in self.stretches]

    def _since(self, at: datetime) -> float:
        return (at - self._zero).total_seconds()

    def _clip(self, spans: Iterable[tuple[datetime, datetime]], last: float) -> Iterator[tuple[float, float]]:
        """The parts of the spans that are on the axis, in seconds."""
        for a, b in spans:
            left, right = max(self._since(a), 0.0), min(self._since(b), last)
            if right >= left:
                yield left, right

    def place(self, at: datetime) -> float:
        """Where a moment is drawn."""
        return self.place_s(self._since(at))

    def place_s(self, since_s: float) -> float:
        """Where it is drawn, so many seconds after the start."""
        place = bisect_left(self._ends, since_s)
        if place == len(self.stretches):
            return 1.0
        one = self.stretches[place]
        length = one.end - one.start
        inside = (since_s - one.start) / length if length else 0.0
        return one.left + one.width * min(max(inside, 0.0), 1.0)

    def list_ticks(self, count: int) -> list[tuple[float, float]]:
        """Round times that are drawn to scale: where, and how many seconds after the start."""
        plain = [one for one in self.stretches if not one.shortened]
        unit_s = sum(one.end - one.start for one in plain) / count
        step = next((step for step in _TICKS_S if step >= unit_s), _TICKS_S[-1])
        found: list[tuple[float, float]] = []
        for one in plain:
            tick = -(-one.start // step) * step
            # A stretch has at most as many ticks as there are to be.
            while tick <= one.end and len(found) < 4 * count:
                found.append((self.place_s(tick), tick))
                tick += step
        return found


_TICKS_S: Final = tuple(
    unit * step
    for unit, steps in (
        (0.001, (1, 2, 5, 10, 20, 50, 100, 200, 500)),
        (1, (1, 2, 5, 10, 15, 30)),
        (60, (1, 2, 5, 10, 15, 30)),
        (3600, (1, 2, 4, 6, 12, 24, 48, 120, 240, 1200, 12_000)),
    )
    for step in steps
)


def _merge(parts: Iterable[tuple[float, float, bool]]) -> Iterator[tuple[float, float, bool]]:
    """The parts, with neighbours that are drawn to scale made one."""
    current: tuple[float, float, bool] | None = None
    for part in parts:
        if current is None or current[2] or part[2]:
            if current is not None:
                yield current
            current = part
        else:
            current = (current[0], max(current[1], part[1]), False)
    if current is not None:
        yield current


def _lay_out(parts: Iterable[tuple[float, float, bool]], break_s: float) -> Iterator[Stretch]:
    """The parts from left to right."""
    sized = [(a, b, short, break_s if short else b - a) for a, b, short in parts]
    total_s = sum(length for *_, length in sized) or 1.0
    left = 0.0
    for a, b, short, length in sized:
        yield Stretch(start=a, end=b, left=left, width=length / total_s, shortened=short)
        left += length / total_s


def _join(spans: Iterable[tuple[float, float]]) -> Iterator[tuple[float, float]]:
    """The spans, with those that touch made one."""
    current: tuple[float, float] | None = None
    for a, b in sorted(spans):
        if current is not None and a <= current[1]:
            current = (current[0], max(current[1], b))
        else:
            if current is not None:
                yield current
            current = (a, b)
    if current is not None:
        yield current


def _between(spans: Iterable[tuple[float, float]], last: float) -> Iterator[tuple[float, float]]:
    """What lies between the spans, from 0 to `last`."""
    before = 0.0
    for a, b in spans:
        if a > before:
            yield before, a
        before = max(before, b)
    if last > before:
        yield before, last


def _subtract(
    spans: Iterable[tuple[float, float]], holes: Sequence[tuple[float, float]]
) -> Iterator[tuple[float, float]]:
    """What is left of the spans without the holes."""
    for a, b in spans:
        for hole_a, hole_b in holes:
            if hole_b <= a or hole_a >= b:
                continue
            if hole_a > a:
                yield a, hole_a
            a = max(a, hole_b)
        if b > a:
            yield a, b


def make_scale(drawing: Drawing, items: Sequence[Item], start: datetime, end: datetime) -> TimeScale:
    """The scale for some of the items of a drawing."""
    bars = [bar for item in items if isinstance(item, Step) for row in item.rows for bar in row.bars]
    busy = [(bar.start, bar.end) for bar in bars if bar.kind not in ("wait", "doubt")]
    # Where bars alone are instants, a little time around them keeps them apart.
    gaps = [(gap.at, gap.until or gap.at + timedelta(microseconds=1)) for gap in drawing.gaps]
    return TimeScale(start, end, busy, [(a, b) for a, b in gaps if b > start and a <= end])
