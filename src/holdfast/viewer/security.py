"""Which requests the viewer answers, and what it tells browsers about its pages.

A page on this machine can be asked for by every site that its user visits. So a request must name a host
that the viewer has (else another name could be made to lead here), and carry the token: `holdfast ui` prints
it in the address, from where it moves into a cookie that scripts cannot read and that requests of other sites
do not carry. A form is taken only from a page of the viewer's own: from the same origin, with a value that
only such a page knows.
"""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Collection, Mapping
from typing import Final
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request, cookie_parser
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..drawing.markup import document, el
from ..limits import FORM_BYTES_MAX, FORM_FIELDS_MAX
from ..system import randomness
from .addresses import at_root, own_path

LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")
"""The names of this machine, for itself."""
ANY_ADDRESS: Final = "<any address>"
"""Among the hosts: every IP address. No other site can make one lead here, as it can with its own name."""
CSRF_FIELD: Final = "csrf"
"""The field of every form that shows that it is the viewer's own."""
TOKEN: Final = "token"
"""The parameter of the address that holds the token."""

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; media-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS: Final = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    # Not `no-referrer`: browsers would send `Origin: null` with the viewer's own forms.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
    "cache-control": "no-store",
}
_FORM: Final = "holdfast.form"
_COOKIE_VALUE: Final = "holdfast.cookie"
_NO_TOKEN: Final = (
    "This address needs the token that `holdfast ui` printed. Open the whole address again, as it stands in "
    "the terminal.\n"
)


def set_headers(headers: MutableHeaders) -> None:
    """Add what browsers must know of every answer. What a page says itself stays."""
    for name, value in _HEADERS.items():
        headers.setdefault(name, value)


def csrf_token(request: Request) -> str:
    """The value that forms of this visitor carry."""
    return _sign(request.scope[_COOKIE_VALUE])


def read_form(request: Request) -> Mapping[str, str]:
    """The fields of a form that was sent. `Guard` has read and checked it."""
    form = request.scope[_FORM]
    assert isinstance(form, dict)
    return form


