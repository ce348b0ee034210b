"""Durable agents of pydantic-ai (extra `pydantic-ai`).

`Durable(store, session=…)` is a capability: what the agent is told and does goes into the session's journal,
and after a crash the same `agent.run(…)` goes on where it was. `steps` and `media` have stores for
pydantic-ai-harness (extra `pydantic-ai-harness`).
"""

from .version import check_version

check_version()

from .context import annotate, current_effect  # noqa: E402
from .continuing import Continuation, continue_run, fork_run  # noqa: E402
from .declaring import as_tools, effects  # noqa: E402
from .durable import Durable  # noqa: E402
from .waiting import RunWaits  # noqa: E402

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
]
