"""From a question about an effect to a `verify` hook."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable
from inspect import Parameter, Signature
from typing import Any, TypeAlias

import anyio
from msgspec import Struct

from ..errors import BadInput
from ..limits import VERIFY_S
from ..system import aio
from ..tools.context import AnyContext
from ..tools.executor import tool_threads
from ..tools.outcome import Landed, NotLanded, Unsure, Verification
from .templates import CallNames, CannotTell, NotBegun, Template, Templates

VerifyHook: TypeAlias = Callable[..., Coroutine[Any, Any, Verification]]
ResultOf: TypeAlias = str | Callable[[Any], Any] | None
"""What the tool would have returned: a text with `{found[…]}`, or a function of what was found. By default,
what was found."""


class Trace(Struct, frozen=True):
    """What was found of the effect."""

    found: Any


Question: TypeAlias = Callable[[CallNames], Awaitable[Trace | None]]
"""Looks for the effect of a call: what it left in the world, or None."""


def make_hook(
    name: str,
    question: Question,
    uses: Iterable[Template | Templates],
    *,
    result: ResultOf,
    settled_after_s: float,
) -> VerifyHook:
    """A hook that asks the question.

    An effect that is not found may still be on its way: sent by the old process just before its end, and not
    yet done by the service, or not yet visible. So the question is asked again `settled_after_s` later. The
    registry has made sure that the body no longer runs, or asks the hook once more when it has.

    `uses` are the templates of the question. The hook has the arguments in them as its own, so that a tool
    that lacks one of them refuses it when it is declared.
    """
    longest_s = VERIFY_S / 2
    if not 0 <= settled_after_s <= longest_s:
        raise BadInput(
            f"{name}: settled_after_s={settled_after_s} must be between 0 and {longest_s:g}. "
            "For a longer time, declare the tool with verify_after_s=…"
        )
    shown = Template(result, "result") if isinstance(result, str) else None
    needed = frozenset(one for template in uses for one in template.names)
    if shown is not None:
        needed |= shown.names

    def present(trace: Trace, names: CallNames) -> Any:
        if shown is not None:
            return shown.fill(CallNames(names.ctx, names.args, found=trace.found))
        return result(trace.found) if callable(result) else trace.found

    async def verify(ctx: AnyContext, /, **args: Any) -> Verification:
        names = CallNames(ctx, args)
        try:
            trace = await question(names)
            if trace is None and settled_after_s:
                await anyio.sleep(settled_after_s)
                trace = await question(names)
            return NotLanded() if trace is None else Landed(present(trace, names))
        except NotBegun:
            return NotLanded()
        except CannotTell as why:
            return Unsure(f"{name}: {why}")

    hook: Any = verify
    hook.__name__ = hook.__qualname__ = name
    hook.__signature__ = Signature(
        [
            Parameter("ctx", Parameter.POSITIONAL_ONLY),
            *(Parameter(one, Parameter.KEYWORD_ONLY) for one in sorted(needed)),
            Parameter("others", Parameter.VAR_KEYWORD),
        ]
    )
    return verify


async def in_thread(work: Callable[[], Any]) -> Any:
    """The result of a function that blocks. It is left behind if the hook's time is over."""
    return (await aio.run_in_daemon_thread(lambda: (work(),), tool_threads()))[0]
