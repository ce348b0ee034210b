"""Agents: a small loop over a session, the models that it asks, and the tools that it offers to them."""

from ..store.approvals import Waiting
from .agent import Agent
from .builtin_tools.plan import plan_tools
from .builtin_tools.results import result_tools
from .builtin_tools.scratchpad import scratchpad_tools
from .experiment import experiment_log
from .loop import Compaction
from .model import Model, Prompt, Reply, TextDelta, ToolSpec
from .outcome import Event, Outcome, Retrying
from .prices import Price
from .providers import open_model
from .scripted_model import ScriptedModel
from .thread import Decision, Thread

__all__ = [
    "Agent",
    "Compaction",
    "Decision",
    "Event",
    "Model",
    "Outcome",
    "Price",
    "Prompt",
    "Reply",
    "Retrying",
    "ScriptedModel",
    "TextDelta",
    "Thread",
    "ToolSpec",
    "Waiting",
    "experiment_log",
    "open_model",
    "plan_tools",
    "result_tools",
    "scratchpad_tools",
]
