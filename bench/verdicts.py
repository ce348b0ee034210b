"""What is expected of a run, and whether it came true."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import Final, NamedTuple

from bench.figures import Spread
from bench.headlines import list_behind
from bench.texts import CHARACTERS
from bench.view import View

STEP_BYTES: Final = 2 * CHARACTERS


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
    """The aims of the project: those of its issue 17 in their order, and those of adapters."""
    return [
        *_steps(view),
        *_bytes(view),
        *_opening(view),
        _many(view, "SQLite", 7.0),
        *_dispatches(view),
        *_savers(view),
        *_durable_runs(view),
        _cells(view),
    ]


def watch(view: View) -> list[Verdict]:
    """What is no aim, and should not become worse unnoticed: limits are about what it was before."""
    return [
        *_flat(view),
        *_standing(view),
        _turns(view, "a step in a directory / a raw append", "holdfast dir", "raw append", 2.5),
        _many(view, "PostgreSQL", 4.0),
        _sync_body(view),
        *_adapters(view),
        *_openai_agents(view),
        *_fleet(view),
    ]


def _middle(found: Spread | None) -> float | None:
    return found.median if found else None


# -- aims ------------------------------------------------------------------------------------------------


def _turns(view: View, aim: str, ours: str, other: str, limit: float) -> Verdict:
    return Verdict(aim, _middle(view.in_turns(ours, other)), limit)


def _steps(view: View) -> Iterator[Verdict]:
    sqlite, postgres = "holdfast SQLite", "holdfast PostgreSQL"
    yield _turns(view, "a step on SQLite / a raw transaction", sqlite, "raw SQLite", 1.6)
    aim = "a step on SQLite / OpenAI `SQLiteSession.add_items`"
    yield _turns(view, aim, sqlite, "OpenAI SQLiteSession", 0.9)
    yield _turns(view, "a step on PostgreSQL / a raw insert", postgres, "raw PostgreSQL", 1.6)


def _bytes(view: View) -> Iterator[Verdict]:
    for steps in (1000, 10_000):
        found = view.at("holdfast SQLite", steps, "disk_bytes")
        yield Verdict(
            f"bytes per byte, SQLite, after {steps:,} steps",
            found.median / (STEP_BYTES * steps) if found else None,
            1.45,
            unit="",
        )
    for peer, whose in (
        ("OpenAI SQLAlchemySession PostgreSQL", "OpenAI's SQLAlchemySession"),
        ("DBOS PostgreSQL", "DBOS"),
    ):
        ratio = view.ratio("holdfast PostgreSQL", peer, "disk_bytes")
        yield Verdict(f"bytes per byte, PostgreSQL / those of {whose}", _middle(ratio), 1)


def _opening(view: View) -> Iterator[Verdict]:
    ours, other = "holdfast SQLite", "OpenAI SQLiteSession"
    ways = (("in a new process", "new_ms", "new_peek_ms"), ("from an open store", "load_ms", "peek_ms"))
    for messages, looks, limit in (
        ("with all messages", True, 1.0),
        ("without looking at messages", False, 0.5),
    ):
        for steps in (3000, 10_000):
            for where, load, peek in ways:
                ratio = view.ratio(ours, other, load if looks else peek, steps, of=load)
                aim = f"opening {steps:,} steps {messages} / `get_items`, {where}"
                yield Verdict(aim, _middle(ratio), limit)


def _many(view: View, store: str, limit: float) -> Verdict:
    ratio = view.rate_ratio(f"raw {store}", f"holdfast {store}", 1000)
    return Verdict(f"1,000 sessions at once below raw batches, {store}", _middle(ratio), limit)


def judge_dispatch(view: View) -> list[Verdict]:
    """The aims of dispatches, and what is watched about them."""
    return [*_dispatches(view), _sync_body(view)]


def _dispatches(view: View) -> Iterator[Verdict]:
    mutate = view.dispatch_ratio("mutate", "two raw commits")
    yield Verdict("a mutating dispatch / its two raw commits", _middle(mutate), 2.5)
    for kind in ("pure", "read"):
        yield Verdict(
            f"a {kind} dispatch beyond pydantic's validation",
            _middle(view.dispatch_beyond(kind, "pydantic alone", "worked_us")),
            35,
            unit="µs of processor time",
        )


_SAVERS: Final = (
    ("HoldfastSaver SQLite", "AsyncSqliteSaver"),
    ("HoldfastSaver PostgreSQL", "AsyncPostgresSaver"),
)


def _savers(view: View) -> Iterator[Verdict]:
    for ours, theirs in _SAVERS:
        ratio = view.ratio(ours, theirs, "new_load_ms", 1000)
        aim = f"a fresh saver's first `get_tuple` after 1,000 steps / {theirs}'s"
        yield Verdict(aim, _middle(ratio), 1)


def _durable_runs(view: View) -> Iterator[Verdict]:
    for kind, of_the_sdk in (("run", "Runner.run"), ("streamed run", "Runner.run_streamed")):
        yield Verdict(
            f"a {kind} with `DurableRunner` / `{of_the_sdk}` that keeps nothing: time of 300 steps",
            _middle(view.ratio(f"{kind}, DurableRunner", f"{kind}, nothing kept", "total_s", 300)),
            1.25,
        )


def _cells(view: View) -> Verdict:
    behind = list_behind(view)
    aim = "cells of *In short* in which another one is ahead, and that are not explained there"
    if behind is None:
        return Verdict(aim, None, 0)
    return Verdict(aim, sum(not one.why for one in behind), 0, unit=f"of {len(behind)}")


# -- what is watched -------------------------------------------------------------------------------------


def _flat(view: View) -> Iterator[Verdict]:
    for store in ("SQLite", "PostgreSQL"):
        yield Verdict(
            f"last / first tenth of 10,000 steps, each in steps of the floor beside it, {store}",
            view.drift(f"holdfast {store}", f"raw {store}", 10_000),
            1.3,
        )


def _standing(view: View) -> Iterator[Verdict]:
    for store in ("SQLite", "PostgreSQL"):
        yield Verdict(f"syncs per step, {store}", view.syncs(f"holdfast {store}"), 1, unit="")
    for store, limit in (("dir", 13.5), ("SQLite", 14.6), ("PostgreSQL", 9.7)):
        memory = view.memory(f"holdfast {store}")
        figure = memory.median / 1000 if memory else None
        yield Verdict(f"memory of a thousand open sessions, {store}", figure, limit, unit="MB")


def _sync_body(view: View) -> Verdict:
    added, hop = view.dispatch_beyond("read, sync body", "read", "passed_us"), view.dispatch("thread hop")
    figure = added.median / hop.median if added and hop else None
    return Verdict("a sync body / a bare hop into a thread", figure, 2)


def _adapters(view: View) -> Iterator[Verdict]:
    for ours, theirs in _SAVERS:
        ratio = view.ratio(ours, theirs, "new_ms", 1000)
        aim = f"opening a saver, and its first `get_tuple` after 1,000 steps / {theirs}'s"
        yield Verdict(aim, _middle(ratio), 1)
    for ours, theirs, steps, faster, smaller in (
        ("HoldfastSaver SQLite", "AsyncSqliteSaver", 1000, 10, 200),
        ("HoldfastStepStore", "SqliteStepStore", 300, 8, 10),
    ):
        for figure, what, limit in (("total_s", "time of", faster), ("disk_bytes", "bytes after", smaller)):
            yield Verdict(
                f"{theirs} / {ours}: {what} {steps:,} steps",
                _middle(view.ratio(theirs, ours, figure, steps)),
                limit,
                at_least=True,
            )
    yield Verdict(
        "an agent with `Durable` / one that keeps nothing: time of 300 steps",
        _middle(view.ratio("agent, Durable", "agent, nothing kept", "total_s", 300)),
        1.5,
    )


def _openai_agents(view: View) -> Iterator[Verdict]:
    ours, theirs = "HoldfastSession SQLite", "OpenAI SQLiteSession"
    yield _turns(view, "a step of `HoldfastSession` / of OpenAI `SQLiteSession`", ours, theirs, 1.4)
    aim = "a step of `HoldfastSession` / of OpenAI `SQLAlchemySession`"
    yield _turns(view, aim, ours, "OpenAI SQLAlchemySession", 0.5)
    for figure, what, limit in (
        ("disk_bytes", "bytes after", 1.6),
        ("new_ms", "opening and loading, in a new process,", 1.5),
        ("load_ms", "loading, from an open store,", 1.0),
    ):
        aim = f"`HoldfastSession` / OpenAI `SQLiteSession`: {what} 3,000 steps"
        yield Verdict(aim, _middle(view.ratio(ours, theirs, figure, 3000)), limit)


def _fleet(view: View) -> Iterator[Verdict]:
    for store in ("SQLite", "PostgreSQL"):
        waits = view.waits(store, "pick-up")
        yield Verdict(
            f"submitted work is picked up after (p50), {store}",
            statistics.median(waits) if waits else None,
            20,
            unit="ms",
        )
