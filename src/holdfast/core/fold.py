"""The fold, message bodies aside: the state as one struct, and how each kind of entry changes it.

`HANDLERS` maps each kind to its function, called `_on_` and the name of the kind. `session_state` calls them;
the ledger has its own fold in `effects`, the messages in `transcript`.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final, Literal, TypeAlias

from msgspec import Raw, Struct, field
from msgspec.structs import replace

from ..ids import HolderId, SessionId
from ..messages import Json
from .budget import Budget, Reservation, Usage
from .effects import Effect, Effects
from .entries import (
    Body,
    BudgetChanged,
    CheckpointDropped,
    CheckpointTaken,
    DelegateEnded,
    DelegateStarted,
    Entry,
    InboxApproval,
    InboxCancel,
    InboxMessage,
    InboxTaken,
    InboxVerdict,
    LeaseReleased,
    LeaseRenewed,
    LeaseTaken,
    LeftBehind,
    MessageAdded,
    ModelFailed,
    ModelReplied,
    ModelRequested,
    Parent,
    PlanChanged,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunPaused,
    RunStarted,
    ScratchpadSet,
    SessionArrived,
    SessionClosed,
    SessionCopied,
    SessionErased,
    SessionForked,
    SessionLabelled,
    SessionMoving,
    SessionOpened,
    SessionPostponed,
    StateSet,
    StateUnset,
    SummaryChanged,
    ToolIssued,
    ToolRan,
)
from .head import Head, Lease
from .plan import Plan

ERROR: Final = "error"
"""The reason of a run that ended with an exception of the program."""
RunStatus: TypeAlias = Literal["running", "completed", "failed", "cancelled", "paused", "interrupted"]


class RunInfo(Struct, kw_only=True, omit_defaults=True):
    """One run. `interrupted`: it has no end, and another run started after it. `trace`: the W3C traceparent
    of its span, if there was one. `loop`: what drives it, `agent` or `thread`; None: other code does."""

    run: str
    session: SessionId
    started_at: datetime
    status: RunStatus = "running"
    agent: str | None = None
    model: str | None = None
    parent: Parent | None = None
    continues: str | None = None
    ended_at: datetime | None = None
    reason: str = ""
    config: Json = None
    trace: str | None = None
    loop: str | None = None


class Answer(Struct, frozen=True, array_like=True):
    """What became of a message with a key: the run that answered it, the entry that ended the run, the
    version it ended with, and what the session had spent by then."""

    run: str
    status: RunStatus
    end: int
    version: int
    usage: Usage
    usd: float


class KeyedMessage(Struct, array_like=True):
    """A message with a key, by the `seq` of its entry. `brought_by` is the run that added it; None if it came
    through the inbox. It has no `answer` while a run may still answer it."""

    seq: int
    brought_by: str | None = None
    answer: Answer | None = None


class Checkpoint(Struct, frozen=True, array_like=True, gc=False):
    """A position in the journal where the state is whole. `base` is the version that it was built on."""

    version: int
    seq: int
    at: datetime
    step: int
    run: str | None = None
    why: tuple[str, ...] = ()
    name: str | None = None
    base: int = 0

    @property
    def continuable(self) -> bool:
        """Whether a provider would accept the transcript of this version; `why` lists the problems."""
        return not self.why


class ToolCounters(Struct, kw_only=True):
    """How often tools were called."""

    per_tool: dict[str, int] = {}
    per_tool_in_step: dict[str, int] = {}

    @property
    def total(self) -> int:
        """All calls of the session."""
        return sum(self.per_tool.values())

    @property
    def in_step(self) -> int:
        """The calls of the step under way."""
        return sum(self.per_tool_in_step.values())


class Delegation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a delegate has spent up to its last end, and what is reserved for it while it works."""

    usage: Usage = Usage()
    usd: float = 0.0
    steps: int = 0
    held: Reservation | None = None
    held_steps: int = 0


THREAD: Final = "holdfast.thread"
"""The state key under which a thread of several agents keeps its position."""


class ThreadPlace(Struct, frozen=True, kw_only=True):
    """The position of a thread: the current iteration, the message that is its topic, the first iteration of
    that topic, and the turns that were taken before it."""

    iteration: int = 0
    first: int = 0
    turns_before: int = 0
    stopped: bool = False
    topic: str | None = None


def cast_of(config: Json) -> dict[str, str]:
    """The roles of a thread's agents by name, from the configuration of its run; empty if the run is not a
    thread's."""
    found = config.get("cast") if isinstance(config, dict) else None
    return found if isinstance(found, dict) else {}


