"""The ledger of a session: every call with an intent on record, and what became of it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import chain

from starlette.requests import Request
from starlette.responses import Response

from ..cli.html_effects import EffectStory, draw_effect_table, read_stories
from ..core.effects import Effect
from ..core.session_state import SessionState
from ..drawing.markup import Child, Html, el
from ..engine.engine import Engine
from ..engine.journal import Journal
from ..formatting import count
from ..limits import VIEWER_EFFECTS
from ..store.store import Store
from .context import viewer_of
from .page_numbers import draw_pager, find_page, read_number, same_page
from .session_frame import Subject, session_page, wants


async def show_effects(request: Request, subject: Subject) -> Response:
    """The effects of a session."""
    viewer = viewer_of(request)
    state = await viewer.sessions.get_state(subject.head, subject.version)
    body = [] if not wants(request, "body") else await draw_effects(request, subject, state)
    command = f"holdfast show {subject.session} --all{viewer.common.explicit_options}"
    return session_page(request, subject, state, "effects", *body, commands=[command])


async def draw_effects(request: Request, subject: Subject, state: SessionState) -> list[Child]:
    """One page of them: of those that change the world, or of all."""
    rows = list(state.facts.effects.rows.values())
    changes = [row for row in rows if row.changes_the_world]
    entry = read_number(request, "entry")
    wants_all = request.query_params.get("all") == "1" or entry not in {
        None,
        *(row.issued for row in changes),
    }
    chosen = rows if wants_all else changes
    title = el("h2", "Effects ", el("span", _count(rows, changes), class_="dim"))
    if not chosen:
        return [
            title,
            el("p", "No call that changes something was made.", class_="note"),
            _offer(request, rows, wants_all),
        ]
    pages = -(-len(chosen) // VIEWER_EFFECTS)
    number = find_page(request, pages)
    if entry is not None:
        place = next((place for place, row in enumerate(chosen) if row.issued == entry), None)
        number = number if place is None else place // VIEWER_EFFECTS + 1
    shown = chosen[(number - 1) * VIEWER_EFFECTS : number * VIEWER_EFFECTS]
    stories = await read_effect_stories(viewer_of(request).store, state, shown)
    said = f"effects {(number - 1) * VIEWER_EFFECTS + 1:,} to {(number - 1) * VIEWER_EFFECTS + len(shown):,}"
    pager = draw_pager(request, number, pages, said, entry=None)
    held = subject.held or subject.version is not None
    table = draw_effect_table(shown, stories, held=held)
    return [title, _offer(request, rows, wants_all), pager, el("section", table, class_="box"), pager]


def _count(rows: Sequence[Effect], changes: Sequence[Effect]) -> str:
    return f"{count(len(changes), 'call')} that may change something, of {len(rows):,} in the ledger"


def _offer(request: Request, rows: Sequence[Effect], wants_all: bool) -> Html | None:
    """The way between all calls, and those with side effects."""
    if all(row.changes_the_world for row in rows):
        return None
    words = "Only calls that may change something" if wants_all else "All calls in the ledger"
    return el(
        "p", el("a", words, href=same_page(request, all=None if wants_all else 1, page=None, entry=None))
    )


async def read_effect_stories(
    store: Store, state: SessionState, rows: Sequence[Effect]
) -> dict[int, EffectStory]:
    """What the journal says of some effects, by their intents."""
    if not rows:
        return {}
    engine = store._engine
    return await engine.call(partial(_read_stories, engine, state, [row.issued for row in rows]))


def _read_stories(engine: Engine, state: SessionState, issued: Sequence[int]) -> dict[int, EffectStory]:
    """Blocks. Before the first of them, only who held the session matters, which needs no contents."""
    journal = Journal(engine.driver, state.facts.head.session)
    first = min(issued)
    before = journal.entries(0, first - 1, said=False)
    return read_stories(chain(before, journal.entries(first - 1, state.seq)), frozenset(issued))
