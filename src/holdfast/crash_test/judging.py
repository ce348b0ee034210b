"""How a killed run ended, compared with the undisturbed one; and what to declare to mend it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct, field

from .boundaries import Line
from .naming import BoundaryEvent, Call, Namer
from .report import Verdict, shown_line
from .worlds import CrashWorld


class Lifetime(Struct):
    """One process, from its start to its end."""

    events: list[BoundaryEvent] = field(default_factory=list)
    killed: bool = False
    hung: str = ""
    """Why it counts as hung."""
    signs: int = 0
    """How often it was heard of."""
    returned: bool = False
    result: str | None = None
    error: str = ""
    trace: str = ""
    lines: list[Line] = field(default_factory=list)
    modules: list[str] = field(default_factory=list)
    tools: list[dict[str, Any]] = field(default_factory=list)

    @property
    def is_over(self) -> bool:
        """Whether nothing more comes of it."""
        return self.killed or self.returned or bool(self.hung or self.error)

    @property
    def done(self) -> list[BoundaryEvent]:
        """The events without the operation before which it was killed."""
        is_cut = self.killed and self.events and self.events[-1].phase == "before"
        return self.events[:-1] if is_cut else self.events

    def take_end(self, message: Mapping[str, Any]) -> None:
        """What the process says when it has ended."""
        self.returned = "error" not in message
        self.result = message.get("result")
        self.error, self.trace = message.get("error", ""), message.get("trace", "")
        self.lines = [(file, line) for file, line in message.get("lines", ())]
        self.modules, self.tools = message.get("modules", []), message.get("tools", [])


class End(Struct, frozen=True):
    """How the world stands, and what the last process returned."""

    facts: Counter[str]
    result: str | None
    failed_check: str
    is_checked: bool


class Settings(Struct, frozen=True, kw_only=True):
    """What all runs of a test are judged by."""

    expected: End
    compares_results: bool
    has_entries: bool
    """Whether a holdfast store is in use."""
    tools: list[dict[str, Any]]
    """The tools that are declared, and where."""
    events: tuple[BoundaryEvent, ...]
    """Of the undisturbed run."""
    world: CrashWorld
    scenario: str


def difference(expected: Counter[str], found: Counter[str]) -> str:
    """What is there too often and what is missing, as text; empty if they are equal."""
    more = [
        f"{fact} ({found[fact]} times, not {expected[fact]})" if expected[fact] else f"unexpected: {fact}"
        for fact in sorted(found - expected)
    ]
    missing = [f"missing: {fact}" for fact in sorted(expected - found)]
    return "; ".join([*more, *missing])[:600]


def judge(lives: Sequence[Lifetime], end: End, namer: Namer, settings: Settings) -> dict[str, Any]:
    """The verdict on a run, what is wrong, the line, and what to declare."""
    last = lives[-1]
    events = [event for life in lives for event in life.events]
    more, missing = end.facts - settings.expected.facts, settings.expected.facts - end.facts
    is_wrong = bool(end.failed_check) if end.is_checked else bool(more or missing)
    # pytest writes more lines below the message of an assert.
    failed_check = end.failed_check.partition("\n")[0]
    told = "; ".join(filter(None, [failed_check, difference(settings.expected.facts, end.facts)]))
    if last.hung:
        line = _line_of_tool(namer.open, settings) or _last_line(last.events)
        return _found(
            "hung",
            f"{last.hung}; the last boundary was {namer.name(events[-1]) if events else 'none'}",
            line or settings.scenario,
            "end what waits for something that died with the process; give waits a timeout",
        )
    done_events = [event for life in lives for event in life.done]
    if is_wrong and (twice := _find_twice(more, done_events, settings)) is not None:
        _, done = twice
        return _found("done twice", told, _line_of_event(done, settings), _mend_twice(done, namer, settings))
    if doubts := [call for call in namer.in_doubt if changes_the_world(call)]:
        return _in_doubt(doubts, settings)
    failed = f"; the resumption failed: {last.error}" if last.error else ""
    if is_wrong and missing and not more:
        line = line_of_facts(missing, [*events, *settings.events], settings.world)
        return _found(
            "lost",
            told + failed,
            line or shown_line(next(iter(last.lines), None)) or settings.scenario,
            _mend_lost(namer, settings),
        )
    line = shown_line(last.lines[0]) if last.lines else line_of_facts(more, events, settings.world)
    mend = (
        "keep what the resumption needs in session.state or in the arguments of calls, not in memory, the "
        "clock or the environment"
        if settings.has_entries
        else "keep what the resumption needs in a session, and make effects in tools (docs/own-loop.md)"
    )
    if is_wrong:
        return _found("diverged", told + failed, line or settings.scenario, mend)
    if last.error:
        return _found("diverged", f"the resumption failed: {last.error}", line or settings.scenario, mend)
    if settings.compares_results and last.result is not None and last.result != settings.expected.result:
        what = f"it returned {last.result}, not {settings.expected.result}"
        return _found("diverged", what[:600], settings.scenario, mend)
    return {"verdict": "same end"}


def _found(verdict: Verdict, what: str, line: str, mend: str) -> dict[str, Any]:
    return {"verdict": verdict, "what": what, "line": line, "mend": mend}


def changes_the_world(call: Call) -> bool:
    """Whether the call may have side effects."""
    return bool({"write", "mutate"} & set(call.effects))


def _in_doubt(doubts: Sequence[Call], settings: Settings) -> dict[str, Any]:
    call = doubts[0]
    others = f", and {len(doubts) - 1} more" if len(doubts) > 1 else ""
    return _found(
        "in doubt",
        f"{call.label} may have happened{others}: a person must answer, with "
        f"holdfast resolve {call.session} {call.id} landed|not-landed",
        _line_of_tool([call], settings) or settings.scenario,
        f"give {call.tool} verify=…, which asks the service by ctx.key; or idempotent=True, if the service "
        "knows keys",
    )


# -- what was done twice -------------------------------------------------------------------------------


def _find_twice(
    more: Counter[str], events: Sequence[BoundaryEvent], settings: Settings
) -> tuple[str, BoundaryEvent | None] | None:
    """The fact that is there too often, and the operation that made it so; None if nothing was repeated."""
    for fact in sorted(more):
        if settings.expected.facts[fact]:
            return fact, _find_operation(fact, events, settings.world)
    repeated = _repeated(events, settings)
    return ("", repeated) if more and repeated is not None else None


def _repeated(events: Sequence[BoundaryEvent], settings: Settings) -> BoundaryEvent | None:
    """The last operation that was made more often than in the undisturbed run, and changed what is there."""

    def count(seen: Sequence[BoundaryEvent]) -> Counter[tuple[str, str]]:
        return Counter(one.key[:2] for one in seen if one.key is not None and one.phase == "before")

    usual, now = count(settings.events), count(events)
    for event in reversed(events):
        if event.key is None or event.phase != "before" or event.by_framework:
            continue
        if event.key[0].startswith(_NOT_THE_WORLD):
            continue
        if now[event.key[:2]] > usual[event.key[:2]] > 0:
            return event
    return None


_VERBS = ("write", "commit", "rename", "remove", "rmdir", "mkdir", "truncate", "link")
_NOT_THE_WORLD = ("end", *(f"{verb} agent" for verb in _VERBS))
"""Operations that change nothing but the agent's own files."""


