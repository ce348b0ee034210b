"""Requests that are not meant for the viewer: other sites, other names, no token, forged forms."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

import holdfast
from holdfast import Store
from holdfast.limits import FORM_BYTES_MAX
from holdfast.viewer import app
from holdfast.viewer.security import ANY_ADDRESS, Guard
from tests.viewer.visitors import BASE, TOKEN, ask, visiting


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    """A store with a call that waits for approval, at entry `asked`."""
    async with holdfast.open_store("memory:") as found:
        await ask(found, "asking", {"to": "ann", "cents": 5})
        yield found


PAGES = ("/", "/sessions-list", "/needs", "/needs/list", "/needs/count", "/needs/call?session=asking&entry=3")


@pytest.mark.parametrize("path", [*PAGES, "/static/viewer.js", "/nothing"])
async def test_without_the_token_nothing_is_shown(store: Store, path: str) -> None:
    """Neither a page nor a part of one, nor whether there is such a page."""
    async with client_of(store, token=TOKEN) as client:
        for cookie in ("", f"holdfast-7465={TOKEN}x", f"holdfast-7465=; holdfast-80={TOKEN}"):
            answer = await client.get(path, headers={"cookie": cookie})
            assert answer.status_code == 403
            assert "asking" not in answer.text
            assert "set-cookie" not in answer.headers


def client_of(store: Store, base: str = BASE, **options: Any) -> httpx.AsyncClient:
    """A client of a viewer."""
    return httpx.AsyncClient(transport=httpx.ASGITransport(app(store, **options)), base_url=base)


async def test_the_token_moves_from_the_address_into_a_cookie(store: Store) -> None:
    """No history, no list of processes and no copied address has it after that."""
    async with client_of(store, token=TOKEN) as client:
        wrong = await client.get("/?token=guess")
        assert wrong.status_code == 403
        assert "set-cookie" not in wrong.headers
        answer = await client.get("/needs/list?page=1&token=" + TOKEN)
        assert answer.status_code == 303
        assert answer.headers["location"] == "/needs/list?page=1"
        cookie = answer.headers["set-cookie"]
        assert cookie == f"holdfast-7465={TOKEN}; Path=/; HttpOnly; SameSite=Strict"
        assert (await client.get("/needs")).status_code == 200


@pytest.mark.parametrize("path", ["//evil.example/x", "/\\evil.example", "/%2F%2Fevil.example", "//"])
async def test_the_way_from_the_token_leads_to_no_other_site(store: Store, path: str) -> None:
    """A browser takes what follows two slashes for a host."""
    async with client_of(store, token=TOKEN) as client:
        answer = await client.get(f"{BASE}{path}?token={TOKEN}")
        assert re.match(r"/(?![/\\])", answer.headers["location"])


async def test_a_link_on_another_site_leads_to_a_page_that_leads_on(store: Store) -> None:
    """A browser sends no cookie with it: so nothing is shown, but a link with which it does."""
    async with visiting(store, token=TOKEN) as visitor:
        visitor.client.cookies.clear()
        link = "/needs/call?session=asking&entry=3"
        page = await visitor.get(link, status=403, **{"sec-fetch-site": "cross-site"})
        assert 'href="/needs/call?session=asking&amp;entry=3"' in page
        assert "pay" not in page
        hostile = "/%22%3E%3Cscript%3E?x=%22%3E%3Cscript%3E&root=1&path=2&request=3"
        assert "<script" not in await visitor.get(hostile, status=403, **{"sec-fetch-site": "cross-site"})


async def test_the_cookie_is_secure_where_the_connection_is(store: Store) -> None:
    """Behind a proxy with TLS, it is never sent in the clear."""
    async with client_of(store, "https://localhost", token=TOKEN) as client:
        answer = await client.get(f"/?token={TOKEN}")
        assert answer.headers["set-cookie"].endswith("; Secure")


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:7465", "127.0.0.1.evil.example", "10.0.0.7", "", "[", "127.0.0.1@x"],
)
async def test_another_name_of_the_host_is_refused(store: Store, host: str) -> None:
    """A site can make its own name lead to this machine."""
    async with visiting(store, token=TOKEN) as visitor:
        await visitor.get("/", status=421, host=host)


async def test_names_are_allowed_by_name(store: Store) -> None:
    """With any port, in any case; and every address where the viewer listens on all of them."""
    for hosts, allowed, refused in (
        (["Tools.example.com"], ["tools.example.com", "TOOLS.example.com:8443"], ["127.0.0.1", "10.0.0.7"]),
        ([ANY_ADDRESS], ["10.0.0.7:80", "[fe80::1]:80"], ["tools.example.com", "localhost"]),
        (["*"], ["anything.example"], []),
    ):
        async with client_of(store, hosts=hosts) as client:
            for host in allowed:
                assert (await client.get("/", headers={"host": host})).status_code == 200, host
            for host in refused:
                assert (await client.get("/", headers={"host": host})).status_code == 421, host


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example", "sec-fetch-site": "cross-site"},
        {"origin": "https://evil.example", "sec-fetch-site": "same-origin"},
        {"origin": "http://127.0.0.1:9999", "sec-fetch-site": "same-site"},
        {"origin": "http://127.0.0.1:9999"},
        {"origin": "null"},
        {"origin": "null", "sec-fetch-site": "cross-site"},
        {"origin": BASE, "sec-fetch-site": "cross-site"},
        {"origin": f"javascript://{BASE[7:]}"},
        {},
    ],
    ids=str,
)
async def test_a_form_of_another_origin_is_refused(store: Store, headers: dict[str, str]) -> None:
    """Even with the cookie and the hidden fields of a form of the viewer."""
    async with visiting(store, token=TOKEN) as visitor:
        entry = await asked(store)
        fields = await visitor.fields(f"/needs/call?session=asking&entry={entry}", "Approve")
        answer = await visitor.client.post("/needs/answer", data=fields, headers=headers)
        assert answer.status_code == 403
        assert (await store.head("asking")).waiting == 1


async def asked(store: Store) -> int:
    """The entry that asked for approval."""
    (entry,) = (await store.load("asking")).facts.effects.questions
    return entry


@pytest.mark.parametrize("token", [None, TOKEN])
async def test_a_form_without_the_value_of_a_page_is_refused(store: Store, token: str | None) -> None:
    """Also where a login of another application is in front, which may set cookies of its own."""
    async with visiting(store, token=token) as visitor:
        entry = await asked(store)
        fields = await visitor.fields(f"/needs/call?session=asking&entry={entry}", "Approve")
        for csrf in (None, "", "0" * 64, fields["csrf"][:-1]):
            forged = {name: value for name, value in fields.items() if name != "csrf"}
            forged |= {} if csrf is None else {"csrf": csrf}
            assert (await visitor.post("/needs/answer", forged)).status_code == 403
        async with visiting(store) as other:
            await other.get("/")
            assert (await other.post("/needs/answer", fields)).status_code == 403, (
                "the value of another browser"
            )
        assert (await store.head("asking")).waiting == 1
        assert (await visitor.post("/needs/answer", fields)).status_code == 303
        assert (await store.head("asking")).waiting == 0


async def test_only_small_forms_are_read(store: Store) -> None:
    """Neither JSON, which other sites may send, nor files, nor more than a person writes."""
    async with visiting(store) as visitor:
        await visitor.get("/")
        sent = {"origin": BASE, "sec-fetch-site": "same-origin"}
        for type_ in ("application/json", "text/plain", "multipart/form-data; boundary=x", ""):
            headers = {**sent, "content-type": type_}
            answer = await visitor.client.post("/needs/answer", content=b"csrf=x", headers=headers)
            assert answer.status_code == 415, type_
        headers = {**sent, "content-type": "application/x-www-form-urlencoded"}
        for body in (b"a=%ff", b"a=\xff", b"a=1&" * 2000):
            answer = await visitor.client.post("/needs/answer", content=body, headers=headers)
            assert answer.status_code == 400
        for method in ("PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"):
            assert (await visitor.client.request(method, "/needs")).status_code == 405
        assert (await visitor.client.get("/needs/answer")).status_code == 405


async def test_a_form_without_an_end_is_not_read_to_it(store: Store) -> None:
    """Memory stays bounded, whatever is sent."""
    sent: list[Any] = []
    read = 0

    async def receive() -> dict[str, Any]:
        nonlocal read
        read += 1
        return {"type": "http.request", "body": b"x" * 100_000, "more_body": True}

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [
        (b"host", b"localhost"),
        (b"origin", b"http://localhost"),
        (b"content-type", b"application/x-www-form-urlencoded"),
    ]
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/needs/answer",
        "query_string": b"",
        "headers": headers,
    }
    await app(store)(scope, receive, send)
    assert sent[0]["status"] == 413
    assert read * 100_000 < FORM_BYTES_MAX + 200_000


@pytest.mark.parametrize("path", [*PAGES, "/static/viewer.css", "/nothing", "/needs/call?session=x&entry=1"])
async def test_every_answer_says_what_browsers_may_do_with_it(store: Store, path: str) -> None:
    """Nothing from elsewhere, no frame, no guessing of types; also with an error."""
    async with visiting(store) as visitor:
        headers = (await visitor.client.get(path)).headers
        policy = headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; ")
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert headers["referrer-policy"] == "same-origin"


async def test_pages_have_no_script_or_style_but_files_of_the_viewer(store: Store) -> None:
    """So that the policy needs no exception."""
    async with visiting(store) as visitor:
        for path in ("/", "/needs"):
            page = await visitor.get(path)
            assert re.findall(r"<script[^>]*>", page) == re.findall(
                r'<script src="/static/[^"]*" defer="">', page
            )
            assert not re.findall(r"<style|\sstyle=|\son[a-z]+=|javascript:", page)


async def test_a_mistake_of_ours_shows_nothing_of_the_store() -> None:
    """An unexpected error is for the log; its page has the same headers."""

    async def broken(*_: object) -> None:
        raise RuntimeError("the secret is xyzzy")

    async with holdfast.open_store("memory:") as store:
        made = app(store)
        made.state.viewer.listing.get = broken
        transport = httpx.ASGITransport(made, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url=BASE) as client:
            answer = await client.get("/")
        assert answer.status_code == 500
        assert "xyzzy" not in answer.text
        assert answer.headers["content-security-policy"].startswith("default-src 'none'")


async def test_a_socket_is_refused(store: Store) -> None:
    """The viewer has none, and other sites may open one without being asked."""
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    guard = Guard(app(store), hosts=["*"], token=None, read_only=False, root_path="")
    await guard({"type": "websocket", "path": "/"}, None, send)  # type: ignore[arg-type]
    assert sent == [{"type": "websocket.close", "code": 1008}]


async def test_it_can_be_mounted_behind_a_login_of_ones_own(store: Store) -> None:
    """Below any path: every address on the pages is below it, and so is the cookie."""
    made = Starlette(routes=[Mount("/tools/agents", app(store, hosts=["tools.example.com"]))])
    base = "https://tools.example.com"
    async with httpx.AsyncClient(transport=httpx.ASGITransport(made), base_url=base) as client:
        answer = await client.get("/tools/agents/")
        assert answer.headers["set-cookie"].endswith(
            "; Path=/tools/agents; HttpOnly; SameSite=Strict; Secure"
        )
        addresses = re.findall(r'(?:href|src|action|data-live)="([^"#]+)', answer.text)
        assert addresses
        assert all(address.startswith("/tools/agents/") for address in addresses)
        for address in {one.partition("?")[0] for one in addresses} - {"/tools/agents/sessions/asking"}:
            if address not in ("/tools/agents/workers", "/tools/agents/stats"):
                assert (await client.get(address)).status_code == 200, address


@pytest.mark.parametrize("path", ["/needs", "/agents/needs"])
async def test_a_proxy_may_take_off_a_prefix_or_leave_it(store: Store, path: str) -> None:
    """`root_path` is what is in front of every address, and of none that comes in."""
    async with visiting(store, root_path="/agents", token=None) as visitor:
        page = await visitor.get(path)
        assert 'href="/agents/needs"' in page
        assert 'src="/agents/static/viewer.js' in page
