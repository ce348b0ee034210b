"""The OpenAI Agents SDK: its sessions in a holdfast store (extra `openai-agents`).

`HoldfastSession(session_id, store)` is used wherever a `SQLiteSession` is.
"""

from ..compat import check_versions

check_versions("holdfast.adapters.openai_agents", "openai-agents", {"openai-agents": ((0, 24), 1)})

from .session import HoldfastSession  # noqa: E402

__all__ = ["HoldfastSession"]
