"""What a step costs as a session grows: time, bytes on disk, and time to open it again.

    python bench/growth.py [--quick] [--repeat N] [--steps N …] [--drivers NAME …] [--directory DIR]

A step is two messages of 1 KB and a checkpoint that waits for the disk. After every step, a raw SQLite
transaction and a raw append + fdatasync write the same text: whatever else the machine is doing hits all
three. `bench/README.md` says how to read the table.
"""

from __future__ import annotations

import argparse
import ast
import gc
import inspect
import itertools
import json
import os
import shutil
import statistics
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from statistics import median
from typing import NamedTuple

import anyio
import apsw
import msgspec
from rich.console import Console
from rich.table import Table

import holdfast
from holdfast.store.driver import Driver
from holdfast.store.memory import MemoryDriver

SESSION = "growth"
OPENINGS = 5
"""The median of so many openings is taken; each is followed by the decoding that it is compared with."""


def texts() -> Iterator[str]:
    """Slices of 1,000 characters of Python source, over and over."""
    source = "".join(inspect.getsource(module) for module in (argparse, ast, inspect, shutil, textwrap))
    slices = [source[start : start + 1000] for start in range(0, len(source) - 1000, 1000)]
    return itertools.cycle(slices)


class Raw:
    """The two yardsticks: one transaction, and one append, with nothing around them."""

    def __init__(self, directory: Path) -> None:
        self._db = apsw.Connection(str(directory / "raw.db"))
        self._db.pragma("journal_mode", "wal")
        self._db.pragma("synchronous", "full")
        self._db.execute("CREATE TABLE messages (id INTEGER PRIMARY KEY, body TEXT NOT NULL)")
        self._file = os.open(directory / "raw.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def transact(self, pair: Sequence[str]) -> None:
        """Insert both messages, durably."""
        self._db.execute("BEGIN IMMEDIATE")
        self._db.executemany("INSERT INTO messages (body) VALUES (?)", [(text,) for text in pair])
        self._db.execute("COMMIT")

    def append(self, pair: Sequence[str]) -> None:
        """Append both messages, durably."""
        os.write(self._file, "\n".join(pair).encode())
        os.fdatasync(self._file)

    def close(self) -> None:
        """Let go of both."""
        self._db.close()
        os.close(self._file)


class Place(NamedTuple):
    """How to open one store again and again, and where its bytes are."""

    url: str | Driver
    directory: Path | None


def make_place(driver: str, directory: Path) -> Place:
    """A place for a new store."""
    if driver == "memory":
        return Place(MemoryDriver(), None)
    folder = directory / "store"
    folder.mkdir()
    name = folder / ("agents.db" if driver == "sqlite" else "agents")
    return Place(f"{driver}:{name}", folder)


class Written(NamedTuple):
    """Seconds per step, per step of a fresh session beside the last 5 %, per transaction, and per append."""

    steps: list[float]
    fresh: list[float]
    transactions: list[float]
    appends: list[float]
    content_bytes: int


class Growth(NamedTuple):
    """What one session of so many steps cost."""

    written: Written
    disk_bytes: int | None
    open_s: float
    json_s: float
    msgspec_s: float


def timed(function: Callable[[], object]) -> float:
    """How long it takes, in seconds."""
    began = time.perf_counter()
    function()
    return time.perf_counter() - began


async def take_step(session: holdfast.Session, pair: Sequence[str]) -> float:
    """Two messages and a checkpoint; how long they took."""
    reply = holdfast.Message(role="assistant", blocks=(holdfast.Text(pair[1]),))
    began = time.perf_counter()
    await session.add(pair[0])
    await session.add(reply)
    await session.checkpoint()
    return time.perf_counter() - began


async def grow(place: Place, raw: Raw, steps: int) -> Written:
    """Write the session."""
    written = Written([], [], [], [], 0)
    content = 0
    source = texts()
    async with (
        holdfast.open_store(place.url) as store,
        store.session(SESSION) as session,
        AsyncExitStack() as late,
    ):
        fresh: holdfast.Session | None = None
        for number in range(steps):
            pair = next(source), next(source)
            content += sum(len(text.encode()) for text in pair)
            written.steps.append(await take_step(session, pair))
            if number >= steps - share_of(steps):
                if fresh is None:
                    fresh = await late.enter_async_context(store.session("fresh"))
                written.fresh.append(await take_step(fresh, pair))
                content += sum(len(text.encode()) for text in pair)
            # In turns, so that neither always comes second.
            for write in (raw.transact, raw.append)[:: 1 if number % 2 else -1]:
                seconds = timed(partial(write, pair))
                (written.transactions if write == raw.transact else written.appends).append(seconds)
    return written._replace(content_bytes=content)


def share_of(count: int) -> int:
    """5 %."""
    return max(1, count // 20)


async def open_and_read(place: Place) -> float:
    """Open the session as a new process would, and decode every message."""
    gc.collect()
    began = time.perf_counter()
    async with holdfast.open_store(place.url) as store, store.session(SESSION) as session:
        count = sum(1 for message in session.transcript if message.text)
        took = time.perf_counter() - began
    assert count == len(session.transcript)
    return took


def read_document(document: Path, decode: Callable[[bytes], object]) -> float:
    """Read the same messages from one JSON document."""
    gc.collect()
    return timed(lambda: decode(document.read_bytes()))


async def measure_opening(place: Place, directory: Path) -> tuple[float, float, float]:
    """Seconds to open the session, and to decode its messages with json and with msgspec."""
    document = directory / "messages.json"
    async with holdfast.open_store(place.url) as store:
        messages = list((await store.load(SESSION)).transcript)
        document.write_bytes(msgspec.json.encode(messages))
    del messages
    decode = msgspec.json.Decoder(list[holdfast.Message]).decode
    openings: list[float] = []
    with_json: list[float] = []
    with_msgspec: list[float] = []
    for _ in range(OPENINGS):
        openings.append(await open_and_read(place))
        with_json.append(read_document(document, json.loads))
        with_msgspec.append(read_document(document, decode))
    return median(openings), median(with_json), median(with_msgspec)


def disk_bytes(directory: Path) -> int:
    """The size of every file below the directory."""
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


async def measure(driver: str, steps: int, directory: Path) -> Growth:
    """One row of the table, once."""
    place = make_place(driver, directory)
    raw = Raw(directory)
    try:
        written = await grow(place, raw, steps)
    finally:
        raw.close()
    size = disk_bytes(place.directory) if place.directory else None
    opening = await measure_opening(place, directory)
    return Growth(written, size, *opening)


class Row(NamedTuple):
    """The medians over all repetitions. Times are in milliseconds."""

    driver: str
    steps: int
    first: float
    last: float
    flatness: float
    raw_flatness: float
    old_new: float
    mean: float
    transaction: float
    append: float
    over_raw: float | None
    on_disk: float | None
    opening: float
    json: float
    msgspec: float


def summarise(driver: str, steps: int, found: Sequence[Growth]) -> Row:
    """One row out of several repetitions."""
    share = share_of(steps)

    def middle(of: Callable[[Written], float]) -> float:
        return median(of(one.written) for one in found)

    def flatness(values: Sequence[float]) -> float:
        return median(values[-share:]) / median(values[:share])

    def raw(one: Written) -> list[float]:
        return one.appends if driver == "dir" else one.transactions

    sizes = [one.disk_bytes / one.written.content_bytes for one in found if one.disk_bytes is not None]
    return Row(
        driver,
        steps,
        first=1000 * middle(lambda one: median(one.steps[:share])),
        last=1000 * middle(lambda one: median(one.steps[-share:])),
        flatness=middle(lambda one: flatness(one.steps)),
        raw_flatness=middle(lambda one: flatness(raw(one))),
        old_new=middle(lambda one: median(one.steps[-share:]) / median(one.fresh)),
        mean=1000 * middle(lambda one: statistics.fmean(one.steps)),
        transaction=1000 * middle(lambda one: median(one.transactions)),
        append=1000 * middle(lambda one: median(one.appends)),
        over_raw=None if driver == "memory" else middle(lambda one: median(one.steps) / median(raw(one))),
        on_disk=median(sizes) if sizes else None,
        opening=1000 * median(one.open_s for one in found),
        json=1000 * median(one.json_s for one in found),
        msgspec=1000 * median(one.msgspec_s for one in found),
    )


def print_table(console: Console, rows: Sequence[Row]) -> None:
    """The one table."""
    table = Table(title="growth: steps of two 1 KB messages and a checkpoint (times in ms, medians)")
    for heading in (
        "driver", "steps", "first 5 %", "last 5 %", "last/first", "old/new", "mean", "raw SQL", "raw append",
        "step/raw", "disk B/B", "open", "json", "msgspec",
    ):  # fmt: skip
        table.add_column(heading, justify="left" if heading == "driver" else "right")
    for row in rows:
        table.add_row(
            row.driver,
            f"{row.steps:,}",
            f"{row.first:.3f}",
            f"{row.last:.3f}",
            f"{row.flatness:.2f}",
            f"{row.old_new:.2f}",
            f"{row.mean:.3f}",
            f"{row.transaction:.3f}",
            f"{row.append:.3f}",
            "–" if row.over_raw is None else f"{row.over_raw:.2f}",
            "–" if row.on_disk is None else f"{row.on_disk:.2f}",
            f"{row.opening:.1f}",
            f"{row.json:.1f}",
            f"{row.msgspec:.1f}",
        )
    console.print(table)


def print_verdicts(console: Console, rows: Sequence[Row]) -> None:
    """What was expected, and whether it came true here."""

    def verdict(what: str, value: float, limit: float, more: str = "") -> None:
        word = "[green]    met[/]" if value <= limit else "[red]not met[/]"
        console.print(f"{word}  {what}: {value:.2f} (at most {limit:g}{more})", highlight=False)

    for row in rows:
        name = f"{row.driver}, {row.steps:,} steps"
        if row.steps >= 1000:
            beside = f"; the raw write beside it: {row.raw_flatness:.2f}"
            verdict(f"{name}: last 5 % / first 5 %", row.flatness, 1.3, beside)
            verdict(f"{name}: last 5 % / a fresh session at the same moment", row.old_new, 1.3)
        if row.on_disk is not None and row.steps >= 1000:
            verdict(f"{name}: bytes on disk per byte of text", row.on_disk, 1.6)
        if row.over_raw is not None and row.steps >= 1000:
            yardstick = "append + fdatasync" if row.driver == "dir" else "SQLite transaction"
            verdict(f"{name}: step / raw {yardstick}", row.over_raw, 2.5)
        if row.steps >= 10_000:
            verdict(f"{name}: opening / json.loads", row.opening / row.json, 3)
            verdict(f"{name}: opening / msgspec", row.opening / row.msgspec, 3)


def main() -> None:
    """Measure, print one table and the verdicts."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--quick", action="store_true", help="100 and 1,000 steps, once: about 5 s")
    parser.add_argument("--repeat", type=int, help="how often to measure each row (3)")
    parser.add_argument("--steps", type=int, nargs="+", help="how long the sessions get")
    parser.add_argument("--drivers", nargs="+", default=["memory", "dir", "sqlite"])
    parser.add_argument(
        "--directory", type=Path, help="where to write (a new directory in the temporary one)"
    )
    options = parser.parse_args()
    lengths = options.steps or ([100, 1000] if options.quick else [100, 1000, 10_000])
    repeat = options.repeat or (1 if options.quick else 3)
    console = Console(width=None if Console().is_terminal else 150)
    found: dict[tuple[str, int], list[Growth]] = {}
    # All rows once, then all rows again: a noisy minute does not hit one row alone.
    for turn in range(repeat):
        for steps in lengths:
            for driver in options.drivers:
                with console.status(f"{driver}, {steps:,} steps, {turn + 1} of {repeat}"):
                    directory = Path(tempfile.mkdtemp(prefix="holdfast-bench-", dir=options.directory))
                    try:
                        one = anyio.run(measure, driver, steps, directory)
                    finally:
                        shutil.rmtree(directory)
                found.setdefault((driver, steps), []).append(one)
    rows = [summarise(driver, steps, found[driver, steps]) for driver in options.drivers for steps in lengths]
    print_table(console, rows)
    print_verdicts(console, rows)


if __name__ == "__main__":
    main()
