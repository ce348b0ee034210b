"""What the pages of one session share: how it is found, its head, and the way from one to the other."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from msgspec import Struct
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from ..adapters.langgraph_threads import ADAPTER_LABEL, LEDGERS, THREADS
from ..cli.html_page import list_facts
from ..cli.json_views import name_thread, standing
from ..core.fold import RunInfo
from ..core.head import Head
from ..core.session_state import SessionState
from ..drawing.markup import Child, Html, el, join
from ..drawing.status import draw_status
from ..formatting import utc_text
from .addresses import session_link
from .context import viewer_of
from .layout import command, fragment, live, page
from .page_numbers import LIVE, read_number, same_page

TABS: Final = (
    ("", "Timeline", "1"),
    ("transcript", "Transcript", "2"),
    ("effects", "Effects", "3"),
    ("state", "State", "4"),
    ("versions", "Versions", "5"),
    ("entries", "Entries", "6"),
)
"""The pages of a session: the end of their address, their titles and keys."""
_BODY, _HEAD = "body", "head"


class Subject(Struct, kw_only=True):
    """The session that a page is about."""

    head: Head
    held: bool
    version: int | None = None
    """If the page shows it as it was at an earlier version."""

    @property
    def session(self) -> str:
        """Its id."""
        return self.head.session

    @property
    def is_thread(self) -> bool:
        """Whether its journal has the checkpoints of a thread of LangGraph."""
        return self.head.labels.get(ADAPTER_LABEL) == THREADS

    @property
    def is_ledger(self) -> bool:
        """Whether it has the effects of the tools of such a thread."""
        return self.head.labels.get(ADAPTER_LABEL) == LEDGERS


def list_runs(subject: Subject, state: SessionState) -> list[RunInfo]:
    """The runs of the session, oldest first. One without an end is interrupted if no process holds it."""
    return [
        replace(run, status="interrupted") if run.status == "running" and not subject.held else run
        for run in list(state.facts.runs.values())
    ]


async def find_subject(request: Request) -> Subject:
    """The session that the address names, and the version of it."""
    store = viewer_of(request).store
    head = await store.head(request.path_params["session"])
    return Subject(head=head, held=await store.is_held(head), version=read_number(request, "version"))


def tab_link(request: Request, subject: Subject, tab: str, **query: str | int | None) -> str:
    """The address of a page of the session, at the version that is looked at."""
    path = f"{subject.session}/{tab}" if tab else subject.session
    return session_link(request, path, **{"version": subject.version, **query})


async def session_page(
    request: Request,
    subject: Subject,
    state: SessionState,
    tab: str,
    *body: Child,
    commands: Sequence[str] = (),
    above: Child = None,
    follow: bool = True,
) -> Response:
    """A page of a session: its head, the other pages, and what this one is about.

    `commands` show the same on a terminal. `above` stands between the head and the body, and is not replaced.
    With `follow`, head and body are kept current, unless they are of an earlier version.
    """
    wanted = request.query_params.get(LIVE)
    if wanted == _HEAD:
        return fragment(request, *_draw_head(request, subject, state))
    if wanted == _BODY:
        return fragment(request, *body)
    shown: list[Child] = []
    if subject.version is None:
        shown.append(live(same_page(request, live=_HEAD), *_draw_head(request, subject, state), id="head"))
    else:
        shown += [*_draw_head(request, subject, state), _draw_past(request, subject, state)]
    shown += [_draw_tabs(request, subject, tab), above]
    is_live = follow and subject.version is None
    shown.append(live(same_page(request, live=_BODY), *body, id="body") if is_live else el("div", *body))
    shown.append(draw_commands(commands))
    return page(request, _name(subject), *shown, here="sessions")


def wants_head(request: Request) -> bool:
    """Whether only the head of the page is asked for: its body need not be made."""
    return request.query_params.get(LIVE) == _HEAD


def _name(subject: Subject) -> str:
    return name_thread(subject.head) or subject.session


def _draw_head(request: Request, subject: Subject, state: SessionState) -> list[Html]:
    head = subject.head
    word = standing(head, subject.held)
    about = [el("div", head.title, class_="dim")] if head.title else []
    if head.reason:
        about.append(el("div", f"{word}: {head.reason}", class_="dim"))
    if thread := name_thread(head):
        about.append(el("div", thread, class_="dim"))
    links = {"parent": head.parent, "forked from": head.origin}
    rows = [
        el(
            "div",
            el("dt", name),
            el("dd", el("a", said, href=session_link(request, said)) if name in links else said),
        )
        for name, said in list_facts(head, state, held=subject.held)
    ]
    return [
        el("header", el("h1", head.session, " ", draw_status(word)), *about, el("dl", *rows, class_="facts"))
    ]


def _draw_past(request: Request, subject: Subject, state: SessionState) -> Html:
    """That the page does not show the present."""
    at = state.facts.head.updated_at
    return el(
        "p",
        f"As it was at version {subject.version} ({utc_text(at)} UTC). What came later is not shown. ",
        el("a", "Show the present", href=same_page(request, version=None)),
        class_="box past",
        role="status",
    )


def _draw_tabs(request: Request, subject: Subject, here: str) -> Html:
    links = [
        el(
            "a",
            title,
            href=tab_link(request, subject, tab),
            aria_current="page" if tab == here else None,
            data_key=key,
        )
        for tab, title, key in TABS
    ]
    return el("nav", *links, class_="tabs", aria_label="Pages of this session")


def draw_commands(commands: Sequence[str]) -> Html | None:
    """Commands that show the same, to be copied."""
    if not commands:
        return None
    return el(
        "p", el("span", "On a terminal: ", class_="dim"), *(command(one) for one in commands), class_="note"
    )


def when(at: datetime) -> Html:
    """A time that is not counted on: it is one of many."""
    return el("time", utc_text(at), datetime=f"{utc_text(at).replace(' ', 'T')}Z", class_="tight")


def draw_facts(rows: Sequence[tuple[str, Child]]) -> Html:
    """Names and values, side by side; those without a value are left out."""
    return el(
        "dl", *(el("div", el("dt", name), el("dd", said)) for name, said in rows if said), class_="facts"
    )


def draw_table(names: Sequence[str], rows: Sequence[Html], class_: str | None = None) -> Html:
    """A table that can be scrolled sideways where the window is small."""
    head = el("thead", el("tr", *(el("th", name, scope="col") for name in names)))
    return el("div", el("table", head, el("tbody", *rows), class_=class_), class_="wide", tabindex="0")


def draw_bar(part: float, class_: str, title: str) -> Html:
    """A part of a whole as a bar; `part` is from 0 to 1."""
    width = f"{100 * min(max(part, 0.0), 1.0):.1f}%"
    return el(
        "svg",
        el("title", title),
        join(
            el("rect", width="100%", height=8, rx=3, class_="hf-band"),
            el("rect", width=width, height=8, rx=3, class_=class_),
        ),
        width="100%",
        height=8,
        role="img",
        class_="meter",
    )
