"""Ask a service that speaks JSON over HTTP."""

from __future__ import annotations

import inspect
import math
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final, TypeAlias
from urllib.parse import urlencode, urljoin, urlsplit

from ..errors import MissingExtra
from ..limits import RECIPE_ANSWER_S, RECIPE_PAGES_MAX, SETTLED_AFTER_S
from ..redact import show_address
from ..reprs import name_of
from .templates import CallNames, CannotTell, Template, Templates
from .verify_hook import ResultOf, Trace, VerifyHook, in_thread, make_hook

Client: TypeAlias = Any
"""A client of httpx, httpx2 or requests; or a function of the context that gives one."""

_LIBRARIES: Final = ("httpx", "httpx2")
_NEXT: Final = frozenset({"next", "nextpage", "nextpagetoken", "nextcursor", "nexturl", "nextlink"})
_MORE: Final = frozenset({"hasmore", "hasnext", "hasnextpage", "more", "incomplete", "incompleteresults"})
_TOTAL: Final = frozenset({"total", "totalcount", "totalresults", "totalitems", "count"})


def find(
    url: str | Callable[..., str],
    where: Mapping[str, object] | Callable[..., Mapping[str, object]],
    *,
    query: Mapping[str, object] | Callable[..., Mapping[str, object]] | None = None,
    items: str | None = None,
    next_page: Callable[[Any], str | None] | None = None,
    result: ResultOf = None,
    client: Client = None,
    headers: Mapping[str, str] | None = None,
    settled_after_s: float = SETTLED_AFTER_S,
) -> VerifyHook:
    """Find the effect in a list of a JSON service: the one item whose fields are as in `where`.

        verify=recipes.find("https://shop.example/orders", where={"reference": "{ctx.key}"})

    `where` is also the query of the request, unless `query` says otherwise. Each item of the answer is
    compared with it, because a service may ignore a query that it does not know. A dot in the name of a field
    leads into an object: `metadata.reference`. `items` is the name of the list in the answer, with dots, too;
    without it, the answer is a list, or an object with exactly one list.

    Further pages are read as the `Link` header, or a `next` with an address, says; otherwise `next_page`
    gives the next page's address from the answer. `Unsure` if more pages may follow than were read, if more
    than one item matches, if an item lacks the field, and after any answer but status 200 with JSON.
    """
    address, wanted = Template(url, "url"), Templates(where, "where")
    asked = wanted if query is None else Templates(query, "query")
    _check_library("recipes.find", client)

    async def question(names: CallNames) -> Trace | None:
        fields = wanted.fill(names)
        if not fields:
            raise CannotTell("where is empty: every item would match")
        place = _with_query(address.fill(names, in_url=True), asked.fill(names))
        seen, lacking = 0, ""
        async with _opened(client, names, headers) as service:
            for _ in range(RECIPE_PAGES_MAX):
                page = await _read_page(service, place, items, next_page)
                seen += len(page.items)
                matches = [item for item in page.items if _matches(item, fields)]
                if len(matches) > 1:
                    raise CannotTell(f"{len(matches)} items of {page.shown} match: where=… does not suffice")
                if matches:
                    return Trace(matches[0])
                lacking = lacking or _find_lacking(page.items, fields)
                if page.following is None:
                    page.check_end(seen)
                    break
                place = page.following
            else:
                raise CannotTell(f"{page.shown} has more than {RECIPE_PAGES_MAX} pages: ask for less")
        if lacking:
            raise CannotTell(f"an item of {page.shown} has no field {lacking!r}")
        return None

    uses = (address, wanted, asked)
    return make_hook("find", question, uses, result=result, settled_after_s=settled_after_s)


