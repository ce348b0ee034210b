"""LangGraph: checkpoints in a holdfast store, and tools behind its gates and its ledger."""

from .compat import require

require()

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
]