def _find_operation(fact: str, events: Sequence[BoundaryEvent], world: CrashWorld) -> BoundaryEvent | None:
    subject = world.subject(fact)
    found = [one for one in events if one.key is not None and not one.by_framework and subject in one.label]
    return next((one for one in reversed(found) if one.lines), found[-1] if found else None)


def _mend_twice(done: BoundaryEvent | None, namer: Namer, settings: Settings) -> str:
    if not settings.has_entries:
        return (
            "nothing records the effect before it is made: make it in a tool of holdfast, "
            '@holdfast.tool(side_effects="mutate", verify=…), that Agent, Registry, Durable, DurableRunner '
            "or durable_tools runs (docs/declare-tools.md)"
        )
    changing = [call for call in (done.open if done else ()) if changes_the_world(call)]
    if not changing:
        tool = _tool_at(done.lines if done else (), settings)
        if tool is not None and not {"write", "mutate"} & set(tool["effects"]):
            return (
                f"{tool['name']} is declared as one that changes nothing, and it changes the world: "
                'side_effects="mutate", verify=…'
            )
        return (
            "the effect is made outside of a tool, before its intent is on record: dispatch it through the "
            "registry (docs/own-loop.md)"
        )
    name = changing[-1].tool
    answers = {one.verdict for one in namer.settled if one.tool == name}
    if "not_landed" in answers:
        return (
            f"verify of {name} answered NotLanded for an effect that had happened: it must find it by ctx.key"
        )
    if set(changing[-1].effects) <= {"read", "write"}:
        return (
            f'{name} is declared as "write", which may be done again, and it adds: side_effects="mutate", '
            "verify=…"
        )
    return (
        f"{name} was run again with the same key, and did it again: hand ctx.key to the service, or give it "
        "verify=…"
    )


def _mend_lost(namer: Namer, settings: Settings) -> str:
    landed = [one.tool for one in namer.settled if one.verdict == "landed"]
    if landed:
        return (
            f"verify of {landed[-1]} answered Landed for an effect that had not happened: it must find it by "
            "ctx.key"
        )
    if not settings.has_entries:
        return (
            "what was still to do was in memory only, or was noted as done before it was: keep it in a "
            "session, and make effects in tools (docs/own-loop.md)"
        )
    return (
        "what the resumption needs is not in the session: keep it in session.state, or let the model ask for "
        "it again"
    )


# -- lines ---------------------------------------------------------------------------------------------


def _tool_at(lines: Sequence[Line], settings: Settings) -> dict[str, Any] | None:
    """The declared tool whose body one of the lines is in."""
    return next((one for line in lines for one in settings.tools if _is_in(line, one)), None)


def _is_in(line: Line, tool: Mapping[str, Any]) -> bool:
    return bool(tool["file"] == line[0] and tool["first"] <= line[1] <= tool["last"])


def _line_of_tool(calls: Sequence[Call], settings: Settings) -> str:
    seen = [line for event in settings.events for line in event.lines]
    for call in calls:
        found = [one for one in settings.tools if one["name"] == call.tool]
        # Of several with this name, the one whose body was entered.
        found.sort(key=lambda one: not any(_is_in(line, one) for line in seen))
        if found:
            return shown_line((found[0]["file"], found[0]["first"]))
    return ""


def _line_of_event(event: BoundaryEvent | None, settings: Settings) -> str:
    if event is None:
        return settings.scenario
    in_tools = [line for line in event.lines if _tool_at([line], settings)]
    if event.lines:
        return shown_line((in_tools or event.lines)[0])
    return _line_of_tool(event.open, settings) or settings.scenario


def line_of_facts(facts: Counter[str], events: Sequence[BoundaryEvent], world: CrashWorld) -> str:
    """The line of the last operation that made one of the facts."""
    for fact in sorted(facts):
        found = _find_operation(fact, events, world)
        if found is not None and found.lines:
            return shown_line(found.lines[0])
    return ""


def _last_line(events: Sequence[BoundaryEvent]) -> str:
    return next((shown_line(one.lines[0]) for one in reversed(events) if one.lines), "")
