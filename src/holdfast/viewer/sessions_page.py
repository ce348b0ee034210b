"""The list of sessions."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Final, get_args

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from ..cli.json_views import name_thread
from ..core.entries import SessionStatus
from ..core.head import Head
from ..drawing.markup import Html, el, join
from ..drawing.status import draw_status
from ..formatting import count, shorten, usd
from ..limits import VIEWER_ROWS
from .addresses import link_to, session_link
from .context import viewer_of
from .layout import command, fragment, live, moment, page, pager, read_page_number, scrolling
from .listing import Listed, SessionFilter, count_waiting, name_framework

_STANDINGS: Final = ("running", "held", "interrupted", "waiting", "idle", "completed", "failed", "cancelled")
_ORDERS: Final[dict[str, Callable[[Head], datetime | float]]] = {
    "changed": lambda head: head.updated_at,
    "created": lambda head: head.created_at,
    "steps": lambda head: head.step,
    "tokens": lambda head: head.usage.tokens,
    "money": lambda head: head.usd,
}
"""What the list can be sorted by, the largest first; the latest change by default."""
_COLUMNS: Final = (
    ("session", ""),
    ("status", ""),
    ("waits for you", ""),
    ("agent", ""),
    ("framework", ""),
    ("created", "created"),
    ("changed", "changed"),
    ("steps", "steps"),
    ("tokens", "tokens"),
    ("money", "money"),
    ("holder", ""),
)
"""The columns, and what they are sorted by."""
_NUMBERS: Final = ("steps", "tokens", "money")
_CHOICES_MAX: Final = 200
"""Agents to choose from; those with more sessions first."""


async def _sessions(request: Request) -> Response:
    listed = await viewer_of(request).listing.get()
    source = link_to(request, "/sessions-list", **_known_query(request))
    return page(
        request,
        "Sessions",
        el("h1", "Sessions"),
        _draw_filters(request, listed),
        live(source, _draw_list(request, listed), id="sessions"),
        here="sessions",
    )


async def _sessions_list(request: Request) -> Response:
    return fragment(request, _draw_list(request, await viewer_of(request).listing.get()))


def _read_filter(request: Request) -> SessionFilter:
    given = request.query_params
    return SessionFilter(**{name: given.get(name, "") for name in SessionFilter.__struct_fields__})


def _known_query(request: Request) -> dict[str, str]:
    """The parameters of the address that this page knows, without the empty ones."""
    given = request.query_params
    names = (*SessionFilter.__struct_fields__, "sort", "page")
    return {name: given[name] for name in names if given.get(name)}


# -- filters ----------------------------------------------------------------------------------------------


def _draw_filters(request: Request, listed: Listed) -> Html:
    wanted = _read_filter(request)
    agents = _most_common(head.agent for head in listed.heads if head.agent)
    frameworks = _most_common(name_framework(head) for head in listed.heads)
    return el(
        "form",
        el("label", "Search", for_="q", class_="hidden"),
        el(
            "input",
            type="search",
            name="q",
            id="q",
            value=wanted.q,
            placeholder="id, title, agent, label=value",
        ),
        _draw_choice("status", "any status", _STANDINGS, wanted.status),
        _draw_choice("agent", "any agent", agents, wanted.agent),
        _draw_choice("framework", "any framework", frameworks, wanted.framework),
        el(
            "label",
            el("input", type="checkbox", name="waits", value="yes", checked="" if wanted.waits else None),
            " waits for a person",
        ),
        *(
            el("input", type="hidden", name=name, value=value)
            for name, value in _known_query(request).items()
            if name in ("sort", "parent")
        ),
        el("button", "Show", type="submit"),
        el("a", "all", href=link_to(request, "/")) if _known_query(request) else None,
        method="get",
        action=link_to(request, "/"),
        class_="filters",
        role="search",
        data_at_once="",
    )


def _most_common(names: Iterable[str]) -> list[str]:
    counted: dict[str, int] = {}
    for name in names:
        counted[name] = counted.get(name, 0) + 1
    return sorted(counted, key=lambda name: (-counted[name], name))[:_CHOICES_MAX]


def _draw_choice(name: str, every: str, values: Sequence[str], chosen: str) -> Html:
    listed = list(values) if not chosen or chosen in values else [chosen, *values]
    options = [
        el("option", shorten(one, 40), value=one, selected="" if one == chosen else None) for one in listed
    ]
    first = el("option", every, value="")
    return el("select", first, *options, name=name, aria_label=name)


# -- the list ---------------------------------------------------------------------------------------------


def _draw_list(request: Request, listed: Listed) -> Html:
    wanted, number = _read_filter(request), read_page_number(request)
    heads = [head for head in listed.heads if wanted.matches(head, listed)]
    order = _ORDERS.get(request.query_params.get("sort", ""))
    if order is not None:
        heads.sort(key=order, reverse=True)
    shown = heads[number * VIEWER_ROWS : (number + 1) * VIEWER_ROWS]
    damaged = [el("p", f"{name} is damaged: {why}", class_="bad") for name, why in listed.damaged.items()]
    many = f"{count(len(heads), 'session')}" + (
        f" of {len(listed.heads):,}" if len(heads) < len(listed.heads) else ""
    )
    known = _known_query(request)
    known.pop("page", None)
    return join(
        el("p", many, class_="note"),
        _draw_table(request, shown, listed) if shown else el("p", _why_none(request, listed), class_="empty"),
        pager(request, "/", number, -(-len(heads) // VIEWER_ROWS), **known),
        *damaged,
        el("details", el("summary", "About the same on the command line"), command(_name_command(request))),
    )


def _name_command(request: Request) -> str:
    """The command that lists these sessions, as far as it knows the filters."""
    wanted = _read_filter(request)
    options = ""
    if wanted.status == "interrupted":
        options = " --interrupted"
    elif wanted.status in get_args(SessionStatus):
        options = f" --status {wanted.status}"
    if wanted.parent:
        options += f" --parent {shlex.quote(wanted.parent)}"
    return f"holdfast sessions{options}{viewer_of(request).common.explicit_options}"


def _why_none(request: Request, listed: Listed) -> str:
    if listed.heads:
        return "No session is like that." if _known_query(request) else "No more sessions."
    return "No sessions yet."


def _draw_table(request: Request, heads: Sequence[Head], listed: Listed) -> Html:
    rows = [_draw_row(request, head, listed) for head in heads]
    table = el("table", el("thead", el("tr", *_draw_names(request))), el("tbody", *rows), class_="sessions")
    return el("section", scrolling(table, "Sessions"), class_="box")


def _draw_names(request: Request) -> list[Html]:
    known = _known_query(request)
    known.pop("page", None)
    here = known.pop("sort", "") or "changed"
    return [
        el(
            "th",
            el("a", name, href=link_to(request, "/", **known, sort=key)) if key and key != here else name,
            scope="col",
            aria_sort="descending" if key == here else None,
            class_="number" if name in _NUMBERS else None,
        )
        for name, key in _COLUMNS
    ]


def _draw_row(request: Request, head: Head, listed: Listed) -> Html:
    held = listed.is_held(head)
    word = listed.standing(head)
    waits = [f"{head.waiting} to approve"] if head.waiting else []
    waits += [f"{head.in_doubt} in doubt"] if head.in_doubt and not held else []
    link = el(
        "a", head.session, href=session_link(request, head.session), data_row="", id=f"row-{head.session}"
    )
    title = shorten(head.title or name_thread(head), 100)
    about = [el("div", title)] if title else []
    about += [el("div", f"for {head.parent}", class_="dim")] if head.parent else []
    return el(
        "tr",
        el("td", link, *about),
        el("td", draw_status(word), class_="tight"),
        el("td", el("a", ", ".join(waits), href=link_to(request, "/needs")) if waits else "", class_="tight"),
        el("td", shorten(head.agent or "", 30), class_="tight"),
        el("td", name_framework(head), class_="tight"),
        el("td", moment(head.created_at), class_="tight"),
        el("td", moment(head.updated_at), class_="tight"),
        el("td", f"{head.step:,}", class_="number"),
        el("td", f"{head.usage.tokens:,}", class_="number"),
        el("td", usd(head.usd), class_="number"),
        el("td", head.lease.name if head.lease is not None and held else "", class_="tight"),
        class_="waits" if count_waiting(head, listed) else None,
    )


ROUTES: Final[tuple[BaseRoute, ...]] = (
    Route("/", _sessions),
    Route("/sessions-list", _sessions_list),
)
