"""Other sites, other programs of this machine, and what models and tools said: none of them gets in.

The server is a real one, and so is the browser. `test_security.py` has the same rules request by request.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, expect

import holdfast
from holdfast.agents import Prompt, ScriptedModel
from holdfast.messages import Media, Message, Text, ToolCall
from holdfast.records import Plan, PlanStep
from tests.browser import PATIENCE_MS, Visit, open_browser, visit
from tests.cli.cli_processes import call
from tests.viewer.served import Served, run_apart, served

expect.set_options(timeout=PATIENCE_MS)

ATTACK = (
    "</title></style></script></textarea><script>document.title='owned';console.log('owned')</script>"
    "<img src=https://evil.example/x onerror=console.log('owned')>\"'><svg onload=console.log('owned')>"
    "{{7*7}}${7*7}javascript:console.log('owned')\x1b[2J\u202eback\u2066\x00\u200b"
)
NAME = ATTACK[:90] + "<svg onload=console.log('owned')>"
"""The same where names are short."""


async def stock_hostile(place: Path) -> None:
    """A store in which all that users, models and tools can choose is an attack."""

    @holdfast.tool(name="pay", side_effects={"mutate"}, needs_approval=True)
    async def pay(what: str) -> str:
        """Pay."""
        return ATTACK

    @holdfast.tool(name="fail", side_effects={"mutate"})
    async def fail(what: str) -> str:
        """Fail."""
        raise OSError(ATTACK)

    @holdfast.tool(name="look", side_effects={"read"})
    async def look(what: str) -> str:
        """Look."""
        return ATTACK

    def decide(prompt: Prompt) -> Any:
        said = [message for message in prompt.messages if message.role == "user"][-1].text
        replies = sum(message.role == "assistant" for message in prompt.messages)
        wish = ToolCall(id=ATTACK, name=said.split()[0], args={"what": ATTACK})
        return [(ATTACK, wish), ATTACK][min(replies, 1)]

    agent = holdfast.Agent(ScriptedModel(decide, name=NAME), name=NAME, tools=[pay, fail, look])
    async with holdfast.open_store(f"sqlite:{place}/holdfast.db") as store:
        for word, status in {
            "pay": "waiting",
            "fail": "waiting",
            "look": "completed",
            "gone": "completed",
        }.items():
            outcome = await agent.run(f"{word} {ATTACK}", session=word, store=store, labels={"tenant": NAME})
            assert outcome.status == status
        async with store.session("look") as session:
            step = PlanStep(id=NAME, what=ATTACK, status="done", evidence=ATTACK)
            await session.set_plan(Plan(goal=ATTACK, steps=(step,)))
            await session.set_summary(ATTACK)
            await session.set(NAME, {ATTACK: ATTACK})
            page = b"<script>document.title='owned';console.log('owned')</script>"
            media = [
                Media(media_type=kind, name=f"{NAME}.html", data=page + b"x" * 100_000)
                for kind in ("text/html", "image/svg+xml", "image/png", "application/pdf")
            ]
            await session.add(Message(role="user", blocks=(Text(ATTACK), *media)))
            await session.add({"role": "user", "content": ATTACK}, format="openai")
            await session.checkpoint(NAME)
            async with session.run(agent=NAME, model=NAME) as run:
                run.fail(NAME, ATTACK)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One for all tests here. Every host but this machine is the attacker's."""
    with open_browser("--host-resolver-rules=MAP *.example 127.0.0.1") as opened:
        yield opened


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The hostile store."""
    place = tmp_path_factory.mktemp("hostile")
    run_apart(stock_hostile, place)
    return place


@pytest.fixture(scope="module")
def viewer(shop: Path) -> Iterator[Served]:
    """A viewer in which everything is allowed."""
    with served(shop, "--allow-changes") as found:
        yield found


def pending(shop: Path) -> Any:
    """What waits for a person: an attack that works would change it."""
    return [(one["session"], one["kind"]) for one in call(shop, "pending --json").json["pending"]]


# -- requests ------------------------------------------------------------------------------------------


PATHS = ("/", "/needs", "/sessions/pay", "/sessions/look/entries", "/stats", "/static/viewer.js", "/nothing")
TRICKS = (
    *("/static/../app.py", "/static/..%2fapp.py", "/static/%2e%2e/app.py", "/static/..%5capp.py", "/static/"),
    *("/sessions/..%2f..%2f..%2fetc%2fpasswd", "/sessions/%2e%2e", "/sessions/%00", "/sessions/pay%00"),
    *("/sessions/~hidden", "/sessions/pay/..%2flook", "/sessions/" + "a" * 5000, "/sessions/%ff%fe"),
    *("/sessions/pay/download/..%2f..%2fetc", "/sessions/pay/download/html%00", "/sessions/pay/nothing"),
    *("/blobs/..%2f..%2fholdfast.db", "/blobs/" + "0" * 64, "/blobs/%2fetc%2fpasswd", "/blobs/zz"),
    *("//evil.example/", "/\\\\evil.example/", "/%2f%2fevil.example/", "/sessions//evil.example"),
    *("/needs/call?session=..%2f&entry=1", "/needs/call?session=pay&entry=-1", "/needs/call?session=pay"),
    *("/sessions/pay/diff?a=x&b=y", "/sessions/pay/diff?a=-1&b=99999999999999999999", "/?page=-5&sort=%00"),
    *("/sessions/pay/entries?page=99999999999", "/sessions/pay?steps=0&page=-1", "/threads?id=%00"),
)


def test_without_the_token_there_is_nothing_to_see(viewer: Served) -> None:
    """Not by another token, not in a header, and not by a cookie of another port's viewer."""
    with httpx.Client(base_url=viewer.base) as stranger:
        for path in PATHS:
            for answer in (
                stranger.get(path),
                stranger.get(path, params={"token": "0" * 48}),
                stranger.get(path, headers={"Authorization": f"Bearer {viewer.token}"}),
                stranger.get(path, headers={"Cookie": f"holdfast-{viewer.port + 1}={viewer.token}"}),
                stranger.post(path, data={"token": viewer.token}),
            ):
                assert answer.status_code == 403
                assert "holdfast ui" in answer.text
                assert "set-cookie" not in answer.headers


