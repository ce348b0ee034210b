"""The timeline of a session: all of it at a glance, and some steps of it in detail."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Final

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import Response

from ..cli.advice import continue_call
from ..cli.html_page import draw_needs
from ..cli.json_views import standing
from ..cli.session_report import Branch, group_by_run
from ..core.fold import RunInfo
from ..core.head import Head
from ..core.session_state import SessionState
from ..drawing.chapters import Chapter
from ..drawing.markup import Child, Html, el, join
from ..drawing.model import Drawing, Gap, Step
from ..drawing.status import draw_status
from ..drawing.svg import Region, draw_steps
from ..formatting import count, span, usd, utc_text
from ..limits import CHAPTER_STEPS, DELEGATE_DEPTH_MAX, DRAWN_DELEGATES_MAX, VIEWER_STEPS
from ..store.store import Store
from .addresses import session_link
from .context import viewer_of
from .downloads import draw_downloads
from .listing import Listed
from .needs_page import draw_needs_of
from .page_numbers import draw_pager, find_page, read_number, same_page
from .session_cache import DrawnSession
from .session_frame import Subject, list_runs, session_page, wants

_OVERVIEW_STEPS: Final = 4
"""With fewer steps, the drawing of the steps says the same as an overview."""
_GAPS_MAX: Final = 20
_RUNS_MAX: Final = 50
_EFFECT, _ENTRY = "#effect-", "#entry-"


async def show_timeline(request: Request, subject: Subject) -> Response:
    """The page that a session opens with."""
    viewer = viewer_of(request)
    state = await viewer.sessions.get_state(subject.head, subject.version)
    needs: list[Child] | None = None
    if subject.version is None and wants(request, "needs"):
        needs = await _draw_needs(request, subject, state)
    body: list[Child] = []
    if wants(request, "body"):
        drawn = await viewer.sessions.find_timeline(subject.head, held=subject.held, version=subject.version)
        tree = await draw_tree(request, subject, state) if subject.version is None else None
        body = [*await draw_timeline(request, subject, drawn), tree]
    options = viewer.common.explicit_options
    commands = [
        f"holdfast show {subject.session}{options}",
        f"holdfast tail {subject.session} --follow{options}",
    ]
    below = draw_downloads(request, subject.session) if subject.version is None else None
    return session_page(request, subject, state, "", *body, commands=commands, below=below, needs=needs)


async def _draw_needs(request: Request, subject: Subject, state: SessionState) -> list[Child]:
    """What waits for a person, with the forms that answer it, and what continues the work."""
    head, common = subject.head, viewer_of(request).common
    found = await draw_needs_of(request, head, held=subject.held)
    then: list[str] = []
    if not subject.held and (found or head.open_run):
        then = [continue_call(head, list_runs(subject, state), common, options=common.explicit_options)]
    return [*found, draw_needs((), then)]


# -- the drawing ------------------------------------------------------------------------------------------


async def draw_timeline(
    request: Request, subject: Subject, drawn: DrawnSession | None, *, ledger: str | None = None
) -> list[Child]:
    """The overview, and the steps of one chapter. `ledger`: the session that has the effects, if it is
    another one."""
    if drawn is None:
        return [el("p", "Nothing has happened yet.", class_="note")]
    return await to_thread.run_sync(partial(_draw, request, subject, drawn, ledger))


def _draw(request: Request, subject: Subject, drawn: DrawnSession, ledger: str | None) -> list[Child]:
    drawing = drawn.drawing
    wanted = read_number(request, "steps")
    steps = wanted if wanted in VIEWER_STEPS else CHAPTER_STEPS
    parts = drawn.divide(steps)
    chapters = [chapter for chapter, _, _ in parts]
    number = _find_chapter(request, chapters)
    shown: list[Child] = [el("h2", "Timeline")]
    if len(drawing.steps) >= _OVERVIEW_STEPS:
        regions = _list_regions(request, parts, number)
        shown.append(el("section", drawn.overview.draw(regions), drawn.legend, class_="box"))
    shown.append(_list_gaps(request, drawing, chapters))
    if not chapters:
        return shown
    chapter = chapters[number - 1]
    said = _name_chapter(chapter)
    pager = draw_pager(request, number, len(chapters), said, name="chapter", step=None, entry=None)
    steps_drawn = draw_steps(
        drawing, chapter.items, lambda of, place: _link(request, subject, drawing, ledger, of, place)
    )
    legend = drawn.legend if len(drawing.steps) < _OVERVIEW_STEPS else None
    zoom = _draw_zoom(request, steps, chapter) if len(drawing.steps) > min(VIEWER_STEPS) else None
    return [*shown, join(pager, zoom), el("section", steps_drawn, legend, class_="box"), pager]


def _find_chapter(request: Request, chapters: Sequence[Chapter]) -> int:
    """The chapter that the address names, by its number, a step or an entry in it; the last by default."""
    if (step := read_number(request, "step")) is not None:
        for number, chapter in enumerate(chapters, 1):
            if any(isinstance(item, Step) and item.number >= step for item in chapter.items):
                return number
    elif (entry := read_number(request, "entry")) is not None:
        before = [number for number, one in enumerate(chapters, 1) if one.items[0].seq <= entry]
        return before[-1] if before else 1
    return find_page(request, len(chapters), "chapter")


def _name_chapter(chapter: Chapter) -> str:
    numbers = [item.number for item in chapter.items if isinstance(item, Step)]
    if not numbers:
        return "between steps"
    first, last = min(numbers), max(numbers)
    return f"step {first:,}" if first == last else f"steps {first:,} to {last:,}"


def _list_regions(
    request: Request, parts: Sequence[tuple[Chapter, datetime, datetime]], here: int
) -> list[Region]:
    if len(parts) < 2:
        return []
    return [
        Region(
            start,
            end,
            link=same_page(request, chapter=number, step=None, entry=None),
            title=_name_chapter(chapter),
            here=number == here,
        )
        for number, (chapter, start, end) in enumerate(parts, 1)
    ]


def _list_gaps(request: Request, drawing: Drawing, chapters: Sequence[Chapter]) -> Html | None:
    """Where a process died, with links to the steps around it."""
    if not drawing.gaps or len(chapters) < 2:
        return None
    places = {
        id(item): number
        for number, one in enumerate(chapters, 1)
        for item in one.items
        if isinstance(item, Gap)
    }
    rows = [
        el(
            "li",
            el("span", utc_text(gap.at), class_="dim"),
            " ",
            el("a", gap.text, href=same_page(request, chapter=places[id(gap)], step=None, entry=None)),
        )
        for gap in drawing.gaps[-_GAPS_MAX:]
    ]
    said = count(len(drawing.gaps), "kill")
    said += f", the latest {_GAPS_MAX}" if len(drawing.gaps) > _GAPS_MAX else ""
    return el("section", el("h3", said), el("ul", *rows), class_="box gaps")


def _draw_zoom(request: Request, steps: int, chapter: Chapter) -> Html:
    """How many steps share the width, and the way to a step."""
    first = next((item.number for item in chapter.items if isinstance(item, Step)), None)
    links = [
        el(
            "a",
            str(one),
            href=same_page(request, steps=one, step=first, chapter=None, entry=None),
            aria_current="true" if one == steps else None,
        )
        for one in VIEWER_STEPS
    ]
    kept = {name: given for name, given in request.query_params.items() if name in ("steps", "version")}
    fields = [el("input", type="hidden", name=name, value=given) for name, given in kept.items()]
    go = el(
        "form",
        *fields,
        el("label", "Go to step ", el("input", name="step", inputmode="numeric", size=6)),
        el("button", "go"),
        method="get",
        action=same_page(request).partition("?")[0],
        class_="inline",
    )
    return el("div", el("span", "Steps on the page: ", *_spaced(links)), go, class_="zoom")


def _spaced(links: Sequence[Html]) -> list[Child]:
    return [part for link in links for part in (link, " ")]


def _link(
    request: Request, subject: Subject, drawing: Drawing, ledger: str | None, of: str, place: str
) -> str | None:
    """Where a row of the drawing leads."""
    if of == drawing.session:
        session, query = ledger or subject.session, {"version": subject.version}
    else:
        session, query = of, {}
    if place.startswith(_EFFECT):
        return session_link(request, f"{session}/effects", entry=place.removeprefix(_EFFECT), **query) + place
    if place.startswith(_ENTRY):
        return (
            session_link(request, f"{session}/transcript", entry=place.removeprefix(_ENTRY), **query) + place
        )
    return session_link(request, session)


# -- the tree of runs -------------------------------------------------------------------------------------


async def draw_tree(request: Request, subject: Subject, state: SessionState) -> Html | None:
    """The runs of a session and the sessions below it; None if there is only one run."""
    viewer, head = viewer_of(request), subject.head
    tree = _TreeReader(viewer.store, await viewer.listing.get())
    branch = await tree.read(head, list_runs(subject, state), held=subject.held)
    if len(branch.runs) < 2 and not branch.has_delegates and head.parent is None:
        return None
    return join(
        el("h2", "Runs"), el("section", el("ul", _draw_branch(request, branch, head)), class_="box tree")
    )


class _TreeReader:
    """Reads the runs of the sessions below one, as far as the list of sessions has them."""

    def __init__(self, store: Store, listed: Listed) -> None:
        self._store, self._listed = store, listed
        self._left = DRAWN_DELEGATES_MAX
        self._below: dict[str, list[Head]] = {}
        for head in listed.heads:
            if head.parent is not None:
                self._below.setdefault(head.parent, []).append(head)

    async def read(
        self, head: Head, runs: list[RunInfo], *, held: bool, depth: int = DELEGATE_DEPTH_MAX
    ) -> Branch:
        """A session, and the latest of those below it."""
        below: list[Branch] = []
        for child in self._below.get(head.session, ()) if depth else ():
            if not self._left:
                break
            self._left -= 1
            its_runs = [run async for run in self._store.runs(session=child.session)]
            is_held = self._listed.is_held(child)
            below.append(await self.read(child, its_runs, held=is_held, depth=depth - 1))
        return Branch(head=head, held=held, runs=runs, delegates=group_by_run(runs, below[::-1]))


def _draw_branch(request: Request, branch: Branch, here: Head) -> Html:
    head = branch.head
    word = standing(head, branch.held)
    name: Child = el("strong", head.session)
    if head.session != here.session:
        name = el("a", head.session, href=session_link(request, head.session))
    spent = el("span", f" {usd(head.usd)}", class_="dim") if head.usd else None
    rows: list[Html] = []
    if len(branch.runs) > _RUNS_MAX:
        rows.append(
            el("li", f"{count(len(branch.runs) - _RUNS_MAX, 'earlier run')} not listed", class_="dim")
        )
    for run in branch.runs[-_RUNS_MAX:]:
        said = [span((run.ended_at - run.started_at).total_seconds())] if run.ended_at is not None else []
        said += [run.model] if run.model else []
        said += [f"continues {run.continues}"] if run.continues else []
        said += [f"({run.reason})"] if run.reason else []
        below = [_draw_branch(request, one, here) for one in branch.delegates.get(run.run, ())]
        rows.append(
            el(
                "li",
                el("code", run.run),
                " ",
                draw_status(run.status),
                el("span", f" {' · '.join(said)}", class_="dim"),
                el("ul", *below) if below else None,
            )
        )
    rows += [_draw_branch(request, one, here) for one in branch.delegates.get(None, ())]
    return el("li", name, " ", draw_status(word), spent, el("ul", *rows) if rows else None)
