"""The page of a session, opened in a real browser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from holdfast.cli.html_page import make_page
from holdfast.core import entries as kinds
from holdfast.core.entries import CallRef
from holdfast.drawing.card import draw_outcome_card
from holdfast.messages import Message, Text, ToolCall, encode_message
from tests.browser import open_browser, visit
from tests.drawing.example_journals import Author, write_eventful, write_steps

ATTACK = (
    "</title></style></script><script>alert(1);document.title='owned'</script>"
    "<img src=https://evil.example/x onerror=alert(2)>\"'><svg onload=alert(3)>{{7*7}}\u202e\x00"
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One for all tests here."""
    with open_browser() as opened:
        yield opened


def _save(place: Path, page: str) -> Path:
    file = place / "page.html"
    file.write_text(page, encoding="utf-8")
    return file


def _widths(page: Page, selector: str) -> list[float]:
    """The widths of some parts of a drawing, as they are on the screen, without their lines."""
    boxes = "(found) => found.map((one) => one.getBBox().width)"
    return [float(one) for one in page.locator(selector).evaluate_all(boxes)]


def test_the_drawing_shows_what_took_how_long_and_where_a_process_died(
    browser: Browser, tmp_path: Path
) -> None:
    """Bars are as wide as what they stand for took; a gap says who was killed and who took over; the page
    loads nothing."""
    author, delegates = write_eventful()
    with visit(browser, _save(tmp_path, make_page(author.page_data(delegates=delegates)))) as visited:
        page = visited.page
        models = _widths(page, ".hf-steps .hf-bar.hf-model")
        # Requests to the model: of the session and, at its place, of the delegate.
        took = [2.4, 1.7, 1.2, 1.1, 1.9, 1.0, 1.0, 1.3]
        assert [width / models[0] for width in models] == pytest.approx([s / 2.4 for s in took], rel=0.02)
        labels = page.locator(".hf-steps .hf-gap-text").all_text_contents()
        assert labels == [
            "agent@web-1 was killed or cut off; agent@web-2 took over after 2 h 4 min",
            "Not finished: charge_back",
            "agent@web-1 was killed or cut off; no process has taken over yet",
            "Not finished: book",
        ]
        texts = " ".join(page.locator(".hf-steps text").all_text_contents())
        for said in (
            "landed, says verify",
            "approved by ann",
            "in doubt",
            "left behind",
            "rewound to version",
        ):
            assert said in texts
        assert "load_template" in texts
        assert page.locator(".hf-steps .hf-money").count() == 1
        needs = page.locator(".needs").inner_text()
        assert "book(" in needs
        assert "holdfast resolve order-42 " in needs
        effects = page.locator("table.effects").inner_text()
        assert "key-" in effects
        assert "fence 2" in effects
        assert "https://bank.example/refunds: no answer" in effects
        assert visited.console == []
        assert visited.requests == [(tmp_path / "page.html").as_uri()]


@pytest.mark.parametrize("width", [480, 640, 960, 1400])
def test_a_page_fits_its_window(width: int, browser: Browser, tmp_path: Path) -> None:
    """Nothing must be scrolled sideways, and texts keep their size."""
    author, delegates = write_eventful()
    with visit(
        browser, _save(tmp_path, make_page(author.page_data(delegates=delegates))), width=width
    ) as visited:
        page = visited.page
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        drawn = page.locator(".hf-steps").bounding_box()
        assert drawn is not None
        assert drawn["width"] > 0.85 * width
        # In a small window the box can be scrolled: no text ends outside of the drawing.
        ends = "(found) => found.map((one) => one.getBoundingClientRect().right)"
        texts = page.locator(".hf-steps .hf-gap-text, .hf-steps .hf-step").evaluate_all(ends)
        assert texts
        assert max(texts) <= drawn["x"] + drawn["width"]
        heights = {
            round(one)
            for one in page.locator(".hf-step").evaluate_all(
                "(found) => found.map((one) => one.getBBox().height)"
            )
        }
        assert heights <= set(range(10, 20))


