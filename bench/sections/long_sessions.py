"""Sessions of holdfast that have become long: is a step as quick as ever, and what does opening them cost?

    python -m bench.sections.long_sessions STEPS URL DIRECTORY

measures one of them, in a process of its own.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Final

import anyio
import msgspec

import holdfast
from bench.figures import LongSession, Results
from bench.runner import Failed, Runner, run_module
from bench.texts import pairs

OPENINGS = 5
"""Each is followed by the decoding that it is compared with."""
LIMIT_S = 300
TENTHS = 10

URLS: Final = {
    "holdfast dir": "dir:{}/agents",
    "holdfast SQLite": "sqlite:{}/agents.db",
    "holdfast PostgreSQL": "",
}


def measure_long_sessions(runner: Runner, results: Results, note: Callable[[str], None]) -> None:
    """Every driver and every length, in turns."""
    for _ in range(runner.plan.long_rounds):
        for steps in runner.plan.long_steps:
            for subject in runner.subjects:
                if subject.name not in URLS:
                    continue
                try:
                    with runner.place(subject) as place:
                        url = place.postgres or URLS[subject.name].format(place.directory)
                        given = (str(steps), url, str(place.directory))
                        found = run_module(__name__, given, LongSession, limit_s=LIMIT_S)
                except Failed as failure:
                    note(f"{subject.name}, {steps:,} steps: {failure}")
                    continue
                results.long_sessions.append(msgspec.structs.replace(found, subject=subject.name))


# -- in the process of its own ---------------------------------------------------------------------------


async def measure(steps: int, url: str, directory: Path) -> LongSession:
    """Write it, then open it again and again."""
    times, old_new = await write(url, steps)
    share = max(1, steps // TENTHS)
    document = directory / "messages.json"
    async with holdfast.open_store(url) as store:
        document.write_bytes(msgspec.json.encode(list((await store.load("long")).transcript)))
    typed = msgspec.json.Decoder(list[holdfast.messages.Message]).decode
    found: tuple[list[float], list[float], list[float]] = ([], [], [])
    for _ in range(OPENINGS):
        found[0].append(await open_and_read(url, 2 * steps))
        found[1].append(decode(document, json.loads))
        found[2].append(decode(document, typed))
    tenths = [median(times[at : at + share]) for at in range(0, share * TENTHS, share)]
    return LongSession("", steps, tenths, old_new, *found)


async def write(url: str, steps: int) -> tuple[list[float], float]:
    """Milliseconds of each step; and at the end, each against one of a fresh session at the same moment."""
    times: list[float] = []
    ratios: list[float] = []
    source = pairs()
    async with holdfast.open_store(url) as store:
        async with store.session("long") as long, store.session("fresh") as fresh:
            await step(fresh, *next(source))
            for number in range(steps):
                times.append(await step(long, *next(source)))
                if number >= steps - max(1, steps // 20):
                    ratios.append(times[-1] / await step(fresh, *next(source)))
    return times, median(ratios)


async def step(session: holdfast.Session, first: str, second: str) -> float:
    """Durable on return; how many milliseconds it took."""
    began = time.perf_counter()
    await session.add(first)
    await session.add(holdfast.messages.Message(role="assistant", blocks=(holdfast.messages.Text(second),)))
    await session.checkpoint()
    return (time.perf_counter() - began) * 1000


async def open_and_read(url: str, messages: int) -> float:
    """Open the session as a new process would, and decode every message."""
    gc.collect()
    began = time.perf_counter()
    async with holdfast.open_store(url) as store, store.session("long") as session:
        count = sum(1 for message in session.transcript if message.text)
        took = (time.perf_counter() - began) * 1000
    assert count == messages
    return took


def decode(document: Path, decoder: Callable[[bytes], object]) -> float:
    """The same messages, read from one JSON document."""
    gc.collect()
    began = time.perf_counter()
    decoder(document.read_bytes())
    return (time.perf_counter() - began) * 1000


if __name__ == "__main__":
    given = sys.argv[1:]
    measured = anyio.run(measure, int(given[0]), given[1], Path(given[2]))
    sys.stdout.buffer.write(msgspec.json.encode(measured))
