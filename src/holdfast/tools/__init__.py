"""Tools: declared, checked by four gates, and run through the effect ledger."""

from .context import ToolContext
from .declaration import Tool, tool
from .effects_by_name import Declaration, ToolEffects, mutate, pure, read, write
from .outcome import Landed, NotDone, NotLanded, Result, Unsure
from .policy import Policy, Rule, allow, ask, deny, paths_inside
from .registry import Registry
from .retry import Retry
from .waiting import StepResults

__all__ = [
    "Declaration",
    "Landed",
    "NotDone",
    "NotLanded",
    "Policy",
    "Registry",
    "Result",
    "Retry",
    "Rule",
    "StepResults",
    "Tool",
    "ToolContext",
    "ToolEffects",
    "Unsure",
    "allow",
    "ask",
    "deny",
    "mutate",
    "paths_inside",
    "pure",
    "read",
    "tool",
    "write",
]
