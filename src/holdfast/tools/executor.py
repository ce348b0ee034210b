"""The executor: check the lease, and run the body of a tool, in the event loop or in a thread.

A body has a timeout, and a grace when its caller is cancelled. The executor knows which bodies run in this
process, and which of them are around the caller: a body or hook may call other tools of its session, and
drive other sessions, but not ask for itself. That is kept in the caller's context, so tasks and threads that
it starts are inside, too, until it has ended.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from types import CoroutineType, coroutine
from typing import Any

import anyio
from anyio.lowlevel import RunVar
from msgspec import Struct
from msgspec.structs import replace

from ..core.effects import Effect
from ..core.entries import LeaseRenewed
from ..engine.engine import Engine
from ..errors import BadInput
from ..limits import TOOL_THREADS
from ..reprs import attempt, describe_error, presentable
from ..session.session import Session
from ..system import aio, threads
from ..system.clock import boot_s
from .context import AnyContext
from .declaration import AnyTool, Hook
from .gates import Ready
from .http_requests import RequestLog
from .outcome import NotDone, Ran

_running: dict[str, Engine] = {}
"""Keys of the effects whose bodies run in this process, also those whose caller has gone."""
_threads: RunVar[anyio.CapacityLimiter] = RunVar("holdfast_tool_threads")


def is_running(row: Effect) -> bool:
    """Whether the body of this effect runs in this process, also if its caller has gone."""
    return row.key in _running


def has_bodies(engine: Engine) -> bool:
    """Whether a body of one of the engine's sessions runs."""
    return any(one is engine for one in list(_running.values()))


# -- one body ---------------------------------------------------------------------------------------------


async def execute(
    session: Session,
    ready: Ready,
    row: Effect,
    hook: Hook,
    ctx: AnyContext | None,
    *,
    lease_sure_s: Callable[[Effect], float],
    grace_s: float,
    on_not_entered: Callable[[Effect], None],
    on_late: Callable[[AnyTool, Effect, Ran], None],
) -> Ran:
    """Run the body, or a hook, of a row whose intent is durable (if it changes the world).

    `lease_sure_s` says until when the lease needs no check. `on_not_entered` is called if the lease is lost,
    `on_late` when a body that was left behind ends; see `run_guarded`.
    """
    tool, values = ready.tool, ready.values
    what = f"the undo hook of {tool.name}" if hook is tool.undo else f"tool {tool.name}"
    if not row.changes_the_world:
        with working(session, what, key=row.key, fingerprint=row.fingerprint):
            return await run_plain(hook, ctx, values, row.timeout_s)
    engine = session._writer.engine
    try:
        await _check_lease(session, engine, lease_sure_s(row))
    except BaseException:
        on_not_entered(row)
        raise
    _running[row.key] = engine
    requests = RequestLog(session, row)

    def end() -> None:
        requests.has_ended = True
        _running.pop(row.key, None)

    with working(session, what, key=row.key, fingerprint=row.fingerprint, requests=requests):
        ran = await run_guarded(
            hook,
            ctx,
            values,
            timeout_s=row.timeout_s,
            grace_s=grace_s,
            on_late=lambda ran: on_late(tool, row, _judge(ran, requests)),
            on_end=end,
        )
    return _judge(ran, requests)


def _judge(ran: Ran, requests: RequestLog) -> Ran:
    """How the body ended, by what it has sent, too."""
    return replace(ran, unsent=True) if ran.error is not None and requests.explains(ran.error) else ran


async def _check_lease(session: Session, engine: Engine, sure_s: float) -> None:
    """Just before a body: if this process may have been silent for a whole term, make sure that it still has
    the lease.

    A process that wakes up after a long sleep may send a heartbeat before it comes here, so the last
    heartbeat says nothing.
    """
    heartbeat = engine.heartbeat
    if boot_s() < sure_s and heartbeat.left_s > 0 and not session.is_lost:
        return
    if heartbeat.left_s <= 0:
        await engine.call(heartbeat.renew)
    session._writer.record(LeaseRenewed())
    await session.flush()


def tool_threads() -> anyio.CapacityLimiter:
    """The limit on sync bodies, one an event loop."""
    try:
        return _threads.get()
    except LookupError:
        limiter = anyio.CapacityLimiter(TOOL_THREADS)
        _threads.set(limiter)
        return limiter


async def call(hook: Hook, ctx: AnyContext | None, values: dict[str, Any]) -> Any:
    """Call a tool's function or hook; a sync one in a thread, which runs on if the caller is cancelled."""
    first = (ctx,) if hook.takes_context else ()
    if hook.is_async:
        try:
            given = hook.function(*first, **values)
            return await given if _is_awaitable(given) else given
        except Exception as error:
            if presentable(error) is error:
                raise
            raise presentable(error) from None
    if ctx is not None:
        ctx._in_thread = True
    boxed = await aio.run_in_daemon_thread(partial(_call_sync, hook.function, first, values), tool_threads())
    return boxed[0]


