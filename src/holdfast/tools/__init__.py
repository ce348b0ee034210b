"""Tools: declared, checked by four gates, and run through the effect ledger."""

from .context import ToolContext
from .declaration import Tool, tool
from .outcome import Landed, NotDone, NotLanded, Result, Unsure
from .policy import Policy, Rule, allow, ask, deny, paths_inside
from .registry import Registry
from .retry import Retry

__all__ = [
    "Landed",
    "NotDone",
    "NotLanded",
    "Policy",
    "Registry",
    "Result",
    "Retry",
    "Rule",
    "Tool",
    "ToolContext",
    "Unsure",
    "allow",
    "ask",
    "deny",
    "paths_inside",
    "tool",
]
