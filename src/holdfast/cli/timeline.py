"""A journal as a timeline: leases, durations and costs, and where a process died. For `show` and the demo.

`Timeline` is pure: it folds entries one by one. The outcome of a request or call is filled in where it began
if the same holder recorded it; an outcome that a later holder recorded is a moment of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final, Literal, TypeAlias

from msgspec import UNSET, Struct
from rich.table import Table

from ..core import entries as kinds
from ..core.effects import Effect, add_notes
from ..core.entries import CallRef, Entry
from ..core.lease_periods import LeasePeriod, LeasePeriods
from ..messages import OWN, Block, CallPart, Json
from ..system.clock import utc_now
from .console import SafeText, make_table
from .entry_text import (
    describe,
    entry_args_text,
    entry_blocks,
    entry_details_text,
    entry_message_text,
    entry_result_text,
    list_notes,
    reply_agent,
)
from .formatting import clock, shorten, span, usd

MomentKind: TypeAlias = Literal[
    "session",
    "lease",
    "lost",
    "run",
    "message",
    "model",
    "tool",
    "refused",
    "question",
    "checkpoint",
    "other",
]


class Moment(Struct, kw_only=True):
    """A row of the timeline. A request or call has its duration, `took_s`, and its `status`. Where a holder
    died, `took_s` is the time until another one took over."""

    seq: int
    at: datetime
    kind: MomentKind
    what: str
    step: int = 0
    run: str | None = None
    status: str = ""
    routine: bool = False
    """Whether it is of interest only to those who look closely."""
    detail: str = ""
    took_s: float | None = None
    usd: float = 0.0
    tokens: int = 0
    tool: str | None = None
    call: str | None = None
    notes: dict[str, Json] = {}
    """What the tool noted about its effect."""


class About(Struct, kw_only=True):
    """What a moment is about, for `outline.py`; not in its JSON."""

    call: str | None = None
    """Equal for all moments of one call: its attempts, questions and outcomes."""
    title: str = ""
    """The call, as in Python."""
    by: str = ""
    """Who answered a question; or the agent that replied, if it is not the one that its run began with."""
    doubt: str = ""
    """Why the call is in doubt, if a later holder says so."""
    reply: str | None = None
    """The message, by its entry …"""
    role: str = ""
    blocks: Sequence[Block] = ()
    """… and what it says."""
    format: str = OWN


class StepTotals(Struct, kw_only=True):
    """The durations and costs of a step. The last one may have no version yet."""

    step: int
    version: int | None = None
    model_s: float = 0.0
    tools_s: float = 0.0
    usd: float = 0.0
    tokens: int = 0


_KINDS: dict[type[kinds.Body], MomentKind] = {
    kinds.SessionOpened: "session",
    kinds.SessionClosed: "session",
    kinds.SessionPostponed: "session",
    kinds.SessionRewound: "session",
    kinds.SessionErased: "session",
    kinds.LeaseRenewed: "lease",
    kinds.RunStarted: "run",
    kinds.RunCompleted: "run",
    kinds.RunFailed: "run",
    kinds.RunCancelled: "run",
    kinds.RunPaused: "run",
    kinds.DelegateStarted: "run",
    kinds.DelegateEnded: "run",
    kinds.TranscriptCompacted: "message",
    kinds.ToolRefused: "refused",
    kinds.CheckpointDropped: "checkpoint",
    kinds.PlanChanged: "other",
    kinds.BudgetChanged: "other",
    kinds.InboxTaken: "other",
}
"""Entries whose description is their moment. `Timeline` handles other kinds, or leaves them to `tail`."""
_ROUTINE: Final[frozenset[type[kinds.Body]]] = frozenset(
    {
        kinds.SessionOpened,
        kinds.LeaseTaken,
        kinds.LeaseRenewed,
        kinds.LeaseReleased,
        kinds.RunStarted,
        kinds.RunCompleted,
        kinds.DelegateStarted,
        kinds.DelegateEnded,
        kinds.CheckpointTaken,
        kinds.CheckpointDropped,
        kinds.BudgetChanged,
        kinds.InboxTaken,
    }
)
_QUESTIONS: dict[type[kinds.Body], str] = {
    kinds.ApprovalAsked: "to approve",
    kinds.ApprovalGiven: "approved",
    kinds.ApprovalRefused: "refused",
}


class Timeline:
    """Folds entries into moments, leases and steps."""

    def __init__(self, effects: Mapping[int, Effect]) -> None:
        self._effects = effects
        self._clear()

    def _clear(self) -> None:
        self.moments: list[Moment] = []
        self.about: dict[int, About] = {}
        """By the `seq` of the moment."""
        self._leases = LeasePeriods()
        self.steps: dict[int, StepTotals] = {}
        self.inherited = 0
        """How many entries come from the origin of a fork. They are not in the timeline."""
        self._last: Entry | None = None
        self._requests: dict[int, Moment] = {}
        self._calls: dict[int, Moment] = {}
        self._agents: dict[str | None, str | None] = {}
        """The agents that runs began with."""
        self._asked: dict[tuple[int, int], str] = {}
        """Calls of the last reply without an entry: a call without side effects has none while it runs."""

    @classmethod
    def of(cls, entries: Iterable[Entry], effects: Mapping[int, Effect], *, held: bool) -> Timeline:
        """The timeline of a whole journal. `effects` is its ledger; `held`: the last holder may be alive."""
        timeline = cls(effects)
        for entry in entries:
            timeline.apply(entry)
        if not held and (lost := timeline._leases.lose()):
            timeline._lose(lost, "no process has taken over yet")
        for moment in timeline._calls.values():
            moment.status = moment.status or "running"
        return timeline

    def apply(self, entry: Entry) -> None:
        """Fold the next entry."""
        body = entry.body
        lost = self._leases.apply(entry)
        call: CallRef | None = getattr(body, "call", None)
        if call is not None:
            if call.reply is not None:
                self._asked.pop((call.reply, call.index), None)
            self.about[entry.seq] = self._about_call(entry, call, body)
        match body:
            case kinds.SessionForked():
                self._fork(entry)
            case kinds.LeaseTaken():
                self._take(entry, body, lost)
            case kinds.LeaseReleased():
                self._add(entry, "lease", "lease released")
            case kinds.ModelRequested():
                self._requests[entry.seq] = self._add(entry, "model", "", status="no reply")
            case kinds.ModelReplied() | kinds.ModelFailed():
                self._answer(entry, body)
            case kinds.ToolIssued():
                what = f"{body.tool}({entry_args_text(entry, body.args)})"
                moment = self._add(entry, "tool", what, tool=body.tool, call=body.call.id)
                if body.attempt > 1:
                    moment.detail = f"attempt {body.attempt}"
                self._calls[entry.seq] = moment
            case kinds.ToolRan():
                what = f"{body.tool}({entry_args_text(entry, body.args)})"
                moment = self._add(entry, "tool", what, tool=body.tool, call=body.call.id, status="completed")
                moment.took_s, moment.detail = (body.latency_ms or 0.0) / 1000, entry_result_text(entry)
                self._step(entry.step).tools_s += moment.took_s
            case kinds.ToolCompleted() | kinds.ToolFailed():
                self._end_call(entry, body.call, body.issued, body)
            case kinds.ToolInDoubt() | kinds.ToolDiscarded():
                self._break_off(entry, body)
            case kinds.ToolAnnotated():
                if body.issued in self._calls:
                    moment = self._calls[body.issued]
                    moment.notes = add_notes(moment.notes, body.notes, entry.at)
            case kinds.ToolUndone():
                self._add(entry, "tool", describe(entry), status="undone")
                if body.issued in self._effects:
                    undone = self._effects[body.issued].call
                    self.about[entry.seq] = self._about_call(entry, undone, body)
            case kinds.ApprovalAsked() | kinds.ApprovalGiven() | kinds.ApprovalRefused():
                status = _QUESTIONS[type(body)]
                moment = self._add(entry, "question", describe(entry), status=status, call=body.call.id)
                moment.tool = getattr(body, "tool", None)
            case kinds.ToolSettled():
                what = f"call {body.call.id} settled by {body.by}"
                moment = self._add(entry, "tool", what, status=body.verdict, call=body.call.id)
                said = entry_result_text(entry) if body.told else ""
                moment.detail = "; ".join(one for one in (body.note, said) if one)
            case kinds.CheckpointTaken():
                self._add(entry, "checkpoint", describe(entry))
                self._step(entry.step).version = body.version
            case kinds.MessageAdded():
                self._add(entry, "message", describe(entry))
                self.about[entry.seq] = _about_message(entry, body)
            case _:
                if isinstance(body, kinds.RunStarted):
                    self._agents[entry.run] = body.agent
                kind = _KINDS.get(type(body))
                if kind is not None:
                    self._add(entry, kind, describe(entry))
        self._last = entry

    def _about_call(self, entry: Entry, call: CallRef, body: kinds.Body) -> About:
        tool = getattr(body, "tool", None)
        args = getattr(body, "args", UNSET)
        given = isinstance(tool, str) and args is not UNSET
        return About(
            call=call.id if call.asked_by is None else f"{call.asked_by}.{call.index}",
            title=f"{tool}({entry_args_text(entry, args)})" if given else "",
            by=str(getattr(body, "by", "")),
            doubt=entry_details_text(entry, body.reason) if isinstance(body, kinds.ToolInDoubt) else "",
        )

    def _add(self, entry: Entry, kind: MomentKind, what: str, **more: str | None) -> Moment:
        moment = Moment(
            seq=entry.seq, at=entry.at, kind=kind, what=what, step=entry.step, run=entry.run,
            status=more.get("status") or "", tool=more.get("tool"), call=more.get("call"),
            routine=kind != "lost" and type(entry.body) in _ROUTINE,
        )  # fmt: skip
        self.moments.append(moment)
        return moment

    def _step(self, number: int) -> StepTotals:
        return self.steps.setdefault(number, StepTotals(step=number))

    @property
    def begins_at(self) -> datetime:
        """When the first moment was."""
        return self.moments[0].at if self.moments else utc_now()

    def holder_at(self, seq: int) -> str:
        """The name of the last process that took the lease up to this entry."""
        return next((lease.name for lease in reversed(self.leases) if lease.fence <= seq), "")

    # -- leases --------------------------------------------------------------------------------------

    def _fork(self, entry: Entry) -> None:
        self._clear()
        self.inherited = entry.seq - 1
        self._add(entry, "session", describe(entry))

    @property
    def leases(self) -> list[LeasePeriod]:
        """The leases, oldest first."""
        return self._leases.rows

    def _take(self, entry: Entry, body: kinds.LeaseTaken, lost: LeasePeriod | None) -> None:
        after = ""
        if lost is not None and self._last is not None:
            silence_s = (entry.at - self._last.at).total_seconds()
            self._lose(lost, f"{body.name} took over", silence_s)
            after = f", {silence_s:.1f} s after the last entry of {lost.name}"
        self._add(entry, "lease", f"{body.name} holds the session{after}")

    def _lose(self, lease: LeasePeriod, then: str, silence_s: float | None = None) -> None:
        """The holder died, or was silent until another process took over."""
        assert self._last is not None
        running = {seq: moment for seq, moment in self._calls.items() if not moment.status}
        for seq, moment in running.items():
            effect = self._effects.get(seq)
            moment.status = "in_doubt" if effect is not None and effect.changes_the_world else "cut off"
        cut = [moment for moment in self._requests.values() if moment.status == "no reply"]
        cut += running.values()
        names = [moment.tool or "a request to the model" for moment in cut] + list(self._asked.values())
        under_way = ", ".join(dict.fromkeys(names))
        moment = self._add(self._last, "lost", f"{lease.name} is gone and did not release its lease; {then}")
        moment.detail = f"not finished: {under_way}" if under_way else ""
        moment.took_s = silence_s

    # -- requests and calls --------------------------------------------------------------------------

    def _answer(self, entry: Entry, body: kinds.ModelReplied | kinds.ModelFailed) -> None:
        moment = self._requests.pop(body.request or 0, None) or self._add(entry, "model", "")
        took_s = (entry.at - moment.at).total_seconds()
        step = self._step(entry.step)
        if isinstance(body, kinds.ModelReplied):
            agent = reply_agent(entry, body)
            by = "" if agent == self._agents.get(entry.run) else agent
            moment.status = "replied"
            moment.what = f"{by}: " * bool(by) + entry_message_text(entry, body)
            self.about[moment.seq] = _about_message(entry, body, by=by)
            names = [part.name for part in body.parts if isinstance(part, CallPart)]
            self._asked = {(entry.seq, index): name for index, name in enumerate(names)}
            took_s = took_s if body.latency_ms is None else body.latency_ms / 1000
        else:
            moment.status, moment.what = "failed", f"no reply: {entry_details_text(entry, body.error)}"
        moment.took_s, moment.usd, moment.tokens = took_s, body.cost_usd, body.usage.tokens
        step.model_s += took_s
        step.usd += body.cost_usd
        step.tokens += body.usage.tokens

    def _break_off(self, entry: Entry, body: kinds.ToolInDoubt | kinds.ToolDiscarded) -> None:
        """A call without an outcome. Its holder may say more about it afterwards, and so may a later one."""
        moment = self._calls.get(body.issued)
        if moment is None or (moment.status and not self._is_same_doubt(moment, body)):
            if isinstance(body, kinds.ToolInDoubt):
                self._add(entry, "tool", describe(entry))
            return
        if not moment.status:
            moment.took_s = (entry.at - moment.at).total_seconds()
        if isinstance(body, kinds.ToolInDoubt):
            moment.status, moment.detail = "in_doubt", entry_details_text(entry, body.reason)
        else:
            moment.status = "discarded"

    def _is_same_doubt(self, moment: Moment, body: kinds.ToolInDoubt | kinds.ToolDiscarded) -> bool:
        """Whether the holder that left the call in doubt says more about that."""
        here = not self.leases or moment.seq >= self.leases[-1].fence
        return here and moment.status == "in_doubt" and isinstance(body, kinds.ToolInDoubt)

    def _end_call(
        self, entry: Entry, call: CallRef, issued: int | None, body: kinds.ToolCompleted | kinds.ToolFailed
    ) -> None:
        moment = self._calls.get(issued or 0)
        if moment is None or moment.status:
            replay_of = getattr(body, "replay_of", None)
            status = (
                "replayed"
                if replay_of
                else "completed"
                if body.__class__ is kinds.ToolCompleted
                else "failed"
            )
            what = f"call {call.id}" + (f" gets what {replay_of} gave" if replay_of else "")
            moment = self._add(entry, "tool", what, status=status, call=call.id)
            moment.detail = entry_result_text(entry)
            return
        latency_ms = getattr(body, "latency_ms", None)
        took_s = (entry.at - moment.at).total_seconds() if latency_ms is None else latency_ms / 1000
        moment.took_s = took_s
        if isinstance(body, kinds.ToolFailed):
            moment.status, moment.detail = "failed", entry_details_text(entry, body.error)
        else:
            moment.status, moment.detail = "completed", entry_result_text(entry)
        self._step(entry.step).tools_s += took_s


def _about_message(entry: Entry, body: kinds.MessageAdded | kinds.ModelReplied, *, by: str = "") -> About:
    blocks = entry_blocks(entry, body)
    return About(reply=str(entry.seq), role=body.role, blocks=blocks, format=body.format, by=by)


def effect_status(effect: Effect, *, held: bool) -> str:
    """The status of an effect; it cannot be running if its session is not held."""
    if effect.status != "running" or held:
        return effect.status
    return "in_doubt" if effect.changes_the_world else "cut off"


# -- drawing ------------------------------------------------------------------------------------------

_COLUMNS: Final = ("time>", "step>", "", "what…", "took>", "cost>")
_NARROW_COLUMNS: Final = ("time>", "", "what…", "took>")
_HOLDER_COLUMNS: Final = ("time>", "holder", "", "what…", "cost>")
_NARROW_HOLDER_COLUMNS: Final = ("holder", "", "what…")
_BRIEF_WIDTH: Final = 44
SIGNS: Final[dict[MomentKind, tuple[str, str]]] = {
    "session": ("●", "cyan"),
    "lease": ("○", "dim"),
    "lost": ("×", "bold red"),
    "run": ("►", "magenta"),
    "message": ("»", ""),
    "model": ("«", "green"),
    "tool": ("→", "blue"),
    "refused": ("!", "yellow"),
    "question": ("?", "yellow"),
    "checkpoint": ("■", "cyan"),
    "other": ("·", "dim"),
}
"""Of characters that every font for terminals has."""
LOST_STYLE: Final = "bright_white on dark_red"
"""Of a row that says where a holder died: on dark and on light terminals, so it names both colours."""
STATUS_STYLES: Final = {
    "replied": "green",
    "completed": "green",
    "landed": "green",
    "replayed": "cyan",
    "undone": "cyan",
    "failed": "red",
    "no reply": "red",
    "cut off": "bold red",
    "in_doubt": "bold yellow",
    "not_landed": "yellow",
    "gave_up": "yellow",
    "discarded": "dim",
    "to approve": "bold yellow",
    "refused": "yellow",
    "running": "cyan",
}


def make_timeline_table(
    timeline: Timeline, *, narrow: bool, holders: Mapping[str, SafeText] | None = None
) -> Table:
    """A table with a row for each moment.

    `holders` has a label for the holder of each lease, by its name. With it, a column shows the holder, and
    texts are short: most rows are one line on a terminal of 80 columns.
    """
    columns: Sequence[str] = _NARROW_COLUMNS if narrow else _COLUMNS
    if holders is not None:
        columns = _NARROW_HOLDER_COLUMNS if narrow else _HOLDER_COLUMNS
    table = make_table(*columns, title="timeline" if holders is None else None)
    now = utc_now()
    for moment in timeline.moments:
        sign, style = SIGNS[moment.kind]
        is_lost = moment.kind == "lost"
        dim = "" if is_lost else "dim"
        cells = {
            "time>": SafeText(clock(moment.at, now).rpartition(" ")[2], style=dim),
            "step>": SafeText(str(moment.step), style=dim),
            "holder": (holders or {}).get(timeline.holder_at(moment.seq), SafeText()),
            "": SafeText(sign, style="" if is_lost else style),
            "what…": _describe_moment(moment, timeline, narrow=narrow, brief=holders is not None),
            "took>": SafeText(span(moment.took_s)),
            "cost>": SafeText(usd(moment.usd) if moment.usd else ""),
        }
        if is_lost:
            table.add_section()
        table.add_row(*(cells[column] for column in columns), style=LOST_STYLE if is_lost else "")
        if moment.kind in ("lost", "checkpoint"):
            table.add_section()
    return table


def _describe_moment(moment: Moment, timeline: Timeline, *, narrow: bool, brief: bool) -> SafeText:
    width = 160 if narrow else 300
    is_lost, is_checkpoint = moment.kind == "lost", moment.kind == "checkpoint"
    is_said = moment.kind == "question" or moment.status in ("", "replied")  # By the text.
    status = "" if is_said else f"  {moment.status.replace('_', ' ')}"
    what = shorten(moment.what, _BRIEF_WIDTH - len(status) if brief and not is_lost else width)
    text = SafeText(what, style="bold" if is_lost or is_checkpoint else "")
    text.append(status, style=STATUS_STYLES.get(moment.status, ""))
    if moment.detail and is_lost:
        text.append(f"; {shorten(moment.detail, width // 2)}")
    elif moment.detail and not brief:
        text.append(f"  {shorten(moment.detail, width // 2)}", style="dim")
    if not brief:
        for note in list_notes(moment.notes):
            text.append(f"  noted: {shorten(note, width // 2)}", style="dim")
    if is_checkpoint and not brief:
        text.append(_sum_of_step(moment, timeline), style="not bold dim")
    return text


def _sum_of_step(moment: Moment, timeline: Timeline) -> str:
    step = timeline.steps.get(moment.step)
    if step is None or f"version {step.version}" not in moment.what:
        return ""
    parts = [f"model {span(step.model_s)}"] if step.model_s else []
    parts += [f"tools {span(step.tools_s)}"] if step.tools_s else []
    parts += [usd(step.usd)] if step.usd else []
    return f"  step {step.step}: {', '.join(parts)}" if parts else ""
