"""The list of sessions: what it shows, filters, pages, and stays cheap."""

from __future__ import annotations

import re
from pathlib import Path

import holdfast
from holdfast.limits import VIEWER_ROWS
from tests.viewer.visitors import Url, ask, count_reads, doubt, kill, open_session, text_of, visiting


async def test_each_session_is_listed_with_its_status_and_what_waits(store_url: Url) -> None:
    """Also those that another process holds, and one that was killed."""
    async with holdfast.open_store(store_url) as store:
        await ask(store, "asking", {"to": "ann", "cents": 5})
        await doubt(store, "doubtful")
        await kill(store_url, "killed")
        await open_session(store, "held")
        async with holdfast.open_store(store_url) as other, visiting(other) as visitor:
            shown = rows(await visitor.get("/"))
            held = shown["held"]
            assert "1 to approve" in shown["asking"]
            assert "Please pay" in shown["asking"]
            assert "1 in doubt" in shown["doubtful"]
            assert "1 in doubt" in shown["killed"]
            assert held.startswith("held held")
            assert ":" in held.split()[-1], "the holder is named"
            assert next(iter(shown)) == "held", "the latest change first"


def rows(page: str) -> dict[str, str]:
    """The rows of the list, by session."""
    found = re.findall(r'<tr[^>]*><td><a href="/sessions/([^"]+)"(.*?)</tr>', page, re.DOTALL)
    return {name: text_of(f"<a {row}") for name, row in found}


async def test_filters_are_in_the_address(store_url: Url) -> None:
    """Words, status, agent, framework, and what waits; the same address shows the same."""
    async with holdfast.open_store(store_url) as store:
        await ask(store, "asking", {"to": "ann", "cents": 5})
        async with store.session("tagged", labels={"tenant": "acme"}) as session:
            await session.add("A letter to Zoë")
        async with store.session("plain") as session:
            await session.add("Nothing else")
            await session.close("failed")
        async with visiting(store) as visitor:
            for query, expected in {
                "q=zo%C3%AB": {"tagged"},
                "q=TENANT%3Dacme": {"tagged"},
                "q=letter+acme": {"tagged"},
                "q=letter+else": set(),
                "status=failed": {"plain"},
                "waits=yes": {"asking"},
                "framework=holdfast": {"asking", "tagged", "plain"},
                "framework=LangGraph": set(),
                "agent=nobody": set(),
                "parent=asking": set(),
            }.items():
                for path in ("/", "/sessions-list"):
                    assert set(rows(await visitor.get(f"{path}?{query}"))) == expected, query
            page = await visitor.get("/?q=zo%C3%AB&status=idle")
            assert 'value="zoë"' in page
            assert '<option value="idle" selected="">' in page
            assert 'data-live="/sessions-list?q=zo%C3%AB&amp;status=idle"' in page


async def test_a_long_list_has_pages_and_can_be_sorted() -> None:
    """Each session is on one page, and the pages link to each other."""
    async with holdfast.open_store("memory:") as store:
        for number in range(VIEWER_ROWS + 3):
            async with store.session(f"s-{number:03}") as session:
                await session.add("Hello")
        async with visiting(store) as visitor:
            first, second = await visitor.get("/"), await visitor.get("/?page=1")
            assert len(rows(first)) == VIEWER_ROWS
            assert len(rows(second)) == 3
            assert not rows(first).keys() & rows(second).keys()
            assert 'href="/?page=1" rel="next"' in first
            assert 'href="/" rel="prev"' in second
            oldest = rows(await visitor.get("/?sort=created&page=1"))
            assert list(oldest) == ["s-002", "s-001", "s-000"]
            assert rows(await visitor.get("/?page=7")) == {}
            for wrong in ("x", "-1", "9" * 40, "²"):
                assert rows(await visitor.get(f"/?page={wrong}")) == rows(first)


async def test_no_journal_is_read_for_the_list(store_url: Url) -> None:
    """However many sessions there are: what is listed stands in their heads."""
    async with holdfast.open_store(store_url) as store:
        await ask(store, "asking", {"to": "ann", "cents": 5})
        await doubt(store, "doubtful")
        read = count_reads(store)
        async with visiting(store) as visitor:
            for path in ("/", "/?q=please&sort=tokens", "/?status=idle", "/needs/count"):
                await visitor.get(path)
        assert read == []


async def test_the_command_that_lists_the_same_can_be_copied() -> None:
    """With the filters that it knows."""
    async with holdfast.open_store("memory:") as store, visiting(store) as visitor:
        for query, options in {
            "": "",
            "?status=failed": " --status failed",
            "?status=interrupted&parent=a": " --interrupted --parent a",
            "?status=idle": "",
        }.items():
            expected = f'data-copy="holdfast sessions{options} --store sqlite:agents.db"'
            assert expected in await visitor.get(f"/{query}")


async def test_a_part_that_the_browser_has_is_not_sent_again() -> None:
    """Only when something changed: a page that is open all day costs little."""
    async with holdfast.open_store("memory:") as store:
        async with store.session("a") as session:
            await session.add("Hello")
        async with visiting(store) as visitor:
            page = await visitor.get("/")
            (etag,) = re.findall(r'id="sessions" data-live="/sessions-list" data-etag="([^"]+)"', page)
            etag = etag.replace("&quot;", '"')
            same = await visitor.client.get("/sessions-list", headers={"if-none-match": etag})
            assert (same.status_code, same.text) == (304, "")
            other = await visitor.client.get("/sessions-list", headers={"if-none-match": '"other"'})
            assert other.headers["etag"] == etag


async def test_a_damaged_session_hides_no_other(tmp_path: Path) -> None:
    """It is named, with what is wrong."""
    url = f"dir:{tmp_path}/store"
    async with holdfast.open_store(url) as store:
        for id in ("good", "torn"):
            async with store.session(id) as session:
                await session.add("Hello")
        journal = tmp_path / "store" / "sessions" / "torn" / "journal.jsonl"
        journal.write_bytes(b"nonsense\n" + journal.read_bytes()[9:])
        (journal.parent / "head.json").unlink()
        async with visiting(store) as visitor:
            page = await visitor.get("/")
            assert list(rows(page)) == ["good"]
            assert "torn is damaged" in text_of(page)
