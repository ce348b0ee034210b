"""What counts as the same operation: a tool's scope, applied to a call."""

from __future__ import annotations

from ..core.effects import call_name
from ..core.entries import CallRef
from ..errors import Corrupt
from ..ids import RunId
from ..session.run import current_run
from ..session.session import Session
from .canonical import digest
from .gates import Ready


def operation_of(session: Session, ready: Ready, call: CallRef) -> tuple[str, str]:
    """The operation that a call means, as (scope, digest)."""
    tool, scope = ready.tool, ready.tool.scope
    if callable(scope):
        return "custom", digest("custom", tool.name, str(scope(**ready.values)))
    parts = [scope, tool.name, ready.fingerprint]
    if scope == "run":
        parts.append(_find_drive(session))
    elif scope == "call":
        parts += (session.state.facts.head.uid, call_name(call))
    return scope, digest(*parts)


def _find_drive(session: Session) -> str:
    """The run around us. One that goes on where a crash ended another is the same drive of the loop."""
    runs, run = session.state.facts.runs, current_run(session.id) or ""
    seen = {run}
    while run in runs and (before := runs[run].continues) is not None:
        if before in seen:
            raise Corrupt(f"session {session.id!r}", f"run {run!r} continues one that continues it")
        seen.add(before)
        run = RunId(before)
    return run
