"""What `Durable` adds to a run of a pydantic-ai agent.

    python bench/pydantic_agents.py [--quick] [--steps N] [--rounds N] [--theirs] [--directory DIR]

A run of N steps: in each, the model (a function) says 1 KB and calls a tool that returns 1 KB. Without
persistence, with `Durable` on SQLite under a tool that reads and under one that mutates, and with `--theirs`
also under the step persistence of pydantic-ai-harness on SQLite. `bench/README.md` says how to read the
table.
"""

from __future__ import annotations

import argparse
import inspect
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import anyio
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import UsageLimits
from rich.console import Console
from rich.table import Table

import holdfast
from holdfast.adapters.pydantic_ai import Durable, effects

TEXT = inspect.getsource(argparse)
Capabilities: TypeAlias = "Callable[[], list[Any]]"


def slice_of_text(number: int) -> str:
    """1,000 characters, others each time."""
    start = number * 1000 % (len(TEXT) - 1000)
    return TEXT[start : start + 1000]


def make_agent(steps: int, metadata: dict[str, Any]) -> Agent[None, str]:
    """An agent that takes this many steps."""

    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        step = len(messages) // 2
        said = TextPart(slice_of_text(step))
        if step >= steps:
            return ModelResponse(parts=[TextPart("done")])
        return ModelResponse(parts=[said, ToolCallPart("look", {"number": step})])

    agent: Agent[None, str] = Agent(FunctionModel(model), name="bench")

    @agent.tool_plain(metadata=metadata)
    async def look(number: int) -> str:
        """Look something up."""
        return slice_of_text(number)

    return agent


class Row(NamedTuple):
    """A way to run it."""

    agent: Agent[None, str]
    capabilities: Capabilities


async def bench(directory: Path, steps: int, rounds: int, theirs: bool) -> dict[str, float]:
    """Each way in turns; the median time of a step in milliseconds."""
    number = iter(range(10**6))
    reads = make_agent(steps, effects(side_effects={"read"}))
    mutates = make_agent(steps, effects(side_effects={"mutate"}))
    took: dict[str, list[float]] = {}
    async with holdfast.open_store(directory / "agents.db") as store:

        def durable() -> list[Any]:
            return [Durable(store, session=f"bench-{next(number)}")]

        rows = {
            "no persistence": Row(reads, list),
            "Durable, a tool that reads": Row(reads, durable),
            "Durable, a tool that mutates": Row(mutates, durable),
        }
        if theirs:
            rows["their step persistence"] = Row(reads, use_step_persistence(directory))
        for _ in range(rounds):
            for name, row in rows.items():
                began = time.perf_counter()
                limits = UsageLimits(request_limit=None)
                await row.agent.run("go", usage_limits=limits, capabilities=row.capabilities())
                took.setdefault(name, []).append((time.perf_counter() - began) / steps * 1000)
    return {name: statistics.median(times) for name, times in took.items()}


def use_step_persistence(directory: Path) -> Capabilities:
    """pydantic-ai's own, for comparison."""
    from pydantic_ai_harness.step_persistence import SqliteStepStore, StepPersistence

    store = SqliteStepStore(database=str(directory / "theirs.db"))
    return lambda: [StepPersistence(store=store)]


def report(console: Console, steps: int, found: dict[str, float]) -> None:
    """The one table, and what was expected."""
    table = Table(title=f"a run of {steps:,} steps: ms a step (median of the rounds)")
    for heading in ("how", "ms a step", "of no persistence"):
        table.add_column(heading, justify="left" if heading == "how" else "right")
    bare = found["no persistence"]
    for name, step_ms in found.items():
        table.add_row(name, f"{step_ms:,.2f}", f"{step_ms / bare:.2f}")
    console.print(table)
    ratio = found["Durable, a tool that reads"] / bare
    word = "[green]    met[/]" if ratio < 1.25 else "[red]not met[/]"
    console.print(f"{word}  Durable takes {ratio:.2f} times as long (under 1.25)", highlight=False)


def main() -> None:
    """Measure, print one table and the verdict."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--quick", action="store_true", help="short: 100 steps, 3 rounds")
    parser.add_argument("--steps", type=int, help="steps of a run (1,000)")
    parser.add_argument("--rounds", type=int, help="how often to measure each row, in turns (1)")
    parser.add_argument("--theirs", action="store_true", help="their step persistence as well: minutes more")
    parser.add_argument(
        "--directory", type=Path, help="where to write (a new directory in the temporary one)"
    )
    options = parser.parse_args()
    steps = options.steps or (100 if options.quick else 1000)
    rounds = options.rounds or (3 if options.quick else 1)
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-", dir=options.directory) as directory:
        found = anyio.run(bench, Path(directory), steps, rounds, options.theirs)
    report(Console(), steps, found)


if __name__ == "__main__":
    main()
