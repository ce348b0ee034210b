"""The versions of a session: as it was at each, what changed between two, and starting again from one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from hashlib import sha256
from typing import Final

from anyio import to_thread
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from ..cli.html_effects import draw_effect_table
from ..cli.html_transcript import PlacedMessage, draw_messages
from ..cli.json_views import shape_value
from ..core.diff import ABSENT, Diff
from ..core.effects import Effect
from ..core.fold import Checkpoint
from ..core.plan import PlanStep
from ..core.session_state import SessionState
from ..drawing.markup import Child, Html, el, join
from ..drawing.status import draw_status
from ..formatting import count, cut_text, indented, shorten, span, usd
from ..limits import VIEWER_VERSIONS
from ..messages import AnyMessage
from .addresses import session_link
from .context import viewer_of
from .effects_page import read_effect_stories
from .layout import form, hidden_fields, page
from .page_numbers import draw_pager, find_page, read_number
from .security import read_form
from .session_frame import (
    Subject,
    draw_commands,
    draw_table,
    find_subject,
    session_page,
    tab_link,
    wants,
    when,
)

_EFFECTS_MAX: Final = 200
_MESSAGES_MAX: Final = 200


async def show_versions(request: Request, subject: Subject) -> Response:
    """The versions, the latest first."""
    viewer = viewer_of(request)
    state = await viewer.sessions.get_state(subject.head)
    body: list[Child] = []
    versions = state.checkpoints
    if wants(request, "body"):
        body = _draw_versions(request, subject, state, may_change=viewer.allow_changes)
    above = _draw_diff_form(request, subject, versions) if len(versions) > 1 else None
    command = f"holdfast show {subject.session} --brief{viewer.common.explicit_options}"
    return session_page(request, subject, state, "versions", *body, commands=[command], above=above)


def _draw_versions(
    request: Request, subject: Subject, state: SessionState, *, may_change: bool
) -> list[Child]:
    versions = state.checkpoints[::-1]
    title = el("h2", "Versions ", el("span", count(len(versions), "version"), class_="dim"))
    if not versions:
        return [title, el("p", "No checkpoint was taken yet.", class_="note")]
    pages = -(-len(versions) // VIEWER_VERSIONS)
    # The first page has the latest ones.
    number = find_page(request, pages) if "page" in request.query_params else 1
    shown = versions[(number - 1) * VIEWER_VERSIONS : number * VIEWER_VERSIONS]
    rows = [_draw_version(request, subject, state, one, may_change) for one in shown]
    names = ("version", "step", "taken (UTC)", "built on", "name", "can be continued", "")
    pager = draw_pager(request, number, pages, f"versions {shown[0].version:,} to {shown[-1].version:,}")
    note = None
    if not may_change:
        said = "To fork and rewind here, start the viewer with --allow-changes."
        note = el("p", said, class_="note")
    return [title, pager, el("section", draw_table("Versions", names, rows), class_="box"), pager, note]


def _draw_version(
    request: Request, subject: Subject, state: SessionState, one: Checkpoint, may_change: bool
) -> Html:
    is_here = one.version == state.version
    links = [
        el("a", "as it was", href=session_link(request, subject.session, version=one.version)),
        el("a", "changes", href=_diff_link(request, subject, one.base, one.version)) if one.base else None,
    ]
    if may_change:
        links += [
            el("a", "fork", href=session_link(request, f"{subject.session}/fork", version=one.version)),
            el("a", "rewind", href=session_link(request, f"{subject.session}/rewind", version=one.version)),
        ]
    return el(
        "tr",
        el("td", f"{one.version:,}{' (here)' if is_here else ''}"),
        el("td", f"{one.step:,}"),
        el("td", when(one.at)),
        el("td", f"{one.base:,}" if one.base else ""),
        el("td", shorten(one.name or "", 200)),
        el("td", "yes" if one.continuable else shorten(one.why[0], 200)),
        el("td", *(part for link in links if link for part in (link, " ")), class_="tight"),
        data_row="",
        tabindex="-1",
    )


def _diff_link(request: Request, subject: Subject, a: int, b: int) -> str:
    return session_link(request, f"{subject.session}/diff", a=a, b=b)


def _draw_diff_form(request: Request, subject: Subject, versions: Sequence[Checkpoint]) -> Html:
    """Two versions to compare."""

    def field(name: str, value: int) -> Html:
        box = el("input", name=name, value=value, inputmode="numeric", size=6, required="")
        return el("label", f"{'older' if name == 'a' else 'newer'} ", box, " ")

    return el(
        "form",
        el("span", "Compare two versions: "),
        field("a", read_number(request, "a") or versions[-2].version),
        field("b", read_number(request, "b") or versions[-1].version),
        el("button", "compare"),
        method="get",
        action=session_link(request, f"{subject.session}/diff"),
        class_="inline box",
    )


# -- what changed between two -----------------------------------------------------------------------------


async def show_diff(request: Request, subject: Subject) -> Response:
    """Two versions side by side."""
    viewer = viewer_of(request)
    a, b = read_number(request, "a"), read_number(request, "b")
    if a is None or b is None:
        raise HTTPException(400, "Say which versions to compare: ?a=1&b=2.")
    store = viewer.store
    state = await viewer.sessions.get_state(subject.head)
    changes = await store.diff(subject.session, a, b)
    body = await to_thread.run_sync(partial(draw_diff, changes, a, b))
    command = f"holdfast diff {subject.session} {a} {b}{viewer.common.explicit_options}"
    above = _draw_diff_form(request, subject, state.checkpoints) if len(state.checkpoints) > 1 else None
    return session_page(
        request, subject, state, "versions", *body, commands=[command], above=above, follow=False
    )


def draw_diff(changes: Diff, a: int, b: int) -> list[Child]:
    """What is in one version and not in the other, and what was spent between them."""
    spent = changes.spending
    said = f"{count(spent.steps, 'step')}, {span(spent.seconds)}, {spent.tokens:,} tokens, {usd(spent.usd)}"
    shown: list[Child] = [
        el("h2", f"From version {a} to version {b}"),
        el("p", f"Between them: {said}.", class_="note"),
    ]
    if not changes:
        return [*shown, el("p", "They are the same.", class_="box")]
    rows = [*_compare_messages(changes), *_compare_values(changes), *_compare_plan(changes)]
    if changes.summary is not None:
        before, after = changes.summary
        rows.append(_side_by_side("summary", _text(before), _text(after)))
    names = ("", f"version {a}", f"version {b}")
    return [*shown, el("section", draw_table("Changes", names, rows, class_="diff"), class_="box")]


def _side_by_side(name: str, before: Html | None, after: Html | None) -> Html:
    return el(
        "tr",
        el("th", name, scope="row"),
        el("td", before or el("span", "not there", class_="dim"), class_="removed" if before else None),
        el("td", after or el("span", "not there", class_="dim"), class_="added" if after else None),
    )


def _text(said: str) -> Html | None:
    return el("div", cut_text(said), class_="said") if said else None


def _compare_messages(changes: Diff) -> Iterator[Html]:
    before, after = changes.messages_removed, changes.messages_added
    if before or after:
        yield _side_by_side("messages", _draw_messages(before), _draw_messages(after))


def _draw_messages(messages: Sequence[AnyMessage]) -> Html | None:
    if not messages:
        return None
    drawn = [block for _, block in draw_messages([*map(PlacedMessage, range(_MESSAGES_MAX), messages)])]
    gone = len(messages) - _MESSAGES_MAX
    more = el("p", f"… and {count(gone, 'more message')}", class_="note") if gone > 0 else None
    return join(el("p", count(len(messages), "message"), class_="note"), *drawn, more)


def _compare_values(changes: Diff) -> Iterator[Html]:
    for key, change in changes.state.items():
        shown = [
            None if value is ABSENT else el("pre", cut_text(indented(shape_value(value))))
            for value in (change.before, change.after)
        ]
        yield _side_by_side(f"state {shorten(key, 100)}", *shown)


def _compare_plan(changes: Diff) -> Iterator[Html]:
    for id, steps in changes.plan.items():
        yield _side_by_side(f"plan step {shorten(id, 60)}", *map(_draw_step, steps))


def _draw_step(step: PlanStep | None) -> Html | None:
    if step is None:
        return None
    evidence = f" ({cut_text(step.evidence)})" if step.evidence else ""
    return el("div", draw_status(step.status), f" {cut_text(step.what)}{evidence}")


# -- fork and rewind --------------------------------------------------------------------------------------


async def show_fork(request: Request) -> Response:
    """Ask before a fork is made, and say what it leaves behind."""
    subject, state, version = await _find_point(request)
    later = _list_left(state, version)
    box = el("input", name="into", maxlength=200, pattern="[A-Za-z0-9_.\\-]+", autocomplete="off")
    made = form(
        request,
        f"/sessions/{subject.session}/fork",
        hidden_fields({"version": version}),
        el("p", el("label", "Id of the new session (made up if empty) ", box)),
        el("p", el("button", f"Fork from version {version}", class_="primary")),
    )
    said = (
        f"A new session begins as {subject.session} was at version {version}. Its history is shared, not "
        "copied, and this session is not changed: it keeps its spending, its runs and its inbox, and any "
        "process may go on with it."
    )
    command = f"holdfast fork {subject.session} --version {version}"
    return await _ask(request, subject, state, f"Fork from version {version}", said, later, made, command)


async def do_fork(request: Request) -> Response:
    """Make the fork, and go there."""
    subject, _, version = await _find_point(request)
    into = read_form(request).get("into", "").strip() or None
    viewer = viewer_of(request)
    made = await viewer.store.fork(subject.session, version=version, into=into)
    viewer.listing.forget()
    return RedirectResponse(session_link(request, made), 303)


async def show_rewind(request: Request) -> Response:
    """Ask before a session goes back, and say what it leaves behind."""
    subject, state, version = await _find_point(request)
    later = _list_left(state, version)
    made = form(
        request,
        f"/sessions/{subject.session}/rewind",
        hidden_fields({"version": version, "seen": _stamp(state, version)}),
        el("p", el("button", f"Rewind to version {version}", class_="primary")),
        confirm=f"Rewind {subject.session} to version {version}?",
    )
    said = (
        f"{subject.session} goes back to version {version}: messages, state, plan and summary are as they "
        "were then. The journal keeps the later versions, and you can go to them again. Money that was spent "
        "stays spent."
    )
    if subject.held and subject.head.lease is not None:
        said += f" {subject.head.lease.name} holds the session: it must end first."
    command = f"holdfast rewind {subject.session} --version {version}"
    return await _ask(request, subject, state, f"Rewind to version {version}", said, later, made, command)


async def do_rewind(request: Request) -> Response:
    """Go back, and show where the session is now."""
    subject, _, version = await _find_point(request)
    viewer = viewer_of(request)
    async with viewer.store.session(subject.session, create=False) as session:
        # What the person was shown must be what is left behind.
        if read_form(request).get("seen") != _stamp(session.state, version):
            raise HTTPException(409, "The session has gone on since the page was made: look at it again.")
        await session.rewind(version=version)
    viewer.listing.forget()
    return RedirectResponse(session_link(request, f"{subject.session}/versions"), 303)


def _stamp(state: SessionState, version: int) -> str:
    """What a rewind leaves behind, in short: versions, and effects with their outcomes."""
    left = [f"{one.issued} {one.status}" for one in _list_left(state, version)]
    return sha256("\n".join([str(state.facts.head.version), *left]).encode()).hexdigest()[:32]


async def _find_point(request: Request) -> tuple[Subject, SessionState, int]:
    """The session and the version that a form is about; refused unless visitors may change sessions."""
    viewer = viewer_of(request)
    if not viewer.allow_changes:
        raise HTTPException(403, "Forking and rewinding are off: start the viewer with --allow-changes.")
    subject = await find_subject(request)
    if request.method == "POST":
        await _require_visitor(request)
        given = read_form(request).get("version", "")
        version = int(given) if given.isascii() and given.isdigit() and len(given) <= 15 else None
    else:
        version = subject.version
    if version is None:
        raise HTTPException(400, "Say which version: ?version=1.")
    subject.version = None
    state = await viewer.sessions.get_state(subject.head)
    state.get_checkpoint(version)
    return subject, state, version


async def _require_visitor(request: Request) -> None:
    if await viewer_of(request).find_visitor(request) is None:
        raise HTTPException(403, "Nobody is known to have sent this.")


def _list_left(state: SessionState, version: int) -> list[Effect]:
    """The effects after a version."""
    return state.facts.effects.since(state.get_checkpoint(version).seq)


async def _ask(
    request: Request,
    subject: Subject,
    state: SessionState,
    title: str,
    said: str,
    left: Sequence[Effect],
    made: Html,
    command: str,
) -> Response:
    """A page with a form, and what it will do."""
    shown: list[Child] = [el("p", "No side effect came after it.")]
    if left:
        latest = left[-_EFFECTS_MAX:]
        stories = await read_effect_stories(viewer_of(request).store, state, latest)
        words = f"{count(len(left), 'side effect')} came after it, and will stay as they are"
        words += f"; the latest {_EFFECTS_MAX}:" if len(left) > _EFFECTS_MAX else ":"
        table = draw_effect_table(latest, stories, held=subject.held)
        shown = [el("p", el("strong", words)), table]
    return page(
        request,
        f"{title} · {subject.session}",
        el("h1", title, " ", el("a", subject.session, href=tab_link(request, subject, "versions"))),
        el("section", el("p", said), *shown, made, class_="box ask"),
        draw_commands([f"{command}{viewer_of(request).common.explicit_options}"]),
        here="sessions",
    )