def _call_sync(function: Callable[..., Any], first: tuple[Any, ...], values: dict[str, Any]) -> tuple[Any]:
    """The result in a tuple: an event loop looks at what a thread gives back."""
    try:
        return (function(*first, **values),)
    except Exception as error:
        if presentable(error) is error:
            raise
        raise presentable(error) from None


def begin(session: Session, ready: Ready) -> Ran | Hook:
    """Make the first step of an async body that changes nothing. Either it has ended by then, or the hook
    goes on with it."""
    with working(session, f"tool {ready.tool.name}", fingerprint=ready.fingerprint):
        return _begin(ready.tool.body, ready.values)


def _begin(hook: Hook, values: dict[str, Any]) -> Ran | Hook:
    began_s = boot_s()
    try:
        body = hook.function(**values)
        if not _is_coroutine(body):
            return Hook(lambda **_: body, True, False)
        first = body.send(None)
    except StopIteration as end:
        return Ran(value=end.value, latency_ms=_since(began_s))
    except Exception as error:
        return Ran(error=presentable(error), latency_ms=_since(began_s))
    except aio.AsyncioCancelled as error:
        return Ran(error=_as_error(error), latency_ms=_since(began_s))
    except BaseException as error:
        return Ran(exit=error, latency_ms=_since(began_s))
    return Hook(lambda **_: _go_on(body, first), True, False)


@coroutine
def _go_on(body: Coroutine[Any, Any, Any], wanted: object) -> Generator[Any, Any, Any]:
    """Wait for the object that the body awaits, and go on with the body, as `await` does."""
    while True:
        try:
            given = yield wanted
        except GeneratorExit:
            body.close()
            raise
        except BaseException as error:
            step = partial(body.throw, error)
        else:
            step = partial(body.send, given)
        try:
            wanted = step()
        except StopIteration as end:
            return end.value


async def run_plain(
    hook: Hook, ctx: AnyContext | None, values: dict[str, Any], timeout_s: float | None
) -> Ran:
    """Run a body that changes nothing: cancelling it is harmless."""
    began_s = boot_s()
    try:
        if timeout_s is None:
            return Ran(value=await call(hook, ctx, values), latency_ms=_since(began_s))
        with anyio.move_on_after(timeout_s) as scope:
            value = await call(hook, ctx, values)
        if scope.cancelled_caught:
            return Ran(stopped="timed out", latency_ms=_since(began_s))
        return Ran(value=value, latency_ms=_since(began_s))
    except Exception as error:
        return Ran(error=error, latency_ms=_since(began_s))
    except aio.AsyncioCancelled as error:
        if aio.is_cancelled():
            raise
        return Ran(error=_as_error(error), latency_ms=_since(began_s))
    except BaseException as error:
        if not asks_to_exit(error):
            raise
        return Ran(exit=error, latency_ms=_since(began_s))


def asks_to_exit(error: BaseException) -> bool:
    """Whether it asks the process to end (`SystemExit`, `KeyboardInterrupt`). Neither an error nor what
    cancels a task does."""
    passing = (Exception, anyio.get_cancelled_exc_class(), GeneratorExit)
    if isinstance(error, BaseExceptionGroup):
        return error.subgroup(passing[1:]) is None and not isinstance(error, Exception)
    return not isinstance(error, passing)


