"""The viewer as a person uses it: in a real browser, while other processes work on the store."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.browser import PATIENCE_MS, Visit, open_browser, visit
from tests.cli.cli_processes import call
from tests.viewer.served import Served, run_apart, served
from tests.viewer.shop import KILLED_AT, SESSIONS, stock, stock_large

ROOT = Path(__file__).resolve().parents[2]
AXE = Path(os.environ.get("HOLDFAST_AXE", ROOT / ".venv" / "axe")) / "node_modules/axe-core/axe.min.js"

expect.set_options(timeout=PATIENCE_MS)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One for all tests here."""
    with open_browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with something of everything; tests change sessions of their own."""
    place = tmp_path_factory.mktemp("shop")
    run_apart(stock, place)
    return place


@pytest.fixture(scope="module")
def viewer(browser: Browser, shop: Path) -> Iterator[Served]:
    """A viewer in which sessions can be forked and rewound."""
    with served(shop, "--allow-changes") as found:
        yield found


@pytest.fixture(scope="module")
def large(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Ten thousand sessions, and one of ten thousand steps."""
    place = tmp_path_factory.mktemp("large")
    run_apart(stock_large, place)
    with served(place) as found:
        yield found


@contextmanager
def visited(browser: Browser, address: str, **options: Any) -> Iterator[Visit]:
    """A page, opened for the first time. It asks for nothing but the viewer's own, and says no error."""
    with visit(browser, address, **options) as found:
        yield found
        base = "/".join(address.split("/")[:3])
        assert [one for one in found.requests if not one.startswith(f"{base}/")] == []
        assert found.console == []


def mark(page: Page) -> None:
    """Leave a mark that is gone when the page is loaded again."""
    page.evaluate("window.stayed = true")


def stayed(page: Page) -> bool:
    return page.evaluate("window.stayed === true") is True


def text_of(page: Page) -> Locator:
    """What the page says."""
    return page.locator("main")


def test_a_person_answers_what_a_killed_run_left_and_watches_it_go_on(
    browser: Browser, viewer: Served, shop: Path
) -> None:
    """From the list to the session, its gap, its call in doubt, the answer, and the end of the run, which
    another process drives while the page is open."""
    with visited(browser, viewer.entrance, width=1200) as found:
        page = found.page
        page.get_by_role("searchbox").fill("doubtful")
        page.keyboard.press("Enter")
        row = page.locator("table.sessions tbody tr")
        expect(row).to_have_count(1)
        expect(row).to_contain_text("interrupted")
        expect(row).to_contain_text("1 in doubt")
        assert "token" not in page.url
        row.get_by_role("link", name="doubtful").click()
        gap = page.locator(".hf-gap-text").first
        expect(gap).to_contain_text("was killed or cut off; no process has taken over yet")
        page.locator("article.need").get_by_role("link", name="charge").click()
        expect(text_of(page)).to_contain_text("the process that ran it is gone and left no outcome")
        page.get_by_role("radio", name="It landed").check()
        page.get_by_label("Result, if it landed").fill("receipt 7")
        page.get_by_role("button", name="Record").click()
        expect(text_of(page)).to_contain_text("ann answered first: it landed")
        page.get_by_role("link", name="doubtful").first.click()
        expect(page.locator("article.need")).to_have_count(0)
        mark(page)
        resumed = call(shop, "resume clerk.py doubtful --quiet")
        assert (resumed.code, resumed.out) == (0, "Charged.\n")
        expect(page.locator("h1")).to_contain_text("completed")
        expect(gap).to_contain_text("took over after")
        assert stayed(page)
        page.get_by_role("link", name="Effects").click()
        expect(text_of(page)).to_contain_text("landed, says ann")


