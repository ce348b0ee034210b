"""Effects as HTML: what was asked for, under which key and fence, and what became of it."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final

from msgspec import Struct

from ..content.lazy import read_content
from ..core import entries as kinds
from ..core.effects import Effect
from ..core.entries import Entry
from ..core.lease_periods import LeasePeriods
from ..drawing.markup import Child, Html, el
from ..drawing.status import Tone, draw_status
from ..formatting import short_args, shorten, span, utc_text
from .entry_text import list_notes

_ERASED: Final = "[erased]"
_TOLD_CHARS: Final = 600
_NOTE_CHARS: Final = 400


class EffectStory(Struct, kw_only=True):
    """What the journal says of an effect beside its row in the ledger."""

    args: str = ""
    holder: str = ""
    fence: int = 0
    told: list[tuple[datetime, str, Tone]] = []
    """What became of it, in order."""


def read_stories(entries: Iterable[Entry], of: Container[int] | None = None) -> dict[int, EffectStory]:
    """The story of each effect, by its intent; of these effects only, if they are given.

    `entries` begin with the first one of the journal: who held the session is in there, too.
    """
    found: dict[int, EffectStory] = {}
    leases = LeasePeriods()
    for entry in entries:
        leases.apply(entry)
        body = entry.body
        if isinstance(body, kinds.ToolIssued):
            if of is not None and entry.seq not in of:
                continue
            args = _ERASED if entry.details_erased else short_args(body.args)
            lease = leases.rows[-1] if leases.rows else None
            found[entry.seq] = story = EffectStory(args=args)
            if lease is not None:
                story.holder, story.fence = lease.name, lease.fence
        elif isinstance(issued := getattr(body, "issued", None), int) and issued in found:
            found[issued].told += _tell(entry)
    return found


def _tell(entry: Entry) -> list[tuple[datetime, str, Tone]]:
    match entry.body:
        case kinds.ToolCompleted(latency_ms=latency_ms):
            took = f" after {span(latency_ms / 1000)}" if latency_ms is not None else ""
            said = read_content(entry.content).text
            return [(entry.at, shorten(f"completed{took}: {said}", _TOLD_CHARS), "good")]
        case kinds.ToolFailed(error=error):
            said = f"failed: {_ERASED if entry.details_erased else error}"
            return [(entry.at, shorten(said, _TOLD_CHARS), "bad")]
        case kinds.ToolInDoubt(reason=reason):
            said = f"in doubt: {_ERASED if entry.details_erased else reason}"
            return [(entry.at, shorten(said, _TOLD_CHARS), "open")]
        case kinds.ToolSettled(verdict=verdict, by=by, note=note):
            tone: Tone = "good" if verdict == "landed" else "bad"
            more = f": {note}" if note else ""
            said = f"{verdict.replace('_', ' ')}, says {by}{more}"
            return [(entry.at, shorten(said, _TOLD_CHARS), tone)]
        case kinds.ToolDiscarded():
            return [(entry.at, "had no outcome and no side effects", "plain")]
        case kinds.ToolUndone():
            return [(entry.at, "undone", "plain")]
        case _:
            return []


def draw_effect_table(rows: Sequence[Effect], stories: Mapping[int, EffectStory], *, held: bool) -> Html:
    """The effects, one a row. `held`: what has no outcome may still run."""
    head = el("tr", *(el("th", name) for name in ("call", "key", "outcome, notes and requests")))
    body = [_draw_effect(row, stories.get(row.issued, EffectStory()), held) for row in rows]
    table = el("table", el("thead", head), el("tbody", *body), class_="effects")
    return el("div", table, class_="wide")


def _draw_effect(row: Effect, story: EffectStory, held: bool) -> Html:
    lost = row.status == "running" and not held
    status = "in_doubt" if lost else row.status
    told: list[Child] = [draw_status(status)]
    told += [el("div", f"{utc_text(at)} ", el("span", said, class_=tone)) for at, said, tone in story.told]
    if row.why and not story.told:
        told.append(el("div", shorten(row.reason, _TOLD_CHARS), class_="dim"))
    notes = [el("li", shorten(note, _NOTE_CHARS)) for note in list_notes(row.notes)]
    said = shorten(f"{row.tool}({story.args or short_args(row.args)})", _TOLD_CHARS)
    under = [f"fence {story.fence}"] if story.fence else []
    under += [f"attempt {row.attempt}"] if row.attempt > 1 else []
    return el(
        "tr",
        el(
            "td",
            el("span", said, class_="mono"),
            el("div", f"{utc_text(row.at)} by {story.holder or '?'}", class_="dim"),
        ),
        el("td", el("code", row.key), el("div", ", ".join(under), class_="dim"), _draw_intent(row)),
        el("td", *told, el("ul", *notes) if notes else None),
        id=f"effect-{row.issued}",
    )


def _draw_intent(row: Effect) -> Html:
    """What else was recorded before the call was made."""
    said = [f"entry {row.issued}", f"call {shorten(row.call.id, 80)}", f"operation {row.operation}"]
    said += [f"once for {row.scope}"] if row.scope != "call" else []
    said += [", ".join(row.side_effects)] if row.side_effects else []
    said += [f"at most {span(row.timeout_s)}"] if row.timeout_s is not None else []
    said += [f"undoes the effect of entry {row.undoes}"] if row.undoes is not None else []
    shown = el("div", " · ".join(said), class_="dim")
    return el("details", el("summary", "intent", class_="dim"), shown, id=f"intent-{row.issued}")
