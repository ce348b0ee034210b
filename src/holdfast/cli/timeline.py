"""A journal as a timeline: who held the session, what the model and the tools took, where it broke off.

Pure: entries go in one by one. What came of something that was begun is filled in where it began, as long as
the same holder says so; what is found out later has a line of its own, at its own time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Literal, TypeAlias

from msgspec import Struct

from ..core import entries as kinds
from ..core.effects import Effect
from ..core.entries import CallRef, Entry
from ..messages import CallPart
from .entry_text import describe, message_of, result_of, short_args

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
    """Something that happened; what took time has `took_s`, and ends in its `status`."""

    seq: int
    at: datetime
    kind: MomentKind
    what: str
    step: int = 0
    run: str | None = None
    status: str = ""
    detail: str = ""
    took_s: float | None = None
    usd: float = 0.0
    tokens: int = 0
    tool: str | None = None
    call: str | None = None


class Tenure(Struct, kw_only=True):
    """A lease from its taking to its end: `released`, `lost` (never given back) or `held`."""

    holder: str
    name: str
    fence: int
    since: datetime
    until: datetime | None = None
    ended: Literal["released", "lost", "held"] = "held"


class Step(Struct, kw_only=True):
    """What a step took. The last one may have no version yet."""

    step: int
    version: int | None = None
    model_s: float = 0.0
    tools_s: float = 0.0
    usd: float = 0.0
    tokens: int = 0


class Timeline:
    """Folds entries into moments, leases and steps."""

    def __init__(self, effects: Mapping[int, Effect]) -> None:
        self._effects = effects
        self._clear()

    def _clear(self) -> None:
        self.moments: list[Moment] = []
        self.leases: list[Tenure] = []
        self.steps: dict[int, Step] = {}
        self.inherited = 0
        """Entries before a fork: they are its origin's to tell."""
        self._last: Entry | None = None
        self._requests: dict[int, Moment] = {}
        self._calls: dict[int, Moment] = {}
        self._asked: dict[tuple[int, int], str] = {}
        """Calls of replies that were not issued yet: harmless ones are, without a line, while they run."""

    @classmethod
    def of(cls, entries: Iterable[Entry], effects: Mapping[int, Effect], *, held: bool) -> Timeline:
        """The timeline of a whole journal. `effects` is its ledger; `held`: the last holder may be alive."""
        timeline = cls(effects)
        for entry in entries:
            timeline.apply(entry)
        if timeline._is_open() and not held:
            timeline._lose("nobody has taken over yet")
        for moment in timeline._calls.values():
            moment.status = moment.status or "running"
        return timeline

    def apply(self, entry: Entry) -> None:
        """Fold the next entry."""
        body = entry.body
        call: CallRef | None = getattr(body, "call", None)
        if call is not None and call.reply is not None:
            self._asked.pop((call.reply, call.index), None)
        match body:
            case kinds.SessionForked():
                self._fork(entry)
            case kinds.LeaseTaken():
                self._take(entry, body)
            case kinds.LeaseReleased():
                self._release(entry)
            case kinds.ModelRequested():
                self._requests[entry.seq] = self._add(entry, "model", "", status="no reply")
            case kinds.ModelReplied() | kinds.ModelFailed():
                self._answer(entry, body)
            case kinds.ToolIssued():
                what = f"{body.tool}({short_args(body.args)})"
                moment = self._add(entry, "tool", what, tool=body.tool, call=body.call.id)
                if body.attempt > 1:
                    moment.detail = f"attempt {body.attempt}"
                self._calls[entry.seq] = moment
            case kinds.ToolRan():
                what = f"{body.tool}({short_args(body.args)})"
                moment = self._add(entry, "tool", what, tool=body.tool, call=body.call.id, status="completed")
                moment.took_s, moment.detail = (body.latency_ms or 0.0) / 1000, result_of(entry)
                self._step(entry.step).tools_s += moment.took_s
            case kinds.ToolCompleted() | kinds.ToolFailed():
                self._end_call(entry, body.call, body.issued, body)
            case kinds.ToolInDoubt() | kinds.ToolDiscarded():
                self._break_off(entry, body)
            case kinds.ToolSettled():
                what = f"call {body.call.id} settled by {body.by}"
                moment = self._add(entry, "tool", what, status=body.verdict, call=body.call.id)
                said = result_of(entry) if body.told else ""
                moment.detail = "; ".join(one for one in (body.note, said) if one)
            case kinds.CheckpointTaken():
                self._add(entry, "checkpoint", describe(entry))
                self._step(entry.step).version = body.version
            case _:
                kind = _KINDS.get(type(body))
                if kind is not None:
                    self._add(entry, kind, describe(entry))
        self._last = entry

    def _add(self, entry: Entry, kind: MomentKind, what: str, **more: str | None) -> Moment:
        moment = Moment(
            seq=entry.seq, at=entry.at, kind=kind, what=what, step=entry.step, run=entry.run,
            status=more.get("status") or "", tool=more.get("tool"), call=more.get("call"),
        )  # fmt: skip
        self.moments.append(moment)
        return moment

    def _step(self, number: int) -> Step:
        return self.steps.setdefault(number, Step(step=number))

    # -- who held it ---------------------------------------------------------------------------------

    def _fork(self, entry: Entry) -> None:
        self._clear()
        self.inherited = entry.seq - 1
        self._add(entry, "session", describe(entry))

    def _is_open(self) -> bool:
        return bool(self.leases) and self.leases[-1].ended == "held"

    def _take(self, entry: Entry, body: kinds.LeaseTaken) -> None:
        after = ""
        if self._is_open() and self.leases[-1].holder == body.holder:
            self._release(entry)
            self.moments.pop()
        elif self._is_open() and self._last is not None:
            before = self.leases[-1].name
            silence_s = (entry.at - self._last.at).total_seconds()
            self._lose(f"{body.name} took over")
            after = f", {silence_s:.1f} s after the last sign of {before}"
        self.leases.append(Tenure(holder=body.holder, name=body.name, fence=entry.seq, since=entry.at))
        self._add(entry, "lease", f"{body.name} holds the session{after}")

    def _release(self, entry: Entry) -> None:
        if self._is_open():
            self.leases[-1].ended, self.leases[-1].until = "released", entry.at
        self._add(entry, "lease", "lease given back")

    def _lose(self, then: str) -> None:
        """The holder left without a goodbye: killed, or silent until somebody else took over."""
        assert self._last is not None
        lease = self.leases[-1]
        lease.ended, lease.until = "lost", self._last.at
        running = {seq: moment for seq, moment in self._calls.items() if not moment.status}
        for seq, moment in running.items():
            effect = self._effects.get(seq)
            moment.status = "in_doubt" if effect is not None and effect.changes_the_world else "cut off"
        cut = [moment for moment in self._requests.values() if moment.status == "no reply"]
        cut += running.values()
        names = [moment.tool or "a request to the model" for moment in cut] + list(self._asked.values())
        under_way = ", ".join(dict.fromkeys(names))
        moment = self._add(self._last, "lost", f"{lease.name} is gone and never gave the lease back; {then}")
        moment.detail = f"not finished: {under_way}" if under_way else ""

    # -- what took time ------------------------------------------------------------------------------

    def _answer(self, entry: Entry, body: kinds.ModelReplied | kinds.ModelFailed) -> None:
        moment = self._requests.pop(body.request or 0, None) or self._add(entry, "model", "")
        took_s = (entry.at - moment.at).total_seconds()
        step = self._step(entry.step)
        if isinstance(body, kinds.ModelReplied):
            moment.status, moment.what = "replied", message_of(entry, body.format)
            names = [part.name for part in body.parts if isinstance(part, CallPart)]
            self._asked = {(entry.seq, index): name for index, name in enumerate(names)}
            took_s = took_s if body.latency_ms is None else body.latency_ms / 1000
        else:
            moment.status, moment.what = "failed", f"no reply: {body.error}"
        moment.took_s, moment.usd, moment.tokens = took_s, body.cost_usd, body.usage.tokens
        step.model_s += took_s
        step.usd += body.cost_usd
        step.tokens += body.usage.tokens

    def _break_off(self, entry: Entry, body: kinds.ToolInDoubt | kinds.ToolDiscarded) -> None:
        """It came to no outcome. That may be said again later, by somebody else."""
        moment = self._calls.get(body.issued)
        if moment is None or moment.status:
            if isinstance(body, kinds.ToolInDoubt):
                self._add(entry, "tool", describe(entry))
            return
        moment.took_s = (entry.at - moment.at).total_seconds()
        if isinstance(body, kinds.ToolInDoubt):
            moment.status, moment.detail = "in_doubt", body.why
        else:
            moment.status = "discarded"

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
            moment.detail = result_of(entry)
            return
        latency_ms = getattr(body, "latency_ms", None)
        took_s = (entry.at - moment.at).total_seconds() if latency_ms is None else latency_ms / 1000
        moment.took_s = took_s
        moment.status = "completed" if isinstance(body, kinds.ToolCompleted) else "failed"
        moment.detail = body.error if isinstance(body, kinds.ToolFailed) else result_of(entry)
        self._step(entry.step).tools_s += took_s


def became_of(effect: Effect, *, held: bool) -> str:
    """The status of an effect. Nobody who is gone still runs one."""
    if effect.status != "running" or held:
        return effect.status
    return "in_doubt" if effect.changes_the_world else "cut off"


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
    kinds.MessageAdded: "message",
    kinds.TranscriptCompacted: "message",
    kinds.ToolRefused: "refused",
    kinds.ToolUndone: "tool",
    kinds.ApprovalAsked: "question",
    kinds.ApprovalGiven: "question",
    kinds.ApprovalRefused: "question",
    kinds.CheckpointDropped: "checkpoint",
    kinds.PlanChanged: "other",
    kinds.BudgetChanged: "other",
    kinds.InboxTaken: "other",
}
"""Kinds that are told as they are; those in neither place are left to `holdfast tail`."""