class Facts(Struct, kw_only=True, omit_defaults=True):
    """The folded state of a session, message bodies aside. Plain data: a keyframe is this struct as JSON."""

    head: Head
    runs: dict[str, RunInfo] = {}
    replies: dict[str, int] = {}
    """The number of replies of each run."""
    requests: dict[int, Reservation] = {}
    """Requests without an outcome, by their `seq`."""
    delegates: dict[str, Delegation] = {}
    """By their session ids."""
    seconds: float = 0.0
    last_run: str | None = None
    counters: ToolCounters = field(default_factory=ToolCounters)
    values: dict[str, Raw] = {}
    plan: Plan | None = None
    summary: str = ""
    budget: Budget = Budget()
    scratchpad: str | None = None
    checkpoints: dict[int, Checkpoint] = {}
    dropped: set[int] = set()
    base: int = 0
    """The version that the current state was built on."""
    changed: bool = False
    """Whether the state has changed since that version."""
    keys: dict[str, KeyedMessage] = {}
    """The messages that were submitted, or given to a run, with a key."""
    unanswered: list[str] = []
    """Keys of those whose answer may still come, or change."""
    asked: int = 0
    """The `seq` of the last message that came through the inbox."""
    begun: int = 0
    requested: int = 0
    """The `seq` of the start of the last run, and of the last request to a model."""
    backed_off: int = 0
    """The number of failures in a row at the last postponement."""
    cancel: str | None = None
    late: set[int] = set()
    """Numbers of the inbox items that came too late."""
    left_behind: tuple[LeftBehind, ...] = ()
    """Of a fork: effects of its origin after the version that it began with."""
    forked_at: int = 0
    """Of a fork: the `seq` of its first entry. Entries before it are the origin's."""
    copied_at: int = 0
    """Of a fork of a replica, and its forks: effects that were issued before this entry belong to a session
    of another store."""
    effects: Effects = field(default_factory=Effects)
    skipped: bool = False
    """An entry of an unknown kind was skipped."""
    unknown: tuple[str, int] | None = None
    """The first entry of an unknown kind that must be understood, as (kind, seq)."""

    moving: bool = False
    """The session was being moved to another store, and has not arrived in this journal."""

    def is_foreign(self, effect: Effect) -> bool:
        """True if a session of another store issued the effect: it is settled there."""
        return effect.issued < self.copied_at

    def is_sound(self) -> bool:
        """Whether all references are valid, and all keys match their values."""
        checkpoints = self.checkpoints.items()
        return (
            all(one.version == version and one.base < version for version, one in checkpoints)
            and all(run.run == name for name, run in self.runs.items())
            and all(key in self.keys for key in self.unanswered)
            and self.effects.is_sound()
        )


def count_call(facts: Facts, tool: str) -> None:
    """Count a call of this tool."""
    counters = facts.counters
    counters.per_tool[tool] = counters.per_tool.get(tool, 0) + 1
    counters.per_tool_in_step[tool] = counters.per_tool_in_step.get(tool, 0) + 1
    facts.head.tool_calls += 1


# -- one function for each kind ------------------------------------------------------------------------


def _on_session_opened(facts: Facts, entry: Entry, body: SessionOpened) -> None:
    head = facts.head
    head.uid, head.created_at, head.labels, head.agent = body.uid, entry.at, body.labels, body.agent
    head.parent = SessionId(body.parent.session) if body.parent and body.parent.session else None


def _on_session_forked(facts: Facts, entry: Entry, body: SessionForked) -> None:
    """A fork inherits history, ledger, plan, values, caps and labels, but neither identity nor spending."""
    old = facts.head
    facts.head = Head(
        session=old.session,
        uid=body.uid,
        seq=entry.seq,
        sum=old.sum,
        status="active",
        title=old.title,
        labels={**old.labels, **body.labels},
        created_at=entry.at,
        updated_at=entry.at,
        origin=SessionId(body.origin),
        step=old.step,
        version=old.version,
        messages=old.messages,
        in_doubt=old.in_doubt,
        waiting=old.waiting,
    )
    facts.runs, facts.requests, facts.seconds, facts.last_run = {}, {}, 0.0, None
    facts.delegates = {}
    facts.counters = ToolCounters()
    facts.keys, facts.unanswered, facts.cancel, facts.late = {}, [], None, set()
    facts.asked, facts.begun, facts.requested, facts.backed_off = 0, 0, 0, 0
    facts.moving = False
    facts.left_behind, facts.forked_at = body.left_behind, entry.seq
    facts.effects.inherit(one.issued for one in body.left_behind if one.status == "undone")