def test_colours_follow_the_scheme_of_the_reader(browser: Browser, tmp_path: Path) -> None:
    """Dark on light, or light on dark, for the page and for what is drawn."""
    file = _save(tmp_path, make_page(write_steps(2).page_data()))
    brightness: dict[str, list[int]] = {}
    for scheme in ("light", "dark"):
        with visit(browser, file, scheme="light" if scheme == "light" else "dark") as visited:
            page = visited.page
            colours = [
                page.evaluate("getComputedStyle(document.body).backgroundColor"),
                page.evaluate("getComputedStyle(document.body).color"),
                page.evaluate("getComputedStyle(document.querySelector('.hf-steps text')).fill"),
            ]
            brightness[scheme] = [sum(map(int, re.findall(r"\d+", one)[:3])) // 3 for one in colours]
    background, text, drawn = brightness["light"]
    assert background > 200 > 130 > max(text, drawn)
    background, text, drawn = brightness["dark"]
    assert background < 60 < 130 < min(text, drawn)


def test_what_models_tools_and_people_said_is_text(browser: Browser, tmp_path: Path) -> None:
    """Scripts, markup and addresses in ids, titles, names, arguments, results and errors do nothing."""
    author = Author(f"s-{ATTACK}")
    author.take(ATTACK)
    author.say(ATTACK)
    reply = author.reply(ATTACK, ToolCall(id="x", name=ATTACK, args={ATTACK: ATTACK}))
    issued = author.issue(reply, 0, ATTACK, {ATTACK: ATTACK})
    author.add(kinds.ToolAnnotated(issued=issued, notes={ATTACK: ATTACK}))
    author.wait(1)
    author.complete(reply, 0, issued, ATTACK, took_s=1)
    author.add(kinds.CheckpointTaken(version=1, name=ATTACK, why=(ATTACK,)))
    reply = author.reply("Again.", ToolCall(id="y", name="pay", args={}))
    call = CallRef(id=f"c{reply}-0", reply=reply)
    author.add(kinds.ApprovalAsked(call=call, tool=ATTACK, args={ATTACK: ATTACK}, why=ATTACK))
    issued = author.issue(reply, 0, "pay", {})
    author.add(kinds.ToolInDoubt(call=call, issued=issued, why=ATTACK, unsure=ATTACK))
    author.add(kinds.RunFailed(reason=ATTACK, error=ATTACK))
    foreign = Message(role="user", blocks=(Text(ATTACK),))
    author.add(kinds.MessageAdded(role="user", format="openai"), encode_message(foreign))
    author.wait(5)
    author.take(f"{ATTACK}2")
    file = _save(tmp_path, make_page(author.page_data()))
    card = _save_card(tmp_path, author.state._repr_html_())  # What a notebook asks for.
    outcome = draw_outcome_card(
        session=ATTACK,
        run=ATTACK,
        status=ATTACK,
        facts=[ATTACK],
        output=ATTACK,
        waiting=[ATTACK],
        drawing=None,
    )
    for one in (file, card, _save_card(tmp_path, outcome)):
        with visit(browser, one) as visited:
            page = visited.page
            assert visited.console == []
            assert visited.requests == [one.as_uri()]
            assert page.evaluate("document.scripts.length") == 0
            assert page.locator("img, iframe, object, form, link").count() == 0
            assert page.locator("[onload], [onerror], [onclick]").count() == 0
            assert "owned" not in page.title() or "<script>" in page.title()
            assert "<script>alert(1)" in (page.locator("body").text_content() or "")
            outside = (
                "(all) => all.map((one) => one.getAttribute('href')).filter((one) => !one.startsWith('#'))"
            )
            assert page.locator("[href]").evaluate_all(outside) == []


def _save_card(place: Path, card: str) -> Path:
    """What a notebook does with it."""
    file = place / f"card-{len(card)}.html"
    file.write_text(f"<!doctype html><meta charset=utf-8><body>{card}</body>", encoding="utf-8")
    return file


@pytest.mark.parametrize("count", [1_200, pytest.param(10_000, marks=pytest.mark.long)])
def test_a_long_session_stays_usable(count: int, browser: Browser, tmp_path: Path) -> None:
    """The file is bounded, says what it leaves out, and has the steps around a kill."""
    author = write_steps(count, killed_at=count // 3)
    made = make_page(author.page_data())
    assert len(made) < 3_000_000
    with visit(browser, _save(tmp_path, made)) as visited:
        page = visited.page
        said = page.locator(".left-out").all_text_contents()
        assert len(said) == 2
        assert f"Steps 21 to {count // 3 - 2:,} are not drawn one by one" in said[0]
        assert page.locator(".note").first.text_content() is not None
        steps = " ".join(page.locator(".hf-step").all_text_contents())
        for number in (1, count // 3, count):
            assert re.search(rf"step {number}\b", steps)
        assert page.locator(".hf-steps .hf-gap-label").count() == 1
        # The overview has all of it.
        assert page.locator(".hf-overview .hf-bar").count() < 2_000
        assert page.locator(".hf-overview .hf-gap").count() == 1
        assert page.evaluate("document.querySelectorAll('*').length") < 40_000