def test_another_name_of_this_machine_leads_nowhere(viewer: Served) -> None:
    """A site can make its own name lead here; it would be the same origin as the viewer."""
    with httpx.Client(base_url=viewer.base, cookies=viewer.cookie) as client:
        for host in (
            "evil.example",
            f"evil.example:{viewer.port}",
            "127.0.0.1.evil.example",
            "",
            "[::2]",
            "a@b",
        ):
            answer = client.get("/", headers={"Host": host})
            assert answer.status_code in (400, 421), host
            assert "Sessions" not in answer.text


def test_tricks_in_paths_lead_to_no_file_and_no_other_host(viewer: Served) -> None:
    """Each is refused in words."""
    with httpx.Client(base_url=viewer.base, cookies=viewer.cookie) as client:
        for path in TRICKS:
            # As it stands: a client would tidy it up.
            url = httpx.URL(viewer.base).copy_with(raw_path=path.encode())
            answer = client.get(url)
            assert answer.status_code in (200, 303, 307, 400, 404), (path, answer.status_code)
            assert "evil.example" not in answer.headers.get("location", "").partition("?")[0].lstrip("/")[:20]
            assert not answer.headers.get("location", "").startswith(("//", "http://evil", "/\\")), path
            for secret in ("root:", "SQLite format", "from __future__"):
                assert secret not in answer.text, path


