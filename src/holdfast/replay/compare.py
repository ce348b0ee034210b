"""The differences between a recording and its replay: pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec
from msgspec import UNSET, Struct

from ..formatting import short_args
from ..messages import FINAL, Json
from .recording import CallRecord, Recording, ReplyRecord, RunEnd, Turn
from .replay import Difference, DifferenceKind, describe
from .stage import StopKind

_LIMITS: dict[str, DifferenceKind] = {
    "budget_spent": "budget",
    "step_limit": "steps",
    "no_output": "output",
}
"""Ends that today's code decides, by their reasons."""


class TurnEnd(Struct, frozen=True, kw_only=True):
    """How a turn ended in the replay: `given` is how many replies had been given by then, of all."""

    given: int
    status: str = ""
    reason: str = ""
    error: str = ""
    stop: StopKind | None = None

    @property
    def words(self) -> str:
        """In words."""
        reason = f" ({self.reason})" if self.reason else ""
        error = f": {self.error}" if self.error else ""
        return describe(f"{self.status}{reason}{error}")


def compare_calls(recorded: Recording, replayed: Sequence[ReplyRecord], number: int) -> list[Difference]:
    """The differences of the calls of one turn, whose replies were given as they were recorded."""
    turn = recorded.turns[number]
    found: list[Difference] = []
    for place in range(turn.first, min(turn.last, len(replayed))):
        for old, new in zip(recorded.replies[place].calls, replayed[place].calls, strict=True):
            found += _compare_call(old, new, turn=number + 1, reply=place + 1)
    return found


def list_gone(recorded: Recording, number: int, given: int, why: str) -> Iterator[Difference]:
    """The calls of the replies of a turn that were not reached."""
    turn = recorded.turns[number]
    for place in range(max(given, turn.first), turn.last):
        for call in recorded.replies[place].calls:
            if call.course in ("ran", "repeated"):
                yield _make("gone", call, _words(call), why, turn=number + 1, reply=place + 1)


def _compare_call(old: CallRecord, new: CallRecord, *, turn: int, reply: int) -> Iterator[Difference]:
    def differ(kind: DifferenceKind, now: str, gate: str = "") -> Difference:
        return _make(kind, old, _words(old), now, turn=turn, reply=reply, gate=gate)

    if old.course == "told" or new.course == "open":
        if new.course == "refused":
            yield differ("refused", _words(new), new.gate)
        elif new.course == "open" and new.asked and not old.asked:
            yield differ("approval", "a person would be asked first")
        return
    if new.course == "refused":
        if old.course != "refused" or old.gate != new.gate:
            yield differ("refused", _words(new), new.gate)
        return
    if old.course == "refused":
        yield differ("new", "it would be made; what it would give is not on record")
        return
    if old.asked != new.asked:
        now = "a person would be asked first" if new.asked else "it would be made without asking"
        yield differ("approval", now)
    if old.course == "repeated" and new.course == "ran":
        if old.again:
            yield differ("new", "it would be made once more; what it would give is not on record")
    elif old.course == "ran" and new.course == "repeated":
        yield differ("gone", "it would not be made: it would get the result of an earlier call")
    elif old.checked is not UNSET and new.checked is not UNSET and _plain(old.checked) != _plain(new.checked):
        yield differ("arguments", f"{old.tool}({short_args(new.checked)})")


def compare_live(
    recorded: Recording, turn: Turn, replayed: Iterable[ReplyRecord], number: int
) -> Iterator[Difference]:
    """The differences of the calls of one turn, for which a live model was asked: by tool and arguments, in
    whatever order they were made."""
    old = [call for reply in recorded.replies[turn.first : turn.last] for call in reply.calls if call.result]
    place = number + 1
    left = list(old)
    unknown: list[tuple[int, CallRecord]] = []
    for reply, one in enumerate(replayed, 1):
        for call in one.calls:
            same = next((other for other in left if _name(other) == _name(call)), None)
            if same is None:
                unknown.append((reply, call))
            else:
                left.remove(same)
                yield from _compare_call(same, call, turn=place, reply=reply)
    for reply, call in unknown:
        if call.course == "refused":
            yield _make("refused", call, "not called", _words(call), turn=place, reply=reply, gate=call.gate)
            continue
        other = next((one for one in left if one.tool == call.tool), None)
        if other is None:
            now = "it would be made; what it would give is not on record"
            yield _make("new", call, "not called", now, turn=place, reply=reply)
            continue
        left.remove(other)
        now = f"{call.tool}({short_args(call.args)})"
        kind: DifferenceKind = "output" if call.tool == FINAL else "arguments"
        yield _make(kind, other, _words(other), now, turn=place, reply=reply)
    for call in left:
        yield _make("gone", call, _words(call), "the model does not call it", turn=place)