class Guard:
    """Middleware: refuses what is not meant for the viewer, before a page sees it."""

    def __init__(
        self, app: ASGIApp, *, hosts: Collection[str], token: str | None, read_only: bool, root_path: str
    ) -> None:
        self._app, self._token, self._read_only = app, token, read_only
        self._hosts = {host.lower() for host in hosts}
        self._root_path = root_path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if self._root_path:
            scope = {**scope, "root_path": scope.get("root_path", "") + self._root_path}

        async def send_safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                set_headers(headers)
                if new_cookie is not None:
                    headers.append("set-cookie", new_cookie)
            await send(message)

        new_cookie: str | None = None
        headers = Headers(scope=scope)
        answer = self._refuse(scope, headers)
        if answer is None:
            name = cookie_name(headers.get("host", ""))
            value = cookie_parser(headers.get("cookie", "")).get(name, "")
            answer = self._refuse_stranger(scope, headers, name, value)
            if answer is None and self._token is None and not value:
                # Behind a login of another application: the cookie only ties forms to a browser.
                value = randomness.token_hex(32)
                new_cookie = _cookie(scope, name, value)
            scope[_COOKIE_VALUE] = value
        if answer is None and scope["method"] == "POST":
            answer = await self._read_form(scope, receive, headers)
        await (answer or self._app)(scope, receive, send_safely)

    def _refuse(self, scope: Scope, headers: Headers) -> Response | None:
        if scope["method"] not in ("GET", "HEAD", "POST"):
            return PlainTextResponse("Only GET and POST.\n", 405)
        if not self._knows(_host_name(headers.get("host", ""))):
            return PlainTextResponse(
                "The viewer is not known by this name. If it should be, start it with --allow-host NAME, or "
                "name it in hosts=[…].\n",
                421,
            )
        return None

    def _knows(self, host: str) -> bool:
        if host in self._hosts or "*" in self._hosts:
            return True
        return ANY_ADDRESS in self._hosts and _is_address(host)

    def _refuse_stranger(self, scope: Scope, headers: Headers, cookie: str, value: str) -> Response | None:
        """Without the token, nothing is shown. From the address, it moves into a cookie."""
        if self._token is None:
            return None
        pairs = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        given = dict(pairs).get(TOKEN)
        if given is not None and scope["method"] == "GET":
            if not _same(given, self._token):
                return PlainTextResponse(_NO_TOKEN, 403)
            rest = urlencode([(name, kept) for name, kept in pairs if name != TOKEN])
            place = at_root(scope.get("root_path", ""), own_path(scope))
            answer = RedirectResponse(place + (f"?{rest}" if rest else ""), 303)
            answer.headers["set-cookie"] = _cookie(scope, cookie, self._token)
            return answer
        if _same(value, self._token):
            return None
        if headers.get("sec-fetch-site") == "cross-site" and scope["method"] == "GET":
            # A browser sends no cookie with a link of another site, such as a chat; with this link, it does.
            here = at_root(scope.get("root_path", ""), own_path(scope), **dict(pairs))
            again = el("p", el("a", "Open this page of the viewer", href=here))
            return HTMLResponse(document("holdfast", "", again, el("p", _NO_TOKEN)), 403)
        return PlainTextResponse(_NO_TOKEN, 403)

    async def _read_form(self, scope: Scope, receive: Receive, headers: Headers) -> Response | None:
        if self._read_only:
            return PlainTextResponse("The viewer only reads this store (--read-only).\n", 403)
        if not _is_own(headers):
            return PlainTextResponse("The form is not from a page of the viewer.\n", 403)
        if headers.get("content-type", "").partition(";")[0].strip() != "application/x-www-form-urlencoded":
            return PlainTextResponse("Only forms.\n", 415)
        body = bytearray()
        more = True
        while more:
            message = await receive()
            if message["type"] != "http.request":
                return Response(status_code=400)
            body += message.get("body", b"")
            more = message.get("more_body", False)
            if len(body) > FORM_BYTES_MAX:
                return PlainTextResponse(f"A form has at most {FORM_BYTES_MAX:,} bytes.\n", 413)
        try:
            pairs = parse_qsl(
                body.decode(), keep_blank_values=True, errors="strict", max_num_fields=FORM_FIELDS_MAX
            )
        except ValueError:
            return PlainTextResponse("The form cannot be read.\n", 400)
        # Browsers end lines with CR LF in forms.
        form = {name: value.replace("\r\n", "\n") for name, value in pairs}
        if not _same(form.pop(CSRF_FIELD, ""), _sign(scope[_COOKIE_VALUE])):
            return PlainTextResponse(
                "The form is not from a page of the viewer, or the viewer was started again since: go back, "
                "reload the page, and send it once more.\n",
                403,
            )
        scope[_FORM] = form
        return None


def cookie_name(host: str) -> str:
    """The cookie of the viewer at this host and port: browsers share cookies between ports."""
    try:
        port = urlsplit(f"//{host}").port
    except ValueError:
        port = None
    return f"holdfast-{port or 0}"


def _cookie(scope: Scope, name: str, value: str) -> str:
    secure = "; Secure" if scope.get("scheme") == "https" else ""
    return (
        f"{name}={value}; Path={quote(scope.get('root_path', '')) or '/'}; HttpOnly; SameSite=Strict{secure}"
    )


def _host_name(host: str) -> str:
    """The name in a Host header, without the port."""
    try:
        return (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return ""


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _is_own(headers: Headers) -> bool:
    """Whether the browser says that a page of the same origin sends the request."""
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if site is not None and site != "same-origin":
        return False
    if origin is None:
        return site is not None
    scheme, mark, place = origin.partition("://")
    return bool(mark) and scheme in ("http", "https") and place.lower() == headers.get("host", "").lower()


def _same(a: str, b: str) -> bool:
    return hmac.compare_digest(a.encode(errors="replace"), b.encode(errors="replace"))


def _sign(value: str) -> str:
    return hmac.digest(value.encode(), b"holdfast form", "sha256").hex()