def get(
    url: str | Callable[..., str],
    *,
    where: Mapping[str, object] | Callable[..., Mapping[str, object]] | None = None,
    absent: tuple[int, ...] = (404,),
    result: ResultOf = None,
    client: Client = None,
    headers: Mapping[str, str] | None = None,
    settled_after_s: float = SETTLED_AFTER_S,
) -> VerifyHook:
    """Look at the address that the effect has at a JSON service.

        verify=recipes.get("https://bank.example/charges/{request[key]}")

    Status 200 with JSON means that it landed, if the fields in `where` are as they should be. A status in
    `absent` means that it did not, unless a web page came with it, as from a proxy. Anything else is
    `Unsure`.
    """
    address, expected = Template(url, "url"), Templates({} if where is None else where, "where")
    _check_library("recipes.get", client)

    async def question(names: CallNames) -> Trace | None:
        fields = expected.fill(names)
        place = address.fill(names, in_url=True)
        async with _opened(client, names, headers) as service:
            answer = await service.ask(place)
        if answer.status in absent and not answer.is_web_page:
            return None
        body = answer.read_json()
        for field, value in fields.items():
            if not _is_same(_look_up(body, field), value):
                raise CannotTell(f"{answer.shown} has another {field!r}, or none")
        return Trace(body)

    return make_hook("get", question, (address, expected), result=result, settled_after_s=settled_after_s)


# -- requests ------------------------------------------------------------------------------------------


class _Answer:
    """The answer to one request."""

    def __init__(self, shown: str, url: str, response: Any) -> None:
        self.shown, self.url = shown, url
        self.status: int = response.status_code
        self._response = response

    @property
    def is_web_page(self) -> bool:
        return "html" in (self._response.headers.get("content-type") or "").lower()

    @property
    def link(self) -> str | None:
        """The next page, as the `Link` header names it."""
        found: str | None = self._response.links.get("next", {}).get("url")
        return found

    def read_json(self) -> Any:
        """What it says, if it is a success."""
        if self.status != 200:
            raise CannotTell(f"{self.shown} answered {self.status}")
        try:
            return self._response.json()
        except ValueError as error:
            raise CannotTell(f"{self.shown} answered with something that is not JSON") from error


class _Service:
    """Sends the requests of one question."""

    def __init__(self, client: Any, headers: Mapping[str, str] | None) -> None:
        self._client, self._headers = client, dict(headers or {})

    async def ask(self, url: str) -> _Answer:
        """GET an address."""
        shown = f"GET {_shown(url)}"
        send = partial(self._client.get, url, headers=self._headers, timeout=RECIPE_ANSWER_S)
        try:
            is_async = inspect.iscoroutinefunction(self._client.get)
            response = await send() if is_async else await in_thread(send)
            if inspect.isawaitable(response):
                response = await response
        except Exception as error:
            # Its text may hold the query, and so a secret.
            raise CannotTell(f"{shown}: {name_of(type(error))}, no answer") from error
        if response.history:
            raise CannotTell(f"{shown} was redirected: give the address that it leads to")
        return _Answer(shown, str(response.url), response)


@asynccontextmanager
async def _opened(
    client: Client, names: CallNames, headers: Mapping[str, str] | None
) -> AsyncIterator[_Service]:
    if client is not None:
        yield _Service(client if hasattr(client, "get") else client(names.ctx), headers)
        return
    async with _find_library().AsyncClient(timeout=RECIPE_ANSWER_S) as own:
        yield _Service(own, headers)


def _check_library(what: str, client: Client) -> None:
    if client is None and not any(map(find_spec, _LIBRARIES)):
        raise MissingExtra(f"{what} without client=…", "", package="httpx")


def _find_library() -> Any:
    return import_module(next(name for name in _LIBRARIES if find_spec(name)))


def _with_query(url: str, query: Mapping[str, Any]) -> str:
    pairs = [(name, _as_text(value)) for name, value in query.items() if value is not None]
    return f"{url}{'&' if '?' in url else '?'}{urlencode(pairs)}" if pairs else url


def _shown(url: str) -> str:
    """An address without what may be secret; below a client's base URL, there is no host in it."""
    return show_address(url) if "://" in url else show_address(f"http://{url}").removeprefix("http://")


