"""The list of sessions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from ..cli.html_page import draw_status
from ..cli.json_views import name_thread
from ..core.head import Head
from ..drawing.markup import Html, el, join
from ..formatting import count, shorten, usd
from ..limits import VIEWER_ROWS
from .addresses import link_to, session_link
from .context import viewer_of
from .layout import fragment, live, moment, page
from .listing import Listed, SessionFilter, name_framework

_STANDINGS: Final = (
    "running",
    "held",
    "interrupted",
    "waiting",
    "idle",
    "completed",
    "failed",
    "cancelled",
)


async def _sessions(request: Request) -> Response:
    list_ = live(
        link_to(request, "/sessions-list", **request.query_params), await _draw_list(request), id="list"
    )
    return page(request, "Sessions", el("h1", "Sessions"), list_, here="sessions")


async def _sessions_list(request: Request) -> Response:
    return fragment(request, await _draw_list(request))


async def _draw_list(request: Request) -> Html:
    given = request.query_params
    wanted = SessionFilter(**{name: given.get(name, "") for name in SessionFilter.__struct_fields__})
    listed = await viewer_of(request).listing.get()
    heads = [head for head in listed.heads if wanted.matches(head, listed)]
    shown = heads[:VIEWER_ROWS]
    return join(
        el("p", count(len(heads), "session"), class_="note"),
        _draw_table(request, shown, listed) if shown else el("p", "No such session."),
    )


def _draw_table(request: Request, heads: Sequence[Head], listed: Listed) -> Html:
    rows = [
        el(
            "tr",
            el("td", el("a", head.session, href=session_link(request, head.session))),
            el("td", draw_status(listed.standing(head))),
            el("td", head.agent or ""),
            el("td", name_framework(head)),
            el("td", moment(head.updated_at)),
            el("td", f"{head.step:,}"),
            el("td", f"{head.usage.tokens:,}"),
            el("td", usd(head.usd)),
            el("td", head.lease.name if head.lease is not None and listed.is_held(head) else ""),
            el("td", shorten(head.title or name_thread(head), 80)),
        )
        for head in heads
    ]
    names = (
        "session",
        "status",
        "agent",
        "framework",
        "changed",
        "steps",
        "tokens",
        "money",
        "holder",
        "title",
    )
    return el(
        "div",
        el("table", el("thead", el("tr", *(el("th", name) for name in names))), el("tbody", *rows)),
        class_="wide box",
    )


ROUTES: Final[tuple[BaseRoute, ...]] = (
    Route("/", _sessions),
    Route("/sessions-list", _sessions_list),
)
