"""Who takes part in the run that is killed: four agents, their tools, and a model that follows a script.

The model logs every request that reaches it, and syncs the log: it knows nothing of holdfast's own books.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from msgspec import Struct, convert

from holdfast import Agent, Budget, ToolContext, tool
from holdfast.agents import Price, Prompt, Reply, ScriptedModel
from holdfast.agents.model_request import LAST_CALL
from holdfast.core.plan import StepStatus
from holdfast.messages import Message, Text, ToolCall
from holdfast.records import Plan, PlanStep, Usage

from ..boundaries import at
from ..matrix_tools import TOOLS
from ..scenarios import calls

Ctx = ToolContext[Any]

SESSION: Final = "root"
TASK: Final = "do everything"
DEADLY: Final = "do something deadly"
DELEGATES: Final = ("clerk", "scribe", "boss")

SCRIPT: Final[Mapping[str, Sequence[Sequence[str]]]] = {
    TASK: (
        ("plan draft=doing", "remember mood=fine"),
        ("sum 1", "look 1", "put a=1", "charge 1", "bill 1", "order 1", "append 1", "plain 1"),
        ("clerk buy 2",),
        ("clerk buy 3", "scribe write 1", "put b=1", "sum 2"),
        ("boss organise", "charge 5", "put e=1"),
        ("charge 1", "charge 2", "charge 4", "bill 5"),
        ("put a=2", "put a=1", "look 2", "remember mood=better"),
        ("scribe write 2", "clerk buy 6", "look 4"),
        ("plan draft=done", "put b=2", "send 9"),
        ("final_result all of it",),
    ),
    # What a clerk charges, it charges once for all who work for the root.
    "buy 2": (("charge 2", "look 3"), ("put c=2",), ("final_result 2",)),
    "buy 3": (("charge 3", "charge 1"), ("final_result 3",)),
    "buy 4": (("charge 4",), ("final_result 4",)),
    "buy 6": (("bill 6",), ("final_result 6",)),
    # A scribe's tools cannot find out what became of them: a person must say.
    "write 1": (("send 1", "append 1", "remember page=1"), ("wrote 1",)),
    "write 2": (("append 1", "mail 2"), ("wrote 2",)),
    "organise": (("plan staff=doing", "clerk buy 4"), ("bill 5", "put d=1"), ("organised",)),
    DEADLY: (("clerk look out", "charge 1"), ("final_result not much",)),
    "look out": (("look 5",), ("final_result 5",)),
}
"""The replies to each task: their calls, or what is said."""

EFFECTS: Final = {
    "put a=1": 2, "put a=2": 1, "put b=1": 1, "put b=2": 1, "put c=2": 1, "put d=1": 1, "put e=1": 1,
    "charge 1": 1, "charge 2": 1, "charge 3": 1, "charge 4": 1, "charge 5": 1,
    "bill 1": 1, "bill 5": 1, "bill 6": 1,
    "order 1": 1, "append 1": 3, "plain 1": 1, "send 1": 1, "send 9": 1, "mail 2": 1,
}  # fmt: skip
FINAL: Final = {"a": "1", "b": "2", "c": "2", "d": "1", "e": "1"}


@dataclass
class Everything:
    """What the root comes to."""

    title: str
    parts: int


@tool(name="plan", side_effects=())
async def _plan(ctx: Ctx, what: str) -> str:
    """Move a step of the session's plan on."""
    at("plan: before")
    id, _, wanted = what.partition("=")
    status = convert(wanted, StepStatus)
    plan = ctx.session.plan or Plan(goal="get it done", steps=(PlanStep(id=id, what=f"do the {id}"),))
    await ctx.session.set_plan(plan.update(id, status=status, evidence=f"seen {what}"))
    at("plan: after")
    return what


@tool(name="remember", side_effects=())
async def _remember(ctx: Ctx, what: str) -> str:
    """Keep something in the session's state."""
    key, _, value = what.partition("=")
    await ctx.session.set(key, {"value": value})
    at("remember: after")
    return what


