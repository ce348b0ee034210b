"""Every name that `holdfast` offers, from wherever it lives."""

from .agent.agent import Agent
from .agent.experiment import experiment_log
from .agent.loop import Compaction
from .agent.model import Model, Prompt, Reply, TextDelta, ToolSpec
from .agent.outcome import Event, Outcome, Retrying, Waiting
from .agent.planning import plan_tools
from .agent.prices import Price
from .agent.providers import open_model
from .agent.results import result_tools
from .agent.scratchpad import scratchpad_tools
from .agent.scripted import ScriptedModel
from .agent.thread import Decision, Thread
from .budget import Budget, BudgetState, Reservation, Usage
from .diff import ABSENT, Change, Diff, Spending
from .effects import Effect, Question, Undone
from .entries import Entry, LeftBehind, Parent
from .errors import (
    BadId,
    BadInput,
    BadMessage,
    BadUrl,
    BudgetSpent,
    Closed,
    Corrupt,
    Fenced,
    HoldfastError,
    LeaseHeld,
    LostBlob,
    MissingExtra,
    ModelError,
    NewerFormat,
    NotAList,
    NotFound,
    Overtaken,
    ReadOnly,
    RunExists,
    StoreBusy,
    StoreFailed,
    StoreUnreachable,
)
from .facts import Checkpoint, RunInfo, ToolCounters
from .fold import Overview, SessionState
from .head import Head, Lease
from .ids import SessionId, fit_session_id, unfit_session_id
from .items import Messages
from .messages import (
    Block,
    CallPart,
    ForeignMessage,
    Json,
    Media,
    Message,
    Reasoning,
    ResultPart,
    Role,
    Shape,
    Text,
    ToolCall,
    ToolResult,
    UnknownBlock,
    register_format,
)
from .plan import Plan, PlanStep
from .session.answers import Doubt
from .session.blobs import Blob, OpenBlob
from .session.cadence import Every
from .session.collect import Collected
from .session.fleet import WorkerInfo
from .session.hold import Hold
from .session.rewind import Rewound
from .session.run import Request, Run
from .session.session import Session
from .session.store import Store, open_store
from .store.blobs.home import BlobContext, BlobHome, ListedBlob, StoredBlob
from .store.blobs.url import open_home
from .store.blobs.urls import PresignedUrls
from .store.driver import Driver
from .store.presence import Duty
from .tools.context import ToolContext
from .tools.outcome import Landed, NotDone, NotLanded, Result, Unsure
from .tools.policy import Policy, Rule, allow, ask, deny, paths_inside
from .tools.registry import Registry
from .tools.tool import Retry, Tool, tool
from .validity import Problem, find_problems
from .values import Codec, Opaque
from .worker.job import WorkEvent
from .worker.worker import Worker

__all__ = [
    "ABSENT",
    "Agent",
    "BadId",
    "BadInput",
    "BadMessage",
    "BadUrl",
    "Blob",
    "BlobContext",
    "BlobHome",
    "Block",
    "Budget",
    "BudgetSpent",
    "BudgetState",
    "CallPart",
    "Change",
    "Checkpoint",
    "Closed",
    "Codec",
    "Collected",
    "Compaction",
    "Corrupt",
    "Decision",
    "Diff",
    "Doubt",
    "Driver",
    "Duty",
    "Effect",
    "Entry",
    "Event",
    "Every",
    "Fenced",
    "ForeignMessage",
    "Head",
    "Hold",
    "HoldfastError",
    "Json",
    "Landed",
    "Lease",
    "LeaseHeld",
    "LeftBehind",
    "ListedBlob",
    "LostBlob",
    "Media",
    "Message",
    "Messages",
    "MissingExtra",
    "Model",
    "ModelError",
    "NewerFormat",
    "NotAList",
    "NotDone",
    "NotFound",
    "NotLanded",
    "Opaque",
    "OpenBlob",
    "Outcome",
    "Overtaken",
    "Overview",
    "Parent",
    "Plan",
    "PlanStep",
    "Policy",
    "PresignedUrls",
    "Price",
    "Problem",
    "Prompt",
    "Question",
    "ReadOnly",
    "Reasoning",
    "Registry",
    "Reply",
    "Request",
    "Reservation",
    "Result",
    "ResultPart",
    "Retry",
    "Retrying",
    "Rewound",
    "Role",
    "Rule",
    "Run",
    "RunExists",
    "RunInfo",
    "ScriptedModel",
    "Session",
    "SessionId",
    "SessionState",
    "Shape",
    "Spending",
    "Store",
    "StoreBusy",
    "StoreFailed",
    "StoreUnreachable",
    "StoredBlob",
    "Text",
    "TextDelta",
    "Thread",
    "Tool",
    "ToolCall",
    "ToolContext",
    "ToolCounters",
    "ToolResult",
    "ToolSpec",
    "Undone",
    "UnknownBlock",
    "Unsure",
    "Usage",
    "Waiting",
    "WorkEvent",
    "Worker",
    "WorkerInfo",
    "allow",
    "ask",
    "deny",
    "experiment_log",
    "find_problems",
    "fit_session_id",
    "open_home",
    "open_model",
    "open_store",
    "paths_inside",
    "plan_tools",
    "register_format",
    "result_tools",
    "scratchpad_tools",
    "tool",
    "unfit_session_id",
]
