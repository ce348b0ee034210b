"""Addresses of the viewer's pages, wherever it is mounted."""

from __future__ import annotations

from urllib.parse import quote, urlencode

from starlette.requests import Request
from starlette.types import Scope


def link_to(request: Request, path: str, /, **query: str | int | None) -> str:
    """The address of a page of the viewer. Values that are None are left out."""
    return at_root(request.scope.get("root_path", ""), path, **query)


def session_link(request: Request, session: str, /, **query: str | int | None) -> str:
    """The address of the page of a session."""
    return link_to(request, f"/sessions/{session}", **query)


def at_root(root: str, path: str, /, **query: str | int | None) -> str:
    """The address of a page below a root."""
    given = {name: str(value) for name, value in query.items() if value is not None}
    return quote(root + path, safe="/~") + (f"?{urlencode(given)}" if given else "")


def own_path(scope: Scope) -> str:
    """The path of a request below the root of the viewer."""
    root, path = str(scope.get("root_path", "")), str(scope["path"])
    below = path[len(root) :] if root and path.startswith(root) else path
    # One slash: a browser takes what follows two for the name of a host.
    return "/" + below.lstrip("/\\")
