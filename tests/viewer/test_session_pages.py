"""The pages of one session: what happened, what it knows, how it was before, and what is left of it."""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import quote

import anyio
import msgspec
import pytest

import holdfast
from holdfast import Registry, Store, tool
from holdfast.core.entries import CallRef, LeaseTaken, MessageAdded, ToolInDoubt
from holdfast.core.pages import open_page
from holdfast.drawing.from_journal import draw_journal
from holdfast.ids import SessionId
from holdfast.limits import VIEWER_EFFECTS, VIEWER_ENTRIES, VIEWER_MESSAGES
from holdfast.messages import Media, Message, Reasoning, Text, ToolCall, ToolResult, encode_message
from holdfast.records import Plan, PlanStep
from holdfast.viewer import session_cache
from holdfast.viewer.transcript_page import divide
from tests.drawing.example_journals import Author, store_journal, write_eventful, write_steps
from tests.internals import engine_of
from tests.tools.example_tools import call, reply
from tests.viewer.visitors import Url, Visitor, ask, doubt, text_of, visiting

TABS = ("", "/transcript", "/effects", "/state", "/versions", "/entries")
PNG = b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAoAAAAKCAIAAAACUFjqAAAAEklEQVR4nGP4z8CAB+GTG8HSALfKY52fTcuYAAAAAElFTkSuQmCC"
)
ATTACK = (
    "</title></style></script><script>alert(1)</script><img src=https://evil.example/x onerror=alert(2)>"
    "\"'><svg onload=alert(3)>\x1b]52;c;aGk=\x07\x1b[2J\u202e\x00\u200b"
)


@asynccontextmanager
async def visiting_journals(
    url: Url, *authors: Author, **options: Any
) -> AsyncIterator[tuple[Visitor, Store]]:
    """A visitor of a store with these journals."""
    async with holdfast.open_store(url) as store, visiting(store, **options) as visitor:
        for author in authors:
            store_journal(store, author)
        yield visitor, store


def links_of(page: str, part: str) -> list[str]:
    """The addresses on a page that have a text in them."""
    return [link for one in re.findall(r'href="([^"]*)"', page) if part in (link := unescape(one))]


# -- the timeline -----------------------------------------------------------------------------------------


async def test_the_timeline_shows_the_kill_who_took_over_and_what_is_in_doubt(store_url: Url) -> None:
    """With the form that answers it, and with links to what is said more."""
    author, _ = write_eventful()
    async with visiting_journals(store_url, author) as (visitor, _):
        page = await visitor.get("/sessions/order-42")
        said = text_of(page)
        assert "order-42 interrupted" in said
        assert "agent@web-1 was killed or cut off; agent@web-2 took over after 2 h 4 min" in said
        assert "approved by ann" in said
        assert "landed, says verify" in said
        assert "$0.0300 of $0.0800" in said
        assert "What became of the call?" in said
        assert "holdfast resolve order-42 c44-0 landed" in said
        assert "holdfast resume FILE.py order-42 --store sqlite:agents.db" in said
        assert "run-2 interrupted" in said
        assert "holdfast tail order-42 --follow --store sqlite:agents.db" in said
        (link,) = links_of(page, "effects?entry=45")
        effects = await visitor.get(link)
        assert 'id="effect-45"' in effects
        (link,) = links_of(page, "transcript?entry=44")
        assert 'id="entry-44"' in await visitor.get(link)


@tool(side_effects={"mutate"})
async def look_again() -> str:
    """Look."""
    return "seen"


async def test_delegates_are_nested_and_lead_to_their_own_pages() -> None:
    """Each row of a delegate is about its own session."""
    author, _ = write_eventful()
    helper = Author("order-42-helper", parent="order-42")
    helper.take("agent@web-2")
    said = helper.reply("Drafting.", ToolCall(id="h", name="load_template", args={"name": "sorry"}))
    issued = helper.issue(said, 0, "load_template", {"name": "sorry"})
    helper.wait(1)
    helper.complete(said, 0, issued, "Dear …", took_s=1)
    helper.checkpoint()
    helper.release()
    async with visiting_journals("memory:", author, helper) as (visitor, store):
        page = await visitor.get("/sessions/order-42")
        assert "load_template" in page
        assert links_of(page, f"/sessions/order-42-helper/effects?entry={issued}")
        assert "order-42-helper completed" in text_of(page)
        assert "order-42" in links_of(await visitor.get("/sessions/order-42-helper"), "sessions/")[-1]
        # It goes on: the drawing of its parent is made anew.
        async with store.session("order-42-helper") as session:
            await reply(session, call("look_again", {}))
            await Registry([look_again]).dispatch_step(session)
        assert "look_again" not in page
        assert "look_again" in await visitor.get("/sessions/order-42")


