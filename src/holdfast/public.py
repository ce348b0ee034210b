"""Every name that `holdfast` offers, from wherever it lives."""

from .agents.agent import Agent
from .agents.experiment_log import experiment_log
from .agents.loop import Compaction
from .agents.model import Model, Prompt, Reply, TextDelta, ToolSpec
from .agents.outcome import Event, Outcome, Retrying, Waiting
from .agents.plan_tools import plan_tools
from .agents.prices import Price
from .agents.providers import open_model
from .agents.result_tools import result_tools
from .agents.scratchpad_tools import scratchpad_tools
from .agents.scripted_model import ScriptedModel
from .agents.thread import Decision, Thread
from .blobs.blob import Blob, OpenBlob
from .blobs.home import BlobContext, BlobHome, ListedBlob, StoredBlob
from .blobs.home_url import open_home
from .blobs.public_urls import PresignedUrls
from .core.budget import Budget, BudgetState, Reservation, Usage
from .core.call_pairing import Problem, find_problems
from .core.diff import ABSENT, Change, Diff, Spending
from .core.effects import Effect, Question, Undone
from .core.entries import Entry, LeftBehind, Parent
from .core.fold import Checkpoint, RunInfo, ToolCounters
from .core.head import Head, Lease
from .core.plan import Plan, PlanStep
from .core.session_state import Overview, SessionState
from .core.transcript_items import Messages
from .core.values import Codec, Opaque
from .drivers.contract import Driver
from .engine.heartbeat import Duty
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
from .ids import SessionId, fit_session_id, unfit_session_id
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
from .session.cadence import Every
from .session.resource_lease import Hold
from .session.rewind import Rewound
from .session.run import Request, Run
from .session.session import Session
from .store.approvals import Doubt
from .store.blob_gc import Collected
from .store.store import Store, open_store
from .store.work_queue import WorkerInfo
from .tools.context import ToolContext
from .tools.outcome import Landed, NotDone, NotLanded, Result, Unsure
from .tools.policy import Policy, Rule, allow, ask, deny, paths_inside
from .tools.registry import Registry
from .tools.tool import Retry, Tool, tool
from .workers.job import WorkEvent
from .workers.worker import Worker

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
