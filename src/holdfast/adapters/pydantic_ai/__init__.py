"""Durable agents of pydantic-ai (extra `pydantic-ai`).

`Durable(store, session=…)` is a capability: what the agent is told and does goes into the session's journal,
and after a crash the same `agent.run(…)` goes on where it was. `steps` and `media` have stores for
pydantic-ai-harness (extra `pydantic-ai-harness`).
"""

from ...tools.effects_by_name import mutate, pure, read, write
from ..compat import check_versions

check_versions("holdfast.adapters.pydantic_ai", "pydantic-ai", {"pydantic-ai-slim": ((2, 62), 3)})

from ..run_errors import RunWaits  # noqa: E402
from .context import annotate, current_effect  # noqa: E402
from .declarations import as_tools, effects  # noqa: E402
from .durable import Durable  # noqa: E402
from .replayed import in_replay  # noqa: E402
from .resume import Continuation, continue_run, fork_run  # noqa: E402

__all__ = [
    "Continuation",
    "Durable",
    "RunWaits",
    "annotate",
    "as_tools",
    "continue_run",
    "current_effect",
    "effects",
    "fork_run",
    "in_replay",
    "mutate",
    "pure",
    "read",
    "write",
]
