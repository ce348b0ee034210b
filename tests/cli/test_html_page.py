"""`holdfast show --html`: the pages of real sessions, some of them killed."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import unescape
from pathlib import Path

import anyio

import holdfast
from holdfast.cli.html_page import make_page, read_page_data
from tests.cli.cli_processes import Done

Call = Callable[[Path, str], Done]


def _write(call_here: Call, shop: Path, session: str) -> str:
    done = call_here(shop, f"show {session} --html page.html")
    assert (done.code, done.out) == (0, "")
    assert "wrote page.html" in done.err
    return (shop / "page.html").read_text()


def test_a_killed_session_has_its_gap_and_who_took_over(shop: Path, call_here: Call) -> None:
    """Written by real processes, one of which was killed."""
    page = _write(call_here, shop, "killed")
    (gap,) = re.findall(r'class="strong hf-gap-text">(.*?)</text>', page)
    assert re.search(r"was killed or cut off; .* took over after \d", re.sub("<.*?>", "", gap))
    assert "Not finished: look_up" in page
    assert "It is there." in page


def test_a_doubt_and_a_question_say_what_to_do(shop: Path, call_here: Call) -> None:
    """With the commands that answer them, which work as they stand."""
    page = _write(call_here, shop, "doubtful")
    commands = list_commands(page)
    answers = ["landed --result '…'", "not-landed", "gave-up"]
    store = "--store sqlite:holdfast.db"
    assert commands == [f"holdfast resolve doubtful c-charge {answer} {store}" for answer in answers]
    assert f"then: <code>holdfast resume FILE.py doubtful {store}, where FILE.py has the agent" in page
    assert call_here(shop, commands[0].removeprefix("holdfast ")).code == 0
    (shop / "page.html").unlink()
    page = _write(call_here, shop, "doubtful")
    assert "landed, says " in page
    assert "<h3>To go on</h3>" in page
    (shop / "page.html").unlink()
    page = _write(call_here, shop, "asking")
    approve, refuse = list_commands(page)
    assert refuse == f"holdfast refuse asking c-refund --reason '…' {store}"
    assert call_here(shop, approve.removeprefix("holdfast ")).code == 0
    (shop / "page.html").unlink()
    assert "<h3>To go on</h3>" not in _write(call_here, shop, "done")


def list_commands(page: str) -> list[str]:
    """The commands on a page, as they would be copied from it."""
    return [unescape(one) for one in re.findall(r'<code class="command">([^<]*)</code>', page)]


def test_a_delegate_has_rows_below_its_call(shop: Path, call_here: Call) -> None:
    """Its own calls, read from its own journal."""
    page = _write(call_here, shop, "family")
    assert "hf-bar hf-delegate" in page
    assert "look_up" in page
    assert "look_up" not in re.findall(r"<h2>Transcript.*", page, re.DOTALL)[0].split("<h2>Effects")[0]


def test_a_page_does_not_overwrite_and_goes_with_no_other_form(shop: Path, call_here: Call) -> None:
    """A usage error, and the file stays as it was."""
    (shop / "page.html").write_text("mine")
    done = call_here(shop, "show killed --html page.html")
    assert done.code == 2
    assert "exists already" in done.err
    assert (shop / "page.html").read_text() == "mine"
    for option in ("--json", "--brief", "--last 3"):
        assert call_here(shop, f"show killed --html other.html {option}").code == 2
    assert call_here(shop, "show nothing --html other.html").code == 3
    assert not (shop / "other.html").exists()


def test_a_page_is_made_while_others_write(tmp_path: Path) -> None:
    """Entries that come after the state was read are left for the next page."""

    async def main() -> None:
        async with holdfast.open_store(f"sqlite:{tmp_path}/s.db") as store, store.session("s") as session:
            await session.add("one")
            await session.flush()
            data = await read_page_data(store, await store.head("s"))
            await session.add("two")
            await session.flush()
            assert data.entries[-1].seq == data.state.seq
            assert "two" not in make_page(data)

    anyio.run(main)
