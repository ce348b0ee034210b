"""What all pages have: the frame, the navigation, parts that stay current, and forms."""

from __future__ import annotations

import hashlib
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from ..cli.console import escape_json
from ..drawing.markup import Child, Html, el, join
from ..drawing.style import PAGE
from ..messages import Json
from ..system import files
from .addresses import link_to
from .context import Viewer, viewer_of
from .listing import Listed
from .security import CSRF_FIELD, csrf_token

_HERE: Final = Path(__file__).parent
STATIC: Final = {
    "viewer.css": (PAGE.encode() + files.read_bytes(_HERE / "viewer.css"), "text/css"),
    "viewer.js": (files.read_bytes(_HERE / "viewer.js"), "text/javascript"),
    "icon.svg": (files.read_bytes(_HERE / "icon.svg"), "image/svg+xml"),
}
"""The files that pages load, with their media types."""
_VERSIONS: Final = {name: hashlib.sha256(content).hexdigest()[:12] for name, (content, _) in STATIC.items()}
NAVIGATION: Final = (
    ("sessions", "/", "Sessions", "s"),
    ("needs", "/needs", "Needs you", "n"),
    ("workers", "/workers", "Workers", "w"),
    ("stats", "/stats", "Stats", "t"),
)
"""The pages of a store: what `page` calls them, where they are, their titles and keys."""
_KEYS: Final = (
    *((key, title) for _, _, title, key in NAVIGATION),
    ("/", "search"),
    ("j k", "next and previous row"),
    ("[ ]", "previous and next page"),
    ("1 … 6", "the pages of a session"),
    ("Enter", "open the row"),
    ("?", "these keys"),
)


def page(request: Request, title: str, *children: Child, here: str = "", status: int = 200) -> Response:
    """A whole page. `here` names the entry of the navigation that it belongs to."""
    viewer = viewer_of(request)
    badge = live(link_to(request, "/needs/count"), draw_badge(viewer.listing.last), id="badge")
    links = [
        el(
            "a",
            name,
            badge if key == "needs" else None,
            href=link_to(request, path),
            aria_current="page" if key == here else None,
            data_key=letter,
        )
        for key, path, name, letter in NAVIGATION
    ]
    head = el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="color-scheme", content="light dark"),
        el("title", f"{title} · holdfast"),
        el("link", rel="stylesheet", href=_static_link(request, "viewer.css")),
        el("link", rel="icon", href=_static_link(request, "icon.svg")),
        el("script", src=_static_link(request, "viewer.js"), defer=""),
    )
    banner = el(
        "header",
        el("a", "Skip to the page", class_="skip", href="#page"),
        el("a", "holdfast", class_="brand", href=link_to(request, "/")),
        el("nav", *links, aria_label="Pages"),
        el("span", _mode(viewer), class_="mode"),
        el("button", "keys", type="button", data_dialog="keys", class_="plain"),
        el("span", "", id="connection", role="status", class_="bad"),
        class_="top",
    )
    body = el("body", banner, el("main", *children, id="page", tabindex="-1"), _draw_keys(), class_="hf")
    return HTMLResponse(
        join(Html("<!doctype html>\n"), el("html", head, body, lang="en"), Html("\n")), status_code=status
    )


def draw_badge(listed: Listed | None) -> Html:
    """How many calls wait for a person; nothing if none does, or if it is not known yet."""
    waiting = 0 if listed is None else listed.count_waiting()
    return el("span", f"{waiting:,}", class_="badge", title=f"{waiting:,} waiting") if waiting else join()


def _draw_keys() -> Html:
    rows = [el("tr", el("td", el("kbd", key)), el("td", said)) for key, said in _KEYS]
    close = el("form", el("button", "close"), method="dialog")
    return el(
        "dialog", el("h2", "Keys"), el("table", el("tbody", *rows)), close, id="keys", aria_label="Keys"
    )


def _mode(viewer: Viewer) -> str:
    return "read only" if viewer.read_only else "changes allowed" if viewer.allow_changes else ""


