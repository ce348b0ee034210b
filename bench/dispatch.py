"""What a dispatch costs beyond the tool itself.

    python bench/dispatch.py [--quick]

Async bodies that do nothing. Pure and read tools are measured against calling the function bare and
against pydantic's validation of the same arguments; a mutating tool on SQLite against the two raw commits that
it needs.
Rounds are interleaved, so that noise hits all alike; the median round is shown.
"""

from __future__ import annotations

import argparse
import logging
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import apsw
from rich.console import Console
from rich.table import Table

import holdfast

ARGS = {"order": "42", "cents": 500}


@holdfast.tool(side_effects=())
async def pure(order: str, cents: int) -> int:
    """Does nothing."""
    return cents


@holdfast.tool(side_effects={"read"})
async def read(order: str, cents: int) -> int:
    """Does nothing, and looks."""
    return cents


@holdfast.tool(side_effects={"read"})
def read_in_thread(order: str, cents: int) -> int:
    """Does nothing, in a thread."""
    return cents


@holdfast.tool(side_effects={"mutate"}, scope="call")
async def mutate(order: str, cents: int) -> int:
    """Does nothing, once."""
    return cents


async def measure(work: Callable[[int], Awaitable[object]], count: int) -> float:
    """Microseconds for one call."""
    began = time.perf_counter()
    for number in range(count):
        await work(number)
    return (time.perf_counter() - began) / count * 1e6


class RawCommits:
    """Two transactions with about the bytes of an intent and an outcome."""

    def __init__(self, path: Path) -> None:
        self._db = apsw.Connection(str(path))
        self._db.pragma("journal_mode", "wal")
        self._db.pragma("synchronous", "full")
        self._db.execute("CREATE TABLE lines (line TEXT)")

    async def __call__(self, number: int) -> None:
        for size in (620, 330):
            self._db.execute("BEGIN IMMEDIATE")
            self._db.execute("INSERT INTO lines VALUES (?)", ("x" * size,))
            self._db.execute("COMMIT")


async def bench(directory: Path, rounds: int, count: int) -> dict[str, float]:
    """The median microseconds of each kind of call."""
    registry = holdfast.Registry([pure, read, read_in_thread, mutate], max_repeats=1_000_000_000)
    raw = RawCommits(directory / "raw.db")
    found: dict[str, list[float]] = {}
    async with holdfast.open_store(directory / "agents.db") as store, store.session("bench") as session:

        async def validate(number: int) -> None:
            pure.arguments.check(ARGS)

        def dispatch(name: str) -> Callable[[int], Awaitable[object]]:
            return lambda number: registry.dispatch(name, {**ARGS, "cents": number}, session=session)

        works: dict[str, tuple[Callable[[int], Awaitable[object]], int]] = {
            "bare call": (lambda number: pure("42", number), count),
            "validation": (validate, count),
            "pure": (dispatch("pure"), count),
            "read": (dispatch("read"), count),
            "read, sync body": (dispatch("read_in_thread"), count // 4),
            "two raw commits": (raw, count // 4),
            "mutate": (dispatch("mutate"), count // 4),
        }
        for _ in range(rounds):
            for name, (work, times) in works.items():
                await session.flush()
                found.setdefault(name, []).append(await measure(work, times))
    return {name: statistics.median(values) for name, values in found.items()}


def main() -> None:
    """Measure, and print one table and a verdict for each expectation."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    logging.getLogger("holdfast").setLevel(logging.ERROR)
    rounds, count = (3, 200) if options.quick else (9, 1000)
    with tempfile.TemporaryDirectory() as directory:
        found = anyio.run(bench, Path(directory), rounds, count)
    console = Console()
    table = Table("call", "µs", "beyond validation, µs", "of two raw commits")
    for name, value in found.items():
        beyond = f"{value - found['validation']:.1f}" if name not in ("bare call", "validation") else ""
        share = f"{value / found['two raw commits']:.2f}" if name in ("mutate", "two raw commits") else ""
        table.add_row(name, f"{value:.1f}", beyond, share)
    console.print(table)
    for name in ("pure", "read"):
        more = found[name] - found["validation"]
        console.print(f"{name}: {more:.1f} µs beyond validation; expected under 50: {_verdict(more < 50)}")
    ratio = found["mutate"] / found["two raw commits"]
    console.print(
        f"mutate: {ratio:.2f} times its two raw commits; expected at most 2: {_verdict(ratio <= 2)}"
    )


def _verdict(met: bool) -> str:
    return "met" if met else "not met"


if __name__ == "__main__":
    main()
