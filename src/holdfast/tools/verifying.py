"""Asking a tool's verify hook, and believing it only when it can be believed."""

from __future__ import annotations

import logging
import math
from typing import Any

import anyio

from ..core.effects import Effect
from ..errors import HoldfastError
from ..limits import VERIFY_S
from ..reprs import describe_error, name_of
from .claims import Held
from .declaration import AnyTool, Hook
from .executor import call
from .ledger import Ledger
from .outcome import Landed, NotLanded, Unsure, Verification
from .reentry import working

log = logging.getLogger("holdfast")


async def ask_verify(
    ledger: Ledger, tool: AnyTool, row: Effect, values: dict[str, Any], deps: Any, held: Held
) -> Verification:
    """What the tool's verify hook says. One that raises or hangs is unsure, never "not landed".

    `Landed` is believed at once. `NotLanded` is believed once the old body can no longer be running, so this
    may wait that long and ask again; `NotLanded(final=True)` says that the key was made void: no wait.
    """
    if tool.verify is None:
        return Unsure(f"{tool.name} has no verify hook")
    await anyio.sleep(max(0.0, tool.verify_after_s - ledger.find_age_s(row)))
    while True:
        # Taken before asking: what holds now still holds for the answer.
        over_in_s = await ledger.body_is_over(row, held)
        answer = await _ask(tool.verify, ledger, tool, row, values, deps)
        if not isinstance(answer, NotLanded) or answer.final or over_in_s <= 0:
            return answer
        if math.isinf(over_in_s):
            return Unsure("its body may still run: its process has not ended")
        await anyio.sleep(over_in_s)


async def _ask(
    hook: Hook, ledger: Ledger, tool: AnyTool, row: Effect, values: dict[str, Any], deps: Any
) -> Verification:
    ctx = ledger.context(row, deps, running=False)
    try:
        with anyio.fail_after(VERIFY_S), working(ctx.session, f"the verify hook of {tool.name}", key=row.key):
            answer = await call(hook, ctx, values)
    except TimeoutError:
        return Unsure(f"verify did not answer within {VERIFY_S:.0f} s")
    except Exception as error:
        why = str(error) if isinstance(error, HoldfastError) else name_of(type(error))
        log.warning("verify of %s raised %s: taken as unsure", tool.name, why)
        return Unsure(f"verify raised {describe_error(error)}")
    if not issubclass(type(answer), Landed | NotLanded | Unsure):
        return Unsure(f"verify returned {name_of(type(answer))}, not Landed, NotLanded or Unsure")
    found: Verification = answer
    return found
