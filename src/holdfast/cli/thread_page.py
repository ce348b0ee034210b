"""The page of `show --html` for a thread of LangGraph: checkpoints as steps, with the calls of its tools."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final

from msgspec import Struct

from ..adapters.langgraph_threads import (
    RESUME,
    ThreadCheckpoint,
    ThreadHistory,
    ThreadWrites,
    list_questions,
)
from ..core.head import Head
from ..drawing.markup import Html, document, el
from ..drawing.model import Bar, BarKind, Drawing, Event, Gap, Item, Mark, Row, Step, find_span
from ..drawing.status import draw_status
from ..drawing.style import PAGE
from ..formatting import count, shorten, span, utc_text
from ..store.store import Store
from ..system.clock import utc_now
from .entry_text import message_text
from .html_page import (
    PageData,
    draw_effects,
    draw_needs,
    draw_session,
    draw_timeline,
    list_needs,
    read_page_data,
)
from .html_transcript import draw_transcript
from .options import Common
from .thread_report import (
    ThreadReport,
    find_next_call,
    list_facts,
    name_namespace,
    read_thread,
    text_of_value,
)

_DETAIL_CHARS: Final = 160
_NOTE_CHARS: Final = 400
_CHECKPOINTS_MAX: Final = 200


class ThreadPageData(Struct, kw_only=True):
    """What the page is made of."""

    report: ThreadReport
    tools: PageData | None
    """The ledger of its tools."""
    now: datetime
    common: Common


async def read_thread_page(store: Store, heads: Sequence[Head], common: Common) -> ThreadPageData:
    """Read all sessions of a thread."""
    report = await read_thread(store, heads)
    ledger = report.ledger
    tools = None if ledger is None else await read_page_data(store, ledger.head, common)
    return ThreadPageData(report=report, tools=tools, now=utc_now(), common=common)


def make_thread_page(data: ThreadPageData) -> str:
    """The page."""
    report = data.report
    drawing = draw_thread(data)
    needs = [] if data.tools is None else list_needs(data.tools)
    needs += [el("li", "the graph asks: ", el("code", one)) for one in list_asked(report)]
    main = el(
        "main",
        _draw_head(data),
        draw_needs(needs, list(find_next_call(report, data.common))),
        *(() if drawing is None else draw_timeline(drawing)),
        *draw_transcript(report.thread, report.root.messages, ()),
        *(() if data.tools is None else draw_effects(data.tools)),
        *_draw_checkpoints(report),
        el("footer", f"Made by holdfast at {utc_text(data.now)} UTC from {_count_checkpoints(report)}."),
    )
    return document(f"{report.thread} · holdfast", PAGE, main)


def _draw_head(data: ThreadPageData) -> Html:
    report = data.report
    rows = [
        el("div", el("dt", f"{name} (UTC)" if name in ("began", "last change") else name), el("dd", said))
        for name, said in list_facts(report, utc_text)
        if said and name not in ("to approve", "in doubt")
    ]
    title = el("h1", report.thread, " ", draw_status(report.standing))
    return el("header", title, el("dl", *rows, class_="facts"))


def list_asked(report: ThreadReport) -> list[str]:
    """What nodes have asked, and no person has answered. What holdfast asks is in the ledger of the tools."""
    latest = report.root.latest
    asked = [] if latest is None else list_questions(latest.unanswered)
    return [shorten(text_of_value(one), 600) for one in asked]


def _count_checkpoints(report: ThreadReport) -> str:
    return count(sum(len(history.checkpoints) for _, history in report.namespaces), "checkpoint")


# -- the timeline ---------------------------------------------------------------------------------------


def draw_thread(data: ThreadPageData) -> Drawing | None:
    """The timeline of a thread; None of an empty one."""
    tools = None if data.tools is None else draw_session(data.tools)
    gaps = [] if tools is None else tools.gaps
    root, *inner = [history for _, history in data.report.namespaces]
    events = [event for one in root.checkpoints.values() for event in _list_events(one)]
    steps = sorted(_list_steps(root, gaps, data.now), key=lambda step: step.at)
    below = [row for history in inner for step in _list_steps(history, gaps, data.now) for row in step.rows]
    below += [row for step in tools.steps for row in step.rows] if tools is not None else []
    for row in below:
        _place_row(row, steps)
    order = {Event: 0, Step: 1, Gap: 2}
    items: list[Item] = [*events, *(step for step in steps if step.rows), *gaps]
    items.sort(key=lambda item: (item.at, order[type(item)]))
    if not items:
        return None
    start, end = find_span(items)
    return Drawing(session=data.report.thread, start=start, end=end, items=items)


def _list_events(one: ThreadCheckpoint) -> Iterator[Event]:
    """What came from outside of the graph."""
    for message in one.messages:
        if message.role in ("user", "system"):
            text = f"{message.role}: {shorten(message_text(message), _NOTE_CHARS)}"
            yield Event(seq=one.seq, at=one.at, kind="message", text=text)
    if one.source == "update":
        yield Event(seq=one.seq, at=one.at, kind="other", text="the state was updated from outside")


def _list_steps(history: ThreadHistory, gaps: Sequence[Gap], now: datetime) -> Iterator[Step]:
    """What ran from each checkpoint on, until the next one was taken."""
    after: dict[str, list[ThreadCheckpoint]] = {}
    for one in history.checkpoints.values():
        after.setdefault(one.parent or "", []).append(one)
    for one in history.checkpoints.values():
        following = after.get(one.id, [])
        taken_at = min((later.at for later in following), default=None)
        rows = list(_list_rows(history, one, following, gaps, now))
        yield Step(seq=one.seq, number=one.step + 1, at=one.at, checkpoint_at=taken_at, rows=rows)


def _list_rows(
    history: ThreadHistory,
    one: ThreadCheckpoint,
    following: Sequence[ThreadCheckpoint],
    gaps: Sequence[Gap],
    now: datetime,
) -> Iterator[Row]:
    """A row for each task, with its interrupts and failures."""
    place = name_namespace(history)
    answers = [each.at for each in one.writes if any(channel == RESUME for channel, _ in each.values)]
    by_task: dict[str, list[ThreadWrites]] = {}
    for written in one.writes:
        is_news = written.is_done or written.interrupts or written.errors
        if is_news and not written.node.startswith("__"):
            by_task.setdefault(written.task, []).append(written)
    known = {written.node for listed in by_task.values() for written in listed}
    for listed in by_task.values():
        yield _draw_task(one.at, listed, place, answers, gaps, now)
    for later in following:  # Nodes that have written nothing.
        for node in later.nodes:
            if node not in known:
                yield Row(kind="node", label=place + node, bars=list(_cut_bars(one.at, later.at, gaps)))


def _draw_task(
    start: datetime,
    listed: Sequence[ThreadWrites],
    place: str,
    answers: Sequence[datetime],
    gaps: Sequence[Gap],
    now: datetime,
) -> Row:
    is_model = any(message.role == "assistant" for written in listed for message in written.messages)
    row = Row(kind="model" if is_model else "node", label=place + (listed[0].node or "a task"))
    for written in listed:
        said = [message_text(one) for one in written.messages if one.role == "assistant"]
        row.detail = shorten("; ".join(said), _DETAIL_CHARS) or row.detail
        bars = list(_cut_bars(start, written.at, gaps, "model" if is_model else "node"))
        row.bars += bars
        start = written.at
        if written.errors and not written.is_done:
            bars[-1].status, bars[-1].note = "failed", shorten("; ".join(written.errors), _NOTE_CHARS)
            row.marks.append(Mark(at=written.at, kind="bad", text=shorten(written.errors[0], 80)))
        elif written.interrupts:
            start = min((at for at in answers if at >= written.at), default=now)
            asked = list_questions(written.interrupts)
            if asked:
                note = shorten(f"asks: {'; '.join(map(text_of_value, asked))}", _NOTE_CHARS)
                is_open = not any(at >= written.at for at in answers)
                wait = Bar(kind="wait", start=written.at, end=start, note=note)
                wait.status = "waiting" if is_open else "ok"
                row.bars.append(wait)
                row.marks += [Mark(at=start, kind="open", text="waits for an answer")] if is_open else []
    return row


def _cut_bars(start: datetime, end: datetime, gaps: Sequence[Gap], kind: BarKind = "node") -> Iterator[Bar]:
    """Bars from start to end, without the time in which no process was alive."""
    for gap in gaps:
        if start <= gap.at < end:
            yield Bar(
                kind=kind, start=start, end=gap.at, status="cut", note="the process died during the node"
            )
            start = min(gap.until or end, end)
    yield Bar(kind=kind, start=start, end=max(start, end), note=span((end - start).total_seconds()))


def _place_row(row: Row, steps: list[Step]) -> None:
    """Put a call, or a node of a subgraph, into the step that made it: the last one that had begun."""
    at = min([bar.start for bar in row.bars] + [mark.at for mark in row.marks])
    place = bisect_right(steps, at, key=lambda step: step.at)
    if not place:  # Its checkpoint was pruned.
        steps.insert(0, Step(seq=0, number=0, at=at))
        place = 1
    steps[place - 1].rows.append(row)


# -- checkpoints ----------------------------------------------------------------------------------------


def _draw_checkpoints(report: ThreadReport) -> Iterator[Html]:
    rows = [
        el(
            "tr",
            el("td", f"{one.step}{'  (here)' if one is report.root.latest else ''}", class_="tight"),
            el("td", name_namespace(history) + (", ".join(one.nodes) or one.source)),
            el("td", utc_text(one.at), class_="tight"),
            el("td", el("code", one.id)),
            el("td", ", ".join(one.next)),
        )
        for _, history in report.namespaces
        for one in history.checkpoints.values()
    ]
    if not rows:
        return
    names = ("step", "node", "taken", "checkpoint", "next")
    table = el(
        "table",
        el("thead", el("tr", *(el("th", name) for name in names))),
        el("tbody", *rows[-_CHECKPOINTS_MAX:]),
    )
    said = count(len(rows), "checkpoint")
    said += f", the latest {_CHECKPOINTS_MAX}" if len(rows) > _CHECKPOINTS_MAX else ""
    yield el("h2", "Checkpoints")
    yield el("details", el("summary", said), el("div", table, class_="wide"), class_="box")
