"""In children: processes that want the same thing done, once ever."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from signal import SIGKILL, Signals
from typing import Any

import anyio
import anyio.to_thread

from holdfast import Session
from holdfast.errors import NotFound
from holdfast.session.effect_claims import OperationVerdict
from holdfast.tools import Result
from holdfast.tools.claims import Busy, OperationClaims

from ..crash.fork_server import Line
from . import boundaries
from .boundaries import Point
from .matrix_process import Life, Report, open_life


def race(line: Line, folder: str, scheme: str, name: str) -> None:
    """Again and again: open a session, and do what the test says when it says so."""

    async def act(life: Life) -> None:
        while (what := await anyio.to_thread.run_sync(line.hear)) is not None:
            async with life.store.session(f"{name}-{what}") as session:
                line.say("ready")
                tool = await anyio.to_thread.run_sync(line.hear)
                result = await life.registry.dispatch(tool, {"what": what}, call_id="c", session=session)
                line.say(_shown(result))

    open_life(folder, scheme, act)


def leave_forks(line: Line, folder: str, scheme: str, count: int) -> None:
    """Begin a payment in each of `count` sessions, fork them, and die before anything is paid."""

    async def act(life: Life) -> None:
        async def begin(number: int) -> None:
            async with life.store.session(f"s-{number}") as session:
                sessions.append(session)
                await life.registry.dispatch("pay", {"what": str(number)}, call_id="c", session=session)

        sessions: list[Session] = []
        async with anyio.create_task_group() as tasks:
            for number in range(count):
                tasks.start_soon(begin, number)
            while len(life.world.deeds("ran")) < count:  # noqa: ASYNC110
                await anyio.sleep(0.01)
            for session in sessions:
                await session.checkpoint()
                await life.store.fork(session.id, into=session.id.replace("s", "f"))
            os.kill(os.getpid(), SIGKILL)

    open_life(folder, scheme, act)


def race_to_settle(line: Line, folder: str, scheme: str, name: str) -> None:
    """Again and again: open one of two sessions that share a payment, and go on with it when told to."""

    async def act(life: Life) -> None:
        while (what := await anyio.to_thread.run_sync(line.hear)) is not None:
            async with life.store.session(f"{name}-{what}") as session:
                line.say("ready")
                await anyio.to_thread.run_sync(line.hear)
                line.say(await _go_on(life, session, what))

    open_life(folder, scheme, act)


def settle_and_die(
    line: Line, folder: str, scheme: str, session: str, target: Sequence[Any] | None
) -> list[Point]:
    """Go on with the shared payment in this session, and die at the target; the boundaries, if not."""
    boundaries.path.arm(Point(*target) if target else None)

    async def act(life: Life) -> list[Point]:
        async with life.store.session(session, wait_s=5) as opened:
            await _go_on(life, opened, "0")
        return boundaries.path.passed

    return open_life(folder, scheme, act)


def settle(line: Line, folder: str, scheme: str, session: str) -> Report:
    """Go on with the shared payment in this session."""

    async def act(life: Life) -> Report:
        async with life.store.session(session, wait_s=5) as opened:
            return await _go_on(life, opened, "0")

    return open_life(folder, scheme, act)


async def _go_on(life: Life, session: Session, what: str) -> Report:
    await session.settle(life.registry)
    result = await life.registry.dispatch("pay", {"what": what}, call_id="c", session=session)
    await session.flush()
    return _shown(result)


def want(line: Line, folder: str, scheme: str, tool: str, session: str, *, watch: bool = False) -> Report:
    """Want it done in this session. With `watch`, says when somebody else is found at it, or it is done."""
    say = _say_once(line) if watch else lambda what: None

    async def act(life: Life) -> Report:
        async with life.store.session(session, wait_s=60) as opened:
            await opened.settle(life.registry)
            args = {"what": "1"}
            result = await life.registry.dispatch(tool, args, call_id="c", session=opened)
            say("done")
            await opened.flush()
            return _shown(result)

    return open_life(folder, scheme, act)


def want_and_stop(
    line: Line, folder: str, scheme: str, tool: str, target: Sequence[Any] | None, signal_: int
) -> list[Point]:
    """Want it done in the session `s`, and get a signal on the way; the boundaries, if not."""
    boundaries.path.arm(Point(*target) if target else None, Signals(signal_))
    want(line, folder, scheme, tool, "s")
    return boundaries.path.passed


def delete(line: Line, folder: str, scheme: str, session: str, target: Sequence[Any] | None = None) -> None:
    """Delete a session, if it is there; die at the target on the way."""
    boundaries.path.arm(Point(*target) if target else None)

    async def act(life: Life) -> None:
        with suppress(NotFound):
            await life.store.delete(session, wait_s=60)

    open_life(folder, scheme, act)


def count_intents(line: Line, folder: str, scheme: str, session: str) -> int:
    """How many intents the journal of a session has."""

    async def act(life: Life) -> int:
        try:
            return len((await life.store.load(session)).facts.effects.rows)
        except NotFound:
            return 0

    return open_life(folder, scheme, act)


def tell(line: Line, folder: str, scheme: str, operation: str, result: str | None) -> str:
    """Say what became of an operation whose session is gone."""

    async def act(life: Life) -> str:
        verdict: OperationVerdict = "not_landed" if result is None else "landed"
        return await life.store.resolve_operation(operation, verdict, by="ann", result=result)

    return open_life(folder, scheme, act)


def _shown(result: Result) -> Report:
    return {
        "status": result.status,
        "content": result.content,
        "value": result.value,
        "replay_of": result.replay_of,
    }


def _say_once(line: Line) -> Callable[[str], None]:
    """Say the first thing only; that is what is busy, if anything is."""
    here: Any = OperationClaims
    real = here._try  # Watched: a call that waits for another one says nothing until it has its result.
    said = False

    def say(what: str) -> None:
        nonlocal said
        if not said:
            line.say(what)
        said = True

    async def try_(self: OperationClaims, operation: str, call: str) -> Any:
        found = await real(self, operation, call)
        if isinstance(found, Busy):
            say("busy")
        return found

    here._try = try_
    return say
