"""What keeping every step costs under pydantic-ai's step persistence, in its own SQLite store and in ours.

    python bench/steps.py [--quick] [--steps N] [--histories] [--directory DIR]

Both stores get what `StepPersistence` gives them: for each step the events of a request and of a tool call,
the two records of the call's effect, and the whole history so far, which grows by a reply of 1,000 characters
and a result of 1,000 characters (with `--histories` these alone). Step by step in turns, so that noise hits
both alike. `QUICK=1` is the same as `--quick`. `bench/README.md` says how to read the table.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeAlias

import anyio
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai_harness.step_persistence import (
    ContinuableSnapshot,
    RunRecord,
    SqliteStepStore,
    StepEvent,
    StepStore,
    ToolEffectRecord,
)
from rich.console import Console
from rich.table import Table

import holdfast
from holdfast.adapters.pydantic_ai.steps import HoldfastStepStore

Take: TypeAlias = Callable[[StepStore, int, list[ModelMessage]], Awaitable[None]]
TEXT = Path(statistics.__file__).read_text()
RUN, CONVERSATION = "6f1c2d7e-8f1b-4c57-9f64-0d3c1f0f8a11", "b7a80f52-6d3e-4a36-a1c5-3d86f2f1c900"


def say(step: int) -> list[ModelMessage]:
    """A reply with a call, and its result."""
    start = step * 2000 % (len(TEXT) - 2000)
    call = ToolCallPart(tool_name="look", args={"step": step}, tool_call_id=f"call_{step}")
    reply = ModelResponse(parts=[TextPart(content=TEXT[start : start + 1000]), call], model_name="model-1")
    result = ToolReturnPart(
        tool_name="look", content=TEXT[start + 1000 : start + 2000], tool_call_id=f"call_{step}"
    )
    return [reply, ModelRequest(parts=[result])]


async def take_step(store: StepStore, step: int, messages: list[ModelMessage]) -> None:
    """One step, as the capability records it."""
    await do_work(store, step)
    await save_history(store, step, messages)


async def do_work(store: StepStore, step: int) -> None:
    """A request and a tool call."""
    call: dict[str, Any] = {"tool_call_id": f"call_{step}", "tool_name": "look"}

    async def note(number: int, kind: Any, **more: Any) -> None:
        await store.append_event(
            StepEvent(
                run_id=RUN,
                kind=kind,
                step_index=step,
                conversation_id=CONVERSATION,
                agent_name="clerk",
                idempotency_key=f"{4 * step + number}:{step}:{kind}:{more.get('tool_call_id', '')}",
                **more,
            )
        )

    await note(0, "model_request_started")
    await note(1, "model_request_completed")
    await store.record_tool_effect(ToolEffectRecord(run_id=RUN, status="started", **call))
    await note(2, "tool_call_started", **call)
    prior = await store.get_tool_effect(run_id=RUN, tool_call_id=call["tool_call_id"])
    assert prior is not None
    await store.record_tool_effect(
        ToolEffectRecord(run_id=RUN, status="completed", started_at=prior.started_at, **call)
    )
    await note(3, "tool_call_completed", **call)


async def save_history(store: StepStore, step: int, messages: list[ModelMessage]) -> None:
    """The history at the end of a step."""
    await store.save_snapshot(
        ContinuableSnapshot(
            run_id=RUN,
            step_index=step,
            messages=list(messages),
            conversation_id=CONVERSATION,
            agent_name="clerk",
            idempotency_key=f"{step}:{step}:complete",
        )
    )


async def measure(steps: int, take: Take, place: Path) -> tuple[dict[str, list[float]], int]:
    """Both stores, in turns: the times of the steps, and the size of the history."""
    times: dict[str, list[float]] = {"SqliteStepStore": [], "holdfast": []}
    messages: list[ModelMessage] = [ModelRequest(parts=[UserPromptPart(content="Go")])]
    async with holdfast.open_store(f"sqlite:{place}/holdfast.db") as store:
        ours, theirs = HoldfastStepStore(store), SqliteStepStore(database=place / "SqliteStepStore.db")
        stores: list[tuple[str, StepStore]] = [("SqliteStepStore", theirs), ("holdfast", ours)]
        for _, one in stores:
            await one.register_run(
                RunRecord(run_id=RUN, conversation_id=CONVERSATION, agent_name="clerk", registration_id="r")
            )
        for step in range(steps):
            messages += say(step)
            for name, one in stores:
                began = time.perf_counter()
                await take(one, step, messages)
                times[name].append(time.perf_counter() - began)
        for name, one in stores:
            found = await one.latest_snapshot(run_id=RUN)
            assert found is not None, name
            assert found.messages == messages, name
    return times, len(ModelMessagesTypeAdapter.dump_json(messages))


def show(steps: int, times: dict[str, list[float]], sizes: dict[str, int], content: int) -> None:
    """The table, and how the two compare."""
    table = Table(title=f"{steps:,} steps, {content / 1e6:.1f} MB of history")
    for column in ("store", "total", "first 10 %", "last 10 %", "on disk", "disk B/B"):
        table.add_column(column, justify="left" if column == "store" else "right")
    tenth = max(1, steps // 10)
    for name, taken in times.items():
        first, last = statistics.median(taken[:tenth]), statistics.median(taken[-tenth:])
        table.add_row(
            name,
            f"{sum(taken):.2f} s",
            f"{first * 1e3:.2f} ms",
            f"{last * 1e3:.2f} ms",
            f"{sizes[name] / 1e6:.1f} MB",
            f"{sizes[name] / content:.2f}",
        )
    console = Console()
    console.print(table)
    faster = sum(times["SqliteStepStore"]) / sum(times["holdfast"])
    smaller = sizes["SqliteStepStore"] / sizes["holdfast"]
    for what, figure, limit in (("faster", faster, 20), ("smaller", smaller, 40)):
        met = "" if steps < 1000 else ", met" if figure >= limit else ", NOT met"
        console.print(f"{figure:.1f} times {what} (expected from 1,000 steps on: {limit}{met})")


def main() -> None:
    parser = argparse.ArgumentParser(description="What keeping every step costs, in their store and in ours.")
    parser.add_argument("--quick", action="store_true", default=bool(os.environ.get("QUICK")))
    parser.add_argument("--histories", action="store_true")
    parser.add_argument("--steps", type=int)
    parser.add_argument("--directory", type=Path)
    options = parser.parse_args()
    steps = options.steps or (100 if options.quick else 1000)
    take = save_history if options.histories else take_step
    with tempfile.TemporaryDirectory(dir=options.directory) as name:
        place = Path(name)
        times, content = anyio.run(measure, steps, take, place)
        sizes = {name: sum(one.stat().st_size for one in place.glob(f"{name}.db*")) for name in times}
        show(steps, times, sizes, content)


if __name__ == "__main__":
    main()
