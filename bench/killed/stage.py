"""The play that every subject gives: a clerk who settles an order, and is killed at a chosen moment.

    reply 0   charge                the card is charged
    reply 1   look                  changes nothing
    reply 2   mail and ship         at once, in one batch
    reply 3   "settled"

The model is a script, and the same one for all. The world is a file that is synced line by line, and that no
subject knows of. The scripted model refuses, as real ones do, a history in which a call has no result.
"""

from __future__ import annotations

import importlib
import os
import signal
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.to_thread

from tests.crash.fork_server import Line

SESSION: Final = "order-7"
PROMPT: Final = "Settle order 7."
GO_ON: Final = "Go on."
SCRIPT: Final = (("charge",), ("look",), ("mail", "ship"), ())
TOOLS: Final = ("charge", "look", "mail", "ship")
EFFECTS: Final = ("charge", "mail", "ship")
STEPS_MAX: Final = 1_000_000
"""Of what counts power cuts: no subject may stop by itself."""

FINISHED: Final = "finished"
ASKED: Final = "in doubt, asked"

_DONE: Final = " done"
_RECORDED_S: Final = 0.4
"""After that, the call that is done is on record, wherever it is recorded at all."""
_BATCH_S: Final = 10.0


class HistoryRefused(Exception):
    """What a provider answers to a call without a result: 400."""


class Ticker:
    """Counts the steps of an endless play, for a power cut: each is over when the model hears of it."""

    def __init__(self, verifying: bool) -> None:
        self._verifying = verifying

    def hear(self, steps: int) -> None:
        """The model hears that so many are done."""
        self.find(steps)
        if steps:
            print("ACK", steps - 1, flush=True)

    def find(self, steps: int) -> None:
        """After the cut, the first sign of how many are left is all there is to do."""
        if self._verifying:
            print("HAVE", steps - 1, flush=True)
            os._exit(0)


class Stage:
    """What a subject is given: a folder that outlives it, its part, and the moment of its end."""

    def __init__(
        self,
        line: Line | None,
        folder: str,
        *,
        variant: str = "",
        dies: str = "",
        waits: str = "",
        lease_s: float = 2.0,
        wait_s: float = 0.0,
        database: str = "",
        ticker: Ticker | None = None,
    ) -> None:
        self.folder, self.variant, self.database = Path(folder), variant, database
        self.lease_s, self.wait_s = lease_s, wait_s
        self._line, self._dies, self._waits, self._ticker = line, dies, waits, ticker

    # -- the model -----------------------------------------------------------------------------------

    async def reply(self, called: Sequence[str], results: Mapping[str, str]) -> list[tuple[str, str]]:
        """What the model calls next, as (id, tool); nothing when it is done.

        `called` are the ids in its history, `results` what came of them.
        """
        if missing := [call for call in called if call not in results]:
            raise HistoryRefused(f"400: no result for {', '.join(missing)}")
        if self._ticker is not None:
            self._ticker.hear(sum(said.endswith(_DONE) for said in results.values()))
            return [(f"charge-{len(called)}", "charge")]
        turn = next(
            at for at, tools in enumerate(SCRIPT) if not set(tools) & {_tool_of(one) for one in called}
        )
        self._note(f"reply {turn}")
        await self._pass_by(f"reply {turn}")
        if not SCRIPT[turn]:
            seen = [_tool_of(call) for call, said in results.items() if said.endswith(_DONE)]
            self._note(f"saw {' '.join(sorted(set(seen)))}")
        return [(f"{tool}-{turn}", tool) for tool in SCRIPT[turn]]

    # -- the tools -----------------------------------------------------------------------------------

    async def act(self, tool: str, number: int) -> str:
        """The body of every tool."""
        if self._ticker is not None:
            self._ticker.find(number)
            return f"{tool}{_DONE}"
        if tool == "ship":
            await self._after_the_mail()
        await self._pass_by(f"before {tool}")
        if tool in EFFECTS:
            self._note(tool)
        await self._pass_by(f"after {tool}")
        return f"{tool}{_DONE}"

    async def _after_the_mail(self) -> None:
        with anyio.move_on_after(_BATCH_S):
            while not self.has_happened("mail"):  # noqa: ASYNC110  # The world is a file.
                await anyio.sleep(0.01)
        await anyio.sleep(_RECORDED_S)

    # -- the world -----------------------------------------------------------------------------------

    def has_happened(self, tool: str) -> bool:
        """What a service answers that is asked for an order."""
        return read_world(self.folder)[tool] > 0

    def _note(self, what: str) -> None:
        file = os.open(self.folder / "world", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        os.write(file, f"{what}\n".encode())
        os.fsync(file)
        os.close(file)

    async def _pass_by(self, point: str) -> None:
        if point == self._dies:
            os.kill(os.getpid(), signal.SIGKILL)
        if point == self._waits and self._line is not None:
            # Once: what a subject begins a second time in the same process is not stopped.
            self._waits = ""
            self._line.say("here")
            # In a thread: a model that takes its time blocks nobody's event loop.
            await anyio.to_thread.run_sync(self._line.hear)


def _tool_of(call: str) -> str:
    return call.partition("-")[0]


def number_of(call: str) -> int:
    """The number in a call's id, which is also its argument."""
    return int(call.partition("-")[2])


def read_world(folder: Path) -> Counter[str]:
    """How often each thing happened."""
    world = folder / "world"
    return Counter(world.read_text().splitlines() if world.exists() else ())


def play(line: Line | None, subject: str, folder: str, **orders: Any) -> str:
    """Begin, or go on, in this process; how it ended. `subject` is the module that has its `work`."""
    work: Callable[[Stage], Awaitable[str]] = importlib.import_module(subject).work
    return anyio.run(work, Stage(line, folder, **orders))
