"""What holdfast aims at, and whether this run met it. Computed from the figures, whatever they say."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator
from typing import NamedTuple

from bench.figures import LongSession
from bench.view import View


class Verdict(NamedTuple):
    """An aim. Without a figure, it was not measured."""

    aim: str
    figure: float | None
    limit: float
    at_least: bool = False
    unit: str = "times"

    @property
    def met(self) -> bool | None:
        """None if it was not measured."""
        if self.figure is None:
            return None
        return self.figure >= self.limit if self.at_least else self.figure <= self.limit


def judge(view: View) -> list[Verdict]:
    """Every aim."""
    return [*_steps(view), *_many(view), *_long(view), *_adapters(view), *_dispatch(view), *_fleet(view)]


def _steps(view: View) -> Iterator[Verdict]:
    def cost(ours: str, other: str) -> float | None:
        found = view.in_turns(ours, other)
        return found.median if found else None

    yield Verdict("a step on SQLite / a raw transaction", cost("holdfast SQLite", "raw SQLite"), 1.5)
    yield Verdict(
        "a step on SQLite / `SQLiteSession.add_items`", cost("holdfast SQLite", "OpenAI SQLiteSession"), 1.0
    )
    yield Verdict("a step on PostgreSQL / a raw INSERT", cost("holdfast PostgreSQL", "raw PostgreSQL"), 1.5)
    yield Verdict("a step in a directory / a raw append", cost("holdfast dir", "raw append"), 2.5)


def _many(view: View) -> Iterator[Verdict]:
    for store in ("SQLite", "PostgreSQL"):
        ours, raw = view.rate(f"holdfast {store}", 1000), view.rate(f"raw {store}", 1000)
        yield Verdict(
            f"{store}: raw rows in batches / steps of 1,000 sessions at once",
            raw.median / ours.median if raw and ours else None,
            4,
        )
    for store, limit in (("SQLite", 8.0), ("PostgreSQL", 4.0)):
        many, one = view.rate(f"holdfast {store}", 100), view.rate(f"holdfast {store}", 1)
        yield Verdict(
            f"{store}: steps of 100 sessions at once / of one",
            many.median / one.median if many and one else None,
            limit,
            at_least=True,
        )


def _long(view: View) -> Iterator[Verdict]:
    for store in ("SQLite", "PostgreSQL"):
        found = view.long(f"holdfast {store}", 10_000)
        yield Verdict(
            f"{store}: opening 10,000 steps / decoding their messages",
            _middle(found, _opening_to_decoding),
            2,
        )
        yield Verdict(
            f"{store}: last / first tenth of 10,000 steps",
            _middle(found, lambda one: one.tenths_ms[-1] / one.tenths_ms[0]),
            1.3,
        )


def _opening_to_decoding(one: LongSession) -> float:
    return statistics.median(one.open_ms) / statistics.median(one.typed_ms)


def _middle(found: list[LongSession], figure: Callable[[LongSession], float]) -> float | None:
    return statistics.median(figure(one) for one in found) if found else None


def _adapters(view: View) -> Iterator[Verdict]:
    for ours, theirs, faster, smaller in (
        ("HoldfastSaver SQLite", "AsyncSqliteSaver", 10, 200),
        ("HoldfastStepStore", "SqliteStepStore", 20, 40),
    ):
        time, size = (view.ratio(theirs, ours, figure, 1000) for figure in ("total_s", "disk_bytes"))
        yield Verdict(f"{theirs} / {ours}: time of 1,000 steps", time, faster, at_least=True)
        yield Verdict(f"{theirs} / {ours}: bytes after 1,000 steps", size, smaller, at_least=True)
    last, first = (view.at("HoldfastSaver SQLite", 1000, figure) for figure in ("last_ms", "first_ms"))
    yield Verdict(
        "HoldfastSaver: last / first 5 % of 1,000 steps",
        last.median / first.median if last and first else None,
        1.5,
    )
    yield Verdict(
        "an agent with `Durable` / one that keeps nothing: time of 1,000 steps",
        view.ratio("agent, Durable", "agent, nothing kept", "total_s", 1000),
        1.25,
    )


def _dispatch(view: View) -> Iterator[Verdict]:
    def beyond(what: str, base: str) -> float | None:
        mine, other = view.dispatch(what), view.dispatch(base)
        return mine.median - other.median if mine and other else None

    for kind in ("pure", "read"):
        yield Verdict(
            f"dispatch of a {kind} tool, beyond pydantic's validation",
            beyond(kind, "pydantic alone"),
            50,
            unit="µs",
        )
    mutate, commits = view.dispatch("mutate"), view.dispatch("two raw commits")
    yield Verdict(
        "dispatch of a mutating tool / its two raw commits",
        mutate.median / commits.median if mutate and commits else None,
        2,
    )
    added, hop = beyond("read, sync body", "read"), view.dispatch("thread hop")
    yield Verdict("a sync body / a bare hop into a thread", added / hop.median if added and hop else None, 2)


def _fleet(view: View) -> Iterator[Verdict]:
    for store in ("SQLite", "PostgreSQL"):
        waits = view.waits(store, "pick-up")
        yield Verdict(
            f"{store}: submitted work is picked up after (p50)",
            statistics.median(waits) if waits else None,
            20,
            unit="ms",
        )


def spoken(figure: float) -> str:
    """Three digits that count."""
    if figure == 0 or not math.isfinite(figure):
        return f"{figure:g}"
    digits = max(0, 2 - math.floor(math.log10(abs(figure))))
    return f"{figure:,.{digits}f}"
