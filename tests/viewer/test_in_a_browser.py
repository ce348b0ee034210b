"""The viewer as a person uses it: in a real browser, while other processes work on the store."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser import PATIENCE_MS, Visit, open_browser, visit
from tests.cli.cli_processes import call
from tests.viewer.served import Served, served
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


def run_apart(work: Callable[[Path], Awaitable[None]], place: Path) -> None:
    """Run it in a thread: in this one, the browser has an event loop."""
    with ThreadPoolExecutor(1) as thread:
        thread.submit(anyio.run, work, place).result()


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


def test_a_person_answers_what_a_killed_run_left_and_watches_it_go_on(
    browser: Browser, viewer: Served, shop: Path
) -> None:
    """From the list to the session, to its call in doubt, to the answer, to the end of the run."""
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
        gap = page.locator(".hf-gap-text")
        expect(gap.first).to_contain_text("was killed or cut off; no process has taken over yet")
        page.get_by_role("link", name="charge(").click()
        expect(page.locator("main")).to_contain_text("the process that ran it is gone and left no outcome")
        page.get_by_role("radio", name="It landed").check()
        page.get_by_label("Result, if it landed").fill("receipt 7")
        page.get_by_role("button", name="Record").click()
        expect(page.locator("main")).to_contain_text("ann answered first: it landed")
        page.get_by_role("link", name="doubtful").first.click()
        expect(page.locator("h1")).to_contain_text("doubtful")
        mark(page)
        resumed = call(shop, "resume clerk.py doubtful --quiet")
        assert (resumed.code, resumed.out) == (0, "Charged.\n")
        expect(page.locator("h1")).to_contain_text("completed")
        expect(gap.first).to_contain_text("took over after")
        assert stayed(page)


def test_a_person_corrects_the_arguments_of_a_call(browser: Browser, viewer: Served, shop: Path) -> None:
    """What is no JSON, or not what the tool takes, is refused in words, and not lost."""
    with visited(browser, viewer.open("/needs")) as found:
        page = found.page
        need = page.locator("article.need", has_text="refund")
        need.get_by_text("Correct the arguments first").click()
        args = need.get_by_label("Arguments, as a JSON object")
        for wrong, says in (('{"order": "42", "cents": ', "not JSON"), ('{"order": "42", "cent": 4900}', "cents")):
            args.fill(wrong)
            need.get_by_role("button", name="Approve").click()
            expect(page.get_by_role("alert")).to_contain_text(says)
            args = page.get_by_label("Arguments, as a JSON object")
            expect(args).to_have_value(wrong)
            need = page.locator("article.need")
        args.fill('{"order": "42", "cents": 4900}')
        page.get_by_label("Note, for the record").fill("half is fair")
        page.get_by_role("button", name="Approve").click()
        expect(page.locator("main")).to_contain_text("ann answered first: approved")
        found.console.clear()  # The browser says that forms were refused.
    assert call(shop, "resume clerk.py asking --quiet").code == 0
    with visited(browser, viewer.open("/sessions/asking/transcript")) as found:
        expect(found.page.locator("main")).to_contain_text("refunded 4900 for 42")


def test_the_list_shows_a_new_session_without_loading_again(browser: Browser, viewer: Served, shop: Path) -> None:
    """And what somebody types meanwhile stays."""
    with visited(browser, viewer.open("/?q=late")) as found:
        page = found.page
        expect(page.locator("main")).to_contain_text("No session is like that")
        mark(page)
        assert call(shop, "submit late-one Hello --agent clerk").code == 0
        expect(page.get_by_role("link", name="late-one")).to_be_visible()
        assert stayed(page)


def test_two_versions_are_compared_side_by_side(browser: Browser, viewer: Served) -> None:
    """From the list of versions."""
    with visited(browser, viewer.open("/sessions/done/diff?a=1&b=2"), width=1200) as found:
        main = found.page.locator("main")
        expect(main).to_contain_text("Order 42 is refunded.")


def test_a_session_is_forked_from_a_version(browser: Browser, viewer: Served, shop: Path) -> None:
    """The form says what the fork leaves behind, before it is made."""
    with visited(browser, viewer.open("/sessions/done/versions"), width=1200) as found:
        page = found.page
        page.get_by_role("link", name="fork").first.click()
        expect(page.locator("main")).to_contain_text("book")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_page_has_the_colours_of_the_system(scheme: Any, browser: Browser, viewer: Served) -> None:
    """Dark text on light, or light on dark."""
    with visited(browser, viewer.entrance, scheme=scheme) as found:
        light = "getComputedStyle(document.body).{}.match(/\\d+/g).slice(0, 3).reduce((a, b) => a + +b, 0)"
        back, text = (found.page.evaluate(light.format(one)) for one in ("backgroundColor", "color"))
        assert (back > text) == (scheme == "light")


def test_ten_thousand_sessions_are_listed_and_searched(browser: Browser, large: Served) -> None:
    """A page at a time."""
    with visited(browser, large.entrance, width=1200) as found:
        page = found.page
        expect(page.locator("main")).to_contain_text(f"{SESSIONS + 1:,} sessions")
        assert page.locator("tbody tr").count() <= 200
        page.get_by_role("link", name="next").click()
        expect(page.locator("main")).to_contain_text("page 2 of")
        page.get_by_label("status").select_option("failed")
        expect(page.locator("main")).to_contain_text(f"{SESSIONS // 50} sessions of {SESSIONS + 1:,}")
        page.get_by_role("searchbox").fill("order-09949")
        page.keyboard.press("Enter")
        expect(page.locator("tbody tr")).to_have_count(1)
        assert "q=order-09949" in page.url
        assert "status=failed" in page.url


def test_ten_thousand_steps_are_shown_in_parts(browser: Browser, large: Served) -> None:
    """The overview shows where the process was killed, and leads there."""
    with visited(browser, large.open("/sessions/long"), width=1200) as found:
        page = found.page
        assert page.locator("*").count() < 20_000
        assert KILLED_AT
