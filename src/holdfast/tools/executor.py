"""Running the body of a tool: in the event loop or in a thread, with a limit, and a grace at the end."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Generator
from functools import partial
from types import CoroutineType, coroutine
from typing import Any

import anyio
from anyio.lowlevel import RunVar
from msgspec import Struct
from msgspec.structs import replace

from ..limits import TOOL_THREADS
from ..reprs import attempt, describe_error, presentable
from ..system import aio, threads
from ..system.clock import boot_s
from .context import AnyContext
from .declaration import Hook
from .outcome import NotDone

_threads: RunVar[anyio.CapacityLimiter] = RunVar("holdfast_tool_threads")


class Ran(Struct, frozen=True, kw_only=True):
    """How a body ended: with a value, with an error, or (`stopped`) not by itself."""

    value: Any = None
    error: Exception | None = None
    stopped: str = ""
    """Why nobody waits for it any more: `timed out` or `was cancelled`."""
    begun: bool = True
    """False if it was stopped while it still waited for a thread: surely nothing happened."""
    left_behind: bool = False
    """A sync body that cannot be stopped, and still runs."""
    interrupt: BaseException | None = None
    """The caller's own cancellation: raise it again once everything is recorded."""
    exit: BaseException | None = None
    """The body asked the process to end (`sys.exit()`, Ctrl-C): raise it again once that is recorded."""
    latency_ms: float = 0.0

    @property
    def done(self) -> bool:
        """Whether it ended with a value."""
        return self.error is None and not self.stopped and self.exit is None


def tool_threads() -> anyio.CapacityLimiter:
    """The limit on sync bodies, one an event loop."""
    try:
        return _threads.get()
    except LookupError:
        limiter = anyio.CapacityLimiter(TOOL_THREADS)
        _threads.set(limiter)
        return limiter


async def call(hook: Hook, ctx: AnyContext | None, values: dict[str, Any]) -> Any:
    """Call a tool's function or hook; a sync one in a thread, which is left behind if the caller goes."""
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
    """In a tuple: an event loop looks at what a thread gives back."""
    try:
        return (function(*first, **values),)
    except Exception as error:
        if presentable(error) is error:
            raise
        raise presentable(error) from None


def begin(hook: Hook, values: dict[str, Any]) -> Ran | Hook:
    """Make the first step of an async body that changes nothing. Either it has ended by then, or the hook
    goes on with it."""
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
    """Wait for what the body wanted, and go on with it, as `await` does."""
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
    on_end: Callable[[], None],
) -> Ran:
    """Run a body with side effects: it gets its time, and a grace when the caller is cancelled.

    An async body that outlives both is cancelled, and its `finally` blocks get the same grace again. A sync
    body is left behind; `on_late` is told, in the body's thread, how it ended.
    `on_end` is called when the body has really ended, before anybody is told how.
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
    """Either the thread begins, or we give it up first."""
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
        """Cancelled once more meanwhile, it gets no further grace."""
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
    # By its type alone: what a body gave may not like to be asked for its class.
    return issubclass(type(value), CoroutineType)


def _is_awaitable(value: object) -> bool:
    return _is_coroutine(value) or attempt(lambda: inspect.isawaitable(value), lambda: False)


def _as_error(error: BaseException) -> Exception:
    return RuntimeError(describe_error(error))


def _since(began_s: float) -> float:
    return round((boot_s() - began_s) * 1000, 3)