def test_a_forged_form_changes_nothing(viewer: Served, shop: Path) -> None:
    """From another origin, of another kind, or without the value that only a page of the viewer has."""
    before = pending(shop)
    forged = {"session": "pay", "entry": "7", "answer": "approve"}
    headers: list[dict[str, str]] = [
        {},
        {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"},
        {"Origin": f"http://127.0.0.1:{viewer.port + 1}", "Sec-Fetch-Site": "same-site"},
        {"Origin": "null", "Sec-Fetch-Site": "cross-site"},
        {"Origin": viewer.base, "Sec-Fetch-Site": "same-origin"},
    ]
    with httpx.Client(base_url=viewer.base, cookies=viewer.cookie) as client:
        for one in headers:
            for path in ("/needs/answer", "/sessions/look/rewind?version=1", "/sessions/look/fork?version=1"):
                assert client.post(path, data=forged, headers=one).status_code == 403, one
        own = headers[-1]
        for kind in ("text/plain", "multipart/form-data; boundary=x", "application/json"):
            answer = client.post("/needs/answer", content=b"csrf=1", headers={**own, "Content-Type": kind})
            assert answer.status_code in (403, 415)
        for method in ("PUT", "DELETE", "PATCH", "OPTIONS"):
            assert client.request(method, "/needs/answer", headers=own).status_code == 405
    assert pending(shop) == before


# -- another site, in the browser ----------------------------------------------------------------------


SITE = """<!doctype html><title>evil</title><body>
<form id=form method=post action="{base}/needs/answer" target=frame enctype="{enctype}">
<input name=session value=pay><input name=entry value=7><input name=answer value=approve></form>
<iframe name=frame></iframe><iframe src="{base}/needs" id=shown></iframe>
<img src="{base}/static/icon.svg" onload="window.stolen.push('image')">
<script>window.stolen = []</script>
<script src="{base}/static/viewer.js" onload="window.stolen.push('script')"></script>
<script>
  window.tried = (async () => {{
    form.submit();
    const own = {{credentials: "include"}};
    for (const how of [{{}}, {{mode: "no-cors"}}, own, {{...own, mode: "no-cors"}}]) {{
      try {{
        const answer = await fetch("{base}/sessions/pay", how);
        const said = await answer.text();
        if (said) stolen.push(said.slice(0, 100));
      }} catch {{}}
      try {{
        const body = new URLSearchParams(new FormData(form));
        await fetch("{base}/needs/answer", {{...how, method: "POST", body}});
      }} catch {{}}
    }}
    await new Promise((resolve) => setTimeout(resolve, 500));
    for (let place = 0; place < frames.length; place++) {{
      try {{ stolen.push("frame " + frames[place].document.body.innerText); }} catch {{}}
    }}
    return stolen.filter((one) => one !== "frame ");
  }})();
</script>"""


@contextmanager
def site(page: str) -> Iterator[int]:
    """A site with one page; its port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.end_headers()
            self.wfile.write(page.encode())

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1"])
def test_another_site_sees_nothing_and_changes_nothing(
    host: str, browser: Browser, viewer: Served, shop: Path
) -> None:
    """Open in the same browser as the viewer: on another host, and as another program of this machine, with
    which a browser shares the viewer's cookie."""
    before = pending(shop)
    page = SITE.format(base=viewer.base, enctype="application/x-www-form-urlencoded")
    with site(page) as port, visit(browser, viewer.open("/needs")) as visited:
        other = visited.page.context.new_page()
        other.goto(f"http://{host}:{port}/")
        assert other.evaluate("window.tried") == []
        texts = [frame.evaluate("document.body?.innerText ?? ''") for frame in other.frames[1:]]
        assert not [one for one in texts if "to approve" in one or "answered first" in one]
        opened = other.evaluate(f"const w = open('{viewer.base}/needs'); w === null || w.length")
        assert opened in (True, 0)
    assert pending(shop) == before


def test_a_link_from_another_site_opens_the_page(browser: Browser, viewer: Served) -> None:
    """From a notification in a chat: a browser that has the cookie gets in, another one does not."""
    link = f"<a href='{viewer.base}/needs?page=0'>it waits for you</a>"
    with site(link) as port, visit(browser, f"http://chat.example:{port}/") as visited:
        page = visited.page
        page.get_by_role("link").click()
        page.get_by_role("link", name="Open this page of the viewer").click()
        expect(page.locator("body")).to_contain_text("This address needs the token")
        assert page.get_by_role("link").count() == 0
        page.goto(viewer.entrance)
        page.goto(f"http://chat.example:{port}/")
        page.get_by_role("link").click()
        page.get_by_role("link", name="Open this page of the viewer").click()
        expect(page.locator("h1")).to_have_text("Needs you")


def test_a_name_that_leads_here_gets_no_page(browser: Browser, viewer: Served) -> None:
    """A site whose name was made to lead to this machine, after it was loaded."""
    with visit(browser, f"http://rebind.example:{viewer.port}/?token={viewer.token}") as visited:
        assert "not known by this name" in visited.page.locator("body").inner_text()
        assert visited.page.context.cookies() == []


# -- what was said ---------------------------------------------------------------------------------------


def links_of(visited: Visit) -> list[str]:
    """Where the page leads."""
    absolute = "(all) => all.map((one) => new URL(one.getAttribute('href'), location).href)"
    found: list[str] = visited.page.locator("a[href]").evaluate_all(absolute)
    return found


def test_what_was_said_is_shown_as_text_on_every_page(browser: Browser, viewer: Served) -> None:
    """All pages that can be reached by links are opened; no script of an attack runs, nothing is loaded from
    elsewhere, and no link leads away. Text that would reorder or hide its neighbours is made visible."""
    seen: set[str] = set()
    shown = ""
    with visit(browser, viewer.entrance) as visited:
        page = visited.page
        waiting = [page.url]
        while waiting:
            address = waiting.pop(0)
            kind = address.partition("?")[0].rpartition("/")[2]
            # Of pages that differ by a number only, a few; files are not pages.
            if (
                address in seen
                or sum(one.partition("?")[0] == address.partition("?")[0] for one in seen) >= 3
            ):
                continue
            seen.add(address)
            if "/download/" in address or "/blobs/" in address or kind in ("media",):
                continue
            page.goto(address)
            shown += page.locator("body").inner_text()
            assert "owned" not in page.title().replace("document.title='owned'", "").replace(
                "log('owned')", ""
            )
            assert page.locator("img[src*=evil], svg[onload], script:not([src])").count() == 0
            waiting += [one.partition("#")[0] for one in links_of(visited)]
        outside = [one for one in {*seen, *visited.requests} if not one.startswith(f"{viewer.base}/")]
        assert outside == []
        assert [one for one in visited.console if "owned" in one] == []
    assert len(seen) >= 30
    assert "<img src=https://evil.example/x" in shown
    for hidden in ("\x1b", "\u202e", "\u2066", "\x00", "\u200b"):
        assert hidden not in shown
    with httpx.Client(base_url=viewer.base, cookies=viewer.cookie) as client:
        files = [one for one in seen if "/download/" in one or "/blobs/" in one or "/media" in one]
        assert files
        for one in files:
            answer = client.get(one)
            assert answer.headers["x-content-type-options"] == "nosniff"
            kind = answer.headers["content-type"].partition(";")[0]
            assert kind not in ("text/html", "image/svg+xml", "text/xml") or (
                "attachment" in answer.headers.get("content-disposition", "")
                or "sandbox" in answer.headers["content-security-policy"]
            ), one
