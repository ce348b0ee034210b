"""A LangGraph checkpointer against LangGraph's own: does a step cost what is new?

    python bench/graphs.py [--quick] [--steps N] [--directory DIR]

`messages` grows by two of 1 KB a step, put directly into both savers, in turns, so that noise hits both
alike. QUICK=1 in the environment is the same as --quick. `bench/README.md` says how to read the table.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anyio
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from rich.console import Console
from rich.table import Table

import holdfast
from holdfast.adapters.langgraph import HoldfastSaver

FASTER, SMALLER, FLAT = 10, 200, 1.5
FULL_STEPS, QUICK_STEPS = 1000, 200
SHARE = 20
"""A twentieth of the steps is the beginning, and a twentieth the end."""


def texts() -> Iterator[str]:
    """Slices of Python source, 1 KB each, over and over."""
    source = "".join(path.read_text() for path in sorted(Path(holdfast.__file__).parent.rglob("*.py")))
    place = 0
    while True:
        yield source[place : place + 1024]
        place = (place + 1024) % (len(source) - 1024)


class Conversation:
    """A thread that grows by two messages a step."""

    def __init__(self, saver: BaseCheckpointSaver[Any], thread: str) -> None:
        self.saver, self.texts, self.count = saver, texts(), 0
        self.config: RunnableConfig = {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}
        self.messages: list[AnyMessage] = []
        self.version: Any = None
        self.times: list[float] = []

    async def step(self) -> float:
        """One more step; how long the put took."""
        self.count += 1
        self.version = self.saver.get_next_version(self.version, None)
        self.messages = [
            *self.messages,
            HumanMessage(next(self.texts), id=f"h{self.count}"),
            AIMessage(next(self.texts), id=f"a{self.count}"),
        ]
        checkpoint: Any = {
            "v": 4,
            "id": str(uuid6(clock_seq=self.count)),
            "ts": "2026-11-16T00:00:00+00:00",
            "channel_values": {"messages": self.messages},
            "channel_versions": {"messages": self.version},
            "versions_seen": {"agent": {"messages": self.version}},
            "updated_channels": ["messages"],
        }
        metadata: Any = {"source": "loop", "step": self.count, "parents": {}}
        start = time.perf_counter()
        self.config = await self.saver.aput(self.config, checkpoint, metadata, {"messages": self.version})
        self.times.append(time.perf_counter() - start)
        return self.times[-1]

    async def read(self) -> float:
        """Read the latest checkpoint; how long that took."""
        start = time.perf_counter()
        found = await self.saver.aget_tuple(self.config)
        passed = time.perf_counter() - start
        assert found is not None
        assert found.checkpoint["channel_values"]["messages"] == self.messages
        return passed


def disk_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


async def measure(folder: Path, steps: int) -> None:
    """Both savers side by side."""
    places = {name: folder / name for name in ("AsyncSqliteSaver", "HoldfastSaver")}
    for place in places.values():
        place.mkdir()
    share = max(1, steps // SHARE)
    ratios: list[float] = []
    reads: dict[str, float] = {}
    async with AsyncExitStack() as stack:
        stock = await stack.enter_async_context(
            AsyncSqliteSaver.from_conn_string(str(places["AsyncSqliteSaver"] / "graphs.db"))
        )
        ours = await stack.enter_async_context(
            HoldfastSaver.from_url(f"sqlite:{places['HoldfastSaver'] / 'graphs.db'}")
        )
        talks = {"AsyncSqliteSaver": Conversation(stock, "t"), "HoldfastSaver": Conversation(ours, "t")}
        for _ in range(steps):
            for talk in talks.values():
                await talk.step()
        for name, talk in talks.items():
            reads[name] = await talk.read()
        # The same question, asked of one moment: a long thread and a short one, in turns.
        short = Conversation(ours, "short")
        for _ in range(2):
            await short.step()
        for _ in range(share):
            new = await short.step()
            ratios.append(await talks["HoldfastSaver"].step() / new)
        for talk in talks.values():
            del talk.times[steps:]
    sizes = {name: disk_bytes(place) for name, place in places.items()}
    report(talks, sizes, reads, statistics.median(ratios), steps)


def report(
    talks: dict[str, Conversation], sizes: dict[str, int], reads: dict[str, float], old_new: float, steps: int
) -> None:
    share = max(1, steps // SHARE)
    table = Table(title=f"{steps} steps of 2 × 1 KB, put directly")
    for column in ("saver", "total s", "first 5 % ms", "last 5 % ms", "MB on disk", "read latest ms"):
        table.add_column(column, justify="left" if column == "saver" else "right")
    for name, talk in talks.items():
        table.add_row(
            name,
            f"{sum(talk.times):.2f}",
            f"{statistics.median(talk.times[:share]) * 1000:.2f}",
            f"{statistics.median(talk.times[-share:]) * 1000:.2f}",
            f"{sizes[name] / 1e6:.1f}",
            f"{reads[name] * 1000:.1f}",
        )
    console = Console(width=110)
    console.print(table)
    theirs, ours = talks["AsyncSqliteSaver"], talks["HoldfastSaver"]
    faster = sum(theirs.times) / sum(ours.times)
    smaller = sizes["AsyncSqliteSaver"] / sizes["HoldfastSaver"]
    full = steps >= FULL_STEPS
    for what, figure, limit, met in (
        ("times faster", faster, f"at least {FASTER}", faster >= FASTER),
        ("times smaller on disk", smaller, f"at least {SMALLER}", smaller >= SMALLER),
        ("a step of a long thread / of a short one", old_new, f"at most {FLAT}", old_new <= FLAT),
    ):
        verdict = ("met" if met else "NOT MET") if full else f"expected from {FULL_STEPS} steps on"
        console.print(f"{what}: {figure:.2f} ({limit}): {verdict}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", default=os.environ.get("QUICK") == "1")
    parser.add_argument("--steps", type=int)
    parser.add_argument("--directory", type=Path)
    given = parser.parse_args()
    steps = given.steps or (QUICK_STEPS if given.quick else FULL_STEPS)
    with tempfile.TemporaryDirectory(dir=given.directory) as folder:
        anyio.run(measure, Path(folder), steps)


if __name__ == "__main__":
    main()