def test_a_person_corrects_the_arguments_of_a_call(browser: Browser, viewer: Served, shop: Path) -> None:
    """What is no JSON, or not what the tool takes, is refused in words, and what was typed stays."""
    with visited(browser, viewer.open("/needs")) as found:
        page = found.page
        need = page.locator("article.need", has_text="refund")
        need.get_by_text("Correct the arguments first").click()
        for wrong, says in {
            '{"order": "42", "cents": ': "not JSON",
            '{"order": "42", "cent": 4900}': "cents",
        }.items():
            need.get_by_label("Arguments, as a JSON object").fill(wrong)
            need.get_by_role("button", name="Approve").click()
            expect(page.get_by_role("alert")).to_contain_text(says)
            need = page.locator("article.need")
            expect(need.get_by_label("Arguments, as a JSON object")).to_have_value(wrong)
        # The browser says that two forms were not taken.
        assert [one for one in found.console if "422" not in one] == []
        found.console.clear()
        need.get_by_label("Arguments, as a JSON object").fill('{"order": "42", "cents": 4900}')
        need.get_by_label("Note, for the record").fill("half is fair")
        need.get_by_role("button", name="Approve").click()
        expect(text_of(page)).to_contain_text("ann answered first: approved")
        assert call(shop, "resume clerk.py asking --quiet").code == 0
        page.goto(f"{viewer.base}/sessions/asking/transcript")
        page.get_by_text("refund(").click()
        expect(text_of(page)).to_contain_text("refunded 4900 for 42")


def test_the_list_shows_a_new_session_without_loading_again(
    browser: Browser, viewer: Served, shop: Path
) -> None:
    """Another process made it."""
    with visited(browser, viewer.open("/?q=late")) as found:
        page = found.page
        expect(text_of(page)).to_contain_text("No session is like that")
        mark(page)
        assert call(shop, "submit late-one Hello --agent clerk").code == 0
        expect(page.get_by_role("link", name="late-one")).to_be_visible()
        assert stayed(page)


def test_versions_are_compared_forked_and_gone_back_to(browser: Browser, viewer: Served, shop: Path) -> None:
    """What the session has done in the world since is said before a person decides."""
    with visited(browser, viewer.open("/sessions/done/versions"), width=1200) as found:
        page = found.page
        page.get_by_label("older").fill("1")
        page.get_by_label("newer").fill("3")
        page.get_by_role("button", name="compare").click()
        side_by_side = page.get_by_role("row", name="messages").get_by_role("cell")
        expect(side_by_side.first).to_contain_text("not there")
        expect(side_by_side.last).to_contain_text("Which room?")
        page.get_by_role("link", name="Versions").click()
        version_2 = page.get_by_role("row", name="2 2 20")
        version_2.get_by_role("link", name="fork").click()
        expect(text_of(page)).to_contain_text("1 side effect came after it, and will stay")
        expect(text_of(page)).to_contain_text('book(room="12")')
        page.get_by_label("Id of the new session").fill("what-if")
        page.get_by_role("button", name="Fork from version 2").click()
        expect(page.locator("h1")).to_contain_text("what-if")
        page.goto(f"{viewer.base}/sessions/done/versions")
        version_2.get_by_role("link", name="rewind").click()
        expect(text_of(page)).to_contain_text("Money that was spent stays spent")
        found.accepts = True  # It asks whether that is really wanted.
        page.get_by_role("button", name="Rewind to version 2").click()
        expect(page.locator("h1")).to_contain_text("done")
    assert call(shop, "show what-if --json").json["session"]["version"] == 2
    rewound = call(shop, "show done --json").json
    assert "Book a room" not in str(rewound["session"]["title"])
    assert call(shop, "export done --form text").out.count("Book a room") == 0


def test_a_viewer_without_leave_to_change_offers_none(browser: Browser, large: Served) -> None:
    """Forking and rewinding need `--allow-changes`."""
    with visited(browser, large.open("/sessions/order-00001/versions")) as found:
        assert found.page.get_by_role("link", name="as it was").count() == 1
        assert found.page.get_by_role("link", name="fork").count() == 0
        assert found.page.get_by_role("link", name="rewind").count() == 0


def test_the_keyboard_leads_everywhere(browser: Browser, viewer: Served) -> None:
    """To rows, to the search, to the other pages; `?` says how."""
    with visited(browser, viewer.entrance) as found:
        page = found.page
        page.keyboard.press("?")
        expect(page.get_by_role("dialog")).to_contain_text("next and previous row")
        page.keyboard.press("Escape")
        page.keyboard.press("j")
        page.keyboard.press("j")
        page.keyboard.press("k")
        first = page.locator("table.sessions tbody tr").first.get_by_role("link").first
        expect(first).to_be_focused()
        page.keyboard.press("/")
        expect(page.get_by_role("searchbox")).to_be_focused()
        page.keyboard.type("family")
        page.keyboard.press("Enter")
        expect(page.locator("table.sessions tbody tr")).to_have_count(2)
        page.keyboard.press("j")
        page.keyboard.press("Enter")
        expect(page.locator("h1")).to_contain_text("family")
        page.keyboard.press("n")
        expect(page.locator("h1")).to_have_text("Needs you")