def compare_end(turn: Turn, number: int, end: TurnEnd, *, differs: bool) -> Difference | None:
    """The difference of the end of a turn. `differs`: its last step differed already, so that another end may
    only be what follows from that."""
    old = turn.end
    was = (
        "no end: it was cut off"
        if old is None
        else TurnEnd(given=turn.last, status=old.status, reason=old.reason, error=old.error).words
    )

    def differ(kind: DifferenceKind, now: str) -> Difference:
        return Difference(kind=kind, turn=number + 1, recorded=was, now=now)

    if end.stop == "missing":
        return None
    if end.stop == "asked":
        if differs or old is None or not goes_on(old):
            return None
        if old.status == "completed":
            return differ("output", "this is no output: the model would be asked again")
        return differ(_LIMITS[old.reason], "the run would go on")
    status = "paused" if end.status == "waiting" else end.status
    if end.given >= turn.last and old is None and status != "failed":
        return None
    if old is not None and end.given >= turn.last and (old.status, _reason(old)) == (status, _reason(end)):
        return None
    if status == "paused" and differs:
        return None
    return differ(_LIMITS.get(end.reason, "approval" if status == "paused" else "end"), end.words)


def goes_on(old: RunEnd | None) -> bool:
    """Whether a request after the last recorded reply means that today's code goes on where the other ended.

    If not, the recorded run ended by what no replay has: a kill, an error of the model, a cancellation, a
    budget of seconds.
    """
    if old is None or (old.reason == "budget_spent" and old.error.endswith(" seconds")):
        return False
    return old.status == "completed" or (old.status == "failed" and old.reason in _LIMITS)


def _reason(end: object) -> str:
    """The reason, where it says more than the status; what a run waits for is in its calls."""
    return str(getattr(end, "reason", "")) if getattr(end, "status", "") == "failed" else ""


def list_changes(recorded: Recording, replayed: Recording) -> Iterator[str]:
    """What has changed about the agent itself, by the digests in the journal."""
    if recorded.instructions is not None and recorded.instructions != replayed.instructions:
        yield "instructions"
    for name in sorted(recorded.tools.keys() | replayed.tools.keys()):
        if name not in replayed.tools:
            yield f"tool {name} is gone"
        elif name not in recorded.tools:
            yield f"tool {name} is new"
        elif recorded.tools[name] != replayed.tools[name]:
            yield f"tool {name}: what the model is shown of it"


def _make(
    kind: DifferenceKind, call: CallRecord, old: str, now: str, *, turn: int, reply: int = 0, gate: str = ""
) -> Difference:
    return Difference(
        kind=kind,
        turn=turn,
        reply=reply,
        tool=call.tool,
        args=call.args,
        gate=gate,
        recorded=describe(old),
        now=describe(now),
    )


def _words(call: CallRecord) -> str:
    said = "" if call.result is None else f": {call.result.text}"
    match call.course:
        case "ran" | "told":
            return f"made{said}"
        case "repeated":
            return f"not made again{said}"
        case "refused":
            return f"refused by gate {call.gate!r}{said}"
        case "open":
            return "no result"


def _name(call: CallRecord) -> tuple[str, bytes]:
    return call.tool, _plain(call.args if call.checked is UNSET else call.checked)


def _plain(args: Json) -> bytes:
    return msgspec.json.encode(args, order="deterministic")
