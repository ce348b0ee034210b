"""How many sessions one store carries at once: durable steps a second, and syncs per step.

    python bench/concurrency.py [--quick] [--repeat N] [--seconds S] [--sessions N …] [--processes N]

A step is two messages of 1 KB and a checkpoint that waits for the disk. 1, 10, 100 and 1,000 sessions take
steps in one process, then some in each of 8 processes on one SQLite file. Syncs are counted in a short run of
their own under strace, where there is one. `bench/README.md` says how to read the table.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import itertools
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import NamedTuple

import anyio
import apsw
from rich.console import Console
from rich.table import Table

import holdfast

COUNTED_S = 1.0
"""How long syncs are counted for, at most."""


def texts() -> Iterator[str]:
    """Slices of 1,000 characters of Python source, over and over."""
    source = "".join(inspect.getsource(module) for module in (argparse, ast, inspect, shutil, textwrap))
    slices = [source[start : start + 1000] for start in range(0, len(source) - 1000, 1000)]
    return itertools.cycle(slices)


# -- the work, in a process of its own ------------------------------------------------------------------


async def take_steps(url: str, name: str, sessions: int, seconds: float) -> None:
    """Open the sessions, say so, wait for the word, and take steps for a while."""
    async with holdfast.open_store(url) as store, AsyncExitStack() as opened:
        found = [
            await opened.enter_async_context(store.session(f"{name}-{number}", wait_s=60))
            for number in range(sessions)
        ]
        print(json.dumps({"ready": sessions}), flush=True)
        await anyio.to_thread.run_sync(sys.stdin.readline)
        steps = 0
        source = texts()
        began = time.perf_counter()

        async def drive(session: holdfast.Session) -> None:
            nonlocal steps
            while time.perf_counter() - began < seconds:
                await session.add(next(source))
                await session.add(holdfast.Message(role="assistant", blocks=(holdfast.Text(next(source)),)))
                await session.checkpoint()
                steps += 1

        async with anyio.create_task_group() as tasks:
            for session in found:
                tasks.start_soon(drive, session)
        print(json.dumps({"steps": steps, "seconds": time.perf_counter() - began}), flush=True)
        # Until everybody has been counted: closing costs syncs too.
        await anyio.to_thread.run_sync(sys.stdin.readline)


def transact(path: str, seconds: float) -> None:
    """The yardstick: raw transactions with the same text, one after another."""
    db = apsw.Connection(path)
    db.pragma("journal_mode", "wal")
    db.pragma("synchronous", "full")
    db.execute("CREATE TABLE messages (id INTEGER PRIMARY KEY, body TEXT NOT NULL)")
    print(json.dumps({"ready": 1}), flush=True)
    sys.stdin.readline()
    steps = 0
    source = texts()
    began = time.perf_counter()
    while time.perf_counter() - began < seconds:
        db.execute("BEGIN IMMEDIATE")
        db.executemany("INSERT INTO messages (body) VALUES (?)", [(next(source),), (next(source),)])
        db.execute("COMMIT")
        steps += 1
    print(json.dumps({"steps": steps, "seconds": time.perf_counter() - began}), flush=True)
    sys.stdin.readline()


# -- starting, counting, reporting ----------------------------------------------------------------------


class Case(NamedTuple):
    """A row of the table."""

    driver: str
    processes: int
    sessions: int
    """In all processes together."""


class Figures(NamedTuple):
    """Steps a second, and syncs per step where they were counted."""

    rate: float
    syncs: float | None


class Worker:
    """A process that takes steps, under strace if its syncs are to be counted."""

    def __init__(self, arguments: Sequence[str], report: Path | None) -> None:
        command = [sys.executable, __file__, "--work", *arguments]
        if report is not None:
            trace = ["strace", "-f", "--seccomp-bpf", "-e", "trace=fsync,fdatasync", "-o", str(report)]
            command = [*trace, *command]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ}
        )
        self._report = report

    def hear(self) -> dict[str, float]:
        """The next line it says."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"a worker ended early, with status {self._process.wait()}")
        said: dict[str, float] = json.loads(line)
        return said

    def tell(self) -> None:
        """The word to go on."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def count_syncs(self) -> int:
        """How many syncs it has made so far."""
        assert self._report is not None
        return len(re.findall(r"\bf(?:data)?sync\(", self._report.read_text()))

    def end(self) -> None:
        """Let it close its store."""
        self._process.communicate()


def run(case: Case, seconds: float, directory: Path, *, count: bool) -> Figures:
    """Measure one case once."""
    if case.driver == "raw SQLite":
        plans = [["raw", str(directory / "raw.db"), str(seconds)]]
    else:
        url = f"{case.driver}:{directory / 'store'}"
        share = case.sessions // case.processes
        plans = [[url, f"p{number}", str(share), str(seconds)] for number in range(case.processes)]
    workers = [
        Worker(plan, directory / f"trace-{number}" if count else None) for number, plan in enumerate(plans)
    ]
    for worker in workers:
        worker.hear()
    before = sum(worker.count_syncs() for worker in workers) if count else 0
    for worker in workers:
        worker.tell()
    said = [worker.hear() for worker in workers]
    after = sum(worker.count_syncs() for worker in workers) if count else 0
    for worker in workers:
        worker.end()
    steps = sum(one["steps"] for one in said)
    rate = sum(one["steps"] / one["seconds"] for one in said)
    return Figures(rate, (after - before) / steps if count else None)


def measure(case: Case, seconds: float, parent: Path | None, *, count: bool) -> Figures:
    """The same, in a directory of its own."""
    directory = Path(tempfile.mkdtemp(prefix="holdfast-bench-", dir=parent))
    try:
        return run(case, seconds, directory, count=count)
    finally:
        shutil.rmtree(directory)


def print_table(console: Console, found: dict[Case, list[Figures]], syncs: dict[Case, float]) -> None:
    """The one table."""
    table = Table(title="concurrency: steps of two 1 KB messages and a checkpoint, all durable (medians)")
    for heading in ("driver", "processes", "sessions", "steps/s", "lowest", "highest", "syncs/step"):
        table.add_column(heading, justify="left" if heading == "driver" else "right")
    for case, figures in found.items():
        rates = [one.rate for one in figures]
        table.add_row(
            case.driver,
            str(case.processes),
            f"{case.sessions:,}",
            f"{statistics.median(rates):,.0f}",
            f"{min(rates):,.0f}",
            f"{max(rates):,.0f}",
            f"{syncs[case]:.3f}" if case in syncs else "–",
        )
    console.print(table)


def print_verdicts(console: Console, found: dict[Case, list[Figures]], syncs: dict[Case, float]) -> None:
    """What was expected, and whether it came true here."""

    def verdict(good: bool, what: str) -> None:
        word = "[green]    met[/]" if good else "[red]not met[/]"
        console.print(f"{word}  {what}", highlight=False)

    alone = found.get(Case("sqlite", 1, 1))
    for case in found:
        if alone is None or case.driver != "sqlite" or case.processes > 1 or case.sessions < 100:
            continue
        sessions = case.sessions
        # Turn by turn: both were measured within the same few seconds.
        gain = statistics.median(many.rate / one.rate for many, one in zip(found[case], alone, strict=True))
        verdict(gain >= 8, f"sqlite, {sessions:,} sessions / one: {gain:.1f} times the steps (at least 8)")
        if case in syncs:
            verdict(
                syncs[case] < 0.1, f"sqlite, {sessions:,} sessions: {syncs[case]:.3f} syncs per step (< 0.1)"
            )


def main() -> None:
    """Measure, print one table and the verdicts."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument(
        "--quick", action="store_true", help="short, once, without 1,000 sessions: about 20 s"
    )
    parser.add_argument("--repeat", type=int, help="how often to measure each row (3)")
    parser.add_argument("--seconds", type=float, help="how long each row is measured for (2)")
    parser.add_argument("--sessions", type=int, nargs="+", help="how many at once in one process")
    parser.add_argument("--processes", type=int, default=8, help="how many share one SQLite file (8)")
    parser.add_argument(
        "--directory", type=Path, help="where to write (a new directory in the temporary one)"
    )
    parser.add_argument("--work", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        if options.work[0] == "raw":
            transact(options.work[1], float(options.work[2]))
        else:
            url, name, sessions, seconds = options.work
            anyio.run(take_steps, url, name, int(sessions), float(seconds))
        return
    seconds = options.seconds or (0.7 if options.quick else 2.0)
    repeat = options.repeat or (1 if options.quick else 3)
    sizes = options.sessions or ([1, 10, 100] if options.quick else [1, 10, 100, 1000])
    together = [options.processes] if options.quick else [options.processes, 100 * options.processes]
    cases = [
        Case("raw SQLite", 1, 1),
        *(Case("sqlite", 1, sessions) for sessions in sizes),
        *(Case("sqlite", options.processes, sessions) for sessions in together),
        *(Case("dir", 1, sessions) for sessions in sizes if sessions <= 100),
    ]
    console = Console()
    found: dict[Case, list[Figures]] = {case: [] for case in cases}
    for turn in range(repeat):
        for case in cases:
            with console.status(f"{case.driver}, {case.sessions:,} sessions, {turn + 1} of {repeat}"):
                found[case].append(measure(case, seconds, options.directory, count=False))
    syncs: dict[Case, float] = {}
    if shutil.which("strace"):
        for case in cases:
            with console.status(f"{case.driver}, {case.sessions:,} sessions, counting syncs"):
                counted = measure(case, min(seconds, COUNTED_S), options.directory, count=True)
            assert counted.syncs is not None
            syncs[case] = counted.syncs
    print_table(console, found, syncs)
    print_verdicts(console, found, syncs)
    if not syncs:
        console.print("Syncs were not counted: strace is not installed.")


if __name__ == "__main__":
    main()
