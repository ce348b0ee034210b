"""In children: a holder that is stopped at a boundary, and the one that takes its place."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from typing import Any

import anyio
import anyio.to_thread

from holdfast import Session
from holdfast.errors import Fenced
from holdfast.system.clock import boot_s

from ..crash.fork_server import Line, poll
from . import boundaries
from .boundaries import Point
from .matrix_process import Life, open_life
from .scenarios import calls

LEASE_S = 0.7


def hold(
    line: Line, folder: str, scheme: str, tool: str, target: Sequence[Any], heartbeat_first: bool
) -> list[str]:
    """Make one call, be stopped on the way, and when awake again go on as if nothing had happened; what
    came of that and of all that was tried afterwards."""

    async def act(life: Life) -> list[str]:
        if heartbeat_first:
            _let_heartbeat_go_first()
        async with life.store.session("s") as session:
            # Armed only now: opening passes boundaries, too.
            boundaries.path.arm(Point(*target), signal.SIGSTOP)
            said = [await _try(life.drive(session, {"step": calls(f"{tool} 1")}))]
            for number in range(2):
                args = {"what": f"after {number}"}
                said.append(await _try(life.registry.dispatch("send", args, session=session)))
            return said

    return open_life(folder, scheme, act, lease_s=LEASE_S)


async def _try(tried: Any) -> str:
    try:
        return repr(await tried)
    except Fenced:
        return "Fenced"


def _let_heartbeat_go_first() -> None:
    """When the process wakes up, its heartbeat is renewed before anybody looks at the lease."""
    here: Any = Session
    real = here.flush

    async def flush(self: Session) -> None:
        await real(self)
        heartbeat = self._engine.heartbeat
        poll(lambda: heartbeat.left_s > 0, "the heartbeat")

    here.flush = flush


def succeed(line: Line, folder: str, scheme: str, tool: str) -> dict[str, Any]:
    """Take over, settle, finish the step; then wait for what the other one still has to say, and finish."""

    async def act(life: Life) -> dict[str, Any]:
        async with life.store.session("s", wait_s=60) as session:
            taken_s = boot_s()
            await session.settle(life.registry)
            settled_s = boot_s() - taken_s
            done = await life.drive(session, {"step": calls(f"{tool} 1")})
            line.say({"done": done, "settled_s": settled_s, "fence": session.fence})
            told = await anyio.to_thread.run_sync(line.hear)
            if not done:
                with anyio.move_on_after(60 if told else 0):
                    while session.in_doubt:
                        await session.flush()
                        await anyio.sleep(0.01)
                done = await life.drive(session, {"step": calls(f"{tool} 1")})
            await session.flush()
            return {"done": done, "doubts": [row.why for row in session.in_doubt], "problems": life.problems}

    return open_life(folder, scheme, act, lease_s=LEASE_S)


def read(line: Line, folder: str, scheme: str) -> list[dict[str, Any]]:
    """The journal."""

    async def act(life: Life) -> list[dict[str, Any]]:
        entries = life.store.tail("s", follow=False)
        return [{"seq": one.seq, "kind": one.kind, "run": one.run} async for one in entries]

    return open_life(folder, scheme, act)
