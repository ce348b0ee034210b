"""The page of `show --html`: a session as one file, with nothing loaded from elsewhere and no script.

What people, models and tools said is text on it, never markup.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, Final

from msgspec import Struct

from ..core.entries import Entry
from ..core.fold import RunInfo
from ..core.head import Head
from ..core.session_state import SessionState
from ..drawing.chapters import RULE, Chapter, LeftOut, split
from ..drawing.from_journal import draw_journal
from ..drawing.markup import Child, Html, document, el, join
from ..drawing.model import Drawing
from ..drawing.status import draw_status
from ..drawing.style import PAGE
from ..drawing.svg import draw_legend, draw_overview, draw_steps
from ..errors import HoldfastError
from ..formatting import count, short_args, shorten, span, usd, utc_text
from ..limits import DELEGATE_DEPTH_MAX, DRAWN_DELEGATES_MAX, PAGE_EFFECTS_MAX
from ..store.store import Store
from ..system.clock import utc_now
from .advice import answer_commands, continue_call
from .entry_text import describe
from .html_effects import draw_effect_table, read_stories
from .html_transcript import draw_transcript
from .json_views import standing
from .options import DEFAULTS, Common

_CHAPTERS_OPEN: Final = 3
_OVERVIEW_STEPS: Final = 4
"""With fewer steps, the drawing of the steps says the same as an overview."""
_EFFECTS_OPEN: Final = 50
"""More effects are folded, so that the page begins short."""
_VERSIONS_MAX: Final = 200


class PageData(Struct, kw_only=True):
    """What the page is made of."""

    head: Head
    held: bool
    state: SessionState
    entries: list[Entry]
    delegates: dict[str, Drawing]
    now: datetime
    runs: list[RunInfo] = []
    common: Common = DEFAULTS
    """Where the store is, for the commands on the page."""


async def read_page_data(store: Store, head: Head, common: Common = DEFAULTS) -> PageData:
    """Read a session, and the sessions that worked for it."""
    held, now = await store.is_held(head), utc_now()
    state = await store.load(head.session)
    entries = [entry async for entry in store.tail(head.session, follow=False) if entry.seq <= state.seq]
    return PageData(
        head=head,
        held=held,
        state=state,
        entries=entries,
        delegates=await DelegateReader(store, now).draw(state),
        now=now,
        runs=[run async for run in store.runs(session=head.session)],
        common=common,
    )


class DelegateReader:
    """Reads and draws the sessions that worked for one, and those that worked for them."""

    def __init__(self, store: Store, now: datetime) -> None:
        self._store, self._now = store, now
        self._left = DRAWN_DELEGATES_MAX
        self.seqs: dict[str, int] = {}
        """How far each of them was read."""

    async def draw(self, state: SessionState, depth: int = DELEGATE_DEPTH_MAX) -> dict[str, Drawing]:
        """The drawings of the delegates of a session, by their ids; theirs are inside of them."""
        found: dict[str, Drawing] = {}
        for session in list(state.facts.delegates)[-self._left :] if self._left and depth else []:
            if not self._left:
                break
            self._left -= 1
            try:
                drawn = await self._draw_one(session, depth - 1)
            except HoldfastError:  # Deleted or damaged: the page of its parent is of use without it.
                continue
            if drawn is not None:
                found[session] = drawn
        return found

    async def _draw_one(self, session: str, depth: int) -> Drawing | None:
        head = await self._store.head(session)
        held = await self._store.is_held(head)
        state = await self._store.load(session)
        self.seqs[session] = state.seq
        entries = [entry async for entry in self._store.tail(session, follow=False)]
        return draw_journal(
            session,
            (entry for entry in entries if entry.seq <= state.seq),
            state.facts.effects.rows,
            describe=describe,
            held=held,
            now=self._now,
            delegates=await self.draw(state, depth),
        )


def draw_session(data: PageData) -> Drawing | None:
    """The timeline of a session; None if it is empty."""
    return draw_journal(
        data.head.session,
        data.entries,
        data.state.facts.effects.rows,
        describe=describe,
        held=data.held,
        now=data.now,
        delegates=data.delegates,
        cap_usd=data.state.budget.caps.usd,
    )


def make_page(data: PageData) -> str:
    """The page."""
    state, head = data.state, data.head
    drawing = draw_session(data)
    needs = list_needs(data)
    then = [] if data.held or not (needs or head.open_run) else [_name_next(data)]
    main = el(
        "main",
        _draw_head(data),
        draw_needs(needs, then),
        *(() if drawing is None else draw_timeline(drawing)),
        *draw_transcript(head.session, state.transcript, [item.seq for item in state.transcript_fold.items]),
        *draw_effects(data),
        *_draw_versions(state),
        el(
            "footer",
            f"Made by holdfast at {utc_text(data.now)} UTC from entry 1 to {state.seq:,} of the journal.",
        ),
    )
    return document(f"{head.session} · holdfast", PAGE, main)


# -- the head -------------------------------------------------------------------------------------------


def list_facts(head: Head, state: SessionState, *, held: bool) -> list[tuple[str, str]]:
    """What there is to say of a session, by name."""
    budget, caps = state.budget, state.budget.caps
    money = usd(budget.usd) + (f" of {usd(caps.usd)}" if caps.usd is not None else "")
    tokens = f"{budget.tokens:,}" + (f" of {caps.tokens:,}" if caps.tokens is not None else "")
    lease = ""
    if head.lease is not None:
        lease = head.lease.name if held else f"{head.lease.name}, which is gone"
    facts = [
        ("agent", head.agent or ""),
        ("steps", f"{head.step:,}" if head.step else ""),
        ("calls of tools", f"{head.tool_calls:,}" if head.tool_calls else ""),
        ("money", money if budget.usd or caps.usd is not None else ""),
        ("tokens", tokens if budget.tokens or caps.tokens is not None else ""),
        ("version", f"{state.version:,}" if state.version else ""),
        ("began (UTC)", utc_text(head.created_at)),
        ("took", span((head.updated_at - head.created_at).total_seconds())),
        ("holder", lease),
        ("parent", head.parent or ""),
        ("forked from", head.origin or ""),
        ("labels", ", ".join(f"{key}={value}" for key, value in head.labels.items())),
        ("summary", shorten(state.summary, 400)),
    ]
    return [(name, said) for name, said in facts if said]


def _draw_head(data: PageData) -> Html:
    head = data.head
    rows = [
        el("div", el("dt", name), el("dd", said))
        for name, said in list_facts(head, data.state, held=data.held)
    ]
    title = [head.session, " ", draw_status(standing(head, data.held))]
    about = [el("div", head.title, class_="dim")] if head.title else []
    if head.reason:
        about.append(el("div", f"{standing(head, data.held)}: {head.reason}", class_="dim"))
    return el("header", el("h1", *title), *about, el("dl", *rows, class_="facts"))


def list_needs(data: PageData) -> list[Html]:
    """What waits for a person, each with the commands that answer it."""
    effects = data.state.facts.effects
    found: list[dict[str, Any]] = []
    said: list[Html] = []
    for question in effects.questions.values():
        call = el("code", shorten(f"{question.tool}({short_args(question.args)})", 300))
        said.append(join(call, f" waits for approval.{f' {question.why}' if question.why else ''}"))
        found.append(_shape_need(data, "approval", question.call.id, question.asked))
    for row in effects.open:
        effect = effects.rows[row]
        if effect.status != "in_doubt" and not (effect.changes_the_world and not data.held):
            continue
        call = el("code", shorten(f"{effect.tool}({short_args(effect.args)})", 300))
        why = effect.reason or "the process that ran it is gone and left no outcome"
        link = el("a", call, href=f"#effect-{effect.issued}")
        said.append(join(link, f" is in doubt: {shorten(why, 600)}"))
        found.append(_shape_need(data, "in_doubt", effect.call.id, effect.issued))
    items: list[Html] = []
    for words, one in zip(said, found, strict=True):
        commands = answer_commands(one, found, data.common.explicit_options).values()
        shown = [el("code", command, class_="command") for command in commands]
        items.append(el("li", words, *shown))
    return items


def _shape_need(data: PageData, kind: str, call: str, entry: int) -> dict[str, Any]:
    return {"session": data.head.session, "kind": kind, "call": call, "entry": entry, "operation": None}


def _name_next(data: PageData) -> str:
    return continue_call(data.head, data.runs, data.common, options=data.common.explicit_options)


def draw_needs(items: Sequence[Html], then: Sequence[str]) -> Html | None:
    """The box with what waits for a person, and what continues the work."""
    if not items and not then:
        return None
    shown: list[Child] = [el("h3", "Needs a person" if items else "To go on")]
    shown += [el("ul", *items)] if items else []
    shown += [el("p", "then: " if items else None, el("code", one), class_="note") for one in then]
    return el("section", *shown, class_="box needs")


# -- the timeline ---------------------------------------------------------------------------------------


def draw_timeline(drawing: Drawing) -> Iterator[Html]:
    parts = split(drawing)
    yield el("h2", "Timeline")
    if len(drawing.steps) >= _OVERVIEW_STEPS:
        yield el("section", draw_overview(drawing), draw_legend(drawing), class_="box")
    if len(parts) > 1:
        yield el("h2", "Steps")
    if any(isinstance(part, LeftOut) for part in parts):
        yield el("p", RULE, class_="note")
    for number, part in enumerate(parts):
        if isinstance(part, LeftOut):
            money = [usd(part.usd)] if part.usd else []
            money += [count(part.tokens, "token")] if part.tokens else []
            took = span((part.end - part.start).total_seconds())
            said = f"Steps {part.first:,} to {part.last:,} are not drawn one by one: "
            said += ", ".join([count(part.steps, "step"), took, *money])
            yield el("p", said, class_="note left-out")
            continue
        is_open = len(parts) <= _CHAPTERS_OPEN or number in (0, len(parts) - 1)
        yield _draw_chapter(drawing, part, is_open=is_open, is_alone=len(parts) == 1)


def _draw_chapter(drawing: Drawing, chapter: Chapter, *, is_open: bool, is_alone: bool) -> Html:
    drawn = draw_steps(drawing, chapter.items)
    if is_alone:
        legend = draw_legend(drawing) if len(drawing.steps) < _OVERVIEW_STEPS else None
        return el("section", drawn, legend, class_="box")
    numbers = [item.number for item in chapter.items if hasattr(item, "number")]
    said = f"Steps {min(numbers):,} to {max(numbers):,}" if numbers else "Between steps"
    gaps = sum(1 for gap in drawing.gaps if gap in chapter.items)
    said += f", {count(gaps, 'gap')}" if gaps else ""
    return el("details", el("summary", said), drawn, class_="box", open="" if is_open else None)


# -- effects --------------------------------------------------------------------------------------------


def draw_effects(data: PageData) -> Iterator[Html]:
    """The effects with side effects, the latest ones."""
    rows = [row for row in data.state.facts.effects.rows.values() if row.changes_the_world]
    if not rows:
        return
    yield el("h2", "Effects")
    if len(rows) > PAGE_EFFECTS_MAX:
        yield el("p", f"The latest {PAGE_EFFECTS_MAX} of {len(rows):,}.", class_="note")
    table = draw_effect_table(rows[-PAGE_EFFECTS_MAX:], read_stories(data.entries), held=data.held)
    is_open = "" if len(rows) <= _EFFECTS_OPEN else None
    yield el("details", el("summary", count(len(rows), "effect")), table, class_="box", open=is_open)


# -- versions -------------------------------------------------------------------------------------------


def _draw_versions(state: SessionState) -> Iterator[Html]:
    versions = state.checkpoints
    if not versions:
        return
    rows = [
        el(
            "tr",
            el("td", str(one.version) + ("  (here)" if one.version == state.version else "")),
            el("td", str(one.step)),
            el("td", utc_text(one.at), class_="tight"),
            el("td", str(one.base or "")),
            el("td", one.name or ""),
            el("td", "yes" if one.continuable else shorten(one.why[0], 200)),
        )
        for one in versions[-_VERSIONS_MAX:]
    ]
    names = ("version", "step", "taken", "built on", "name", "can be continued")
    table = el("table", el("thead", el("tr", *(el("th", name) for name in names))), el("tbody", *rows))
    said = count(len(versions), "version")
    said += f", the latest {_VERSIONS_MAX}" if len(versions) > _VERSIONS_MAX else ""
    yield el("h2", "Versions")
    yield el("details", el("summary", said), el("div", table, class_="wide"), class_="box")
