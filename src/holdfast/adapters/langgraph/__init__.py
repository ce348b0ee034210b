"""LangGraph: checkpoints in a holdfast store, and tools behind its gates and its ledger."""

from typing import TYPE_CHECKING, Any

from ...tools.effects_by_name import mutate, pure, read, write
from ..compat import check_versions

check_versions(
    "holdfast.adapters.langgraph",
    "langgraph",
    {"langgraph": ((1, 2), None), "langgraph-checkpoint": ((4, 3), None)},
)

from .checkpointer import HoldfastSaver  # noqa: E402
from .serde import CheckedSerializer, UnknownValue  # noqa: E402
from .tools import current_effect, durable_tools, effects  # noqa: E402

if TYPE_CHECKING:
    from .middleware import HoldfastMiddleware

__all__ = [
    "CheckedSerializer",
    "HoldfastMiddleware",
    "HoldfastSaver",
    "UnknownValue",
    "current_effect",
    "durable_tools",
    "effects",
    "mutate",
    "pure",
    "read",
    "write",
]


def __getattr__(name: str) -> Any:
    # Only the middleware needs LangChain's agents, which take as long to import as all the rest.
    if name == "HoldfastMiddleware":
        from .middleware import HoldfastMiddleware

        return HoldfastMiddleware
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