@pytest.mark.parametrize("count", [600, pytest.param(10_000, marks=pytest.mark.long)])
async def test_a_long_session_is_shown_in_parts(count: int) -> None:
    """All of it at a glance; its steps page by page, by number, and around each kill."""
    author = write_steps(count, killed_at=count // 3)
    async with visiting_journals("memory:", author) as (visitor, _):
        page = await visitor.get("/sessions/long")
        assert len(page) < 300_000
        last = count // 40  # The step after the last forty is no page of its own.
        assert f"page {last:,} of {last:,}" in page
        assert page.count('class="hf-region') == last
        assert page.count('class="hf-region hf-here') == 1
        (link,) = links_of(re.findall(r'<section class="box gaps">.*?</section>', page, re.DOTALL)[0], "")
        around = await visitor.get(link)
        assert "agent@batch-2 took over after" in re.sub("<[^>]*>", "", around.split("hf-steps")[1])
        middle = await visitor.get(f"/sessions/long?step={count // 2}&steps=10")
        (steps,) = re.findall(r'class="hf-steps".*', middle, re.DOTALL)
        assert re.search(rf"step {count // 2}<", steps)
        assert steps.count('class="hf-step"') == 10
        assert steps.count('class="hf-row"') == 30
        first = await visitor.get("/sessions/long?chapter=1")
        assert "step 1<" in first
        assert "step 41<" not in first
        assert "step 1<" in await visitor.get("/sessions/long?chapter=0")
        beyond = await visitor.get("/sessions/long?chapter=9999999&live=body")
        assert f"step {count + 1}<" in beyond
        await visitor.get("/sessions/long?chapter=x", status=400)


async def test_visitors_who_open_a_session_at_once_wait_for_one_drawing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And one who comes later finds it; of another session, there is another one."""
    drawn: list[str] = []

    def note(session: str, *args: Any, **options: Any) -> Any:
        drawn.append(session)
        return draw_journal(session, *args, **options)

    monkeypatch.setattr(session_cache, "draw_journal", note)
    authors = (write_steps(20), write_steps(20, session="other"))
    async with visiting_journals("memory:", *authors) as (visitor, _):
        async with anyio.create_task_group() as tasks:
            for path in ("/sessions/long", "/sessions/long?chapter=1", "/sessions/other", "/sessions/long"):
                tasks.start_soon(visitor.get, path)
        await visitor.get("/sessions/long?live=body")
    assert sorted(drawn) == ["long", "other"]


async def test_parts_of_a_page_are_kept_current() -> None:
    """Only what has changed is sent again; what was drawn for one visitor is there for the next."""
    async with holdfast.open_store("memory:") as store, visiting(store) as visitor:
        async with store.session("s") as session:
            await session.add("one")
            await session.checkpoint()
        page = await visitor.get("/sessions/s")
        parts = re.findall(r'data-live="([^"]*)" data-etag="([^"]*)"', page)
        assert len(parts) == 4  # The number of calls that wait, head, needs, body.
        for source, etag in parts:
            answer = await visitor.client.get(unescape(source), headers={"if-none-match": unescape(etag)})
            assert (answer.status_code, answer.text) == (304, "")
        async with store.session("s") as session:
            await session.add("two")
            await session.flush()
            for part in ("head", "body"):
                (pair,) = [one for one in parts if f"live={part}" in one[0]]
                headers = {"if-none-match": unescape(pair[1])}
                answer = await visitor.client.get(unescape(pair[0]), headers=headers)
                assert answer.status_code == 200
                assert answer.text.startswith("<")
                assert "<html" not in answer.text
            assert "two" in await visitor.get("/sessions/s?live=body")
            assert "held" in await visitor.get("/sessions/s?live=head")


# -- transcript and media ---------------------------------------------------------------------------------


def test_results_stay_on_the_page_of_their_calls() -> None:
    """Pages are as long as they are to be, and longer by the results that follow."""
    assert divide([]) == []
    assert divide(["user"], 2) == [range(1)]
    roles: Any = ["user", "assistant", "tool", "tool", "assistant", "user"]
    assert divide(roles, 2) == [range(4), range(4, 6)]
    assert [len(one) for one in divide(["tool"] * 10, 3)] == [10]
    for size in range(1, 8):
        assert [place for page in divide(roles, size) for place in page] == list(range(6))


async def test_the_transcript_folds_calls_with_their_results_and_reasoning(store_url: Url) -> None:
    """In pages, the last one first; an entry is found on its page."""
    async with holdfast.open_store(store_url) as store, visiting(store) as visitor:
        async with store.session("s") as session:
            for number in range(VIEWER_MESSAGES):
                await session.add(f"message number {number}")
            asked = ToolCall(id="c1", name="look_up", args={"order": "42"})
            blocks = (Reasoning("Let me think."), Text("I look."), asked)
            await session.add(Message(role="assistant", blocks=blocks))
            seq = session.state.seq
            result = ToolResult(
                call_id="c1", content=(Text("a picture"), Media(media_type="image/png", data=PNG))
            )
            await session.add(Message(role="tool", blocks=(result,)))
            await session.checkpoint()
        page = await visitor.get("/sessions/s/transcript")
        assert "message number 1<" not in page
        assert page.count("<article") == 1
        assert re.search(r'<details id="reasoning-\d+-\d+"><summary class="dim">reasoning', page)
        (folded,) = re.findall(r'<details id="call-.*?</details>', page, re.DOTALL)
        assert "look_up(order=&quot;42&quot;)" in folded
        assert "a picture" in folded
        (image,) = re.findall(r'<img src="([^"]*)"', folded)
        assert (await visitor.client.get(unescape(image))).content == PNG
        first = await visitor.get("/sessions/s/transcript?page=1")
        assert "message number 1<" in first
        assert "look_up" not in first
        assert "data-live" not in first.split('id="body"')[1]  # The past does not change.
        found = await visitor.get("/sessions/s/transcript?entry=2")
        assert 'id="entry-2"' in found or "is not in this transcript" in found
        assert f'id="entry-{seq}"' in await visitor.get(f"/sessions/s/transcript?entry={seq}")
        assert "is not in this transcript" in await visitor.get("/sessions/s/transcript?entry=1")


async def test_media_are_shown_as_images_and_everything_else_is_saved(store_url: Url) -> None:
    """Bytes in a message and bytes in a blob; never as markup, whatever they say that they are."""
    hostile = b"<script>alert(1)</script>"
    async with holdfast.open_store(store_url, inline_bytes=100) as store, visiting(store) as visitor:
        async with store.session("s") as session:
            for media in (
                Media(media_type="image/png", data=PNG, name="small"),
                Media(media_type="image/png", data=PNG + b"\0" * 200, name="large"),
                Media(media_type="text/html", data=hostile, name='a"<b>\u202e.html'),
                Media(media_type="image/svg+xml", data=b"<svg>" + hostile * 10, name="drawn.svg"),
                Media(media_type="image/png; charset=x", data=PNG, name="parameters"),
                Media(media_type="image/jpeg", url="https://evil.example/x.jpg"),
            ):
                await session.add(Message(role="user", blocks=(media,)))
        page = await visitor.get("/sessions/s/transcript")
        images = [unescape(one) for one in re.findall(r'<img src="([^"]*)"', page)]
        assert len(images) == 3
        assert "/blobs/" in images[1]
        for address, size in zip(images, (len(PNG), len(PNG) + 200, len(PNG)), strict=True):
            answer = await visitor.client.get(address)
            assert (answer.status_code, len(answer.content)) == (200, size)
            assert answer.headers["content-type"] == "image/png"
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert "sandbox" in answer.headers["content-security-policy"]
        saved = [unescape(one) for one in re.findall(r'<a href="([^"]*)" download=""', page)]
        assert len(saved) == 2
        for address in saved:
            answer = await visitor.client.get(address)
            assert answer.headers["content-type"] == "application/octet-stream"
            assert answer.headers["content-disposition"].startswith("attachment; filename*=UTF-8''")
            assert hostile in answer.content
        assert "https://evil.example/x.jpg" not in re.findall(r'(?:src|href)="([^"]*)"', page)
        # Whatever type the address names.
        blob = images[1].partition("?")[0]
        for kind in ("text/html", "image/svg+xml", "", "image/png\r\nset-cookie: a=b"):
            answer = await visitor.client.get(f"{blob}?type={quote(kind)}")
            assert answer.headers["content-type"] in ("application/octet-stream", "image/png")
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert "a=b" not in str(answer.headers)


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/blobs/abc", 400),
        (f"/blobs/{'0' * 64}", 404),
        (f"/blobs/{'A' * 64}", 400),
        ("/blobs/..%2f..%2fetc%2fpasswd", 404),
        (f"/blobs/%2e%2e%2f{'0' * 64}", 404),
        ("/sessions/s/media?message=0&number=0&sha256=" + "0" * 64, 404),
        ("/sessions/s/media?message=0&number=99&sha256=" + sha256(PNG).hexdigest(), 404),
        ("/sessions/s/media?message=99&number=0&sha256=" + sha256(PNG).hexdigest(), 404),
        ("/sessions/s/media?message=-1&number=0&sha256=" + sha256(PNG).hexdigest(), 400),
        ("/sessions/s/media", 404),
        ("/sessions/..%2f..%2fetc%2fpasswd", 404),
        ("/sessions/%2e%2e", 404),
        ("/sessions/%2e%2e/entries", 400),
        ("/sessions/s%00/entries", 400),
        ("/sessions/%E2%80%AE/effects", 400),
        ("/sessions/s/download/../../x", 404),
        ("/sessions/s/download/exe", 404),
        ("/sessions/s?version=99", 404),
        ("/sessions/s?version=1e3", 400),
        ("/sessions/s/entries?page=%D9%A1", 400),
        ("/sessions/s/diff?a=1", 400),
        ("/sessions/s/diff?a=1&b=99", 404),
        ("/sessions/gone", 404),
        ("/sessions/gone/effects", 404),
        ("/threads?id=%00", 404),
    ],
)
async def test_addresses_that_name_nothing_are_refused(path: str, status: int) -> None:
    """In words, and without a trace of what is elsewhere on the disk."""
    async with holdfast.open_store("memory:") as store, visiting(store) as visitor:
        async with store.session("s") as session:
            await session.add(Message(role="user", blocks=(Media(media_type="image/png", data=PNG),)))
            await session.checkpoint()
        page = await visitor.get(path, status=status)
        assert "root:" not in page
        assert "<h1" in page


# -- effects, state, entries ------------------------------------------------------------------------------


async def test_effects_have_intent_key_fence_attempts_and_outcome(store_url: Url) -> None:
    """The latest ones first; calls without side effects when they are asked for."""
    author, _ = write_eventful()
    async with visiting_journals(store_url, author) as (visitor, _):
        page = await visitor.get("/sessions/order-42/effects")
        said = text_of(page)
        for shown in (
            'charge_back(order="42", cents=9900)',
            "key-13-0-4f1b9c",
            "fence 2",
            "landed, says verify",
            "POST https://bank.example/refunds: no answer",
            "fence 35, attempt 2",
            "failed: the post office is closed",
            "completed after 900 ms: posted",
            "operation 44.0",
            "in doubt",
            "4 calls that may change something, of 8 in the ledger",
        ):
            assert shown in said, shown
        assert "read_mails" not in said
        assert "read_mails" in text_of(await visitor.get("/sessions/order-42/effects?all=1"))
    async with visiting_journals("memory:", write_steps(VIEWER_EFFECTS + 5)) as (visitor, _):
        page = await visitor.get("/sessions/long/effects")
        assert page.count('<tr id="effect-') == 5
        first = await visitor.get("/sessions/long/effects?page=1")
        assert first.count('<tr id="effect-') == VIEWER_EFFECTS
        (found,) = re.findall(r'<tr id="effect-(\d+)"', first)[3:4]
        assert f'id="effect-{found}"' in await visitor.get(f"/sessions/long/effects?entry={found}")


async def test_state_plan_and_budget_are_shown(store_url: Url) -> None:
    """Values as JSON, whatever their classes; caps with what is spent of them."""
    async with holdfast.open_store(store_url) as store, visiting(store) as visitor:
        async with store.session("s", labels={"team": "blue"}) as session:
            await session.set("city", {"name": "Rome", "days": [1, 2]})
            await session.set_summary("A trip is to be planned.")
            steps = (PlanStep(id="1", what="Find a hotel", postcondition="There is one"),)
            await session.set_plan(Plan(goal="A trip", steps=steps))
            await session.set_budget(holdfast.Budget(usd=1.5, tokens=10_000))
        said = text_of(await visitor.get("/sessions/s/state"))
        for shown in (
            '"name": "Rome"',
            "A trip is to be planned.",
            "Find a hotel There is one",
            "0 of 1 step done",
            "$1.50",
            "10,000",
            "team=blue",
        ):
            assert shown in said, shown


async def test_entries_are_shown_as_they_are_stored(store_url: Url) -> None:
    """With their numbers and the sums of their commits; page by page."""
    author = write_steps(30)
    async with visiting_journals(store_url, author) as (visitor, store):
        total = author.state.seq
        pages = -(-total // VIEWER_ENTRIES)
        seen: list[int] = []
        sums: set[str] = set()
        for number in range(1, pages + 1):
            page = await visitor.get(f"/sessions/long/entries?page={number}")
            seen += map(int, re.findall(r'<details id="entry-(\d+)"', page))
            sums.update(re.findall(r"sum of .*?<code>(.*?)</code>", page))
        assert seen == list(range(1, total + 1))
        engine = engine_of(store)
        stored = engine.driver.read(SessionId("long"), 0, 1000, said=True)
        assert sums == set(stored.sums.decode().split("\n"))
        page = await visitor.get("/sessions/long/entries?after=4")
        (shown,) = re.findall(r'<details id="entry-5".*?<pre>(.*?)</pre>', page, re.DOTALL)
        entry = next(one for one in open_page(stored, "") if one.seq == 5)
        assert msgspec.json.decode(unescape(shown))["kind"] == entry.kind


@pytest.mark.parametrize("form", ["html", "markdown", "text", "json", "jsonl"])
async def test_a_session_can_be_saved(form: str, store_url: Url) -> None:
    """As a file, which a browser does not show."""
    author, _ = write_eventful()
    async with visiting_journals(store_url, author) as (visitor, _):
        answer = await visitor.client.get(f"/sessions/order-42/download/{form}")
        assert answer.headers["content-disposition"].startswith('attachment; filename="order-42.')
        said = unescape(answer.text)
        assert "The refund is due." in said
        if form == "json":
            assert msgspec.json.decode(answer.content)["session"]["session"] == "order-42"
        if form == "jsonl":
            lines = [msgspec.json.decode(line) for line in answer.content.splitlines()]
            assert [one["seq"] for one in lines] == list(range(1, author.state.seq + 1))


# -- versions ---------------------------------------------------------------------------------------------


async def _plan_a_trip(store: Store) -> None:
    """Two versions, with an effect after the first one."""

    @tool(side_effects={"mutate"})
    async def book(hotel: str) -> str:
        """Book it."""
        return f"booked {hotel}"

    async with store.session("trip") as session:
        await session.add("Plan a trip")
        await session.set("city", "Rome")
        await session.checkpoint()
        await reply(session, call("book", {"hotel": "Ritz"}))
        await Registry([book]).dispatch_step(session)
        await session.set("city", "Paris")
        await session.checkpoint("paris")


async def test_any_version_is_shown_as_it_was(store_url: Url) -> None:
    """On every page that has something of a version, and nothing of what came later."""
    async with holdfast.open_store(store_url) as store, visiting(store) as visitor:
        await _plan_a_trip(store)
        for tab in TABS:
            path = f"/sessions/trip{tab}"
            now, then = await visitor.get(path), await visitor.get(f"{path}?version=1")
            if tab != "/versions":
                assert "As it was at version 1" in then
                assert "Ritz" not in then
                assert "killed" not in then
                assert "Ritz" in now or tab == "/state"
                links = links_of(then, "/sessions/trip/")
                assert [one for one in links if "version=1" not in one] in ([], [path])  # To the present.
            assert "As it was" not in now
        assert "Rome" in await visitor.get("/sessions/trip/state?version=1")
        assert "Paris" in await visitor.get("/sessions/trip/state")


async def test_two_versions_are_compared_side_by_side(store_url: Url) -> None:
    """What was removed on the left, what was added on the right."""
    async with holdfast.open_store(store_url) as store, visiting(store) as visitor:
        await _plan_a_trip(store)
        (link,) = links_of(await visitor.get("/sessions/trip/versions"), "/diff?")
        page = await visitor.get(link)
        (removed,) = re.findall(r'<td class="removed">(.*?)</td>', page, re.DOTALL)
        assert "Rome" in removed
        added = " ".join(re.findall(r'<td class="added">(.*?)</td>', page, re.DOTALL))
        assert "Paris" in added
        assert "booked Ritz" in added
        assert "holdfast diff trip 1 2 --store" in text_of(page)
        assert "They are the same." in await visitor.get("/sessions/trip/diff?a=2&b=2")


async def test_a_fork_says_what_it_leaves_behind_and_is_made_once_asked(store_url: Url) -> None:
    """Nothing is written before the form is sent."""
    async with holdfast.open_store(store_url) as store, visiting(store, allow_changes=True) as visitor:
        await _plan_a_trip(store)
        page = await visitor.get("/sessions/trip/fork?version=1")
        assert "1 side effect came after it" in text_of(page)
        assert "book(hotel=&quot;Ritz&quot;)" in page
        assert [head.session async for head in store.sessions()] == ["trip"]
        fields = await visitor.fields("/sessions/trip/fork?version=1", "Fork from version 1")
        answer = await visitor.post("/sessions/trip/fork", {**fields, "into": "other"})
        assert (answer.status_code, answer.headers["location"]) == (303, "/sessions/other")
        state = await store.load("other")
        assert state.get("city") == "Rome"
        assert [one.tool for one in state.facts.left_behind] == ["book"]
        assert "Left behind at the origin" in await visitor.get("/sessions/other/state")
        again = await visitor.post("/sessions/trip/fork", {**fields, "into": "other"})
        assert again.status_code == 400
        assert "exists already" in text_of(again.text)
        for wrong in ("..", "a/b", "a\x00", "x" * 300):
            answer = await visitor.post("/sessions/trip/fork", {**fields, "into": wrong})
            assert answer.status_code == 400


async def test_a_rewind_does_what_its_page_said_or_nothing(store_url: Url) -> None:
    """If the session has gone on meanwhile, the person looks again."""
    async with holdfast.open_store(store_url) as store, visiting(store, allow_changes=True) as visitor:
        await _plan_a_trip(store)
        page = await visitor.get("/sessions/trip/rewind?version=1")
        assert "book(hotel=&quot;Ritz&quot;)" in page
        fields = await visitor.fields("/sessions/trip/rewind?version=1", "Rewind to version 1")
        async with store.session("trip") as session:
            held = await visitor.post("/sessions/trip/rewind", fields)
            assert held.status_code == 409
            await session.add("And a car")
            await session.checkpoint()
        late = await visitor.post("/sessions/trip/rewind", fields)
        assert late.status_code == 409
        assert "has gone on since" in text_of(late.text)
        assert (await store.load("trip")).get("city") == "Paris"
        fields = await visitor.fields("/sessions/trip/rewind?version=1", "Rewind to version 1")
        answer = await visitor.post("/sessions/trip/rewind", fields)
        assert (answer.status_code, answer.headers["location"]) == (303, "/sessions/trip/versions")
        assert (await store.load("trip")).get("city") == "Rome"
        assert "1 (here)" in text_of(await visitor.get("/sessions/trip/versions"))


@pytest.mark.parametrize("options", [{}, {"read_only": True, "allow_changes": True}])
async def test_forks_and_rewinds_are_off_unless_they_are_allowed(options: dict[str, Any]) -> None:
    """No links, no forms, and forms that were made elsewhere are refused."""
    async with holdfast.open_store("memory:") as store:
        await _plan_a_trip(store)
        async with visiting(store, allow_changes=True) as allowed:
            fields = await allowed.fields("/sessions/trip/rewind?version=1", "Rewind to version 1")
        async with visiting(store, **options) as visitor:
            page = await visitor.get("/sessions/trip/versions")
            assert not links_of(page, "/fork")
            assert "--allow-changes" in page
            for action in ("fork", "rewind"):
                await visitor.get(f"/sessions/trip/{action}?version=1", status=403)
                assert (await visitor.post(f"/sessions/trip/{action}", fields)).status_code == 403
        assert (await store.load("trip")).get("city") == "Paris"
        assert [head.session async for head in store.sessions()] == ["trip"]


async def test_a_change_needs_a_person(store_url: Url) -> None:
    """Where a login says who visitors are, a visitor without a name changes nothing."""
    async with (
        holdfast.open_store(store_url) as store,
        visiting(store, allow_changes=True, identify=lambda _: None) as visitor,
    ):
        await _plan_a_trip(store)
        fields = await visitor.fields("/sessions/trip/fork?version=1", "Fork from version 1")
        assert (await visitor.post("/sessions/trip/fork", fields)).status_code == 403
        assert [head.session async for head in store.sessions()] == ["trip"]


# -- whatever was said ------------------------------------------------------------------------------------


def write_hostile() -> Author:
    """A journal in which people, models and tools say what a browser would act on."""
    author = Author("hostile")
    author.add(LeaseTaken(holder="h-1", name=ATTACK))
    author.say(ATTACK)
    said = author.reply(ATTACK, ToolCall(id="x", name=ATTACK, args={ATTACK: ATTACK}))
    issued = author.issue(said, 0, ATTACK, {ATTACK: ATTACK})
    author.wait(1)
    author.complete(said, 0, issued, ATTACK, took_s=1)
    author.checkpoint()
    said = author.reply("Again.", ToolCall(id="y", name="pay", args={}))
    issued = author.issue(said, 0, "pay", {ATTACK: ATTACK})
    doubted = ToolInDoubt(call=CallRef(id=f"c{said}-0", reply=said), issued=issued, why=ATTACK, unsure=ATTACK)
    author.add(doubted)
    foreign = Message(role="user", blocks=(Text(ATTACK), Media(media_type=ATTACK, data=b"x", name=ATTACK)))
    author.add(MessageAdded(role="user", format="openai"), encode_message(foreign))
    author.add(MessageAdded(role="user", title=ATTACK), encode_message(foreign))
    author.checkpoint()
    return author


async def test_what_was_said_is_text_on_every_page(store_url: Url) -> None:
    """Nothing of it becomes an element, an attribute or an address, and nothing is hidden."""
    author = write_hostile()
    async with visiting_journals(store_url, author, allow_changes=True) as (visitor, store):
        async with store.session("hostile") as session:
            await session.set("key", {ATTACK: ATTACK})
            await session.set_summary(ATTACK)
            await session.set_plan(Plan(goal=ATTACK, steps=(PlanStep(id=ATTACK, what=ATTACK),)))
            await session.label(team="<script>alert(1)</script>")
        paths = [f"/sessions/hostile{tab}" for tab in TABS]
        paths += [
            f"/sessions/hostile/{one}" for one in ("diff?a=1&b=2", "fork?version=1", "rewind?version=1")
        ]
        for path in [*paths, "/sessions/hostile?version=1", "/stats", "/workers", "/needs", "/"]:
            page = await visitor.get(path)
            assert_harmless(page)
            if path in paths:
                assert "&lt;script&gt;alert(1)" in page, path


def assert_harmless(page: str) -> None:
    """A page has its own script only, and no character that a browser would not show."""
    assert re.findall(r"<script[^>]*>", page) == re.findall(r'<script src="/static/viewer.js[^>]*>', page)
    assert not re.search(r"<(img|iframe|object|embed|base|style)\b(?![^>]*src=\"/)", page)
    assert not re.search(r'<[^>"]*(?:"[^"]*"[^>"]*)*\son\w+=', page)
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u202e]", page)
    for address in re.findall(r'(?:href|src|action|data-live)="([^"]*)"', page):
        assert re.match(r"[/#?]", address), address


# -- threads of LangGraph ---------------------------------------------------------------------------------


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("name", ["t1", "../../etc", "a/b?c#d", "Ünïcode ☃", "\u202ertl"])
async def test_a_thread_is_found_by_its_name_and_shown_as_its_checkpoints(name: str) -> None:
    """Whatever its name is."""
    from langchain_core.messages import HumanMessage

    from holdfast.adapters.langgraph import HoldfastSaver
    from tests.langgraph.graphs import chat, thread

    async with holdfast.open_store("memory:") as store, visiting(store) as visitor:
        await chat(HoldfastSaver(store)).ainvoke({"messages": [HumanMessage("Hello", id="h0")]}, thread(name))
        (head,) = [head async for head in store.sessions()]
        answer = await visitor.client.get("/threads", params={"id": name})
        assert answer.headers["location"] == f"/sessions/{head.session}"
        if "/" not in name:
            answer = await visitor.client.get(f"/sessions/{quote(name, safe='')}", follow_redirects=True)
            assert answer.status_code == 200
        page = await visitor.get(f"/sessions/{head.session}")
        assert_harmless(page)
        said = text_of(page)
        assert "completed" in said
        assert "framework LangGraph" in said
        assert "Hello" in said
        assert 'class="hf-steps"' in page
        assert await visitor.get(f"/sessions/{head.session}?live=body") in page
        assert "Hello" in text_of(await visitor.get(f"/sessions/{head.session}/transcript"))
        checkpoints = await visitor.get(f"/sessions/{head.session}/checkpoints")
        links = links_of(checkpoints, "checkpoint=")
        assert len(links) >= 2
        assert "Hello" in await visitor.get(links[0])
        await visitor.get(f"/sessions/{head.session}/checkpoints?checkpoint=none", status=404)
        assert "langgraph.put" in await visitor.get(f"/sessions/{head.session}/entries")
        for form in ("html", "markdown", "json", "jsonl", "text"):
            assert "Hello" in await visitor.get(f"/sessions/{head.session}/download/{form}")
    async with holdfast.open_store("memory:") as store, visiting(store) as visitor:
        await ask(store, "plain", {"to": "ann", "cents": 5})
        await visitor.get("/sessions/plain/checkpoints", status=404)


async def test_needs_of_a_session_are_answered_where_they_are_shown(store_url: Url) -> None:
    """The forms are those of the page of all that waits."""
    async with holdfast.open_store(store_url) as store, visiting(store) as visitor:
        entry = await doubt(store, "doubtful")
        page = await visitor.get("/sessions/doubtful")
        assert f'id="need-doubtful-{entry}"' in page
        fields = await visitor.fields("/sessions/doubtful", "Record")
        answer = await visitor.post("/needs/answer", {**fields, "answer": "not_landed", "note": "I asked"})
        assert answer.status_code == 303
        assert "What became of the call?" not in await visitor.get("/sessions/doubtful")
        assert "not landed" in text_of(await visitor.get("/sessions/doubtful"))


_DATA_URL = f"data:image/png;base64,{b64encode(PNG * 3).decode()}"
FOREIGN_IMAGES: dict[str, Any] = {
    "openai": {"role": "user", "content": [{"type": "image_url", "image_url": {"url": _DATA_URL}}]},
    "anthropic": {
        "role": "user",
        "content": [
            {
                "type": "image",
                "source": {
                    "type": "base64",
                    "media_type": "image/png",
                    "data": b64encode(PNG * 3).decode(),
                },
            }
        ],
    },
    "openai-responses": {
        "type": "message",
        "role": "user",
        "content": [{"type": "input_image", "image_url": _DATA_URL}],
    },
}


@pytest.mark.parametrize("inline_bytes", [None, 10])
@pytest.mark.parametrize("format", FOREIGN_IMAGES)
async def test_images_in_messages_of_other_formats_are_shown(format: str, inline_bytes: int | None) -> None:
    """Whether their bytes are in the message or in a blob."""
    async with (
        holdfast.open_store("memory:", inline_bytes=inline_bytes) as store,
        visiting(store) as visitor,
    ):
        async with store.session("s") as session:
            await session.add(FOREIGN_IMAGES[format], format=format)
        page = await visitor.get("/sessions/s/transcript")
        (image,) = re.findall(r'<img src="([^"]*)"', page)
        assert ("/blobs/" in image) == (inline_bytes is not None)
        answer = await visitor.client.get(unescape(image))
        assert answer.headers["content-type"] == "image/png"
        assert answer.content == PNG * 3


def damage(place: Path) -> None:
    """Another program changes what a model said."""
    (journal,) = place.rglob("journal.jsonl")
    journal.write_bytes(journal.read_bytes().replace(b"File 2", b"Fxle 2"))


async def test_a_damaged_session_is_shown_as_far_as_it_can_be_read(tmp_path: Path) -> None:
    """The transcript, which is damaged, says where."""
    url = f"dir:{tmp_path}/s"
    async with visiting_journals(url, write_steps(3)):
        pass
    damage(tmp_path)
    async with holdfast.open_store(url) as store, visiting(store) as visitor:
        for tab in ("", "/effects", "/state", "/versions"):
            assert "completed" in await visitor.get(f"/sessions/long{tab}")
        said = text_of(await visitor.get("/sessions/long/transcript", status=500))
        assert "entry 11: what was said is not what the entry was written with" in said
