"""How long a crash test takes: an example agent with 300 boundaries, killed at each and once more in each
resumption, with two processes at a time.

    python bench/crash_tests.py [--quick] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import time
import urllib.request
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec

import holdfast
from bench.figures import Table
from bench.tables import markdown
from holdfast.agents import ScriptedModel
from holdfast.crash_test import HttpWorld, run_crash_test
from holdfast.messages import ToolCall

WORKERS = 2
SAMPLE = 20
Context = holdfast.ToolContext[HttpWorld]


def was_refunded(ctx: Context, order: str) -> holdfast.Landed | holdfast.NotLanded:
    """Ask the service by the key of the effect."""
    with urllib.request.urlopen(f"{ctx.deps.url}/refunds") as answer:
        landed = any(one["key"] == ctx.key for one in json.load(answer))
    return holdfast.Landed(order) if landed else holdfast.NotLanded()


@holdfast.tool(side_effects="mutate", verify=was_refunded)
def refund(ctx: Context, order: str) -> str:
    """Give the money for an order back."""
    body = json.dumps({"order": order}).encode()
    request = urllib.request.Request(f"{ctx.deps.url}/refunds", body, {"Idempotency-Key": ctx.key})
    urllib.request.urlopen(request).close()
    return order


async def clerk(world: HttpWorld) -> Any:
    """Nine steps with five parallel refunds each."""

    def call(step: int, number: int) -> ToolCall:
        return ToolCall(id=f"call_{number}", name="refund", args={"order": f"{step}-{number}"})

    steps = [[call(step, number) for number in range(5)] for step in range(9)]
    agent = holdfast.Agent(ScriptedModel([*steps, "All is refunded."]), tools=[refund])
    async with holdfast.open_store(f"sqlite:{world.agent_dir}/agent.db") as store:
        return (await agent.run("Refund them", session="s", key="1", store=store, deps=world)).output


def measure(sample: int | None) -> Table:
    """One crash test, as a row."""
    # By its own name: the processes of the test import it.
    scenario = import_module("bench.crash_tests").clerk
    began = time.monotonic()
    report = run_crash_test(scenario, world=HttpWorld(), workers=WORKERS, sample=sample)
    seconds = time.monotonic() - began
    tried = len(report.verdicts)
    row = [len(report.boundaries), tried, len(report.runs), f"{seconds:.1f}", f"{seconds / tried:.2f}"]
    return Table(
        f"An agent of holdfast with 45 parallel calls, killed with {WORKERS} processes at a time",
        ["boundaries", "killed at", "runs", "seconds", "seconds a boundary", "findings"],
        [[*map(str, row), str(len(report.findings))]],
    )


def main() -> None:
    """Measure, and print one table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--quick", action="store_true", help=f"{SAMPLE} of the boundaries")
    parser.add_argument("--json", type=Path, help="write the table there, too")
    options = parser.parse_args()
    table = measure(SAMPLE if options.quick else None)
    if options.json:
        options.json.write_bytes(msgspec.json.encode(table))
    print("\n".join(markdown(table.columns, table.rows)))


if __name__ == "__main__":
    main()