def _on_session_copied(facts: Facts, entry: Entry, body: SessionCopied) -> None:
    facts.copied_at = entry.seq


def _on_session_moving(facts: Facts, entry: Entry, body: SessionMoving) -> None:
    facts.moving = True


def _on_session_arrived(facts: Facts, entry: Entry, body: SessionArrived) -> None:
    facts.moving = False


def _on_lease_taken(facts: Facts, entry: Entry, body: LeaseTaken) -> None:
    old = facts.head.lease
    if old is not None and old.holder != body.holder and facts.head.open_run is not None:
        facts.head.failures += 1  # The holder before never released the lease.
    facts.head.lease = Lease(holder=HolderId(body.holder), name=body.name, fence=entry.seq)


def _on_lease_released(facts: Facts, entry: Entry, body: LeaseReleased) -> None:
    facts.head.lease = None


def _on_session_labelled(facts: Facts, entry: Entry, body: SessionLabelled) -> None:
    merged = {**facts.head.labels, **body.labels}
    facts.head.labels = {key: value for key, value in merged.items() if value is not None}


def _on_session_closed(facts: Facts, entry: Entry, body: SessionClosed) -> None:
    facts.head.status, facts.head.reason = body.status, body.reason
    if body.status == "active":
        facts.cancel = None
    else:
        facts.head.due = None


def _on_session_scratchpad(facts: Facts, entry: Entry, body: ScratchpadSet) -> None:
    facts.scratchpad = body.root


def _on_run_started(facts: Facts, entry: Entry, body: RunStarted) -> None:
    if entry.run is None:
        raise ValueError("the run has no id")
    inside = body.parent.run if body.parent else None
    if inside not in facts.runs:
        for run in facts.runs.values():
            if run.status == "running":
                run.status = "interrupted"
        _begin_answering(facts, body)
    facts.runs[entry.run] = RunInfo(
        run=entry.run,
        session=facts.head.session,
        started_at=entry.at,
        agent=body.agent,
        model=body.model,
        parent=body.parent,
        continues=body.continues,
        config=body.config,
        trace=body.trace,
        loop=body.loop,
    )
    head = facts.head
    head.runs = len(facts.runs)
    head.agent = body.agent or head.agent
    head.open_run = entry.run
    head.status, head.reason = "active", ""
    facts.begun = entry.seq
    if head.parent is not None:
        head.due = None  # Its parent session resumes it, if necessary.
    elif body.agent is not None:
        head.due, head.postponed = head.due or entry.at, False


def _on_run_ended(
    facts: Facts, entry: Entry, body: RunCompleted | RunFailed | RunCancelled | RunPaused
) -> None:
    run = facts.runs.get(entry.run or "")
    if run is None:
        return
    status, session_status = RUN_ENDS[type(body)]
    run.status, run.ended_at = status, entry.at
    run.reason = getattr(body, "reason", "")
    still = [one.run for one in facts.runs.values() if one.status == "running"]
    facts.head.open_run = still[-1] if still else None
    if not still:
        _answer(facts, entry, body)
        facts.head.status, facts.head.reason = session_status, run.reason
        facts.cancel = None
        _reschedule(facts, entry, body)


RUN_ENDS: dict[type[Body], tuple[RunStatus, Any]] = {
    RunCompleted: ("completed", "completed"),
    RunFailed: ("failed", "failed"),
    RunCancelled: ("cancelled", "cancelled"),
    RunPaused: ("paused", "waiting"),
}


def _on_model_requested(facts: Facts, entry: Entry, body: ModelRequested) -> None:
    facts.requests[entry.seq] = body.reserved
    facts.requested = entry.seq


def _on_model_answered(facts: Facts, entry: Entry, body: ModelReplied | ModelFailed) -> None:
    if body.request is not None:
        facts.requests.pop(body.request, None)
    facts.head.usage += body.usage
    facts.head.usd += body.cost_usd
    if isinstance(body, ModelReplied):
        facts.head.failures = facts.backed_off = 0
        if entry.run is not None:
            facts.replies[entry.run] = facts.replies.get(entry.run, 0) + 1


