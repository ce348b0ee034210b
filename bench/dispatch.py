"""What a dispatch costs beyond the tool itself.

    python bench/dispatch.py [--quick] [--rounds N] [--directory DIR] [--json FILE]

Bodies that do nothing, in a run on SQLite. Pure and read tools are measured against calling the function bare
and against pydantic's validation of the same arguments; a mutating tool against the two raw commits it needs;
a sync body against one bare hop into a thread. All take turns, round by round, so that noise hits all alike.
`bench/README.md` says how to read the table.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeAlias

import anyio
import anyio.to_thread
import apsw
import msgspec
from pydantic import BaseModel

# In the place of this folder: the names of its scripts are those of other people's modules.
sys.path[0] = str(Path(__file__).resolve().parents[1])

import holdfast  # noqa: E402
from bench.figures import Call, Results  # noqa: E402
from bench.page import list_aims  # noqa: E402
from bench.tables import dispatch_table  # noqa: E402
from bench.verdicts import judge_dispatch  # noqa: E402
from bench.view import View  # noqa: E402

Work: TypeAlias = Callable[[int], Awaitable[object]]


class Arguments(BaseModel):
    """What the tools are given, for pydantic alone."""

    order: str
    cents: int
    note: str = ""


@holdfast.tool(side_effects=())
async def pure(order: str, cents: int, note: str = "") -> int:
    """Does nothing."""
    return cents


@holdfast.tool(side_effects={"read"})
async def read(order: str, cents: int, note: str = "") -> int:
    """Does nothing, and looks."""
    return cents


@holdfast.tool(side_effects={"read"})
def read_in_thread(order: str, cents: int, note: str = "") -> int:
    """Does nothing, in a thread."""
    return cents


@holdfast.tool(side_effects={"mutate"})
async def mutate(order: str, cents: int, note: str = "") -> int:
    """Does nothing, once."""
    return cents


@holdfast.tool(side_effects={"mutate"})
def mutate_in_thread(order: str, cents: int, note: str = "") -> int:
    """Does nothing, once, in a thread."""
    return cents


class RawCommits:
    """Two transactions with the bytes of an intent and of an outcome."""

    def __init__(self, path: Path) -> None:
        self._db = apsw.Connection(str(path))
        self._db.pragma("journal_mode", "wal")
        self._db.pragma("synchronous", "full")
        self._db.execute("CREATE TABLE lines (line TEXT)")

    async def __call__(self, number: int) -> None:
        for size in (705, 440):
            self._db.execute("BEGIN IMMEDIATE")
            self._db.execute("INSERT INTO lines VALUES (?)", ("x" * size,))
            self._db.execute("COMMIT")


async def measure(work: Work, first: int, count: int) -> tuple[list[float], float]:
    """How long each call took, and the processors' time for one."""
    passed: list[float] = []
    worked = time.process_time()
    for number in range(first, first + count):
        began = time.perf_counter()
        await work(number)
        passed.append((time.perf_counter() - began) * 1e6)
    return passed, (time.process_time() - worked) / count * 1e6


async def bench(directory: Path, rounds: int, count: int) -> dict[str, list[Call]]:
    """Each kind of call, in turns; the figures of each round."""
    registry = holdfast.Registry()
    for tool in (pure, read, read_in_thread, mutate, mutate_in_thread):
        registry.add(tool)
    found: dict[str, list[Call]] = {}
    async with (
        holdfast.open_store(directory / "agents.db") as store,
        store.session("bench") as session,
        session.run(agent="bench"),
    ):

        async def call_bare(number: int) -> object:
            return await pure("order-42", number)

        async def validate(number: int) -> object:
            return Arguments.model_validate({"order": "order-42", "cents": number}, strict=True)

        async def hop(number: int) -> object:
            return await anyio.to_thread.run_sync(mutate_in_thread, "order-42", number)

        def dispatch(name: str) -> Work:
            return lambda number: registry.dispatch(
                name, {"order": "order-42", "cents": number}, session=session
            )

        works: dict[str, tuple[Work, int]] = {
            "bare call": (call_bare, count),
            "pydantic alone": (validate, count),
            "pure": (dispatch("pure"), count),
            "read": (dispatch("read"), count),
            "thread hop": (hop, count // 4),
            "read, sync body": (dispatch("read_in_thread"), count // 4),
            "two raw commits": (RawCommits(directory / "raw.db"), count // 10),
            "mutate": (dispatch("mutate"), count // 10),
            "mutate, sync body": (dispatch("mutate_in_thread"), count // 10),
        }
        found.update((name, []) for name in works)
        names = list(works)
        for turn in range(rounds):
            for name in names:
                work, times = works[name]
                await session.flush()
                took, busy = await measure(work, turn * times, times)
                found[name].append(Call(statistics.median(took), busy))
            names = names[1:] + names[:1]  # Another one begins each round.
    return found


def main() -> None:
    """Measure, print one table and the aims."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--quick", action="store_true", help="short: about 3 s")
    parser.add_argument("--rounds", type=int, help="how often to measure each row (9)")
    parser.add_argument(
        "--directory", type=Path, help="where to write (a new directory in the temporary one)"
    )
    parser.add_argument("--json", type=Path, help="write the time of each round there, too")
    options = parser.parse_args()
    rounds, count = (3, 200) if options.quick else (9, 1000)
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-", dir=options.directory) as directory:
        measured = anyio.run(bench, Path(directory), options.rounds or rounds, count)
    if options.json:
        options.json.write_bytes(msgspec.json.encode(measured))
    view = View(Results(dispatch=measured))
    print("\n".join([*dispatch_table(view), *list_aims(judge_dispatch(view))]))


if __name__ == "__main__":
    main()
