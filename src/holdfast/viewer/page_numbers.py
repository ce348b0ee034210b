"""Long lists, a page at a time: the addresses and the links."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.requests import Request

from ..drawing.markup import Html, el
from .addresses import link_to, own_path

LIVE = "live"
"""The parameter that asks for one part of a page, to replace it."""


def read_number(request: Request, name: str) -> int | None:
    """A number in the address; None if there is none."""
    given = request.query_params.get(name)
    if given is None or given == "":
        return None
    if not (given.isascii() and given.isdigit() and len(given) <= 15):
        raise HTTPException(400, f"{name} must be a number, not {given!r}")
    return int(given)


def same_page(request: Request, **changes: str | int | None) -> str:
    """The address of this page, with other parameters."""
    query: dict[str, str | int | None] = {**request.query_params, **changes}
    if LIVE not in changes:
        query.pop(LIVE, None)
    return link_to(request, own_path(request.scope), **query)


def find_page(request: Request, pages: int, name: str = "page") -> int:
    """The page that the address asks for, from 1; the last one if it does not say."""
    given = read_number(request, name)
    return pages if given is None else min(max(given, 1), pages)


def draw_pager(
    request: Request, number: int, pages: int, said: str, *, name: str = "page", **changes: None
) -> Html | None:
    """Links to the other pages of a list; `said` is what this one shows. None if there is only one."""
    if pages <= 1:
        return None

    def link(words: str, to: int, key: str | None, label: str) -> Html:
        if not 1 <= to <= pages or to == number:
            return el("span", words, class_="dim", aria_hidden="true")
        query: dict[str, str | int | None] = {**changes, name: to}
        return el("a", words, href=same_page(request, **query), data_key=key, aria_label=label)

    return el(
        "nav",
        link("« first", 1, None, "first page"),
        link("← previous", number - 1, "[", "page before"),
        el("span", f"{said} · page {number:,} of {pages:,}"),
        link("next →", number + 1, "]", "next page"),
        link("last »", pages, None, "last page"),
        class_="pager",
        aria_label="Pages of this list",
    )
