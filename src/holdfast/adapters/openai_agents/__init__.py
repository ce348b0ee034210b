"""The OpenAI Agents SDK: its sessions in a holdfast store, and runs that go on after a crash (extra
`openai-agents`).

`HoldfastSession(session_id, store)` is used wherever a `SQLiteSession` is. `DurableRunner` has the methods of
`Runner`: an import is the whole difference.
"""

from ..compat import check_versions

check_versions("holdfast.adapters.openai_agents", "openai-agents", {"openai-agents": ((0, 24), 1)})

from ..run_errors import RunWaits  # noqa: E402
from .context import annotate, current_effect  # noqa: E402
from .declarations import as_tools, effects  # noqa: E402
from .runner import DurableRunner  # noqa: E402
from .session import HoldfastSession  # noqa: E402

__all__ = [
    "DurableRunner",
    "HoldfastSession",
    "RunWaits",
    "annotate",
    "as_tools",
    "current_effect",
    "effects",
]
