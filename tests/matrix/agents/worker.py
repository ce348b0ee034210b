"""In children: a small agent whose work the tests interrupt in the middle.

python -m tests.matrix.agents.worker FOLDER TOOL     a program that calls this tool until it is interrupted
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, Final

import anyio
import msgspec

from holdfast import Agent, Landed, NotLanded, ToolContext, tool
from holdfast.agents import Outcome, Prompt, ScriptedModel, TextDelta
from holdfast.agents.model import ModelEvent
from holdfast.core.entries import ModelReplied, RunCompleted
from holdfast.messages import Message

from ...crash.fork_server import Line
from .. import boundaries
from .. import matrix_tools as toolbox
from ..boundaries import Point, at
from ..matrix_process import Life, open_life
from .matrix_agents import message_of, place_in

SESSION: Final = "worker"
GRACE_S: Final = 3600.0
"""Whoever ends earlier does not do so because time has passed."""

SCRIPT: Final = {
    "carve": (("carve 1", "carve 2", "look 1"), ("all carved",)),
    "gate": (("gate 1",), ("all done",)),
    "charge": (("charge 1", "look 1"), ("charged", ), ("and once more",)),
    "tell": (("look 1",), ("a", "story", "of", "many", "words")),
    "hang": (("hang 1", "look 1"), ("hung",)),
    "hang_in_thread": (("hang_in_thread 1", "look 1"), ("hung",)),
}  # fmt: skip


async def _was_hung(ctx: ToolContext[Any], what: str) -> Landed | NotLanded:
    found = toolbox.world().find(ctx.key)
    return Landed(found.result) if found else NotLanded()


_folders: list[Path] = []


@tool(side_effects={"mutate"}, verify=_was_hung)
async def hang(ctx: ToolContext[Any], what: str) -> str:
    """Happens, and never comes back."""
    toolbox.world().land(ctx, "hang", what)
    (_folders[0] / "begun").touch()
    await anyio.sleep_forever()
    return "never"


@tool(side_effects={"mutate"}, verify=_was_hung)
def hang_in_thread(ctx: ToolContext[Any], what: str) -> str:
    """The same in a thread, where nothing can stop it."""
    toolbox.world().land(ctx, "hang_in_thread", what)
    (_folders[0] / "begun").touch()
    while True:
        time.sleep(60)


TOOLS: Final = [
    *(toolbox.TOOLS[name] for name in ("carve", "gate", "charge", "look")),
    hang,
    hang_in_thread,
]


def _decide(prompt: Prompt) -> Message:
    task, place = place_in(prompt)
    return message_of(SCRIPT[task][place], [one.name for one in TOOLS])


class Model(ScriptedModel):
    """Follows the script; a boundary after every piece of a reply."""

    def __init__(self) -> None:
        super().__init__(_decide)

    async def ask(self, prompt: Prompt) -> AsyncGenerator[ModelEvent, None]:
        async with aclosing(super().ask(prompt)) as said:
            async for one in said:
                yield one
                if isinstance(one, TextDelta):
                    at("model: a piece")


def make_worker() -> Agent[Any, str]:
    return Agent(Model(), name="worker", tools=TOOLS, grace_s=GRACE_S)


# -- what children do ---------------------------------------------------------------------------------


def work(
    line: Line, folder: str, scheme: str, message: str | None, *, target: Sequence[Any] | None = None
) -> dict[str, Any]:
    """Run with the message, or resume; what came of it. A word when SIGINT has been taken in."""
    boundaries.path.arm(Point(*target) if target else None)

    async def act(life: Life) -> dict[str, Any]:
        toolbox.keep_gates(line, Path(folder))
        _tell_of_interrupts(lambda: line.say("interrupted"))
        agent = make_worker()
        if message is None:
            return tell(await agent.resume(SESSION, store=life.store))
        return tell(await agent.run(message, session=SESSION, store=life.store))

    return open_life(folder, scheme, act)


def tell(outcome: Outcome[str]) -> dict[str, Any]:
    return {"status": outcome.status, "output": outcome.output}


def listen(
    line: Line, folder: str, scheme: str, message: str | None, target: Sequence[Any] | None = None
) -> list[str]:
    """Stream; the pieces that were heard."""
    boundaries.path.arm(Point(*target) if target else None)

    async def act(life: Life) -> list[str]:
        async with aclosing(make_worker().stream(message, session=SESSION, store=life.store)) as events:
            return [event.text async for event in events if isinstance(event, TextDelta)]

    return open_life(folder, scheme, act)


def follow(line: Line, folder: str, scheme: str) -> list[str]:
    """What somebody in another process sees of the replies, until the run has come to its end."""

    async def act(life: Life) -> list[str]:
        seen: list[str] = []
        async with aclosing(life.store.tail(SESSION)) as entries:
            async for entry in entries:
                if isinstance(entry.body, ModelReplied):
                    assert entry.content is not None
                    seen.append(msgspec.json.decode(entry.content, type=Message).text)
                if isinstance(entry.body, RunCompleted):
                    break
        return seen

    return open_life(folder, scheme, act)


def look(line: Line, folder: str, scheme: str) -> dict[str, Any]:
    """Where the session stands."""

    async def act(life: Life) -> dict[str, Any]:
        state = await life.store.load(SESSION)
        return {
            "status": state.status,
            "held": state.facts.head.lease is not None,
            "effects": {row.call.id: row.status for row in state.facts.effects.rows.values()},
            "roles": [message.role for message in state.transcript],
        }

    return open_life(folder, scheme, act)


def _tell_of_interrupts(say: Callable[[], None]) -> None:
    """Say so when the event loop has dealt with a SIGINT, also in whatever it has cancelled."""
    loop, deal = asyncio.get_running_loop(), signal.getsignal(signal.SIGINT)
    assert callable(deal)

    def wait(rounds: int) -> None:
        if rounds:
            loop.call_soon(wait, rounds - 1)
        else:
            say()

    def tick() -> None:
        loop.call_later(0.01, tick)

    def on_interrupt(*args: Any) -> None:
        loop.call_soon_threadsafe(wait, 100)
        deal(*args)

    signal.signal(signal.SIGINT, on_interrupt)
    # A signal that comes just before the event loop begins to wait is noticed when it wakes up.
    tick()


def main(folder: str, task: str) -> None:
    """A program of its own: a process that must end by itself."""
    _folders[:] = [Path(folder)]

    async def act(life: Life) -> None:
        _tell_of_interrupts((Path(folder) / "interrupted").touch)
        await make_worker().run(task, session=SESSION, store=life.store)

    open_life(folder, "sqlite", act)


if __name__ == "__main__":
    main(*sys.argv[1:])
