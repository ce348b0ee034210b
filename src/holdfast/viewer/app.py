"""The viewer as an ASGI application."""

from __future__ import annotations

from collections.abc import Collection

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response

from ..cli.options import Common
from ..errors import BadInput, HoldfastError, LeaseHeld, NotFound, StoreFailed
from ..store.store import Store
from .context import Identify, Viewer
from .layout import message_page
from .routes import ROUTES
from .security import LOOPBACK, Guard, set_headers


def app(
    store: Store,
    *,
    identify: Identify | None = None,
    allow_changes: bool = False,
    read_only: bool = False,
    root_path: str = "",
    hosts: Collection[str] = LOOPBACK,
    token: str | None = None,
    url: str = "",
    blobs: str | None = None,
) -> Starlette:
    """An ASGI application that shows an open store, to be mounted behind a login of one's own.

    `identify` is called with each request that answers or changes something, and says who sends it, for the
    record; without a name, it is refused. By default, it is the user of this process. `allow_changes`:
    visitors may fork and rewind. `read_only`: they may not even answer, and nothing is written. `root_path`:
    the prefix that a proxy takes off the path. `hosts`: the names by which browsers reach it; only this
    machine's own by default. `token`: only requests that carry it are answered; None leaves that to the
    application around it. `url` and `blobs` name the store in the commands that the pages show.
    """
    made = Starlette(
        routes=ROUTES,
        middleware=[
            Middleware(Guard, hosts=hosts, token=token, read_only=read_only, root_path=root_path.rstrip("/"))
        ],
        exception_handlers={HTTPException: _refused, HoldfastError: _failed, Exception: _broken},
    )
    made.state.viewer = Viewer(
        store,
        common=Common(store=url, blobs=blobs),
        identify=identify,
        allow_changes=allow_changes,
        read_only=read_only,
    )
    return made


_STATUS: dict[type[HoldfastError], int] = {NotFound: 404, BadInput: 400, LeaseHeld: 409, StoreFailed: 503}


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    title = "There is no such page" if error.status_code == 404 else "Not possible"
    return message_page(request, title, error.detail, error.status_code)


async def _failed(request: Request, error: Exception) -> Response:
    status = next((code for kind, code in _STATUS.items() if isinstance(error, kind)), 500)
    return message_page(request, "Not found" if status == 404 else "Not possible", str(error), status)


async def _broken(request: Request, error: Exception) -> Response:
    # Outside of the middleware. The server logs the error.
    answer = message_page(request, "A mistake in holdfast", "The log of the viewer says more.", 500)
    set_headers(answer.headers)
    return answer
