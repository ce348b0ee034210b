"""The kinds of journal entries: one small frozen class for each.

An entry is an envelope (`seq`, `at`, `run`, `step`, `kind`), a body (one of the classes below), and for some
kinds a content: a message or a result, which is read when the transcript is looked at, and can be erased.
Fields of a body that hold what a person, a model or a tool said are its *details* (`said=` below): the fold
needs them, so they are read with the body, and they can be erased, too. The set of kinds is closed; adapters
have a prefix of their own. An entry of an unknown kind is kept and skipped, unless it says that it *must* be
understood: then the session can only be read.

New fields need a default, so that older lines still decode. A kind's meaning never changes; a new meaning is
a new kind.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Literal, NamedTuple, TypeAlias, TypeVar

from msgspec import UNSET, Raw, Struct, UnsetType
from msgspec.structs import replace

from ..messages import OWN, Json, Part, Role
from ..system.clock import Instant
from .budget import Budget, Reservation, Usage
from .plan import Plan

# -- the envelope, and the register of kinds -----------------------------------------------------------


class Body(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The base of every body."""


_B = TypeVar("_B", bound=type[Body])
KINDS: dict[str, type[Body]] = {}
KIND_OF: dict[type[Body], str] = {}
MUST: set[type[Body]] = set()
DETAILS: dict[type[Body], tuple[str, ...]] = {}
"""The fields of a body that are details. Each has a default, which stands in its place when it was erased."""


def _kind(name: str, *, must: bool = False, said: tuple[str, ...] = ()) -> Callable[[_B], _B]:
    """Register the body of a kind. `must`: a reader that does not know the kind must not write. `said`: the
    fields that are details."""

    def register(body: _B) -> _B:
        KINDS[name] = body
        KIND_OF[body] = name
        if must:
            MUST.add(body)
        if said:
            DETAILS[body] = said
        return body

    return register


class Entry(Struct, frozen=True, kw_only=True, gc=False):
    """One fact about a session.

    The body is what the fold needs. The content is a message or a result, as JSON: None if there is none, if
    it was erased (`erased`), or if the journal was read without contents (`unread`).
    """

    seq: int
    at: datetime
    run: str | None
    step: int
    kind: str
    must: bool
    body: Body
    content: Raw | None = None
    erased: bool = False
    unread: bool = False
    details_erased: bool = False
    """The details of the body were erased: each has its default."""


class UnknownBody(Body, frozen=True):
    """The body of a kind that a newer version wrote."""

    data: Raw


class AdapterBody(Body, frozen=True):
    """The body of an adapter's own kind."""

    data: Json = None


class Span(NamedTuple):
    """The entries from `first` to `last`, both included."""

    first: int
    last: int


ADAPTER_PREFIX = "adapter."


def body_class(kind: str) -> type[Body]:
    """The class of bodies of this kind; `UnknownBody` for a kind that a newer version wrote."""
    found = KINDS.get(kind)
    if found is not None:
        return found
    return AdapterBody if kind.startswith(ADAPTER_PREFIX) else UnknownBody


# -- a session: its beginning, its lease, its labels and its end ---------------------------------------


