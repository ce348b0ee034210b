"""The records of a session: entries, states, effects, runs, plans, budgets, and their ids."""

from .core.budget import BudgetState, Reservation, Usage
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
from .ids import SessionId, fit_session_id, unfit_session_id
from .session.cadence import Every
from .session.resource_lease import Hold
from .session.rewind import Rewound
from .session.run import Request, Run
from .store.approvals import Doubt

__all__ = [
    "ABSENT",
    "BudgetState",
    "Change",
    "Checkpoint",
    "Codec",
    "Diff",
    "Doubt",
    "Effect",
    "Entry",
    "Every",
    "Head",
    "Hold",
    "Lease",
    "LeftBehind",
    "Messages",
    "Opaque",
    "Overview",
    "Parent",
    "Plan",
    "PlanStep",
    "Problem",
    "Question",
    "Request",
    "Reservation",
    "Rewound",
    "Run",
    "RunInfo",
    "SessionId",
    "SessionState",
    "Spending",
    "ToolCounters",
    "Undone",
    "Usage",
    "find_problems",
    "fit_session_id",
    "unfit_session_id",
]
