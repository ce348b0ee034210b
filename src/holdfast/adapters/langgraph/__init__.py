"""LangGraph: checkpoints in a holdfast store, and tools behind its gates and its ledger."""

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

__all__ = [
    "CheckedSerializer",
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