class Asked(Struct, frozen=True):
    """A line of the model's log: the task, the how manieth reply to it, and whether it is called the last."""

    task: str
    place: int
    last: bool


class Log:
    """What reached the model."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "asked"

    def add(self, asked: Asked) -> None:
        fd = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(fd, (json.dumps([asked.task, asked.place, asked.last]) + "\n").encode())
            os.fsync(fd)
        finally:
            os.close(fd)

    def read(self) -> list[Asked]:
        """Every request so far, in order."""
        lines = self._path.read_bytes().splitlines() if self._path.exists() else []
        return [Asked(*json.loads(line)) for line in lines]


def place_in(prompt: Prompt) -> tuple[str, int]:
    """The task that a prompt is about, and how many replies it has had."""
    first = prompt.messages[0]
    assert isinstance(first, Message)
    return first.text, sum(message.role == "assistant" for message in prompt.messages)


_logs: list[Log] = []


def enter(folder: Path) -> Log:
    """From now on, the model writes its log here."""
    _logs[:] = [Log(folder)]
    return _logs[0]


def _decide(prompt: Prompt) -> Reply:
    task, place = place_in(prompt)
    at("model: before it is asked")
    _logs[0].add(Asked(task, place, LAST_CALL in prompt.instructions))
    at(f"model: asked to {task}")
    # Fixed, so that ids of other lengths cost the same.
    usage = Usage(input_tokens=100 * len(prompt.messages), output_tokens=10 + place)
    return Reply(message=message_of(SCRIPT[task][place], NAMES), usage=usage)


def message_of(lines: Sequence[str], names: Collection[str]) -> Message:
    """A reply that calls tools with these names, or says something else."""
    if not all(line.partition(" ")[0] in names for line in lines):
        return Message(role="assistant", blocks=(Text(" ".join(lines)),))
    blocks = tuple(
        ToolCall(id=call.id, name=call.tool, args=_args(call.tool, call.what)) for call in calls(*lines)
    )
    return Message(role="assistant", blocks=blocks)


def _args(name: str, what: str) -> dict[str, Any]:
    if name == "final_result":
        return {"result": int(what)} if what.isdigit() else {"title": what, "parts": len(SCRIPT)}
    return {"task" if name in DELEGATES else "what": what}


def _used() -> set[str]:
    return {line.partition(" ")[0] for replies in SCRIPT.values() for reply in replies for line in reply}


OWN: Final = [*(one for one in TOOLS.values() if one.name in _used()), _plan, _remember]

NAMES: Final = {"final_result", *DELEGATES, *(one.name for one in OWN)}


def make_root(max_crashes: int) -> Agent[Any, Everything]:
    """The agent whose run is killed, with everybody who works for it."""
    model = ScriptedModel(_decide)
    price = Price(input_usd_per_mtok=3, output_usd_per_mtok=15)
    shared: dict[str, Any] = {"price": price, "max_crashes": max_crashes}
    clerk = Agent(model, name="clerk", tools=OWN, output_type=int, **shared)
    # Enough for a hundred requests in flight at kills, which count as spent: were it short, the model would
    # be told that a reply is the last one.
    scribe = Agent(model, name="scribe", tools=OWN, budget=Budget(usd=20, tokens=2_000_000), **shared)
    # Wants more than there is, so while it works nothing is left for anybody else.
    greed = Budget(usd=1000, tokens=10**9)
    boss = Agent(model, name="boss", tools=[*OWN, clerk.as_tool()], budget=greed, **shared)
    return Agent(
        model,
        name="root",
        tools=[*OWN, *(agent.as_tool() for agent in (clerk, scribe, boss))],
        budget=Budget(usd=50, tokens=5_000_000),
        output_type=Everything,
        max_steps=len(SCRIPT[TASK]),
        **shared,
    )