def _on_delegate_started(facts: Facts, entry: Entry, body: DelegateStarted) -> None:
    before = facts.delegates.get(body.session, Delegation())
    facts.delegates[body.session] = replace(before, held=body.reserved, held_steps=body.steps)


def _on_delegate_ended(facts: Facts, entry: Entry, body: DelegateEnded) -> None:
    before = facts.delegates.get(body.session, Delegation())
    facts.head.usage += body.usage - before.usage
    facts.head.usd += body.cost_usd - before.usd
    facts.delegates[body.session] = Delegation(usage=body.usage, usd=body.cost_usd, steps=body.steps)


def _on_tool_issued(facts: Facts, entry: Entry, body: ToolIssued) -> None:
    if body.call.asked_by is None and body.attempt == 1:
        count_call(facts, body.tool)


def _on_tool_ran(facts: Facts, entry: Entry, body: ToolRan) -> None:
    if body.call.reply is None:
        count_call(facts, body.tool)


def _on_state_set(facts: Facts, entry: Entry, body: StateSet) -> None:
    if isinstance(body.value, Raw):
        facts.values[body.key] = body.value.copy()


def _on_state_unset(facts: Facts, entry: Entry, body: StateUnset) -> None:
    facts.values.pop(body.key, None)


def _on_plan_changed(facts: Facts, entry: Entry, body: PlanChanged) -> None:
    facts.plan = body.plan


def _on_summary_changed(facts: Facts, entry: Entry, body: SummaryChanged) -> None:
    facts.summary = body.summary


def _on_session_erased(facts: Facts, entry: Entry, body: SessionErased) -> None:
    facts.head.title = facts.head.reason = ""


def _on_budget_changed(facts: Facts, entry: Entry, body: BudgetChanged) -> None:
    facts.budget = body.budget


def _on_checkpoint_taken(facts: Facts, entry: Entry, body: CheckpointTaken) -> None:
    head = facts.head
    if body.version <= head.version:
        raise ValueError(f"version {body.version} comes after version {head.version}")
    facts.checkpoints[body.version] = Checkpoint(
        body.version, entry.seq, entry.at, entry.step, entry.run, body.why, body.name, facts.base
    )
    head.version, head.rewound_to, head.step = body.version, None, entry.step
    facts.base, facts.changed = body.version, False
    facts.counters.per_tool_in_step = {}


def _on_checkpoint_dropped(facts: Facts, entry: Entry, body: CheckpointDropped) -> None:
    facts.dropped.add(body.version)


def _on_inbox_taken(facts: Facts, entry: Entry, body: InboxTaken) -> None:
    if body.number <= facts.head.taken:
        return
    facts.head.taken = body.number
    if body.late:
        facts.late.add(body.number)
    item = body.item
    if isinstance(item, InboxCancel):
        facts.cancel = item.reason or "cancelled"
    elif isinstance(item, InboxMessage) and (item.key is None or item.key not in facts.keys):
        if item.key is not None:
            _note_key(facts, item.key, KeyedMessage(entry.seq + 1))
        facts.asked = entry.seq
        facts.head.agent = item.agent or facts.head.agent
        _make_due(facts, entry)
    elif isinstance(item, InboxApproval | InboxVerdict) and facts.head.status == "waiting" and not body.late:
        _make_due(facts, entry)


# -- messages with a key, and the runs that answer them ------------------------------------------------
#
# A message is answered by the run that completes after a request which showed it, or that fails or is
# cancelled on request while the message is there. A run that resumes such a failure may change that; the next
# run with a message of its own may not. An interruption, an error of the program, a pause and a failure that
# a worker retries are no answers: another run goes on.


def _on_message_added(facts: Facts, entry: Entry, body: MessageAdded) -> None:
    if body.key is not None:
        _note_key(facts, body.key, KeyedMessage(entry.seq, entry.run))


def _note_key(facts: Facts, key: str, message: KeyedMessage) -> None:
    facts.keys[key] = message
    if key not in facts.unanswered:
        facts.unanswered.append(key)


def _begin_answering(facts: Facts, body: RunStarted) -> None:
    if body.resumes:
        for key in facts.unanswered:
            facts.keys[key].answer = None
    else:
        facts.unanswered = [key for key in facts.unanswered if facts.keys[key].answer is None]


