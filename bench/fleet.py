"""How long submitted work waits for a worker, and how long the work of a killed one waits for another.

    python bench/fleet.py [--store URL] [--quick] [--directory DIR] [--json FILE]

Pick-up: a worker in a process of its own has nothing to do; a message is submitted; measured is from the
moment at which `submit` returns to the first line of the worker's run, by the clock of this machine.
Take-over: a worker is killed in the middle of a step; measured is from the kill to the first line of the next
one's run.
`bench/README.md` says how to read the table.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
from rich.console import Console
from rich.table import Table

import holdfast
from holdfast.engine import heartbeat
from holdfast.system.clock import utc_now

_LEASE_S = 3.0


@holdfast.tool(side_effects={"read"})
async def wait(turn: int) -> str:
    """Takes its time, in the sessions that are to be killed."""
    await anyio.sleep(0.2)
    return "waited"


def answer(prompt: holdfast.agents.Prompt) -> str | holdfast.messages.ToolCall:
    """At once, or after many steps."""
    replies = sum(message.role == "assistant" for message in prompt.messages)
    if prompt.messages[0].text == "long" and replies < 30:
        return holdfast.messages.ToolCall(id=f"c{replies}", name="wait", args={"turn": replies})
    return "done"


async def work(url: str, elsewhere: bool) -> None:
    """A worker until it is killed; `elsewhere` as if on another machine, where nobody finds proof of that."""
    if elsewhere:
        setattr(heartbeat, "boot_id", lambda: "another boot")  # noqa: B010
    agent = holdfast.Agent(holdfast.agents.ScriptedModel(answer), name="bench", tools=[wait])
    async with holdfast.open_store(url, lease_s=_LEASE_S) as store:
        print("ready", flush=True)
        await holdfast.workers.Worker(store, agent).run()


class Worker:
    """A worker process."""

    def __init__(self, url: str, *, elsewhere: bool = False) -> None:
        command = [sys.executable, __file__, "--as-worker", url, *(["--elsewhere"] if elsewhere else [])]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"

    def kill(self) -> None:
        """At once."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


async def first_run(store: holdfast.Store, session: str, *, after: int = 0) -> holdfast.records.RunInfo:
    """The first run of a session after so many, once it has begun."""
    while True:
        runs = [run async for run in store.runs(session=session)]
        if len(runs) > after:
            return runs[after]
        await asyncio.sleep(0.002)


async def measure_pick_up(store: holdfast.Store, url: str, times: int) -> list[float]:
    """Milliseconds from `submit` to the beginning of the run, one session after another."""
    worker = Worker(url)
    found: list[float] = []
    try:
        for number in range(times + 3):
            session = f"pick-{number}"
            await store.submit(session, "short", agent="bench")
            submitted = utc_now()
            run = await first_run(store, session)
            found.append((run.started_at - submitted).total_seconds() * 1000)
    finally:
        worker.kill()
    return found[3:]


async def measure_take_over(store: holdfast.Store, url: str, times: int, *, elsewhere: bool) -> list[float]:
    """Milliseconds from the kill of a worker to the next one's run."""
    found: list[float] = []
    for number in range(times):
        session = f"over-{elsewhere}-{number}"
        doomed = Worker(url, elsewhere=elsewhere)
        await store.submit(session, "long", agent="bench")
        await first_run(store, session)
        other = Worker(url)
        try:
            doomed.kill()
            killed = utc_now()
            run = await first_run(store, session, after=1)
            found.append((run.started_at - killed).total_seconds() * 1000)
            await store.cancel(session)
        finally:
            other.kill()
    return found


def add_row(table: Table, name: str, figures: Sequence[float]) -> None:
    """Median, and what one of a hundred waits at least."""
    worst = statistics.quantiles(figures, n=100, method="inclusive")[98] if len(figures) > 1 else figures[0]
    row = (statistics.median(figures), worst, max(figures))
    table.add_row(name, str(len(figures)), *(f"{one:,.1f}" for one in row))


async def main(options: argparse.Namespace, directory: Path) -> None:
    """Measure, and print the table."""
    url = options.store or f"sqlite:{directory}/fleet.db"
    times = 40 if options.quick else 200
    table = Table(title="milliseconds until somebody works on it")
    for column in ("what", "times", "p50", "p99", "max"):
        table.add_column(column, justify="left" if column == "what" else "right")
    results: dict[str, list[float]] = {}
    async with holdfast.open_store(url) as store:
        results["pick-up"] = await measure_pick_up(store, url, times)
        few = 1 if options.quick else 3
        results["take-over, same machine"] = await measure_take_over(store, url, few, elsewhere=False)
        results[f"take-over, another machine, term of {_LEASE_S:.0f} s"] = await measure_take_over(
            store, url, few, elsewhere=True
        )
    for name, figures in results.items():
        add_row(table, name, figures)
    console = Console(width=100)
    console.print(table)
    median = statistics.median(results["pick-up"])
    console.print(f"pick-up p50 {median:.1f} ms, expected below 20: {'met' if median < 20 else 'not met'}")
    if options.json:
        options.json.write_text(json.dumps(results))


def parse() -> Any:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--store", help="sqlite:PATH or postgresql://…; by default, a SQLite file")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--directory", type=Path, help="where to write; by default, a temporary directory")
    parser.add_argument("--json", type=Path, help="write the figures there, too")
    parser.add_argument("--as-worker", help=argparse.SUPPRESS)
    parser.add_argument("--elsewhere", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    chosen = parse()
    if chosen.as_worker:
        anyio.run(work, chosen.as_worker, chosen.elsewhere)
    else:
        with tempfile.TemporaryDirectory(dir=chosen.directory) as folder:
            anyio.run(main, chosen, Path(folder))
