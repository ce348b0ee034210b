"""One process's part of the work: it goes on from wherever others were killed, as far as it can.

It runs in a child, and may die at a boundary that was chosen.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, TypeVar

import anyio
import anyio._backends._asyncio  # Here, not anew in each child.
import anyio.to_thread

from holdfast import Registry, Session, Store, open_store
from holdfast.messages import Message, ToolCall
from holdfast.records import Run
from holdfast.tools import Result
from tests.internals import take_keyframes_after
from tests.stores import open_driver

from . import boundaries
from . import matrix_tools as toolbox
from .boundaries import Point
from .effect_log import World

KEYFRAME_ENTRIES = 8
"""So that whoever comes after a crash begins with a keyframe, as in a long session."""

LINGER_S = 60.0
"""Lines leave with barriers only, so that the same boundaries are passed each time."""


class Call(NamedTuple):
    """A call that the scripted model makes."""

    id: str
    tool: str
    what: str


class Life:
    """An open store, the world, and the tools."""

    def __init__(self, store: Store, world: World, folder: Path) -> None:
        self.store, self.world, self.folder = store, world, folder
        self.registry = Registry(toolbox.TOOLS.values())
        self.waits = True
        """Whether a call in doubt keeps the step open."""
        self.problems: list[str] = []
        self.end: dict[str, Any] = {}
        """Once it is done: what must be the same, whoever was killed on the way."""
        self.acks = folder / "acks"
        self._acks = os.open(self.acks, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def acknowledge(self, session: Session) -> None:
        """Results were handed on: what is completed now must never be done again."""
        rows = session.state.facts.effects.rows.values()
        keys = [row.key for row in rows if row.status == "completed" and row.changes_the_world]
        os.write(self._acks, (json.dumps(keys) + "\n").encode())

    def expect(self, so: bool, why: str) -> None:
        """Note a broken promise."""
        if not so:
            self.problems.append(why)

    async def drive(self, session: Session, steps: Mapping[str, Sequence[Call]]) -> bool:
        """Take every step that was not taken yet; whether nobody must say something first."""
        await session.settle(self.registry)
        taken = {one.name for one in session.state.path()}
        async with session.run(agent="matrix") as run:
            for number, (name, calls) in enumerate(steps.items()):
                if name in taken:
                    continue
                if not await self._step(session, run, number, calls):
                    run.pause("a person must say something")
                    return False
                self.expect(session.continuable, f"after {name}: {session.problems}")
                await session.checkpoint(name=name)
        return True

    async def _step(self, session: Session, run: Run, number: int, calls: Sequence[Call]) -> bool:
        if sum(message.role == "assistant" for message in session.transcript) <= number:
            if sum(message.role == "user" for message in session.transcript) <= number:
                await session.add(f"go on with {number}")
            async with run.request() as request:
                await request.reply(_reply(calls))
        results = await self.registry.dispatch_step(session)
        self.expect([result.call_id for result in results] == [call.id for call in calls], f"{results}")
        if not self.take(session, results):
            return False
        for call, result in zip(calls, results, strict=True):
            self.expect_result(call, result)
        return True

    def take(self, session: Session, results: Sequence[Result]) -> bool:
        """Note what was handed on; whether no result is still to come."""
        self.acknowledge(session)
        waiting = ("waiting", "in_doubt") if self.waits else ("waiting",)
        return not any(result.status in waiting for result in results)

    def expect_result(self, call: Call, result: Result) -> None:
        """What the tool returned, now or when it was run; or what is known of it instead."""
        said = call.tool if call.tool == "wipe" else f"{call.tool} {call.what.partition('#')[0]}"
        if call.tool == "broken":
            self.expect(result.status == "failed", f"{call}: {result}")
        elif result.is_error:
            self.expect(any(word in result.content for word in _WHY), f"{call}: {result}")
        else:
            self.expect(said in result.content and said in str(result.value), f"{call}: {result}")


_WHY = ("is not known", "nobody knows", "refused by bob", "given up by ann")


def _reply(calls: Sequence[Call]) -> Message:
    blocks = tuple(ToolCall(id=call.id, name=call.tool, args={"what": call.what}) for call in calls)
    return Message(role="assistant", blocks=blocks)


# -- in children --------------------------------------------------------------------------------------

T = TypeVar("T")
Report: TypeAlias = dict[str, Any]


def open_life(folder: str, scheme: str, act: Callable[[Life], Awaitable[T]], **options: Any) -> T:
    """Act in the store and the world of this folder."""
    place = Path(folder)
    # The locks of holders are part of the trial, as everything else is.
    tempfile.tempdir = str(place / "tmp")
    Path(tempfile.tempdir).mkdir(exist_ok=True)
    world = toolbox.enter(place / "world")
    take_keyframes_after(KEYFRAME_ENTRIES)

    async def main() -> T:
        driver = await anyio.to_thread.run_sync(open_driver, f"{scheme}:{place}/store")
        boundaries.install(driver)
        async with open_store(driver, linger_s=LINGER_S, **options) as store:
            return await act(Life(store, world, place))

    return anyio.run(main)


def run(
    folder: str, scheme: str, target: Sequence[Any] | None, act: Callable[[Life], Awaitable[str]]
) -> Report:
    """Act, or die on the way; what came of it, and the boundaries that were passed."""
    boundaries.path.arm(Point(*target) if target else None)

    async def watched(life: Life) -> Report:
        state = await act(life)
        return {
            "state": state,
            "points": boundaries.path.passed,
            "problems": life.problems,
            "end": life.end,
        }

    return open_life(folder, scheme, watched)
