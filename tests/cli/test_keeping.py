"""`copy`, `export --form journal` and `import`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.cli_processes import Done, Terminal

Call = Callable[[Path, str], Done]


def test_a_copy_is_listed_as_replicas_that_cannot_be_changed(shop: Path, call_here: Call) -> None:
    """With what to do instead."""
    done = call_here(shop, "copy sqlite:holdfast.db dir:archive")
    assert done.code == 0
    assert "copied and compared" in done.err
    listed = call_here(shop, "sessions --store dir:archive --json").json["sessions"]
    assert {one["standing"] for one in listed} == {"replica"}
    refused = call_here(shop, "submit done hello --store dir:archive")
    assert refused.code == 1
    assert "holdfast fork done" in refused.err
    waiting = call_here(shop, "pending --store dir:archive --json").json["pending"]
    assert {one["session"] for one in waiting} == {"deleted"}
    assert call_here(shop, "fork done --store dir:archive --into mine").code == 0
    assert call_here(shop, "submit mine hello --store dir:archive").code == 0
    again = call_here(shop, "copy sqlite:holdfast.db dir:archive --json").json
    assert (again["entries"], again["made"]) == (0, None)


def test_a_copy_prints_the_session_that_it_made(shop: Path, call_here: Call) -> None:
    """On stdout, for a script."""
    done = call_here(shop, "copy sqlite:holdfast.db sqlite:laptop.db done --as mine")
    assert (done.code, done.out.split()[-1]) == (0, "mine")
    planned = call_here(shop, "copy sqlite:holdfast.db sqlite:laptop.db done --as mine --dry-run")
    assert "would copy" in planned.err


def test_a_moved_session_is_found_at_its_new_place(shop: Path, call_here: Call) -> None:
    """The old store says where; the same command again does nothing more."""
    for _ in range(2):
        done = call_here(shop, "copy sqlite:holdfast.db sqlite:new.db erring --move")
        assert done.code == 0, done.err
        assert "moved 1 session; " in done.err
    refused = call_here(shop, "submit erring hello")
    assert (refused.code, "was moved to sqlite:new.db" in refused.err) == (1, True)
    assert call_here(shop, "submit erring hello --store sqlite:new.db").code == 0


def test_a_progress_bar_is_shown_on_a_terminal(shop: Path) -> None:
    """And no more is left of it than the result."""
    with Terminal(shop, ["copy", "sqlite:holdfast.db", "dir:archive"]) as terminal:
        terminal.read_until("copied and compared")
        assert terminal.finish() == 0


@pytest.mark.parametrize(
    "line",
    [
        "export done --form journal",
        "export done killed --form text",
        "export --form markdown",
        "export done --form journal --version 1 --output x.jsonl",
        "export done --blob-folder blobs",
        "import missing.jsonl --as new",
        "copy sqlite:holdfast.db sqlite:holdfast.db",
        "copy sqlite:holdfast.db dir:archive --as new",
        "copy sqlite:holdfast.db dir:archive nobody",
        "copy sqlite:nowhere.db dir:archive",
    ],
)
def test_what_makes_no_sense_is_refused(line: str, shop: Path, call_here: Call) -> None:
    """In one line, and nothing is made."""
    done = call_here(shop, line)
    assert done.code in (2, 3), done
    assert "Traceback" not in done.err
    assert not (shop / "x.jsonl").exists()


def test_an_edited_export_is_refused_with_the_line(shop: Path, call_here: Call) -> None:
    """By its number."""
    assert call_here(shop, "export done --form journal --output done.jsonl").code == 0
    path = shop / "done.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    lines[4] = lines[4].replace("a", "b", 1)
    path.write_text("".join(lines))
    done = call_here(shop, "import done.jsonl --store dir:archive")
    assert done.code == 1
    assert "done.jsonl, line 5" in done.err
