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
from .layout import command, facts, fragment, live, page, scrolling
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
    """The runs of the session, oldest first. One without an end is interrupted if no process holds it now."""
    is_over = not subject.held and subject.version is None
    return [
        replace(run, status="interrupted") if run.status == "running" and is_over else run
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


def session_page(
    request: Request,
    subject: Subject,
    state: SessionState,
    tab: str,
    *body: Child,
    commands: Sequence[str] = (),
    above: Child = None,
    below: Child = None,
    needs: Sequence[Child] | None = None,
    follow: bool = True,
) -> Response:
    """A page of a session: its head, the other pages, and what this one is about.

    `commands` show the same on a terminal. `above` and `below` stand before and after the body, and are not
    replaced. Head and `needs` are kept current; with `follow`, so is the body. What is of an earlier version
    does not change.
    """
    wanted = request.query_params.get(LIVE)
    head = _draw_head(request, subject, state)
    parts = {"head": head, "needs": needs or (), "body": body}
    if wanted is not None:
        return fragment(request, *parts.get(wanted, ()))

    def part(name: str, *, is_live: bool) -> Html:
        if is_live and subject.version is None:
            return live(same_page(request, live=name), *parts[name], id=name)
        return el("div", *parts[name], id=name)

    return page(
        request,
        _name(subject),
        part("head", is_live=True),
        _draw_past(request, subject, state) if subject.version is not None else None,
        _draw_tabs(request, subject, tab),
        above,
        part("needs", is_live=True) if needs is not None else None,
        part("body", is_live=follow),
        below,
        draw_commands(commands),
        here="sessions",
    )


def wants(request: Request, part: str) -> bool:
    """Whether a part of the page is asked for: all of it is, or this part alone."""
    return request.query_params.get(LIVE) in (None, part)


def _name(subject: Subject) -> str:
    return name_thread(subject.head) or subject.session


def _draw_head(request: Request, subject: Subject, state: SessionState) -> list[Html]:
    head, held = subject.head, subject.held
    word: str = standing(head, held)
    if subject.version is not None:
        head, held, word = state.facts.head, True, f"version {subject.version}"
    about = [el("div", head.title, class_="dim")] if head.title else []
    if head.reason:
        about.append(el("div", f"{word}: {head.reason}", class_="dim"))
    if thread := name_thread(head):
        about.append(el("div", thread, class_="dim"))
    links = {"parent": head.parent, "forked from": head.origin}
    rows: list[tuple[str, Child]] = [
        (name, el("a", said, href=session_link(request, said)) if name in links else said)
        for name, said in list_facts(head, state, held=held)
    ]
    return [el("header", el("h1", head.session, " ", draw_status(word)), *about, facts(rows))]


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


def draw_table(about: str, names: Sequence[str], rows: Sequence[Html], class_: str | None = None) -> Html:
    """A table that can be scrolled sideways where the window is small. A column whose name ends with `>` is
    of numbers."""
    columns = [
        el("th", name.rstrip(">"), scope="col", class_="number" if name.endswith(">") else None)
        for name in names
    ]
    head = el("thead", el("tr", *columns))
    return scrolling(el("table", head, el("tbody", *rows), class_=class_), about)


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
