"""Every page of the viewer: a module of pages has a list `ROUTES`, and is named here."""

from __future__ import annotations

from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from .layout import STATIC
from .needs_page import ROUTES as NEEDS
from .session_pages import ROUTES as SESSION
from .sessions_page import ROUTES as SESSIONS
from .stats_page import ROUTES as STATS
from .workers_page import ROUTES as WORKERS


async def _static(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in STATIC:
        raise HTTPException(404)
    content, media_type = STATIC[name]
    # Its address holds its digest.
    return Response(
        content, media_type=media_type, headers={"cache-control": "private, max-age=31536000, immutable"}
    )


ROUTES: Final[tuple[BaseRoute, ...]] = (
    *SESSIONS,
    *NEEDS,
    *SESSION,
    *WORKERS,
    *STATS,
    Route("/static/{name}", _static),
)
