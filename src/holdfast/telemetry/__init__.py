"""OpenTelemetry is told of runs, steps, requests to models and dispatches, if somebody listens.

Without a provider there is nothing but the question whether there is one, which is asked on every dispatch
and must cost next to nothing. Who configures a provider has imported OpenTelemetry; so this never does it
first.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from ..limits import TELEMETRY_LOOK_S
from ..system.clock import boot_s

if TYPE_CHECKING:
    from .spans import Telemetry

_found: Telemetry | None = None
_look_again_s = 0.0


def active() -> Telemetry | None:
    """Where to report to, if somebody listens. One who began a moment ago may be missed."""
    if _found is not None:
        return _found
    if "opentelemetry" not in sys.modules or boot_s() < _look_again_s:
        return None
    return look()


def look() -> Telemetry | None:
    """The same, and nobody is missed. A provider is configured once and for good: whoever is found stays."""
    global _found, _look_again_s
    if _found is None and "opentelemetry" in sys.modules:
        _look_again_s = boot_s() + TELEMETRY_LOOK_S
        try:
            from .spans import Telemetry, is_configured
        except ImportError:  # Something else by that name, or a part of it alone.
            return None
        if is_configured():
            _found = Telemetry()
    return _found


def end_step(session: str, version: int) -> None:
    """The step under way in a session has ended with this version."""
    telemetry = active()
    if telemetry is not None:
        telemetry.end_step(session, version)


def note_refusal(gate: str) -> None:
    """The call that is being dispatched was refused by a gate."""
    telemetry = active()
    if telemetry is not None:
        telemetry.note_refusal(gate)


def note_failure(error: BaseException | None, stopped: str) -> None:
    """The body of the call that is being dispatched gave no value: it raised, or was stopped."""
    telemetry = active()
    if telemetry is not None:
        telemetry.note_failure(error, stopped)
