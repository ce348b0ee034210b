"""The transcript of a session, a page at a time."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import Response

from ..cli.html_transcript import PlacedMessage, draw_messages
from ..core.session_state import SessionState
from ..drawing.markup import Child, el
from ..formatting import count
from ..limits import VIEWER_MESSAGES
from ..messages import AnyMessage, Role
from .context import viewer_of
from .media import draw_media, send_media
from .page_numbers import draw_pager, find_page, read_number
from .session_frame import Subject, find_subject, session_page, tab_link, wants


def divide(roles: Sequence[Role], size: int = VIEWER_MESSAGES) -> list[range]:
    """The messages of each page. Results are on the page of their calls."""
    found: list[range] = []
    start = 0
    for place in range(1, len(roles)):
        if place - start >= size and roles[place] != "tool":
            found.append(range(start, place))
            start = place
    return [*found, range(start, len(roles))] if roles else []


async def show_transcript(request: Request, subject: Subject) -> Response:
    """The messages of a session."""
    viewer = viewer_of(request)
    state = await viewer.store.load(subject.session, subject.version)
    body: list[Child] = []
    is_last = True
    if wants(request, "body"):
        body, is_last = await to_thread.run_sync(partial(_draw, request, subject, state))
    version = "" if subject.version is None else f" --version {subject.version}"
    command = f"holdfast export {subject.session}{version}{viewer.common.explicit_options}"
    return session_page(request, subject, state, "transcript", *body, commands=[command], follow=is_last)


def _draw(request: Request, subject: Subject, state: SessionState) -> tuple[list[Child], bool]:
    items = state.transcript_fold.items
    entry = read_number(request, "entry")
    found = [place for place, item in enumerate(items) if item.seq == entry]
    note: Child = None
    if entry is not None and not found:
        where = el(
            "a", "the journal has it", href=tab_link(request, subject, "entries", after=max(entry - 1, 0))
        )
        said = f"Entry {entry} is not in this transcript: a rewind left it behind, or it is a result; "
        note = el("p", said, where, ".", class_="note")
    drawn, is_last = draw_page(
        request,
        subject,
        [item.role for item in items],
        state.transcript,
        seqs=[item.seq for item in items],
        place=found[0] if found else None,
    )
    return [note, *drawn], is_last


def draw_page(
    request: Request,
    subject: Subject,
    roles: Sequence[Role],
    messages: Sequence[AnyMessage],
    *,
    seqs: Sequence[int] = (),
    place: int | None = None,
) -> tuple[list[Child], bool]:
    """One page of messages, and whether it is the last one. Blocks while messages are read."""
    pages = divide(roles)
    if not pages:
        return [el("h2", "Transcript"), el("p", "There are no messages.", class_="note")], True
    number = find_page(request, len(pages))
    if place is not None:
        number = next(number for number, page in enumerate(pages, 1) if place in page)
    shown = [PlacedMessage(one, messages[one], seqs[one] if seqs else None) for one in pages[number - 1]]
    drawn = [block for _, block in draw_messages(shown, partial(draw_media, request, subject))]
    said = f"messages {shown[0].place + 1:,} to {shown[-1].place + 1:,} of {len(roles):,}"
    pager = draw_pager(request, number, len(pages), said, entry=None)
    title = el("h2", "Transcript ", el("span", count(len(roles), "message"), class_="dim"))
    return [title, pager, el("section", *drawn, class_="box"), pager], number == len(pages)


async def show_media(request: Request) -> Response:
    """An image, or other media, in a message of a session."""
    subject = await find_subject(request)
    state = await viewer_of(request).store.load(subject.session, subject.version)
    return await to_thread.run_sync(partial(_send, request, state))


def _send(request: Request, state: SessionState) -> Response:
    place = read_number(request, "message")
    is_there = place is not None and place < len(state.transcript_fold.items)
    return send_media([state.transcript[place]] if place is not None and is_there else [], request)