# -- answers -------------------------------------------------------------------------------------------

_MISSING: Final = object()


class _Page:
    """A part of a list. `is_sure`: the caller knows whether another one follows."""

    def __init__(
        self, shown: str, body: Any, items: list[Any], following: str | None, *, is_sure: bool
    ) -> None:
        self.shown, self.items, self.following = shown, items, following
        self._body, self._is_sure = body, is_sure

    def check_end(self, seen: int) -> None:
        """Refuse to take this page for the last one if the answer says that more follow."""
        if self._is_sure:
            return
        for name, value in _list_hints(self._body, self.items):
            word = name.lower().lstrip("@$").replace("odata.", "").replace("_", "").replace("-", "")
            is_more = (word in _NEXT | _MORE and value not in (None, False, "", 0)) or (
                word in _TOTAL and type(value) is int and value > seen
            )
            if is_more:
                raise CannotTell(f"{self.shown} has more pages than were read ({name}): pass next_page=…")


async def _read_page(
    service: _Service, url: str, items: str | None, next_page: Callable[[Any], str | None] | None
) -> _Page:
    answer = await service.ask(url)
    body = answer.read_json()
    found = next_page(body) if next_page is not None else answer.link or _find_next(body)
    following = urljoin(answer.url, found) if found else None
    if following is not None and _origin(following) != _origin(answer.url):
        raise CannotTell(f"the next page of {answer.shown} is at another host")
    listed = _items_of(body, items, answer.shown)
    return _Page(answer.shown, body, listed, following, is_sure=next_page is not None)


def _items_of(body: Any, name: str | None, shown: str) -> list[Any]:
    if name is not None:
        found = _look_up(body, name)
        if isinstance(found, list):
            return found
        raise CannotTell(f"{shown} has no list {name!r}")
    lists = [body] if isinstance(body, list) else []
    if isinstance(body, Mapping):
        lists = [value for value in body.values() if isinstance(value, list)]
    if len(lists) != 1:
        raise CannotTell(f"{shown} has {len(lists)} lists: say with items=… which one is meant")
    return lists[0]


def _find_next(body: Any) -> str | None:
    """The address of the next page, where `next` holds one."""
    found = body.get("next") if isinstance(body, Mapping) else None
    return found if isinstance(found, str) and found.startswith(("http://", "https://", "/", "?")) else None


def _list_hints(body: Any, items: list[Any]) -> Iterator[tuple[str, Any]]:
    """What an answer says beside its items, two levels deep."""
    if isinstance(body, Mapping):
        for name, value in body.items():
            if value is items:
                continue
            yield str(name), value
            if isinstance(value, Mapping):
                yield from ((str(inner), one) for inner, one in value.items() if one is not items)


def _look_up(item: Any, name: str) -> Any:
    """A field, by its name or by names with dots between them."""
    if not isinstance(item, Mapping):
        return _MISSING
    if name in item:
        return item[name]
    first, dot, rest = name.partition(".")
    return _look_up(item[first], rest) if dot and first in item else _MISSING


def _matches(item: Any, fields: Mapping[str, Any]) -> bool:
    return all(_is_same(_look_up(item, name), value) for name, value in fields.items())


def _find_lacking(items: list[Any], fields: Mapping[str, Any]) -> str:
    """A field that one of the items does not have."""
    return next((name for item in items for name in fields if _look_up(item, name) is _MISSING), "")


def _is_same(found: object, wanted: object) -> bool:
    """Whether a field has this value. Numbers may come as text, as queries hold them."""
    if found is _MISSING or isinstance(found, Mapping | list):
        return False
    return _as_text(found) == _as_text(wanted)


def _as_text(value: object) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, float) and math.isfinite(value) and value == int(value):
        return str(int(value))
    return str(value)


def _origin(url: str) -> tuple[str, str | None, int | None]:
    try:
        parts = urlsplit(url)
        return parts.scheme, parts.hostname, parts.port
    except ValueError:
        return "", url, None
