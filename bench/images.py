"""Steps with images, for `bench/blobs.py`: what they cost on the disk, and in time."""

from __future__ import annotations

import random
import time
from contextlib import AsyncExitStack
from pathlib import Path
from statistics import median
from typing import NamedTuple

import anyio
from rich.console import Console
from rich.table import Table

import holdfast

IMAGE = random.Random(7).randbytes(2_000_000)
EVERY = 10
STORES = ("dir", "sqlite")
OVERHEAD_MAX = 0.05


class Steps(NamedTuple):
    """Of one store: bytes on its disk with the images and without, and the median time of a step."""

    store: str
    with_bytes: int
    without_bytes: int
    image_ms: float
    other_ms: float
    plain_ms: float

    @property
    def beyond_once(self) -> float:
        """How much more the images take than one of them, as a share of it."""
        return (self.with_bytes - self.without_bytes - len(IMAGE)) / len(IMAGE)


def measure_steps(place: Path, steps: int) -> list[Steps]:
    """The same steps with and without images, on each store that has a disk."""
    times = anyio.run(_take_turns, place, steps)
    return [
        Steps(
            name,
            _size(place, f"{name}-images"),
            _size(place, f"{name}-plain"),
            median(times[f"{name}-images", True]),
            median(times[f"{name}-images", False]),
            median(times[f"{name}-plain", False]),
        )
        for name in STORES
    ]


async def _take_turns(place: Path, steps: int) -> dict[tuple[str, bool], list[float]]:
    """Milliseconds of the steps of each session, by whether an image is, or would be, in the step.

    All sessions are open, and take step after step in turns.
    """
    times: dict[tuple[str, bool], list[float]] = {}
    async with AsyncExitStack() as opened:
        sessions = {}
        for name in STORES:
            for kind in (f"{name}-images", f"{name}-plain"):
                store = await opened.enter_async_context(holdfast.open_store(f"{name}:{place}/{kind}"))
                sessions[kind] = await opened.enter_async_context(store.session("s"))
        for number in range(steps):
            shows = number % EVERY == 0
            for kind, session in sessions.items():
                image = IMAGE if shows and kind.endswith("-images") else None
                times.setdefault((kind, shows), []).append(await _step(session, number, image))
    return times


async def _step(session: holdfast.Session, number: int, image: bytes | None) -> float:
    blocks: list[holdfast.messages.Block] = [holdfast.messages.Text(f"{number}: " + "x" * 1000)]
    if image is not None:
        # A copy: a camera gives other bytes each time, even if they are equal.
        blocks.append(holdfast.messages.Media(media_type="image/png", data=bytes(bytearray(image))))
    began = time.perf_counter()
    await session.add(holdfast.messages.Message(role="user", blocks=tuple(blocks)))
    await session.checkpoint()
    return (time.perf_counter() - began) * 1000


def _size(place: Path, name: str) -> int:
    """What is on the disk, write-ahead log and all."""
    return sum(
        one.stat().st_size
        for path in place.glob(f"{name}*")
        for one in (path, *path.rglob("*"))
        if one.is_file()
    )


def print_steps(console: Console, found: list[Steps], steps: int) -> None:
    """The table, and whether what was expected came true here."""
    title = f"{steps:,} steps, every {EVERY}th with the same image of 2 MB"
    table = Table(title=title)
    for heading in (
        "store",
        "MB with",
        "MB without",
        "beyond one image",
        "with image ms",
        "others ms",
        "without ms",
    ):
        table.add_column(heading, justify="left" if heading == "store" else "right")
    for one in found:
        table.add_row(
            one.store,
            f"{one.with_bytes / 1e6:.2f}",
            f"{one.without_bytes / 1e6:.2f}",
            f"{one.beyond_once:+.1%}",
            f"{one.image_ms:.2f}",
            f"{one.other_ms:.2f}",
            f"{one.plain_ms:.2f}",
        )
    console.print(table)
    for one in found:
        word = "[green]    met[/]" if one.beyond_once <= OVERHEAD_MAX else "[red]not met[/]"
        console.print(
            f"{word}  {one.store}: {one.beyond_once:+.1%} beyond the bytes stored once (at most 5 %)",
            highlight=False,
        )
