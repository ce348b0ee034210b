"""What waits for a person in the whole store, and the forms that answer it."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from ..drawing.markup import el
from ..formatting import short_args, shorten
from ..store.approvals import find_waiting
from .context import viewer_of
from .layout import moment, page


async def _needs(request: Request) -> Response:
    waiting = await find_waiting(viewer_of(request).store)
    items = [
        el("li", el("code", shorten(f"{one.tool}({short_args(one.args)})", 300)), " ", moment(one.since))
        for one in waiting
    ]
    return page(request, "Needs you", el("h1", "Needs you"), el("ul", *items), here="needs")


ROUTES: Final[tuple[BaseRoute, ...]] = (Route("/needs", _needs),)
