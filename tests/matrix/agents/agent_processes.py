"""What children do: go on with an agent's run wherever others were killed, as far as they can."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from holdfast.errors import NotFound
from holdfast.limits import CRASHES_MAX

from ...crash.fork_server import Line
from ..matrix_process import Life, Report
from ..scenarios import Play, Scenario, go_on
from .audit import read_books, tell_end
from .matrix_agents import DEADLY, EFFECTS, FINAL, SESSION, TASK, enter, make_root


def live(line: Line, folder: str, scheme: str, scenario: str, target: Sequence[Any] | None = None) -> Report:
    """In a child: go on with one of these runs."""
    return go_on(RUNS[scenario], folder, scheme, target)


def _drive(task: str, max_crashes: int) -> Play:
    agent = make_root(max_crashes)  # Here, not anew in each child.

    async def play(life: Life) -> bool:
        enter(life.folder)
        before = await read_books(life.store)
        if await _is_begun(life):
            outcome = await agent.resume(SESSION, store=life.store)
        else:
            outcome = await agent.run(task, session=SESSION, store=life.store)
        after = await read_books(life.store)
        life.expect(
            before.in_flight == after.in_flight, f"lost {after.in_flight} without a kill, {before.in_flight}"
        )
        if outcome.status == "waiting":
            life.expect(bool(outcome.waiting), f"it waits, and nobody knows what for: {outcome}")
            return False
        life.expect(outcome.status == "completed", f"{outcome}")
        life.end["output"] = msgspec.to_builtins(outcome.output)
        return True

    return play


async def _is_begun(life: Life) -> bool:
    """Whether the message is in the session: then it is not given again."""
    try:
        return len((await life.store.load(SESSION)).transcript) > 0
    except NotFound:
        return False


TEN_STEPS: Final = "ten steps"
NO_LIMIT: Final = "ten steps, however many crashes"
DEADLY_DELEGATE: Final = "a deadly delegate"
RUNS: Final = {
    TEN_STEPS: Scenario(play=_drive(TASK, CRASHES_MAX), effects=EFFECTS, final=FINAL, end=tell_end),
    NO_LIMIT: Scenario(play=_drive(TASK, 10**6), effects=EFFECTS, final=FINAL, end=tell_end),
    DEADLY_DELEGATE: Scenario(play=_drive(DEADLY, CRASHES_MAX), effects={"charge 1": 1}, end=tell_end),
}
