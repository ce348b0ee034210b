"""The journal of a session as it is stored: every entry with its number, every commit with its sum."""

from __future__ import annotations

from functools import partial

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from ..cli.entry_text import describe
from ..cli.json_views import shape_entry
from ..core.entries import Entry
from ..core.pages import OpenChunk
from ..drawing.markup import Child, Html, el
from ..engine.engine import Engine
from ..engine.journal import Journal
from ..formatting import count, cut_text
from ..ids import SessionId
from ..limits import VIEWER_ENTRIES
from .context import viewer_of
from .page_numbers import draw_pager, find_page, read_number
from .session_frame import Subject, session_page, wants, when


async def show_entries(request: Request, subject: Subject) -> Response:
    """The entries of a session, by pages of equal length."""
    viewer = viewer_of(request)
    store = viewer.store
    state = await viewer.sessions.get_state(subject.head, subject.version)
    body: list[Child] = []
    pages = max(1, -(-state.seq // VIEWER_ENTRIES))
    after = read_number(request, "after")
    number = find_page(request, pages) if after is None else min(after // VIEWER_ENTRIES + 1, pages)
    first = (number - 1) * VIEWER_ENTRIES + 1
    if wants(request, "body"):
        last = min(first + VIEWER_ENTRIES - 1, state.seq)
        engine = store._engine
        chunks = await engine.call(partial(_read, engine, subject.head.session, first, last))
        body = draw_entries(chunks, first, last)
        said = f"entries {first:,} to {last:,} of {state.seq:,}"
        pager = draw_pager(request, number, pages, said, after=None)
        body = [
            el("h2", "Entries ", el("span", count(state.seq, "entry", "entries"), class_="dim")),
            pager,
            *body,
            pager,
        ]
    options = viewer.common.explicit_options
    commands = [f"holdfast tail {subject.session} --after {first - 1} --json{options}"]
    return session_page(request, subject, state, "entries", *body, commands=commands, follow=number == pages)


def _read(engine: Engine, session: SessionId, first: int, last: int) -> list[OpenChunk]:
    """The chunks that hold the entries. Blocks."""
    found: list[OpenChunk] = []
    for chunk in Journal(engine.driver, session).chunks(first - 1):
        if chunk.first > last:
            break
        found.append(chunk)
    return found


def draw_entries(chunks: list[OpenChunk], first: int, last: int) -> list[Child]:
    """Entries one below the other; those that were committed together share a sum."""
    blocks: list[Child] = []
    for chunk in chunks:
        entries = [entry for entry in chunk.entries if first <= entry.seq <= last]
        said = (
            f"entry {chunk.first:,}"
            if chunk.first == chunk.last
            else f"entries {chunk.first:,} to {chunk.last:,}"
        )
        sum = el("p", f"sum of {said} and all before: ", el("code", chunk.sum), class_="note sum")
        blocks.append(el("section", *(_draw_entry(entry) for entry in entries), sum, class_="box chunk"))
    return blocks


def _draw_entry(entry: Entry) -> Html:
    summary = el(
        "summary",
        el("span", f"{entry.seq:,}", class_="mono seq"),
        " ",
        when(entry.at),
        " ",
        el("code", entry.kind),
        " ",
        el("span", describe(entry, 160), class_="dim"),
    )
    stored = msgspec.json.format(msgspec.json.encode(shape_entry(entry)), indent=2).decode(errors="replace")
    return el("details", summary, el("pre", cut_text(stored)), id=f"entry-{entry.seq}", class_="entry")
