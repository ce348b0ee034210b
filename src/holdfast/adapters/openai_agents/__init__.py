"""The OpenAI Agents SDK: its sessions in a holdfast store, and runs that go on after a crash (extra
`openai-agents`).

`HoldfastSession(session_id, store)` is used wherever a `SQLiteSession` is. `DurableRunner` has the methods of
`Runner`: an import is the whole difference.
"""

from ..compat import check_versions, explain_moved

_ADAPTER = "holdfast.adapters.openai_agents"
check_versions(_ADAPTER, "openai-agents", {"openai-agents": ((0, 24), 1)})

# Some of what it needs is private to the SDK, and may be elsewhere in a later version.
with explain_moved(_ADAPTER, "openai-agents", "openai-agents", "agents"):
    from ..run_errors import RunWaits
    from .context import annotate, current_effect
    from .declarations import as_tools, effects
    from .replayed import in_replay
    from .runner import DurableRunner
    from .session import HoldfastSession

__all__ = [
    "DurableRunner",
    "HoldfastSession",
    "RunWaits",
    "annotate",
    "as_tools",
    "current_effect",
    "effects",
    "in_replay",
]
