"""A thread of LangGraph: its checkpoints as steps, its messages, and the values of each checkpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from anyio import to_thread
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from ..adapters.langgraph_threads import ThreadCheckpoint, ThreadHistory
from ..cli.html_page import draw_needs
from ..cli.store_access import get_thread
from ..cli.thread_page import ThreadPageData, draw_thread, list_asked, read_thread_page
from ..cli.thread_report import find_next_call, list_facts, name_namespace, read_history
from ..core.head import Head
from ..drawing.markup import Child, Html, el
from ..drawing.status import draw_status
from ..formatting import count, cut_text, indented, shorten, utc_text
from ..limits import VIEWER_VERSIONS
from ..messages import Json
from .addresses import session_link
from .context import viewer_of
from .downloads import draw_downloads
from .layout import facts, fragment, live, page
from .media import send_media
from .needs_page import draw_needs_of
from .page_numbers import LIVE, draw_pager, find_page, read_number, same_page
from .session_cache import DrawnSession
from .session_frame import Subject, draw_commands, draw_table, when
from .timeline_page import draw_timeline
from .transcript_page import draw_page

_TABS: Final = (
    ("", "Timeline", "1"),
    ("transcript", "Transcript", "2"),
    ("effects", "Effects", "3"),
    ("checkpoints", "Checkpoints", "4"),
    ("entries", "Entries", "5"),
)


async def find_heads(request: Request, subject: Subject) -> list[Head]:
    """The sessions of the thread that a session is part of, the root namespace first; empty if of none."""
    if not (subject.is_thread or subject.is_ledger):
        return []
    return await get_thread(viewer_of(request).store, subject.session)


async def show_thread(request: Request, subject: Subject, heads: Sequence[Head]) -> Response:
    """The page that a thread opens with."""
    data = await _read(request, heads)
    drawing = await to_thread.run_sync(draw_thread, data)
    ledger = None if data.tools is None else data.tools.head.session
    drawn = None if drawing is None else DrawnSession(drawing)
    needs = await _draw_needs(request, data)
    body = await draw_timeline(request, subject, drawn, ledger=ledger)
    return _thread_page(request, data, "", *body, needs=needs)


async def show_thread_transcript(request: Request, subject: Subject, heads: Sequence[Head]) -> Response:
    """The messages of its latest checkpoint."""
    data = await _read(request, heads)
    messages = data.report.root.messages
    roles = [one.role for one in messages]
    body, is_last = await to_thread.run_sync(partial(draw_page, request, subject, roles, messages))
    return _thread_page(request, data, "transcript", *body, follow=is_last)


async def show_checkpoints(request: Request, subject: Subject, heads: Sequence[Head]) -> Response:
    """Its checkpoints, the latest first; of one of them, the values as they were then."""
    data = await _read(request, heads)
    wanted = request.query_params.get("checkpoint")
    if wanted is None:
        return _thread_page(request, data, "checkpoints", *_draw_checkpoints(request, data))
    for _, history in data.report.namespaces:
        if wanted in history.checkpoints:
            body = await to_thread.run_sync(partial(_draw_values, request, history, wanted))
            return _thread_page(request, data, "checkpoints", *body, follow=False)
    raise HTTPException(404, f"The thread has no checkpoint {wanted!r}.")


async def show_thread_media(request: Request, heads: Sequence[Head]) -> Response:
    """An image, or other media, in a message of the thread."""
    history = await read_history(viewer_of(request).store, heads[0].session)
    place = read_number(request, "message")
    messages = history.messages
    is_there = place is not None and place < len(messages)
    return send_media([messages[place]] if place is not None and is_there else [], request)


async def _read(request: Request, heads: Sequence[Head]) -> ThreadPageData:
    viewer = viewer_of(request)
    return await read_thread_page(viewer.store, heads, viewer.common)


def _thread_page(
    request: Request,
    data: ThreadPageData,
    tab: str,
    *body: Child,
    needs: Sequence[Child] | None = None,
    follow: bool = True,
) -> Response:
    if (wanted := request.query_params.get(LIVE)) is not None:
        return fragment(request, *(body if wanted == "body" else needs or ()))
    report = data.report
    root = report.namespaces[0][0].session
    links: list[Html] = []
    for path, title, key in _TABS:
        session = data.tools.head.session if path == "effects" and data.tools is not None else root
        if path == "effects" and data.tools is None:
            continue
        address = session_link(request, f"{session}/{path}" if path else session)
        here = "page" if path == tab else None
        links.append(el("a", title, href=address, aria_current=here, data_key=key))
    said: list[tuple[str, Child]] = [
        (f"{name} (UTC)" if name in ("began", "last change") else name, said)
        for name, said in list_facts(report, utc_text)
        if name not in ("to approve", "in doubt")
    ]
    options = data.common.explicit_options
    return page(
        request,
        f"thread {report.thread}",
        el("h1", report.thread, " ", draw_status(report.standing)),
        facts(said),
        el("nav", *links, class_="tabs", aria_label="Pages of this thread"),
        live(same_page(request, live="needs"), *needs, id="needs") if needs is not None else None,
        live(same_page(request, live="body"), *body, id="body") if follow else el("div", *body),
        draw_downloads(request, root),
        draw_commands([f"holdfast show {root}{options}", f"holdfast export {root}{options}"]),
        here="sessions",
    )


async def _draw_needs(request: Request, data: ThreadPageData) -> list[Child]:
    """What waits for a person, with forms, and what continues the thread."""
    tools = data.tools
    forms = [] if tools is None else await draw_needs_of(request, tools.head, held=tools.held)
    asked = [el("li", "the graph asks: ", el("code", one)) for one in list_asked(data.report)]
    return [*forms, draw_needs(asked, list(find_next_call(data.report, data.common)))]


# -- checkpoints ------------------------------------------------------------------------------------------


def _draw_checkpoints(request: Request, data: ThreadPageData) -> list[Child]:
    listed = [(history, one) for _, history in data.report.namespaces for one in history.checkpoints.values()]
    listed.sort(key=lambda pair: pair[1].at, reverse=True)
    title = el("h2", "Checkpoints ", el("span", count(len(listed), "checkpoint"), class_="dim"))
    pages = max(1, -(-len(listed) // VIEWER_VERSIONS))
    number = find_page(request, pages) if "page" in request.query_params else 1
    latest = data.report.root.latest
    rows = [
        _draw_checkpoint(request, history, one, is_here=one is latest)
        for history, one in listed[(number - 1) * VIEWER_VERSIONS : number * VIEWER_VERSIONS]
    ]
    names = ("step", "node", "taken (UTC)", "checkpoint", "next")
    pager = draw_pager(request, number, pages, "the latest first")
    return [title, pager, el("section", draw_table("Checkpoints", names, rows), class_="box")]


def _draw_checkpoint(
    request: Request, history: ThreadHistory, one: ThreadCheckpoint, *, is_here: bool
) -> Html:
    return el(
        "tr",
        el("td", f"{one.step}{' (here)' if is_here else ''}", class_="tight"),
        el("td", name_namespace(history) + (", ".join(one.nodes) or one.source)),
        el("td", when(one.at)),
        el("td", el("a", el("code", one.id), href=same_page(request, checkpoint=one.id, page=None))),
        el("td", ", ".join(one.next)),
        data_row="",
        tabindex="-1",
    )


def _draw_values(request: Request, history: ThreadHistory, id: str) -> list[Child]:
    """The values of a checkpoint beside those of the one before it."""
    one = history.checkpoints[id]
    before: Mapping[str, Json] = {}
    if one.parent is not None and one.parent in history.checkpoints:
        before = history.get_channels(one.parent)
    now = history.get_channels(id)
    rows = [
        _draw_channel(name, before.get(name, _ABSENT), now.get(name, _ABSENT))
        for name in sorted({*before, *now})
        if not name.startswith(("__", "branch:"))
    ]
    names = ("channel", "before", "at this checkpoint")
    said = f"Step {one.step}, taken {utc_text(one.at)} UTC, after {', '.join(one.nodes) or one.source}."
    return [
        el("h2", "Checkpoint ", el("code", id)),
        el("p", said, " ", el("a", "All checkpoints", href=same_page(request, checkpoint=None))),
        el("section", draw_table("Values", names, rows, class_="diff"), class_="box"),
    ]


_ABSENT: Final = object()


def _draw_channel(name: str, before: object, now: object) -> Html:
    is_same = before == now

    def cell(value: object, class_: str) -> Html:
        if value is _ABSENT:
            return el("td", el("span", "not there", class_="dim"))
        shown = el("pre", cut_text(indented(value)))
        return el("td", shown, class_=None if is_same else class_)

    row_name = el("th", shorten(name, 100), scope="row")
    if is_same:
        return el("tr", row_name, el("td", el("span", "the same", class_="dim")), cell(now, ""))
    return el("tr", row_name, cell(before, "removed"), cell(now, "added"))