def _static_link(request: Request, name: str) -> str:
    return link_to(request, f"/static/{name}", v=_VERSIONS[name])


def message_page(request: Request, title: str, said: str, status: int) -> Response:
    """A page that only says something, such as what is wrong."""
    return page(request, title, el("h1", title), el("p", said, class_="said"), status=status)


# -- parts that stay current ------------------------------------------------------------------------------


def live(source: str, *children: Child, id: str) -> Html:
    """A part of a page that the script replaces with what `source` answers (`fragment`), again and again.

    Give it an `id` that no other part of the page has. What it shows must not depend on the present time:
    use `moment` for times.
    """
    content = join(*children)
    return el("div", content, id=id, data_live=source, data_etag=_etag(content))


def fragment(request: Request, *children: Child) -> Response:
    """The answer for a part of a page: the children of its `live`; 304 if the browser has them already."""
    content = join(*children)
    etag = _etag(content)
    headers = {"etag": etag, "cache-control": "no-store"}
    if request.headers.get("if-none-match") == etag:
        return Response(status_code=304, headers=headers)
    return HTMLResponse(content, headers=headers)


def _etag(content: str) -> str:
    digest = hashlib.sha256(content.encode(errors="surrogatepass")).digest()[:15]
    return f'"{urlsafe_b64encode(digest).decode()}"'


def moment(at: datetime) -> Html:
    """A time: in UTC, and with the script as an age that counts on, with the local time beside it."""
    utc = at.astimezone(UTC)
    return el("time", f"{utc:%Y-%m-%d %H:%M:%S} UTC", datetime=f"{utc:%Y-%m-%dT%H:%M:%S.%f}Z", data_age="")


# -- forms, commands --------------------------------------------------------------------------------------


def form(
    request: Request, action: str, *children: Child, confirm: str | None = None, class_: str | None = None
) -> Html:
    """A form that `action` (a path of the viewer) takes. `confirm` is asked before it is sent."""
    hidden = el("input", type="hidden", name=CSRF_FIELD, value=csrf_token(request))
    return el(
        "form",
        hidden,
        *children,
        method="post",
        action=link_to(request, action),
        data_confirm=confirm,
        class_=class_,
    )


def hidden_fields(values: Mapping[str, str | int]) -> Html:
    """Fields that a form sends and does not show."""
    return join(*(el("input", type="hidden", name=name, value=str(value)) for name, value in values.items()))


def json_text(value: Json) -> str:
    """A value as JSON on several lines. No character is hidden, so that a form sends the same value back."""
    return escape_json(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def scrolling(content: Html, about: str) -> Html:
    """Something wide, which scrolls in its place; with the keyboard, too."""
    return el("div", content, class_="wide", tabindex="0", role="region", aria_label=about)


def read_page_number(request: Request) -> int:
    """Which page of a list the address asks for; the first is 0."""
    said = request.query_params.get("page", "")
    return int(said) if said.isascii() and said.isdecimal() and len(said) < 9 else 0


def pager(request: Request, path: str, number: int, pages: int, /, **query: str) -> Html:
    """Links to the pages of a list before and after this one; nothing if there is only one."""
    if pages <= 1 and number == 0:
        return join()
    before = link_to(request, path, **query, page=number - 1 or None) if number else None
    after = link_to(request, path, **query, page=number + 1) if number + 1 < pages else None
    return el(
        "nav",
        el("a", "← previous", href=before, rel="prev") if before else None,
        el("span", f"page {number + 1:,} of {max(pages, 1):,}", class_="dim"),
        el("a", "next →", href=after, rel="next") if after else None,
        class_="pager",
        aria_label="Pages of the list",
    )


def facts(rows: Iterable[tuple[str, Child]]) -> Html:
    """Names and values, without the empty ones."""
    return el(
        "dl", *(el("div", el("dt", name), el("dd", said)) for name, said in rows if said), class_="facts"
    )


def command(said: str) -> Html:
    """A command line that can be copied."""
    return el(
        "span",
        el("code", said),
        el("button", "copy", type="button", data_copy=said, aria_label=f"copy: {said}"),
        class_="command",
    )
