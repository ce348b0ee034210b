"""The counts of `stats`: durations, money and outcomes of calls, from the journals of sessions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import quantiles
from typing import Any

from msgspec import Struct, field

from ..core import entries as kinds
from ..core.budget import Usage
from ..core.effects import Effect
from ..core.entries import Entry
from ..core.head import Head
from ..errors import Corrupt
from ..store.store import Store
from .json_views import shape_usage, standing
from .timeline import effect_status


def describe_counts(counted: Mapping[str, int]) -> str:
    """Counts in words, the largest first."""
    pairs = sorted(counted.items(), key=lambda pair: -pair[1])
    return ", ".join(f"{number:,} {name.replace('_', ' ')}" for name, number in pairs)


class Times(Struct):
    """Durations in seconds."""

    all_s: list[float] = field(default_factory=list)

    def shape(self) -> dict[str, Any]:
        """Their number, sum, median, 95th percentile and maximum."""
        if not self.all_s:
            return {"count": 0, "sum_s": 0.0, "median_s": None, "p95_s": None, "max_s": None}
        cuts = quantiles(self.all_s, n=20, method="inclusive") if len(self.all_s) > 1 else self.all_s * 19
        return {
            "count": len(self.all_s),
            "sum_s": sum(self.all_s),
            "median_s": cuts[9],
            "p95_s": cuts[18],
            "max_s": max(self.all_s),
        }


class ModelTally(Struct, kw_only=True):
    """One model: what its replies cost, and how long they took."""

    usd: float = 0.0
    usage: Usage = Usage()
    replies: int = 0
    failures: int = 0
    times: Times = field(default_factory=Times)


class ToolTally(Struct, kw_only=True):
    """One tool: the outcomes of its calls, and the durations of its bodies."""

    outcomes: Counter[str] = field(default_factory=Counter)
    times: Times = field(default_factory=Times)


class RefusalTally(Struct, kw_only=True):
    """Refusals of one gate and tool. `followed`: the model called again; `right`: that call passed."""

    count: int = 0
    followed: int = 0
    right: int = 0


class Tally(Struct, kw_only=True):
    """Counts over any number of sessions."""

    sessions: Counter[str] = field(default_factory=Counter)
    runs: Counter[str] = field(default_factory=Counter)
    takeovers: int = 0
    steps: int = 0
    usage: Usage = Usage()
    usd: float = 0.0
    models: dict[str, ModelTally] = field(default_factory=dict)
    tools: dict[str, ToolTally] = field(default_factory=dict)
    refusals: dict[tuple[str, str], RefusalTally] = field(default_factory=dict)

    def add(self, entries: Iterable[Entry], effects: dict[int, Effect], *, held: bool) -> None:
        """Count one session. Entries that a fork inherits count for its origin."""
        own: list[Entry] = []
        for entry in entries:
            if isinstance(entry.body, kinds.SessionForked):
                own.clear()
            own.append(entry)
        self._add_work(own)
        self._add_calls(own, effects, held=held)
        self._add_refusals(own)

    def _add_work(self, entries: Sequence[Entry]) -> None:
        models: dict[int, str] = {}
        holder: str | None = None
        for entry in entries:
            match entry.body:
                case kinds.LeaseTaken(holder=taker):
                    self.takeovers += holder not in (None, taker)
                    holder = taker
                case kinds.LeaseReleased():
                    holder = None
                case kinds.CheckpointTaken():
                    self.steps += 1
                case kinds.ModelRequested(model=model):
                    models[entry.seq] = model or "?"
                case (
                    kinds.ModelReplied(request=request, cost_usd=cost_usd)
                    | kinds.ModelFailed(request=request, cost_usd=cost_usd) as body
                ):
                    one = self.models.setdefault(models.get(request or 0, "?"), ModelTally())
                    self.usage += body.usage
                    self.usd += cost_usd
                    one.usage += body.usage
                    one.usd += cost_usd
                    if isinstance(body, kinds.ModelFailed):
                        one.failures += 1
                        continue
                    one.replies += 1
                    if body.latency_ms is not None:
                        one.times.all_s.append(body.latency_ms / 1000)

    def _add_calls(self, entries: Sequence[Entry], effects: dict[int, Effect], *, held: bool) -> None:
        names: dict[int, str] = {}
        for entry in entries:
            match entry.body:
                case kinds.ToolIssued(tool=tool):
                    names[entry.seq] = tool
                    self._tool(tool).outcomes[effect_status(effects[entry.seq], held=held)] += 1
                case kinds.ToolRan(tool=tool, latency_ms=latency_ms):
                    self._tool(tool).outcomes["completed"] += 1
                    if latency_ms is not None:
                        self._tool(tool).times.all_s.append(latency_ms / 1000)
                case kinds.ToolCompleted(issued=None, original=original) if original is not None:
                    row = effects.get(original)
                    self._tool(row.tool if row else "?").outcomes["replayed"] += 1
                case kinds.ToolCompleted(issued=issued, latency_ms=latency_ms) if latency_ms is not None:
                    self._tool(names.get(issued or 0, "?")).times.all_s.append(latency_ms / 1000)
                case kinds.ToolRefused(tool=tool):
                    self._tool(tool).outcomes["refused"] += 1

    def _tool(self, name: str) -> ToolTally:
        return self.tools.setdefault(name, ToolTally())

    # -- refusals, and the calls after them -----------------------------------------------------------

    def _add_refusals(self, entries: Sequence[Entry]) -> None:
        """Count refusals, and whether the next call passed.

        That is the next call of the same tool in a later reply, or else the first call of that
        reply. Other calls of the refused call's own reply do not count.
        """
        waiting: list[tuple[str, RefusalTally]] = []
        for reply in _by_reply(entries):
            passed: dict[str, bool] = {}
            for tool, right in reply:
                passed.setdefault(tool, right)
            if passed:
                first = next(iter(passed.values()))
                for tool, tally in waiting:
                    tally.followed += 1
                    tally.right += passed.get(tool, first)
                waiting = []
            waiting += [(body.tool, self._refuse(body)) for body in reply.refused]

    def _refuse(self, body: kinds.ToolRefused) -> RefusalTally:
        tally = self.refusals.setdefault((body.gate, body.tool), RefusalTally())
        tally.count += 1
        return tally

    # -- sums ----------------------------------------------------------------------------------------

    @property
    def model_times(self) -> Times:
        """The durations of all replies."""
        return Times([s for one in self.models.values() for s in one.times.all_s])

    @property
    def model_failures(self) -> int:
        """How often a model was asked and did not reply."""
        return sum(one.failures for one in self.models.values())

    # -- for programs --------------------------------------------------------------------------------

    def shape(self) -> dict[str, Any]:
        """The counts as JSON."""
        return {
            "sessions": dict(self.sessions),
            "runs": dict(self.runs),
            "takeovers": self.takeovers,
            "steps": self.steps,
            "usage": shape_usage(self.usage),
            "usd": self.usd,
            "usd_by_model": {name: one.usd for name, one in self.models.items()},
            "model": {**self.model_times.shape(), "failures": self.model_failures},
            "models": {
                name: {
                    "usd": one.usd,
                    "usage": shape_usage(one.usage),
                    "replies": one.replies,
                    "failures": one.failures,
                    **one.times.shape(),
                }
                for name, one in sorted(self.models.items())
            },
            "tools": {
                name: {"outcomes": dict(one.outcomes), **one.times.shape()}
                for name, one in sorted(self.tools.items())
            },
            "refusals": [
                {
                    "gate": gate,
                    "tool": tool,
                    "count": one.count,
                    "followed": one.followed,
                    "next_right": one.right,
                }
                for (gate, tool), one in sorted(self.refusals.items())
            ],
        }


class _ReplyCalls(list[tuple[str, bool]]):
    """The calls of one reply, or one call without a reply: (tool, whether it passed)."""

    def __init__(self) -> None:
        super().__init__()
        self.refused: list[kinds.ToolRefused] = []


def _by_reply(entries: Iterable[Entry]) -> Iterable[_ReplyCalls]:
    found: dict[object, _ReplyCalls] = {}
    for entry in entries:
        body = entry.body
        if not isinstance(body, kinds.ToolIssued | kinds.ToolRan | kinds.ToolRefused | kinds.ApprovalAsked):
            continue
        if isinstance(body, kinds.ToolIssued) and body.attempt > 1:
            continue
        place = body.call.reply if body.call.reply is not None else f"={body.call.id}"
        reply = found.setdefault(place, _ReplyCalls())
        refused = isinstance(body, kinds.ToolRefused)
        reply.append((body.tool, not refused))
        if isinstance(body, kinds.ToolRefused):
            reply.refused.append(body)
    return found.values()


async def read_tally(
    store: Store, heads: Iterable[Head], *, on_damaged: Callable[[Head, Corrupt], object]
) -> Tally:
    """Count sessions. Of a damaged one, `on_damaged` is told, and nothing is counted."""
    tally = Tally()
    for head in heads:
        try:
            held = await store.is_held(head)
            state = await store.load(head.session)
            entries = [entry async for entry in store.tail(head.session, follow=False)]
            runs = [run async for run in store.runs(session=head.session)]
        except Corrupt as error:
            on_damaged(head, error)
            continue
        tally.sessions[standing(head, held)] += 1
        tally.add((entry for entry in entries if entry.seq <= state.seq), state.facts.effects.rows, held=held)
        for run in runs:
            tally.runs[run.status] += 1
    return tally