async def run_guarded(
    hook: Hook,
    ctx: AnyContext | None,
    values: dict[str, Any],
    *,
    timeout_s: float | None,
    grace_s: float,
    on_late: Callable[[Ran], None],
    on_end: Callable[[], object],
) -> Ran:
    """Run a body with side effects: it gets its time, and a grace when the caller is cancelled.

    An async body that outlives both is cancelled, and its `finally` blocks get the same grace again. A sync
    body is left behind; `on_late` is called in the body's thread with how it ended.
    `on_end` is called when the body has really ended, before its caller learns how.
    """
    began_s = boot_s()
    ended = aio.Signal()
    found: list[Ran] = []
    scope = anyio.CancelScope(shield=True)
    sync = not hook.is_async
    cancelled = anyio.get_cancelled_exc_class()
    given_up = False
    begun = not sync
    gate = threads.Lock()
    """Either the thread begins, or it is given up first."""
    interrupt: BaseException | None = None
    # Trio raises Ctrl-C in whatever its main task waits for.
    interrupts = cancelled, KeyboardInterrupt

    def is_given_up() -> bool:
        return given_up

    def note(ran: Ran) -> None:
        on_end()
        found.append(ran)

    def in_thread(*args: Any, **kwargs: Any) -> None:
        nonlocal begun
        with gate:
            if is_given_up():
                return
            begun = True
        try:
            value = hook.function(*args, **kwargs)
            if _is_coroutine(value):
                value.close()
                raise NotDone("it is an async function in disguise, and was not run: declare it async")
            ran = Ran(value=value, latency_ms=_since(began_s))
        except Exception as error:
            ran = Ran(error=presentable(error), latency_ms=_since(began_s))
        except cancelled as error:
            ran = Ran(error=_as_error(error), latency_ms=_since(began_s))
        except BaseException as error:
            ran = Ran(exit=error, latency_ms=_since(began_s))
        note(ran)
        if is_given_up():
            on_late(ran)

    async def drive() -> None:
        try:
            with scope:
                if sync:
                    await call(Hook(in_thread, False, hook.takes_context), ctx, values)
                else:
                    note(Ran(value=await call(hook, ctx, values), latency_ms=_since(began_s)))
        except Exception as error:
            note(Ran(error=error, latency_ms=_since(began_s)))
        except BaseException as error:
            if not asks_to_exit(error):
                raise
            # Not out of this task: asyncio would stop its loop at once, with nothing on record.
            note(Ran(exit=error, latency_ms=_since(began_s)))
        finally:
            ended.set()

    async def give_grace() -> None:
        """Wait for the body. Cancelled once more meanwhile, it gets no further grace."""
        nonlocal interrupt
        try:
            with anyio.CancelScope(shield=True):
                await ended.wait(grace_s)
        except interrupts as error:
            interrupt = error

    async def attend(cancel_once: Callable[[], object]) -> None:
        nonlocal given_up, interrupt
        try:
            await ended.wait(timeout_s)
        except interrupts as error:
            interrupt = error
            await give_grace()
        if ended.is_set:
            return
        with gate:
            given_up = True
        if ctx is not None:
            ctx.cancelled = True
        if not sync:
            # Once, as asyncio does it: a scope would cut off every `await` of the body's own `finally`.
            cancel_once()
            await give_grace()
        scope.cancel()
        with anyio.CancelScope(shield=True):
            await ended.wait(None)

    try:
        await aio.run_attended(drive, attend, scope.cancel)
    except cancelled as error:
        interrupt = error
    finally:
        if not (sync and begun):
            on_end()
    if found:
        return found[0] if interrupt is None else replace(found[0], interrupt=interrupt)
    return Ran(
        stopped="timed out" if given_up and interrupt is None else "was cancelled",
        begun=begun,
        left_behind=sync and begun,
        interrupt=interrupt,
        latency_ms=_since(began_s),
    )


def _is_coroutine(value: object) -> bool:
    # By its type alone: asking a foreign object for its class may raise.
    return issubclass(type(value), CoroutineType)


def _is_awaitable(value: object) -> bool:
    return _is_coroutine(value) or attempt(lambda: inspect.isawaitable(value), lambda: False)


def _as_error(error: BaseException) -> Exception:
    return RuntimeError(describe_error(error))


def _since(began_s: float) -> float:
    return round((boot_s() - began_s) * 1000, 3)


# -- the bodies around the caller -------------------------------------------------------------------------


class _Work(Struct):
    uid: str
    what: str
    key: str
    fingerprint: str
    requests: RequestLog | None
    over: bool = False


_around: ContextVar[tuple[_Work, ...]] = ContextVar("holdfast_work", default=())


@contextmanager
def working(
    session: Session,
    what: str,
    *,
    key: str = "",
    fingerprint: str = "",
    requests: RequestLog | None = None,
) -> Iterator[None]:
    """Mark the block as one that calls a tool's function or hook (`what`) for the session. `requests` is for
    what has side effects."""
    work = _Work(session.state.facts.head.uid, what, key, fingerprint, requests)
    token = _around.set((*_around.get(), work))
    try:
        yield
    finally:
        work.over = True
        _around.reset(token)


def find_requests() -> RequestLog | None:
    """The HTTP requests of the body around the caller; None outside of one, and in one without side effects.

    A body that its caller has left behind still counts; a task that has outlived the body does not.
    """
    around = _around.get()
    requests = around[-1].requests if around else None
    return None if requests is None or requests.has_ended else requests


def refuse_inside(session: Session, asked: str) -> None:
    """Refuse an operation that would call every tool of the session again, from inside of one of them."""
    for work in _list_around(session):
        raise BadInput(
            f"session {session.id!r}: {work.what} called {asked} on the session that it works for, which "
            "would call it again. Call it from outside of tools and hooks, or for another session"
        )


def refuse_itself(session: Session, tool: str, fingerprint: str) -> None:
    """Refuse a call that a tool makes of itself, with the same arguments."""
    for work in _list_around(session):
        if work.fingerprint == fingerprint:
            raise BadInput(
                f"session {session.id!r}: {work.what} called {tool} with the arguments that it was called "
                "with itself, and so would that call"
            )


def refuse_waiting(session: Session, key: str) -> None:
    """Refuse to wait for an effect that cannot end before the caller does."""
    for work in _list_around(session):
        if work.key == key:
            raise BadInput(
                f"session {session.id!r}: {work.what} asks for the very effect that it carries out, and "
                "would wait for itself for ever"
            )


def _list_around(session: Session) -> list[_Work]:
    around = _around.get()
    if not around:
        return []
    uid = session.state.facts.head.uid
    return [work for work in around if work.uid == uid and not work.over]