class Parent(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What started this: a session, a run in it, and possibly a call of that run."""

    session: str | None = None
    run: str | None = None
    call: str | None = None


@_kind("session.opened")
class SessionOpened(Body, frozen=True):
    """The first entry of a session that is not a fork. `uid` is random: a session that was deleted and
    created again under the same `id` is another one. `agent` names the agent that is to work on it."""

    id: str
    uid: str
    labels: dict[str, str] = {}
    parent: Parent | None = None
    agent: str | None = None


class LeftBehind(Struct, frozen=True, kw_only=True):
    """An effect that happened and that a fork or a rewind does not undo."""

    issued: int
    tool: str
    call: str
    status: str


@_kind("session.forked", must=True)
class SessionForked(Body, frozen=True):
    """The first entry of a fork: its journal goes on where entry `seq` of the origin's ended."""

    id: str
    uid: str
    origin: str
    origin_uid: str
    version: int
    labels: dict[str, str] = {}
    left_behind: tuple[LeftBehind, ...] = ()
    """Effects of the origin after that version: they happened, and are not in the ledger of the fork."""


@_kind("lease.taken", must=True)
class LeaseTaken(Body, frozen=True):
    """Only `holder` writes from here on. The `seq` of the line is the fence."""

    holder: str
    name: str


@_kind("lease.renewed")
class LeaseRenewed(Body, frozen=True):
    """The holder was silent for a whole term, and no other process took the lease meanwhile."""


@_kind("lease.released")
class LeaseReleased(Body, frozen=True):
    """The holder gave the lease back."""


@_kind("session.labelled")
class SessionLabelled(Body, frozen=True):
    """Labels set, or removed where the value is None."""

    labels: dict[str, str | None]


SessionStatus: TypeAlias = Literal["active", "waiting", "completed", "failed", "cancelled"]


@_kind("session.closed", said=("reason",))
class SessionClosed(Body, frozen=True):
    """The caller set the status."""

    status: SessionStatus
    reason: str = ""


@_kind("session.postponed")
class SessionPostponed(Body, frozen=True):
    """No worker drives the session before `until`; without it, before something new arrives."""

    until: datetime | None = None
    reason: str = ""


@_kind("session.rewound", must=True, said=("state",))
class SessionRewound(Body, frozen=True):
    """The session went back to `version`. The entry carries the transcript and the user state that it
    restores, so that folding needs no I/O. Entries `plan.changed` and `summary.changed` of the same commit
    restore plan and summary; ledger, spending, runs and counters stay."""

    version: int
    seq: int
    transcript: tuple[Span, ...]
    state: dict[str, Raw] = {}


@_kind("session.erased")
class SessionErased(Body, frozen=True):
    """What was said up to entry `upto` was erased, but for user state and calls that were not settled."""

    upto: int


@_kind("session.scratchpad")
class ScratchpadSet(Body, frozen=True):
    """The directory in which the session keeps its files."""

    root: str


# -- runs, requests to models, and messages ------------------------------------------------------------


@_kind("run.started")
class RunStarted(Body, frozen=True):
    """A run began. `instructions` and each of `tools` are digests; `continues` names the run that had no end;
    `trace` is the W3C traceparent of its span. `resumes`: it goes on without a new message."""

    agent: str | None = None
    model: str | None = None
    instructions: str | None = None
    tools: dict[str, str] = {}
    parent: Parent | None = None
    continues: str | None = None
    config: Json = None
    trace: str | None = None
    resumes: bool = False


@_kind("run.completed", said=("output",))
class RunCompleted(Body, frozen=True):
    """The run ended with an output."""

    output: Json = None


@_kind("run.failed", said=("error",))
class RunFailed(Body, frozen=True):
    """The run ended with an error, a spent budget or a step limit. At `retry_at`, a worker tries again."""

    reason: str
    error: str = ""
    retry_at: datetime | None = None


@_kind("run.cancelled", said=("reason",))
class RunCancelled(Body, frozen=True):
    """The caller stopped the run, or a cancellation that came through the inbox."""

    reason: str = ""


@_kind("run.paused")
class RunPaused(Body, frozen=True):
    """The run waits for a person."""

    reason: str = ""


@_kind("delegate.started")
class DelegateStarted(Body, frozen=True):
    """Another session works for this one. The most that it may spend counts as spent until it has ended."""

    session: str
    reserved: Reservation = Reservation()
    steps: int = 0


@_kind("delegate.ended")
class DelegateEnded(Body, frozen=True):
    """The delegate has ended, or waits. The numbers are totals since it was first started."""

    session: str
    usage: Usage = Usage()
    cost_usd: float = 0.0
    steps: int = 0


@_kind("model.requested")
class ModelRequested(Body, frozen=True):
    """A request is about to be made. The most that it may cost counts as spent until its outcome is known."""

    model: str | None = None
    reserved: Reservation = Reservation()


@_kind("model.replied")
class ModelReplied(Body, frozen=True):
    """The reply of a model. The content is the message. `request` is the `seq` of its `model.requested`;
    `model` is the one that answered, if the provider names it."""

    role: Role = "assistant"
    parts: tuple[Part, ...] = ()
    format: str = OWN
    request: int | None = None
    usage: Usage = Usage()
    cost_usd: float = 0.0
    latency_ms: float | None = None
    model: str | None = None


@_kind("model.failed", said=("error",))
class ModelFailed(Body, frozen=True):
    """The request got no reply. `cost_usd` is what it cost nevertheless."""

    request: int | None = None
    error: str = ""
    usage: Usage = Usage()
    cost_usd: float = 0.0


@_kind("message.added", said=("title",))
class MessageAdded(Body, frozen=True):
    """A message. The content is the message, in `format`. One that came through the inbox has the number of
    the item as `inbox`, and is appended to the transcript at the end of the step. `key` is what its caller
    names it by; one from the inbox has it in its item. `title`: the session is listed under it, if it had no
    title before."""

    role: Role
    parts: tuple[Part, ...] = ()
    format: str = OWN
    inbox: int | None = None
    key: str | None = None
    title: str = ""


@_kind("transcript.compacted", must=True)
class TranscriptCompacted(Body, frozen=True):
    """In the transcript, the content (a message) replaces the messages recorded by the entries of `span`."""

    span: Span


# -- state of the user, plan, summary, budget and checkpoints ------------------------------------------


@_kind("state.set", said=("value",))
class StateSet(Body, frozen=True):
    """A user value was set, encoded by `values.py`."""

    key: str
    value: Raw | UnsetType = UNSET


@_kind("state.unset")
class StateUnset(Body, frozen=True):
    """The value under this key was removed."""

    key: str


@_kind("plan.changed", said=("plan",))
class PlanChanged(Body, frozen=True):
    """The plan was replaced by this one."""

    plan: Plan | None = None


@_kind("summary.changed", said=("summary",))
class SummaryChanged(Body, frozen=True):
    """The running summary was replaced by this one."""

    summary: str = ""


@_kind("budget.changed")
class BudgetChanged(Body, frozen=True):
    """The caps were replaced; what was spent stays spent."""

    budget: Budget


@_kind("checkpoint.taken")
class CheckpointTaken(Body, frozen=True):
    """The state is whole here. `why` lists the problems because of which it is not continuable."""

    version: int
    why: tuple[str, ...] = ()
    name: str | None = None


@_kind("checkpoint.dropped")
class CheckpointDropped(Body, frozen=True):
    """The version is no longer offered; the journal is untouched."""

    version: int


# -- tool calls and approvals --------------------------------------------------------------------------


class CallRef(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Identifies a call: the `index`-th of the reply at entry `reply`, or one that the caller made directly.

    `id` is the provider's or the caller's. A caller that adds the results to the transcript as messages of
    its own names the reply with `of`, and the call in it with `index`.
    """

    id: str
    reply: int | None = None
    index: int = 0
    of: int | None = None

    @property
    def asked_by(self) -> int | None:
        """The reply that asked for the call: `reply` or `of`."""
        return self.of if self.reply is None else self.reply

    def comes_after(self, other: CallRef) -> bool:
        """Whether it is a later call of the same reply."""
        return self.reply is not None and self.reply == other.reply and self.index > other.index


class ResultContent(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The content of an entry that answers a call: the text that the model is shown, and the same as data.

    `parts` are blocks, if the model is shown more than text. Where `text` is only the beginning and the end,
    `full` refers to the whole text, and `chars` is its length. `unkept`: the tool ran, and what it returned
    has no JSON form; `text` is an error that says so.
    """

    text: str = ""
    value: Json = None
    parts: list[dict[str, Json]] = []
    full: str = ""
    chars: int = 0
    unkept: bool = False


@_kind("tool.issued", must=True, said=("args",))
class ToolIssued(Body, frozen=True, kw_only=True):
    """The intent: durable before the body of a tool with side effects is entered."""

    call: CallRef
    tool: str
    args: Json = None
    fingerprint: str
    """Digest of the tool's name and the arguments, to detect repeated calls."""
    operation: str
    scope: str
    side_effects: tuple[str, ...] = ()
    key: str = ""
    generation: int = 0
    attempt: int = 1
    timeout_s: float | None = None
    undoes: int | None = None
    """The intent of the effect that this one undoes."""
    clock: Instant | None = None
    """Of an effect: the time by clocks that are never set. `at` is a wall clock of one machine."""


@_kind("tool.annotated", said=("notes",))
class ToolAnnotated(Body, frozen=True):
    """Notes of a tool about its own effect, made while it ran. `issued` is the `seq` of the intent."""

    issued: int
    notes: dict[str, Json] = {}


@_kind("tool.reported")
class ToolReported(Body, frozen=True):
    """Progress of a running tool. The content is the text."""

    issued: int


@_kind("tool.completed", must=True, said=("digest",))
class ToolCompleted(Body, frozen=True):
    """The call succeeded. The content is its result in the transcript."""

    call: CallRef
    issued: int | None = None
    """None for a replay: then `original` is the intent whose outcome is repeated, of the call `replay_of`."""
    original: int | None = None
    replay_of: str | None = None
    fingerprint: str = ""
    latency_ms: float | None = None
    digest: str = ""
    """Of the content, to detect repeated results."""


@_kind("tool.ran", must=True, said=("args", "digest"))
class ToolRan(Body, frozen=True, kw_only=True):
    """Intent and outcome in one: a harmless call that ended before anything else was recorded. The content is
    its result in the transcript."""

    call: CallRef
    tool: str
    args: Json = None
    fingerprint: str
    side_effects: tuple[str, ...] = ()
    latency_ms: float | None = None
    digest: str = ""


@_kind("tool.failed", must=True, said=("error", "digest"))
class ToolFailed(Body, frozen=True):
    """The call failed, and certainly had no effect. `final`: no retry follows, so this is the result of the
    call. In a delegate, `issued` is None if the intent is in the journal of the root session."""

    call: CallRef
    issued: int | None
    error: str = ""
    final: bool = True
    retry: bool = False
    """The tool itself asked the model for another call, so that call does not count as a loop."""
    digest: str = ""


@_kind("tool.refused")
class ToolRefused(Body, frozen=True):
    """A gate refused the call (`name`, `arguments`, `loop`, `policy`, `in_doubt`); its body was not
    entered."""

    call: CallRef
    tool: str
    gate: str
    fingerprint: str = ""


@_kind("tool.in_doubt", must=True, said=("why", "unsure"))
class ToolInDoubt(Body, frozen=True):
    """Issued, and whether it happened is not known. `told`: the content is the result of the call for now.

    A later one of the same call replaces `why` and `unsure`.
    """

    call: CallRef
    issued: int
    why: str = ""
    unsure: str = ""
    """Why the tool's verify hook could not say what became of it."""
    told: bool = False
    left_behind: bool = False
    """The body could not be stopped and kept running: only the end of its process proves that it is over."""
    exited: bool = False
    """The body asked the process to exit, which counts as a crash."""

    @property
    def reason(self) -> str:
        """Why it is in doubt, and why its verify hook could not say more."""
        return join_reasons(self.why, self.unsure)


def join_reasons(*reasons: str) -> str:
    """The reasons that are there, as one text."""
    return "; ".join(reason for reason in reasons if reason)


@_kind("tool.discarded")
class ToolDiscarded(Body, frozen=True):
    """Issued without an outcome, and without side effects: it is run again."""

    call: CallRef
    issued: int
    exited: bool = False
    """The body asked the process to exit, which counts as a crash."""


Verdict: TypeAlias = Literal["landed", "not_landed", "gave_up"]


@_kind("tool.settled", must=True, said=("note",))
class ToolSettled(Body, frozen=True):
    """The outcome of a call in doubt, by the tool's verify hook or by a person. `told`: the content is the
    result of the call."""

    call: CallRef
    issued: int
    verdict: Verdict
    by: str
    note: str = ""
    told: bool = False
    void: bool = False
    """It did not land, and the service refuses its key from now on: the next attempt needs another key."""


@_kind("tool.undone", must=True)
class ToolUndone(Body, frozen=True):
    """The effect was undone by the effect issued at `by`."""

    issued: int
    by: int


@_kind("approval.asked", must=True, said=("args", "why"))
class ApprovalAsked(Body, frozen=True, kw_only=True):
    """A person must approve the call before it is made. `schema`, the JSON Schema of its arguments, is for
    those who correct them."""

    call: CallRef
    tool: str
    args: Json = None
    fingerprint: str = ""
    why: str = ""
    schema: Json = None


@_kind("approval.given", must=True, said=("args", "note"))
class ApprovalGiven(Body, frozen=True):
    """A person approved the call, possibly with other arguments. `asked` is the `seq` of the question."""

    call: CallRef
    asked: int
    by: str
    args: Json | UnsetType = UNSET
    note: str = ""


@_kind("approval.refused", must=True, said=("answer",))
class ApprovalRefused(Body, frozen=True):
    """A person refused the call. The content is the result that the model is shown, `answer` its text."""

    call: CallRef
    asked: int
    by: str
    answer: str = ""


# -- the inbox -----------------------------------------------------------------------------------------


class InboxMessage(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag="message"):
    """A submitted message. Items with the same `key` are one submission."""

    message: Raw | UnsetType = UNSET
    role: Role = "user"
    parts: tuple[Part, ...] = ()
    format: str = OWN
    key: str | None = None
    agent: str | None = None


class InboxCancel(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag="cancel"):
    """A request to cancel the session."""

    by: str = ""
    reason: str = ""


class InboxVerdict(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag="verdict"):
    """The outcome of the call issued at `issued`, by a person or by a former holder."""

    issued: int
    verdict: Verdict
    by: str
    note: str = ""
    content: str | None = None
    value: Json = None
    unkept: bool = False
    """What the tool returned has no JSON form; the content says so."""


class InboxApproval(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag="approval"):
    """A person's answer to the question asked at `asked`."""

    asked: int
    approved: bool
    by: str
    args: Json | UnsetType = UNSET
    note: str = ""


InboxItem: TypeAlias = InboxMessage | InboxCancel | InboxVerdict | InboxApproval


def without_words(item: InboxItem) -> InboxItem:
    """The item without what a person said in it: what is left of it when that is erased."""
    if isinstance(item, InboxCancel):
        return replace(item, reason="")
    if isinstance(item, InboxVerdict):
        return replace(item, note="", content=None, value=None)
    if isinstance(item, InboxApproval):
        return replace(item, args=UNSET, note="")
    return item


@_kind("inbox.taken", must=True, said=("item",))
class InboxTaken(Body, frozen=True):
    """Item `number` of the inbox was taken into the journal; a number that was taken before is skipped. The
    content of a message is in the `message.added` after it in the same commit, so that it can be erased."""

    number: int
    item: InboxItem
    late: bool = False
    """It answers an entry that was no longer open, and changes nothing."""