PAGES = (
    *("/", "/?q=order", "/needs", "/workers", "/stats"),
    *("/sessions/order-42", "/sessions/order-42/transcript", "/sessions/order-42/effects"),
    *("/sessions/order-42/state", "/sessions/order-42/versions", "/sessions/order-42/entries"),
    *("/sessions/order-42/diff?a=2&b=3", "/sessions/order-42/fork?version=2"),
    *("/sessions/family", "/sessions/no-such-session"),
)
SUM = (
    "getComputedStyle(document.body).{}.match(/\\d+/g).slice(0, 3).reduce((all, one) => all + Number(one), 0)"
)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_can_be_used_by_everyone(scheme: Any, browser: Browser, viewer: Served) -> None:
    """In both colour schemes, axe finds nothing serious: contrast, names of controls, order, landmarks. On a
    small screen, wide tables scroll in their places, and the page does not."""
    axe = read_axe()
    problems: list[str] = []
    with visited(browser, viewer.entrance, scheme=scheme, width=1200) as found:
        page = found.page
        back, text = (page.evaluate(SUM.format(one)) for one in ("backgroundColor", "color"))
        assert (back > text) == (scheme == "light")
        for path in PAGES:
            page.goto(viewer.base + path)
            page.evaluate(axe)
            violations = page.evaluate("axe.run().then((found) => found.violations)")
            problems += [
                f"{path}: {one['id']}: {one['help']}: {node['html'][:200]}"
                for one in violations
                if one["impact"] in ("serious", "critical")
                for node in one["nodes"][:3]
            ]
            page.set_viewport_size({"width": 400, "height": 800})
            if page.evaluate("document.documentElement.scrollWidth > innerWidth"):
                problems.append(f"{path}: wider than a small screen")
            page.set_viewport_size({"width": 1200, "height": 900})
        found.console[:] = [one for one in found.console if "404" not in one]
    assert not problems, "\n".join(problems)


def read_axe() -> str:
    """The checks; the test is skipped where they are missing."""
    if not AXE.exists():
        why = f"axe is not at {AXE}: make axe"
        if os.environ.get("CI") == "true":
            pytest.fail(why)
        pytest.skip(why)
    return AXE.read_text()


def test_ten_thousand_sessions_are_listed_and_searched(browser: Browser, large: Served) -> None:
    """A page at a time; filters are in the address."""
    with visited(browser, large.entrance, width=1200) as found:
        page = found.page
        rows = page.locator("table.sessions tbody tr")
        expect(text_of(page)).to_contain_text(f"{SESSIONS + 1:,} sessions")
        assert rows.count() <= 200
        page.get_by_role("link", name="next").click()
        expect(text_of(page)).to_contain_text("page 2 of")
        page.get_by_label("status").select_option("failed")
        expect(text_of(page)).to_contain_text(f"{SESSIONS // 50} sessions of {SESSIONS + 1:,}")
        page.get_by_role("searchbox").fill("order-09949")
        page.keyboard.press("Enter")
        expect(rows).to_have_count(1)
        assert "q=order-09949" in page.url
        assert "status=failed" in page.url


def test_ten_thousand_steps_are_shown_in_parts(browser: Browser, large: Served) -> None:
    """No page has all of it; the kill in the middle is one click away, and every step one number."""
    with visited(browser, large.open("/sessions/long"), width=1200) as found:
        page = found.page
        assert page.locator("*").count() < 5_000
        page.get_by_role("link", name="agent@batch-1 was killed or cut off").click()
        expect(page.locator(".hf-gap-text").first).to_contain_text("agent@batch-2 took over after 45.4 s")
        expect(text_of(page)).to_contain_text(f"step {KILLED_AT}")
        page.get_by_label("Go to step").fill("1234")
        page.keyboard.press("Enter")
        expect(text_of(page)).to_contain_text("step 1234")
        assert page.locator("*").count() < 5_000
        page.get_by_role("link", name="Transcript").click()
        expect(text_of(page)).to_contain_text("20,002 messages")
        assert page.locator("*").count() < 5_000
