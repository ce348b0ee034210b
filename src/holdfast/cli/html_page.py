"""The page of `show --html`: a session as one file, with nothing loaded from elsewhere and no script.

What people, models and tools said is text on it, never markup.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from ..content.lazy import peek_at, read_content
from ..content.message_blocks import list_blocks
from ..core import entries as kinds
from ..core.effects import Effect
from ..core.entries import Entry
from ..core.fold import RunInfo
from ..core.head import Head
from ..core.lease_periods import LeasePeriods
from ..core.session_state import SessionState
from ..drawing.chapters import RULE, Chapter, LeftOut, split
from ..drawing.from_journal import draw_journal
from ..drawing.markup import Child, Html, document, el, join
from ..drawing.model import Drawing
from ..drawing.style import PAGE
from ..drawing.svg import draw_legend, draw_overview, draw_steps
from ..errors import HoldfastError
from ..formatting import count, short_args, shorten, span, usd
from ..limits import (
    DRAWN_DELEGATES_MAX,
    PAGE_EFFECTS_MAX,
    PAGE_MESSAGES_MAX,
    PAGE_TEXT_CHARS,
    PAGE_TRANSCRIPT_CHARS,
)
from ..messages import AnyMessage, Block, ForeignMessage, Json, Media, Reasoning, Text, ToolCall, ToolResult
from ..store.store import Store
from ..system.clock import utc_now
from .advice import answer_commands, continue_call
from .entry_text import describe, describe_media, list_notes, message_text, result_text
from .json_views import standing
from .options import DEFAULTS, Common

_CHAPTERS_OPEN: Final = 3
_OVERVIEW_STEPS: Final = 4
"""With fewer steps, the drawing of the steps says the same as an overview."""
_FIRST_MESSAGES: Final = 20
_MESSAGES_OPEN: Final = 50
"""More messages or effects are folded, so that the page begins short."""
_VERSIONS_MAX: Final = 200
_ERASED: Final = "[erased]"
Tone = Literal["good", "bad", "open", "plain"]
_TONES: Final[dict[str, Tone]] = {
    "completed": "good",
    "undone": "plain",
    "discarded": "plain",
    "running": "open",
    "in_doubt": "open",
    "waiting": "open",
    "failed": "bad",
    "not_landed": "bad",
    "gave_up": "bad",
    "cancelled": "bad",
    "killed": "bad",
    "interrupted": "bad",
}


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
    delegates: dict[str, Drawing] = {}
    for session in list(state.facts.delegates)[-DRAWN_DELEGATES_MAX:]:
        try:
            drawn = await _draw_delegate(store, session, now)
        except HoldfastError:  # Deleted or damaged: the page of its parent is of use without it.
            continue
        if drawn is not None:
            delegates[session] = drawn
    return PageData(
        head=head,
        held=held,
        state=state,
        entries=entries,
        delegates=delegates,
        now=now,
        runs=[run async for run in store.runs(session=head.session)],
        common=common,
    )


async def _draw_delegate(store: Store, session: str, now: datetime) -> Drawing | None:
    head = await store.head(session)
    held = await store.is_held(head)
    state = await store.load(session)
    entries = [entry async for entry in store.tail(session, follow=False)]
    return draw_journal(session, entries, state.facts.effects.rows, describe=describe, held=held, now=now)


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


def utc_text(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S}"


def cut_text(said: str) -> str:
    """The text; of a long one, beginning and end."""
    if len(said) <= PAGE_TEXT_CHARS:
        return said
    half = PAGE_TEXT_CHARS // 2
    return f"{said[:half]}\n[… {len(said) - 2 * half:,} characters left out …]\n{said[-half:]}"


def draw_status(word: str, said: str | None = None) -> Html:
    return el("span", said or word.replace("_", " "), class_=f"hf-status {_TONES.get(word, 'plain')}")


# -- the head -------------------------------------------------------------------------------------------


def _draw_head(data: PageData) -> Html:
    head, state = data.head, data.state
    budget, caps = state.budget, state.budget.caps
    money = usd(budget.usd) + (f" of {usd(caps.usd)}" if caps.usd is not None else "")
    tokens = f"{budget.tokens:,}" + (f" of {caps.tokens:,}" if caps.tokens is not None else "")
    lease = ""
    if head.lease is not None:
        lease = head.lease.name if data.held else f"{head.lease.name}, which is gone"
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
    rows = [el("div", el("dt", name), el("dd", shown)) for name, shown in facts if shown]
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


# -- the transcript -------------------------------------------------------------------------------------


def draw_transcript(session: str, messages: Sequence[AnyMessage], seqs: Sequence[int]) -> Iterator[Html]:
    """The messages; `seqs` are their entries, if they have entries of their own."""
    total = len(messages)
    if not total:
        return
    yield el("h2", "Transcript")
    shown, room = _choose_messages(messages, total), PAGE_TRANSCRIPT_CHARS
    results = _find_results(messages[place] for place in shown)
    gone = total - len(shown)
    if gone:
        said = f"{count(gone, 'message')} in the middle left out; `holdfast export {session}` has all."
        yield el("p", said, class_="note")
    drawn: list[Html] = []
    before = -1
    for place in shown:
        if place != before + 1:
            drawn.append(el("p", f"… {count(place - before - 1, 'message')} left out …", class_="note"))
        before = place
        block = _draw_message(messages[place], seqs[place] if seqs else None, results)
        room -= len(block)
        if block:
            drawn.append(block)
        if room < 0:
            drawn.append(el("p", "The rest is too long for a page.", class_="note"))
            break
    is_open = "" if total <= _MESSAGES_OPEN else None
    yield el("details", el("summary", count(total, "message")), *drawn, class_="box", open=is_open)


def _choose_messages(messages: Sequence[AnyMessage], total: int) -> list[int]:
    """The places of the messages that are shown: the first ones, and as many of the last as fit."""
    shown = list(range(min(_FIRST_MESSAGES, total)))
    room = PAGE_TRANSCRIPT_CHARS // 2
    last: list[int] = []
    for place in range(total - 1, len(shown) - 1, -1):
        room -= min(_count_chars(messages[place]), 2 * PAGE_TEXT_CHARS)
        if room < 0 or len(last) >= PAGE_MESSAGES_MAX - _FIRST_MESSAGES:
            break
        last.append(place)
    return shown + last[::-1]


def _count_chars(message: AnyMessage) -> int:
    return sum(len(said) for _, said in _list_texts(message)) + 200


def _blocks(message: AnyMessage) -> Sequence[Block]:
    return list_blocks(message)


def _list_texts(message: AnyMessage) -> Iterator[tuple[str, str]]:
    for block in _blocks(message):
        if isinstance(block, Text | Reasoning):
            yield "text", block.text
        elif isinstance(block, ToolCall):
            yield "call", _as_json(block.args)
        elif isinstance(block, ToolResult):
            yield "result", result_text(block.content)


def _find_results(messages: Iterable[AnyMessage]) -> dict[str, list[ToolResult]]:
    """Results by the id of their call, in order: ids may be used again."""
    found: dict[str, list[ToolResult]] = {}
    for message in messages:
        for block in _blocks(message):
            if isinstance(block, ToolResult):
                found.setdefault(block.call_id, []).append(block)
    return found


def _draw_message(message: AnyMessage, seq: int | None, results: dict[str, list[ToolResult]]) -> Html:
    """A message. The results of its calls are in the calls; a message that holds nothing else is left out."""
    blocks = _blocks(message)
    calls = any(isinstance(block, ToolCall) for block in blocks)
    drawn = [one for block in blocks if (one := _draw_block(block, results)) is not None]
    if not blocks:
        shown = message_text(message)
        if isinstance(message, ForeignMessage) and not shown:
            shown = _as_json(peek_at(message))
        drawn = [el("div", cut_text(shown), class_="said")]
    if not drawn and not calls:
        return join()
    at = el("time", utc_text(message.at)) if message.at is not None else None
    who = getattr(message, "agent", None) or message.role
    return el(
        "article",
        el("h3", who, at),
        *drawn,
        id=f"entry-{seq}" if seq is not None and message.role != "tool" else None,
        class_=f"message {message.role}",
    )


def _draw_block(block: Block, results: dict[str, list[ToolResult]]) -> Html | None:
    match block:
        case Text():
            return el("div", cut_text(block.text), class_="said") if block.text else None
        case Reasoning():
            summary = el("summary", "reasoning", class_="dim")
            return el("details", summary, el("div", cut_text(block.text), class_="said reasoning"))
        case ToolCall():
            answered = results.get(block.id) or []
            return _draw_call(block, answered.pop(0) if answered else None)
        case ToolResult():
            left = results.get(block.call_id) or []
            if not any(one is block for one in left):
                return None  # It is shown with its call.
            left.remove(block)
            word = "error" if block.is_error else "result"
            return join(
                el("div", f"{word} of {block.call_id}", class_="dim"), el("pre", cut_text(_said(block)))
            )
        case Media():
            return el("div", describe_media(block), class_="dim")
        case _:
            return el("pre", cut_text(_as_json(msgspec.to_builtins(block))))


def _said(result: ToolResult) -> str:
    return result_text(result.content)


def _draw_call(call: ToolCall, result: ToolResult | None) -> Html:
    word = "" if result is None else "  failed" if result.is_error else ""
    head = el(
        "summary",
        el("span", shorten(f"{call.name}({short_args(call.args)})", 300), class_="mono"),
        el("span", word, class_="bad") if word else None,
    )
    parts = [el("pre", cut_text(_as_json(call.args)))]
    if result is None:
        parts.append(el("div", "no result", class_="dim"))
    else:
        label = "error" if result.is_error else "result"
        again = f", repeats the outcome of {result.replay_of}" if result.replay_of else ""
        parts += [el("div", f"{label}{again}", class_="dim"), el("pre", cut_text(_said(result)))]
    return el("details", head, *parts, class_="call")


def _as_json(value: Json) -> str:
    if isinstance(value, str):
        return value
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


# -- effects --------------------------------------------------------------------------------------------


class EffectStory(Struct, kw_only=True):
    """What the journal says of an effect beside its row in the ledger."""

    args: str = ""
    holder: str = ""
    fence: int = 0
    told: list[tuple[datetime, str, Tone]] = []
    """What became of it, in order."""


def read_stories(entries: Iterable[Entry]) -> dict[int, EffectStory]:
    """The story of each effect, by its intent."""
    found: dict[int, EffectStory] = {}
    leases = LeasePeriods()
    for entry in entries:
        leases.apply(entry)
        body = entry.body
        if isinstance(body, kinds.ToolIssued):
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
            return [(entry.at, f"completed{took}: {said}", "good")]
        case kinds.ToolFailed(error=error):
            return [(entry.at, f"failed: {_ERASED if entry.details_erased else error}", "bad")]
        case kinds.ToolInDoubt(reason=reason):
            return [(entry.at, f"in doubt: {_ERASED if entry.details_erased else reason}", "open")]
        case kinds.ToolSettled(verdict=verdict, by=by, note=note):
            tone: Tone = "good" if verdict == "landed" else "bad"
            more = f": {note}" if note else ""
            return [(entry.at, f"{verdict.replace('_', ' ')}, says {by}{more}", tone)]
        case kinds.ToolDiscarded():
            return [(entry.at, "had no outcome and no side effects", "plain")]
        case kinds.ToolUndone():
            return [(entry.at, "undone", "plain")]
        case _:
            return []


def draw_effects(data: PageData) -> Iterator[Html]:
    stories = read_stories(data.entries)
    rows = [row for row in data.state.facts.effects.rows.values() if row.changes_the_world]
    if not rows:
        return
    yield el("h2", "Effects")
    if len(rows) > PAGE_EFFECTS_MAX:
        yield el("p", f"The latest {PAGE_EFFECTS_MAX} of {len(rows):,}.", class_="note")
    names = ("call", "key", "outcome, notes and requests")
    head = el("tr", *(el("th", name) for name in names))
    body = [
        _draw_effect(row, stories.get(row.issued, EffectStory()), data) for row in rows[-PAGE_EFFECTS_MAX:]
    ]
    table = el("table", el("thead", head), el("tbody", *body), class_="effects")
    is_open = "" if len(rows) <= _MESSAGES_OPEN else None
    summary = el("summary", count(len(rows), "effect"))
    yield el("details", summary, el("div", table, class_="wide"), class_="box", open=is_open)


def _draw_effect(row: Effect, story: EffectStory, data: PageData) -> Html:
    lost = row.status == "running" and not data.held
    status = "in_doubt" if lost else row.status
    told: list[Child] = [draw_status(status)]
    told += [
        el("div", f"{utc_text(at)} ", el("span", shorten(said, 600), class_=tone))
        for at, said, tone in story.told
    ]
    if row.why and not story.told:
        told.append(el("div", shorten(row.reason, 600), class_="dim"))
    under = [f"fence {story.fence}"] if story.fence else []
    under += [f"attempt {row.attempt}"] if row.attempt > 1 else []
    notes = [el("li", shorten(note, 400)) for note in list_notes(row.notes)]
    call = el("span", shorten(f"{row.tool}({story.args or short_args(row.args)})", 600), class_="mono")
    return el(
        "tr",
        el("td", call, el("div", f"{utc_text(row.at)} by {story.holder or '?'}", class_="dim")),
        el("td", el("code", row.key), el("div", ", ".join(under), class_="dim")),
        el("td", *told, el("ul", *notes) if notes else None),
        id=f"effect-{row.issued}",
    )


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
