"""The drawing of a journal: its entries, folded into steps, calls, gaps and waits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Final

from msgspec import Struct

from ..core import entries as kinds
from ..core.budget import Usage
from ..core.effects import Effect, call_name
from ..core.entries import CallRef, Entry
from ..core.lease_periods import LeasePeriod, LeasePeriods
from ..formatting import count, short_args, shorten, span, usd
from ..messages import CallPart, Json, ResultPart
from .model import Bar, Drawing, Event, EventKind, Gap, Item, Mark, MarkKind, Row, Spent, Status, Step

Describe = Callable[[Entry], str]
"""What an entry says, on one line."""

_NOTE_CHARS: Final = 400
_DETAIL_CHARS: Final = 160
_VERDICTS: Final[dict[kinds.Verdict, tuple[str, MarkKind]]] = {
    "landed": ("landed", "good"),
    "not_landed": ("not landed", "bad"),
    "gave_up": ("given up", "bad"),
}


def draw_journal(
    session: str,
    entries: Iterable[Entry],
    effects: Mapping[int, Effect],
    *,
    describe: Describe,
    held: bool,
    now: datetime,
    delegates: Mapping[str, Drawing] | None = None,
    cap_usd: float | None = None,
) -> Drawing | None:
    """The drawing of a whole journal; None of an empty one.

    `effects` is its ledger. `held`: its last holder may be alive, so what has no end goes on until `now`.
    `delegates` are the drawings of the sessions that worked for this one. Of a fork, the entries of its
    origin are left out.
    """
    fold = _Fold(effects, describe, delegates or {})
    for entry in entries:
        fold.apply(entry)
    if fold.last_at is None:
        return None
    fold.finish(now if held else None)
    end = max(
        [fold.last_at, *(bar.end for bar in fold.list_bars()), *([now] if held and fold.is_busy else [])]
    )
    return Drawing(
        session=session,
        start=min([fold.start or fold.last_at, *(bar.start for bar in fold.list_bars())]),
        end=end,
        items=fold.items,
        periods=fold.leases.rows,
        spent=fold.spent,
        cap_usd=cap_usd,
    )


class _Delegation(Struct):
    """A session that works for this one: its row, its bar while it works, and what it has cost so far."""

    row: Row
    bar: Bar | None = None
    usd: float = 0.0
    usage: Usage = Usage()


class _Fold:
    """The fold over entries."""

    def __init__(
        self, effects: Mapping[int, Effect], describe: Describe, delegates: Mapping[str, Drawing]
    ) -> None:
        self._effects, self._describe, self._delegates = effects, describe, delegates
        self.leases = LeasePeriods()
        self.last_at: datetime | None = None
        self.is_busy = False
        self._clear()

    def _clear(self) -> None:
        self.start: datetime | None = None
        self.items: list[Item] = []
        self.spent: list[Spent] = []
        self._usd, self._usage = 0.0, Usage()
        self._step: Step | None = None
        self._models: dict[int, Row] = {}
        """The row of the requests of each step, by the entry that its part of the step begins with."""
        self._requests: dict[int, Bar] = {}
        self._calls: dict[str, Row] = {}
        self._bars: dict[int, tuple[Row, Bar]] = {}
        """The last bar of each intent that has no verdict."""
        self._open: dict[int, Bar] = {}
        """Of these, those that run."""
        self._questions: dict[int, tuple[Row, Bar]] = {}
        self._delegations: dict[str, _Delegation] = {}
        self._taken_at: dict[int, datetime] = {}
        self._known_calls: set[str] = set()
        self._asked: dict[tuple[int, int], str] = {}
        """Calls of the last reply without an entry: a call without side effects has none while it runs."""

    def list_bars(self) -> list[Bar]:
        """All bars."""
        return [bar for item in self.items if isinstance(item, Step) for row in item.rows for bar in row.bars]

    def apply(self, entry: Entry) -> None:
        """Fold the next entry."""
        lost = self.leases.apply(entry)
        if lost is not None and self.last_at is not None:
            assert isinstance(entry.body, kinds.LeaseTaken)
            self._lose(lost, entry.seq, entry.at, entry.body.name)
        if self.start is None:
            self.start = entry.at
        call: CallRef | None = getattr(entry.body, "call", None)
        if call is not None and call.reply is not None:
            self._asked.pop((call.reply, call.index), None)
        match entry.body:
            case kinds.SessionForked():
                self._clear()
                self.start = entry.at
                self._add_event(entry, "other")
            case kinds.MessageAdded() as body:
                # Results that the ledger has as well are in the rows of their calls.
                results = [part.call_id for part in body.parts if isinstance(part, ResultPart)]
                if not results or not self._known_calls.issuperset(results):
                    self._add_event(entry, "message")
            case kinds.SessionRewound() as body:
                self._rewind(entry, body)
            case kinds.RunFailed() | kinds.RunCancelled():
                self._add_event(entry, "failed")
            case kinds.RunPaused():
                self._add_event(entry, "waits")
            case (
                kinds.SessionClosed()
                | kinds.SessionErased()
                | kinds.TranscriptCompacted()
                | kinds.BudgetChanged()
                | kinds.AdapterBody()
                | kinds.UnknownBody()
            ):
                self._add_event(entry, "other")
            case kinds.CheckpointTaken(version=version):
                self._take_checkpoint(entry, version)
            case kinds.ModelRequested() | kinds.ModelReplied() | kinds.ModelFailed():
                self._apply_model(entry)
            case kinds.DelegateStarted() | kinds.DelegateEnded():
                self._apply_delegate(entry)
            case kinds.ApprovalAsked() | kinds.ApprovalGiven() | kinds.ApprovalRefused():
                self._apply_approval(entry)
            case _:
                self._apply_tool(entry)
        self.last_at = entry.at

    def finish(self, now: datetime | None) -> None:
        """The journal ends here. `now`: its holder is alive, and what has no end goes on."""
        assert self.last_at is not None
        if now is None and (lost := self.leases.lose()) is not None:
            self._lose(lost, 0, None, "")
        going_on = [*self._requests.values(), *self._open.values()]
        going_on += [one.bar for one in self._delegations.values() if one.bar is not None]
        self.is_busy = bool(going_on)
        for bar in going_on:
            bar.status, bar.end = "running", max(now or self.last_at, bar.start)
        for row, bar in self._questions.values():
            bar.end = max(now or self.last_at, bar.start)
            row.marks.append(Mark(at=bar.end, kind="open", text="waits for approval"))
        for issued, (row, bar) in self._bars.items():
            effect = self._effects.get(issued)
            if bar.status == "doubt" and (effect is None or effect.status in ("in_doubt", "running")):
                self._prolong_doubt(row, bar, max(now or self.last_at, bar.end))
                row.marks.append(Mark(at=now or self.last_at, kind="open", text="in doubt"))

    # -- steps, events and gaps ---------------------------------------------------------------------------

    def _add_event(self, entry: Entry, kind: EventKind) -> None:
        text = shorten(self._describe(entry), _NOTE_CHARS)
        self.items.append(Event(seq=entry.seq, at=entry.at, kind=kind, text=text))
        self._step = None

    def _find_step(self, entry: Entry) -> Step:
        """The step of an entry, or the part of it after the last gap or message."""
        step = self._step
        if step is None or step.number != entry.step:
            before = any(one.number == entry.step for one in self._last_steps())
            step = Step(seq=entry.seq, number=entry.step, at=entry.at, continued=before)
            self._step = step
            self.items.append(step)
        return step

    def _last_steps(self) -> list[Step]:
        return [item for item in self.items[-20:] if isinstance(item, Step)]

    def _add_row(self, entry: Entry, row: Row) -> Row:
        self._find_step(entry).rows.append(row)
        return row

    def _take_checkpoint(self, entry: Entry, version: int) -> None:
        self._taken_at[version] = entry.at
        found = next((one for one in reversed(self._last_steps()) if one.number == entry.step), None)
        if found is not None:
            found.version, found.checkpoint_at = version, entry.at
        self._step = None

    def _rewind(self, entry: Entry, body: kinds.SessionRewound) -> None:
        for item in reversed(self.items):
            if item.seq <= body.seq:
                break
            if isinstance(item, Step):
                item.left_behind = True
        self._add_event(entry, "rewind")
        event = self.items[-1]
        assert isinstance(event, Event)
        event.to = self._taken_at.get(body.version, self.start)

    def _lose(self, lease: LeasePeriod, seq: int, until: datetime | None, by: str) -> None:
        """The holder died, or was silent until another process took over."""
        at = self.last_at
        assert at is not None
        cut: list[str] = []
        for bar in self._requests.values():
            bar.end, bar.status, bar.note = at, "cut", "no reply: the process died"
            cut.append("a request to the model")
        for issued, bar in self._open.items():
            effect = self._effects.get(issued)
            is_harmless = effect is not None and not effect.changes_the_world
            bar.end, bar.status = at, "cut" if is_harmless else "doubt"
            bar.note = "the process died during the call"
            cut.append(self._bars[issued][0].label)
        for delegation in self._delegations.values():
            if delegation.bar is not None:
                delegation.bar.end, delegation.bar.status, delegation.bar = at, "cut", None
        self._requests.clear()
        self._open.clear()
        cut += self._asked.values()
        text = f"{lease.name} was killed or cut off"
        if until is None:
            text += "; no process has taken over yet"
        else:
            text += f"; {by} took over after {span((until - at).total_seconds())}"
        if cut:
            text += f". Not finished: {', '.join(dict.fromkeys(cut))}"
        self.items.append(Gap(seq=seq, at=at, until=until, text=text))
        self._step = None

    # -- requests to models -------------------------------------------------------------------------------

    def _apply_model(self, entry: Entry) -> None:
        body = entry.body
        if isinstance(body, kinds.ModelRequested):
            bar = Bar(kind="model", start=entry.at, end=entry.at, status="running")
            self._model_row(entry, body.model).bars.append(bar)
            self._requests[entry.seq] = bar
            return
        assert isinstance(body, kinds.ModelReplied | kinds.ModelFailed)
        found = self._requests.pop(body.request or 0, None)
        is_reply = isinstance(body, kinds.ModelReplied)
        latency_ms = body.latency_ms if isinstance(body, kinds.ModelReplied) else None
        if found is None:
            start = entry.at - timedelta(milliseconds=latency_ms or 0)
            found = Bar(kind="model", start=start, end=entry.at)
            self._model_row(entry, getattr(body, "model", None)).bars.append(found)
        found.end, found.status = entry.at, "ok" if is_reply else "failed"
        parts = [shorten(self._describe(entry), _NOTE_CHARS)]
        parts += [count(body.usage.tokens, "token")] if body.usage.tokens else []
        parts += [usd(body.cost_usd)] if body.cost_usd else []
        found.note = "\n".join(parts)
        row = self._model_row(entry, getattr(body, "model", None))
        if isinstance(body, kinds.ModelReplied):
            row.link = f"#entry-{entry.seq}"
            names = [part.name for part in body.parts if isinstance(part, CallPart)]
            self._asked = {(entry.seq, index): name for index, name in enumerate(names)}
            self._known_calls.update(part.id for part in body.parts if isinstance(part, CallPart))
            row.detail = (
                f"calls {', '.join(dict.fromkeys(names))}" if names else parts[0].removeprefix("reply: ")
            )
        else:
            row.detail = parts[0]
        self._spend(entry, body.usage, body.cost_usd)

    def _model_row(self, entry: Entry, model: str | None) -> Row:
        step = self._find_step(entry)
        row = self._models.get(step.seq)
        if row is None:
            row = self._models[step.seq] = self._add_row(entry, Row(kind="model", label=model or "model"))
        elif model and row.label == "model":
            row.label = model
        return row

    def _spend(self, entry: Entry, usage: Usage, cost_usd: float) -> None:
        self._usd += cost_usd
        self._usage += usage
        step = self._find_step(entry)
        step.usd += cost_usd
        step.tokens += usage.tokens
        self.spent.append(Spent(at=entry.at, usd=self._usd, tokens=self._usage.tokens))

    def _apply_delegate(self, entry: Entry) -> None:
        body = entry.body
        assert isinstance(body, kinds.DelegateStarted | kinds.DelegateEnded)
        known = self._delegations.get(body.session)
        if known is None:
            inside = self._delegates.get(body.session)
            row = Row(kind="delegate", label="delegate", detail=body.session, inside=inside)
            known = self._delegations[body.session] = _Delegation(self._add_row(entry, row))
        if isinstance(body, kinds.DelegateStarted):
            known.bar = Bar(
                kind="delegate", start=entry.at, end=entry.at, status="running", note=body.session
            )
            known.row.bars.append(known.bar)
            return
        if known.bar is not None:
            known.bar.end, known.bar.status, known.bar = entry.at, "ok", None
        self._spend(entry, body.usage - known.usage, body.cost_usd - known.usd)
        known.usd, known.usage = body.cost_usd, body.usage

    # -- calls of tools -----------------------------------------------------------------------------------

    def _call_row(self, entry: Entry, call: CallRef, tool: str, args: str = "") -> Row:
        """The row of a call. One that the caller made itself may have the id of an earlier one."""
        name = call_name(call)
        row = self._calls.get(name)
        ended = row is not None and call.reply is None and all(bar.status == "ok" for bar in row.bars)
        if row is None or (ended and row not in self._find_step(entry).rows):
            row = self._calls[name] = self._add_row(entry, Row(kind="tool", label=tool or f"call {call.id}"))
            self._known_calls.add(call.id)
        row.label = tool or row.label
        row.detail = shorten(args, _DETAIL_CHARS) or row.detail
        return row

    def _apply_tool(self, entry: Entry) -> None:
        match entry.body:
            case kinds.ToolIssued() as body:
                row = self._call_row(entry, body.call, body.tool, _args_text(entry, body.args))
                row.link = f"#effect-{entry.seq}"
                note = f"attempt {body.attempt}" if body.attempt > 1 else ""
                bar = Bar(kind="tool", start=entry.at, end=entry.at, status="running", note=note)
                for earlier in row.bars:
                    self._end_doubt(row, earlier, entry.at)
                row.bars.append(bar)
                self._bars[entry.seq], self._open[entry.seq] = (row, bar), bar
            case kinds.ToolRan() as body:
                row = self._call_row(entry, body.call, body.tool, _args_text(entry, body.args))
                start = entry.at - timedelta(milliseconds=body.latency_ms or 0)
                note = shorten(self._describe(entry), _NOTE_CHARS)
                row.bars.append(Bar(kind="tool", start=start, end=entry.at, note=note))
            case kinds.ToolCompleted(issued=None) as body:
                row = self._call_row(entry, body.call, "")
                text = f"repeats the outcome of {body.replay_of}" if body.replay_of else "repeats an outcome"
                row.marks.append(Mark(at=entry.at, kind="plain", text=text))
            case kinds.ToolCompleted(issued=int(issued)):
                self._end_bar(entry, issued, "ok")
            case kinds.ToolFailed(issued=int(issued)):
                self._end_bar(entry, issued, "failed")
            case kinds.ToolInDoubt(issued=issued):
                self._end_bar(entry, issued, "doubt")
            case kinds.ToolDiscarded(issued=issued):
                self._end_bar(entry, issued, "cut")
            case kinds.ToolRefused() as body:
                row = self._call_row(entry, body.call, body.tool)
                row.marks.append(Mark(at=entry.at, kind="bad", text=f"refused ({body.gate})"))
            case kinds.ToolSettled() as body:
                self._settle(entry, body)
            case kinds.ToolUndone(issued=issued) if issued in self._bars:
                row, _ = self._bars[issued]
                row.marks.append(Mark(at=entry.at, kind="plain", text="undone"))
            case _:
                pass

    def _end_bar(self, entry: Entry, issued: int, status: Status) -> None:
        running = self._open.pop(issued, None)
        known = self._bars.get(issued)
        if known is None:
            return
        row, bar = known
        if running is not None:
            bar.end = entry.at
        elif status in ("ok", "failed"):
            # The outcome of a call in doubt, told by the process that ran it.
            self._end_doubt(row, bar, entry.at)
            bar.end = max(bar.end, bar.start)
        bar.status = status
        bar.note = shorten(self._describe(entry), _NOTE_CHARS)

    def _settle(self, entry: Entry, body: kinds.ToolSettled) -> None:
        word, kind = _VERDICTS[body.verdict]
        text = f"{word}, says {body.by}"
        known = self._bars.pop(body.issued, None)
        running = self._open.pop(body.issued, None)
        if running is not None:  # Its process took the lease again, without an end before.
            running.end, running.status = entry.at, "doubt"
        row = known[0] if known is not None else self._call_row(entry, body.call, "")
        if known is not None:
            self._end_doubt(row, known[1], entry.at)
        row.marks.append(Mark(at=entry.at, kind=kind, text=text))

    def _end_doubt(self, row: Row, bar: Bar, at: datetime) -> None:
        """The doubt about a bar ends here, with a verdict or with another attempt."""
        if bar.status == "doubt":
            self._prolong_doubt(row, bar, at)

    def _prolong_doubt(self, row: Row, bar: Bar, at: datetime) -> None:
        if bar.kind == "tool" and not any(one.kind == "doubt" and one.start == bar.end for one in row.bars):
            note = "in doubt: it is not known whether it happened"
            row.bars.append(Bar(kind="doubt", start=bar.end, end=at, status="doubt", note=note))

    # -- people -------------------------------------------------------------------------------------------

    def _apply_approval(self, entry: Entry) -> None:
        body = entry.body
        if isinstance(body, kinds.ApprovalAsked):
            row = self._call_row(entry, body.call, body.tool, _args_text(entry, body.args))
            bar = Bar(kind="wait", start=entry.at, end=entry.at, status="waiting", note="waits for approval")
            row.bars.append(bar)
            self._questions[entry.seq] = row, bar
            return
        assert isinstance(body, kinds.ApprovalGiven | kinds.ApprovalRefused)
        known = self._questions.pop(body.asked, None)
        if known is None:
            return
        row, bar = known
        is_given = isinstance(body, kinds.ApprovalGiven)
        bar.end, bar.status = entry.at, "ok"
        text = f"{'approved' if is_given else 'refused'} by {body.by}"
        row.marks.append(Mark(at=entry.at, kind="good" if is_given else "bad", text=text))


def _args_text(entry: Entry, args: Json) -> str:
    return "[erased]" if entry.details_erased else short_args(args)
