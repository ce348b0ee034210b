"""What a killed agent does twice, under `Durable` and under the step persistence of pydantic-ai-harness.

    python bench/compare_pydantic_ai.py

An agent looks an order up, then charges a card and sends a mail in one parallel batch. It is killed (SIGKILL)
at one point, and run again in another process: under `Durable` with the very same `agent.run(…)`, under the
step persistence as its documentation says, with `continue_run`, or from the start where there is nothing to
go on from. The table shows how often each effect happened and each reply was asked for; once is right.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import anyio._backends._asyncio  # Here, not anew in each child.
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from rich.console import Console
from rich.table import Table

import holdfast
from holdfast.adapters.pydantic_ai import Durable, effects

PROMPT = "Settle order 7"
POINTS = {
    "before the first reply": "before reply 0",
    "after the first reply": "after reply 0",
    "in a tool, after its effect": "after charge",
    "in a batch, one done, one under way": "before mail",
    "in a batch, after the second effect": "after mail",
    "after the batch, before the reply": "before reply 2",
}


class World:
    """What happened, a line each; it outlives whoever is killed."""

    def __init__(self, place: Path, dies_at: str) -> None:
        self._book, self._dies_at = place / "book", dies_at

    def note(self, what: str) -> None:
        """It happened."""
        with open(self._book, "a") as book:
            book.write(f"{what}\n")

    def pass_by(self, point: str) -> None:
        """Die here, if that was chosen."""
        if point == self._dies_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def count(self) -> Counter[str]:
        """How often each happened."""
        return Counter(self._book.read_text().splitlines() if self._book.exists() else [])


def make_agent(world: World) -> Agent[None, str]:
    """The agent that is killed."""

    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        step = sum(isinstance(message, ModelResponse) for message in messages)
        world.note(f"reply {step}")
        world.pass_by(f"before reply {step}")
        calls = [
            [ToolCallPart("look", {"order": "7"})],
            [ToolCallPart("charge", {"order": "7"}), ToolCallPart("mail", {"order": "7"})],
        ]
        return ModelResponse(parts=list(calls[step]) if step < len(calls) else [TextPart("settled")])

    agent: Agent[None, str] = Agent(FunctionModel(model), name="clerk")

    def was_noted(what: str) -> Callable[..., Any]:
        def verify(order: str) -> Any:
            return holdfast.Landed(f"{what} {order}") if world.count()[what] else holdfast.NotLanded()

        return verify

    @agent.tool_plain(metadata=effects(side_effects={"read"}))
    def look(order: str) -> int:
        """Look an order up."""
        world.pass_by("after reply 0")
        return 500

    @agent.tool_plain(metadata=effects(side_effects={"mutate"}, verify=was_noted("charge")))
    async def charge(order: str) -> str:
        """Charge the card."""
        world.note("charge")
        world.pass_by("after charge")
        return f"charge {order}"

    @agent.tool_plain(metadata=effects(side_effects={"mutate"}, verify=was_noted("mail")))
    async def mail(order: str) -> str:
        """Send a mail."""
        while not world.count()["charge"]:  # noqa: ASYNC110
            await anyio.sleep(0.01)
        await anyio.sleep(0.3)  # The charge is on record by now, wherever it is recorded.
        world.pass_by("before mail")
        world.note("mail")
        world.pass_by("after mail")
        return f"mail {order}"

    return agent


async def run_durable(place: Path, world: World) -> str:
    """The same call, whether for the first time or not."""
    durable = Durable(f"sqlite:{place}/agents.db", session="order-7")
    return str((await make_agent(world).run(PROMPT, capabilities=[durable])).output)


async def run_with_steps(place: Path, world: World) -> str:
    """From the latest snapshot of the last run, if there is one."""
    from pydantic_ai_harness.step_persistence import SqliteStepStore, StepPersistence, continue_run

    store = SqliteStepStore(database=str(place / "steps.db"))
    agent, runs = make_agent(world), await store.list_runs()
    history: list[ModelMessage] | None = None
    if runs:
        with suppress(LookupError):
            history = await continue_run(store, run_id=runs[-1].run_id, include_interrupted=True)
    prompt = None if history else PROMPT
    capability: Any = StepPersistence(store=store)
    return str((await agent.run(prompt, message_history=history, capabilities=[capability])).output)


class Found(NamedTuple):
    """What came of a scenario."""

    effects: str
    replies: str
    right: bool


def try_out(run: Callable[[Path, World], Any], point: str) -> Found:
    """Kill it at the point, run it again, and count."""
    with tempfile.TemporaryDirectory(prefix="holdfast-compare-") as directory:
        place = Path(directory)
        killed = in_child(run, place, World(place, point))
        assert killed == -signal.SIGKILL, f"it was not killed at {point!r}, but ended with {killed}"
        ended = in_child(run, place, World(place, ""))
        counted = World(place, "").count()
    times = {what: counted[what] for what in ("charge", "mail")}
    replies = [counted[f"reply {step}"] for step in range(3)]
    # A reply that was cut off before anybody could record it has to be asked for again.
    allowed = [2 if point == f"before reply {step}" else 1 for step in range(3)]
    right = ended == 0 and set(times.values()) == {1} and replies == allowed
    said = ", ".join(f"{what} {count}×" for what, count in times.items())
    return Found(said if ended == 0 else f"{said}; did not end", "/".join(map(str, replies)), right)


def in_child(run: Callable[[Path, World], Any], place: Path, world: World) -> int:
    """Run it in a process of its own; how that ended."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            anyio.run(run, place, world)
            code = 0
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr)
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def main() -> None:
    """Every point, under both; one table."""
    ways: dict[str, Callable[[Path, World], Any]] = {"Durable": run_durable}
    if importlib.util.find_spec("pydantic_ai_harness") is not None:
        import pydantic_ai_harness.step_persistence  # noqa: F401  # Here, not anew in each child.

        ways["their step persistence"] = run_with_steps
    table = Table(title="killed at one point, and run again: how often things happened")
    table.add_column("killed")
    for name in ways:
        table.add_column(f"{name}: effects")
        table.add_column("replies asked for", justify="right")
    for words, point in POINTS.items():
        row = [words]
        for run in ways.values():
            found = try_out(run, point)
            colour = "green" if found.right else "red"
            row += [f"[{colour}]{found.effects}[/]", found.replies]
        table.add_row(*row)
    Console(width=150).print(table)


if __name__ == "__main__":
    main()