def _answer(facts: Facts, entry: Entry, body: RunCompleted | RunFailed | RunCancelled | RunPaused) -> None:
    """The outermost run has ended."""
    if isinstance(body, RunPaused):
        return
    if isinstance(body, RunFailed) and (body.retry_at is not None or body.reason == ERROR):
        return
    if isinstance(body, RunCancelled) and facts.cancel is None:
        return
    completed = isinstance(body, RunCompleted)
    seen = facts.requested if completed else max(facts.requested, facts.begun)
    answer = Answer(
        run=entry.run or "",
        status=RUN_ENDS[type(body)][0],
        end=entry.seq,
        version=facts.base,
        usage=facts.head.usage,
        usd=facts.head.usd,
    )
    late: list[str] = []
    for key in facts.unanswered:
        message = facts.keys[key]
        if message.seq <= seen or (not completed and message.brought_by == entry.run):
            message.answer = answer
        if not completed or message.answer is None:
            late.append(key)
    facts.unanswered = late


# -- when the session is due for a worker --------------------------------------------------------------
#
# A session becomes due when a message comes through its inbox, when a person answers what it waits for, and
# when a run of a named agent begins: a worker resumes the run if its process dies. The end of a run leaves
# nothing to do, unless it is to be retried or a message came too late for it.


def _on_session_postponed(facts: Facts, entry: Entry, body: SessionPostponed) -> None:
    facts.head.due, facts.head.postponed = body.until, body.until is not None
    facts.backed_off = facts.head.failures


def _make_due(facts: Facts, entry: Entry) -> None:
    """Something new arrived."""
    head = facts.head
    head.due = entry.at if head.due is None else min(head.due, entry.at)
    head.postponed = False
    head.failures = facts.backed_off = 0


def _reschedule(
    facts: Facts, entry: Entry, body: RunCompleted | RunFailed | RunCancelled | RunPaused
) -> None:
    """Decide what the end of a run leaves to do: a retry, or a message that came too late for it."""
    head = facts.head
    head.due, head.postponed = None, False
    if isinstance(body, RunFailed):
        head.failures += 1
        if body.retry_at is not None:
            head.status, head.due, head.postponed = "active", body.retry_at, True
            facts.backed_off = head.failures
    else:
        head.failures = facts.backed_off = 0
    answered = facts.requested if isinstance(body, RunCompleted) else max(facts.requested, facts.begun)
    if facts.asked > answered and not isinstance(body, RunPaused):
        head.due, head.postponed = entry.at, False


HANDLERS: dict[type[Body], Callable[[Facts, Entry, Any], None]] = {
    SessionOpened: _on_session_opened,
    SessionForked: _on_session_forked,
    SessionCopied: _on_session_copied,
    SessionMoving: _on_session_moving,
    SessionArrived: _on_session_arrived,
    LeaseTaken: _on_lease_taken,
    LeaseReleased: _on_lease_released,
    SessionLabelled: _on_session_labelled,
    SessionClosed: _on_session_closed,
    SessionPostponed: _on_session_postponed,
    ScratchpadSet: _on_session_scratchpad,
    RunStarted: _on_run_started,
    RunCompleted: _on_run_ended,
    RunFailed: _on_run_ended,
    RunCancelled: _on_run_ended,
    RunPaused: _on_run_ended,
    MessageAdded: _on_message_added,
    ModelRequested: _on_model_requested,
    ModelReplied: _on_model_answered,
    ModelFailed: _on_model_answered,
    DelegateStarted: _on_delegate_started,
    DelegateEnded: _on_delegate_ended,
    ToolIssued: _on_tool_issued,
    ToolRan: _on_tool_ran,
    StateSet: _on_state_set,
    StateUnset: _on_state_unset,
    PlanChanged: _on_plan_changed,
    SummaryChanged: _on_summary_changed,
    SessionErased: _on_session_erased,
    BudgetChanged: _on_budget_changed,
    CheckpointTaken: _on_checkpoint_taken,
    CheckpointDropped: _on_checkpoint_dropped,
    InboxTaken: _on_inbox_taken,
}
BOOKKEEPING: frozenset[type[Body]] = frozenset(
    {
        SessionOpened,
        SessionForked,
        SessionCopied,
        SessionMoving,
        SessionArrived,
        LeaseTaken,
        LeaseRenewed,
        LeaseReleased,
        SessionLabelled,
        SessionClosed,
        SessionErased,
        SessionPostponed,
        RunStarted,
        RunCompleted,
        RunFailed,
        RunCancelled,
        RunPaused,
        CheckpointTaken,
        CheckpointDropped,
    }
)
"""Kinds that do not make a new checkpoint necessary."""
