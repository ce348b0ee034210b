"""The program that is killed: it gives the agent its task, or resumes it, and reports its events.

    python -m holdfast.demo.process DATABASE [--task] [--stop-after paid|posted] [--delay-s SECONDS]

Without `--task` it resumes: run it on the database that the demo leaves behind, and it reports the outcome
again and does nothing. Events are lines of JSON on stdout.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import anyio
import msgspec

from holdfast import open_store
from holdfast.agents import Outcome, TextDelta
from holdfast.messages import ToolCall
from holdfast.records import Checkpoint
from holdfast.tools import Result

from .agent import SESSION, TASK, make_agent
from .world import World

_WAIT_S = 60.0  # Where the death of a process cannot be proved, its lease must expire first.


class ProcessEvent(msgspec.Struct, omit_defaults=True):
    """What a process reports to its parent.

    `kind` is `said`, `called`, `result`, `doubt`, `checkpoint`, the status of the outcome (`completed`,
    `waiting`, …), or an event of the world: `paid`, `posted`, `found` or `missed`.
    """

    kind: str
    text: str
    usd: float = 0.0


def report(event: ProcessEvent) -> None:
    """Print an event, in one write: tools report from threads of their own."""
    os.write(sys.stdout.fileno(), msgspec.json.encode(event) + b"\n")


class WorldReporter:
    """Reports the events of the world.

    After `stop_after` it blocks, to be killed: the effect has happened, and its tool has not returned.
    """

    def __init__(self, stop_after: str | None) -> None:
        self._stop_after = stop_after

    def __call__(self, kind: str, text: str) -> None:
        report(ProcessEvent(kind, text))
        if kind == self._stop_after:
            sys.stdin.buffer.read()  # Returns only if the parent is gone.
            os._exit(1)


async def work(database: Path, task: str | None, *, stop_after: str | None, delay_s: float) -> None:
    """Run the agent to its outcome."""
    world, agent = World(database, WorldReporter(stop_after)), make_agent(delay_s=delay_s)
    said = ""
    async with open_store(database) as store:
        async for event in agent.stream(task, session=SESSION, store=store, deps=world, wait_s=_WAIT_S):
            if isinstance(event, TextDelta):
                said += event.text
                continue
            match event:
                case ToolCall(name=name, args=args):
                    if said:
                        report(ProcessEvent("said", said))
                    said = ""
                    given = ", ".join(f"{key}={value!r}" for key, value in args.items())
                    report(ProcessEvent("called", f"{name}({given})"))
                case Result(status="in_doubt", name=name):
                    report(ProcessEvent("doubt", name))
                case Result(name=name, content=content):
                    report(ProcessEvent("result", f"{name}: {content}"))
                case Checkpoint(version=version):
                    report(ProcessEvent("checkpoint", f"checkpoint {version}"))
                case Outcome():
                    report(ProcessEvent(event.status, event.output or event.reason, event.cost_usd))
                case _:
                    pass


def main() -> None:
    """Run as the command line says."""
    parser = argparse.ArgumentParser(prog="python -m holdfast.demo.process")
    parser.add_argument("database", type=Path)
    parser.add_argument("--task", action="store_true")
    parser.add_argument("--stop-after", choices=["paid", "posted"])
    parser.add_argument("--delay-s", type=float, default=0.0)
    options = parser.parse_args()

    async def run() -> None:
        await work(
            options.database,
            TASK if options.task else None,
            stop_after=options.stop_after,
            delay_s=options.delay_s,
        )

    anyio.run(run)


if __name__ == "__main__":
    main()
