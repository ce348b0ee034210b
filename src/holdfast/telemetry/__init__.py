"""Report runs, steps, requests to models and dispatches to OpenTelemetry, if a provider is configured.

Without a provider, each dispatch only checks whether there is one, which must cost almost nothing. An
application that configures a provider has imported OpenTelemetry, so this package never imports it first.
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
    """The telemetry, if a provider is configured. One configured a moment ago may be missed."""
    if _found is not None:
        return _found
    if "opentelemetry" not in sys.modules or boot_s() < _look_again_s:
        return None
    return look()


def look() -> Telemetry | None:
    """The same, without a miss. A provider is configured once per process: a found one is kept."""
    global _found, _look_again_s
    if _found is None and "opentelemetry" in sys.modules:
        _look_again_s = boot_s() + TELEMETRY_LOOK_S
        try:
            from .spans import Telemetry, is_configured
        except ImportError:  # Another package of that name, or only a part of it.
            return None
        if is_configured():
            _found = Telemetry()
    return _found


def end_step(session: str, version: int) -> None:
    """End the current step of a session, with this version."""
    telemetry = active()
    if telemetry is not None:
        telemetry.end_step(session, version)


def note_refusal(gate: str) -> None:
    """Report that a gate refused the current call."""
    telemetry = active()
    if telemetry is not None:
        telemetry.note_refusal(gate)


def note_failure(error: BaseException | None, stopped: str) -> None:
    """Report that the body of the current call raised or was stopped."""
    telemetry = active()
    if telemetry is not None:
        telemetry.note_failure(error, stopped)
