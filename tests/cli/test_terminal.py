"""On a terminal: colours, widths, questions, Ctrl-C. Elsewhere: none of them."""

import re
from pathlib import Path

import pytest

from tests.cli.cli_processes import Terminal, call, list_long, start


def screen(shop: Path, line: str, *, columns: int = 100, **more: str) -> Terminal:
    """A command that ends by itself."""
    with Terminal(shop, line.split(), columns=columns, **more) as terminal:
        assert terminal.finish() == 0
        return terminal


LOOKS = [
    "sessions",
    "show killed",
    "show doubtful",
    "show family",
    "pending",
    "stats",
    "diff done 1",
    "--help",
]


@pytest.mark.parametrize("line", LOOKS)
def test_a_narrow_terminal_will_do(line: str, stocked: Path) -> None:
    """No line is longer than the terminal, but for commands that are there to be copied."""
    terminal = screen(stocked, line, columns=60)
    assert list_long(terminal.plain, 60) == []


def test_a_session_that_waits_costs_no_columns(stocked: Path) -> None:
    """What it waits for stands below, and the others keep their place."""
    lines = screen(stocked, "sessions", columns=80).plain.splitlines()
    (asking,) = [place for place, line in enumerate(lines) if line.strip().startswith("asking")]
    assert "clerk" in lines[asking]
    assert "$" in lines[asking]
    assert lines[asking + 1].strip() == "(1 to approve)"


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_a_delegate_is_below_its_parent_with_its_id_beside_the_mark(columns: int, stocked: Path) -> None:
    """However long the id is."""
    lines = screen(stocked, "sessions", columns=columns).plain.splitlines()
    (family,) = [place for place, line in enumerate(lines) if line.strip().startswith("family")]
    assert [line.strip()[:15] for line in lines if "└" in line] == ["└─family.helper"]
    assert "└" not in lines[family]


@pytest.mark.parametrize("line", ["show killed", "show killed --all"])
def test_where_a_process_died_can_be_read_on_light_terminals_too(line: str, stocked: Path) -> None:
    """The colour of the text is named with that of its ground, so that it is not the terminal's own."""
    shown = screen(stocked, line).screen
    styles = re.findall(r"\x1b\[([\d;]*)m[^\x1b]*is gone and did not release", shown)
    assert styles
    assert all({"97", "48;5;88"} <= {*re.findall(r"48;5;88|\d+", one)} for one in styles)


def test_reasons_keep_their_indentation(stocked: Path) -> None:
    """Where they take several lines; and arguments that went with their session are not shown as a value."""
    lines = screen(stocked, "pending", columns=60).plain.splitlines()
    place = next(place for place, line in enumerate(lines) if line.startswith("in doubt  deleted"))
    assert "announce(…)" in lines[place]
    assert len(lines[place + 1 :]) > 3
    assert all(line.startswith("  ") for line in lines[place + 1 :] if line.strip())


def test_a_terminal_has_colours(stocked: Path) -> None:
    """Red for what was cut off, among others."""
    assert "31" in screen(stocked, "sessions").styles


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_who_wants_no_colour_gets_none(name: str, value: str, stocked: Path) -> None:
    """Bold, dim and underlined are no colours."""
    terminal = screen(stocked, "sessions", columns=100, **{name: value})
    assert terminal.styles <= {"", "0", "1", "2", "3", "4"}


def test_a_pipe_gets_no_colour_and_nothing_cut_off(stocked: Path) -> None:
    """Whatever the width of the terminal that the pipe began in."""
    for line in ("show killed", "pending", "--help"):
        assert "\x1b" not in call(stocked, line).out
    assert "…" not in call(stocked, "sessions").out


def test_json_is_the_same_on_a_terminal(stocked: Path) -> None:
    """No colour gets into it, however wide the screen."""
    terminal = screen(stocked, "sessions --json", columns=40)
    assert "\x1b" not in terminal.screen
    assert terminal.plain == call(stocked, "sessions --json").out


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("yes\n", 0), ("n\n", 1), ("\n", 1), ("\x04", 1)])
def test_nothing_is_removed_before_somebody_agrees(answer: str, code: int, shop: Path) -> None:
    """The question says what goes; anything but yes is no."""
    with Terminal(shop, ["clean", "done"]) as terminal:
        terminal.read_until("Delete done (10 messages)? This cannot be undone. [y/N]")
        terminal.type(answer)
        assert terminal.finish() == code
    assert call(shop, "show done --brief").code == (3 if code == 0 else 0)


def test_delete_is_clean_and_asks_as_well(shop: Path) -> None:
    """The session goes when somebody agrees, and only then; a script says so."""
    with Terminal(shop, ["delete", "done"]) as terminal:
        terminal.read_until("Delete done (10 messages)? This cannot be undone. [y/N]")
        terminal.type("n\n")
        assert terminal.finish() == 1
    assert call(shop, "delete done").code == 2
    assert call(shop, "show done --brief").code == 0
    assert call(shop, "delete done --yes").code == 0
    assert call(shop, "show done --brief").code == 3


def test_without_a_terminal_nobody_is_asked_and_nothing_is_removed(shop: Path) -> None:
    """Not even if something comes through the pipe."""
    done = call(shop, "clean done", "y\n")
    assert done.code == 2
    assert "--yes" in done.err
    assert call(shop, "clean done torn --yes").code == 0
    assert call(shop, "sessions --json").json["total"] == 7


def test_cleaning_can_leave_something(shop: Path) -> None:
    """What was said goes, and what was spent stays; or the versions go, and what was said stays."""
    assert call(shop, "clean done --only transcript --yes").code == 0
    assert "[erased]" in call(shop, "export done").out
    assert call(shop, "show done --json").json["session"]["usd"] > 0
    assert call(shop, "clean killed --only checkpoints --yes").code == 0
    assert call(shop, "show killed --json").json["checkpoints"] == []
    assert "It is there." in call(shop, "export killed").out


def test_undoing_asks_first(shop: Path) -> None:
    """Tools act in the world: here a booking is taken back, once a person agrees."""
    assert (shop / "room-12").exists()
    with Terminal(shop, ["rewind", "done", "--version", "3", "--undo", "clerk.py"]) as terminal:
        terminal.read_until("[y/N]")
        assert (shop / "room-12").exists()
        terminal.type("y\n")
        assert terminal.finish() == 0
    assert not (shop / "room-12").exists()
    assert call(shop, "show done --json").json["checkpoints"][-1]["version"] == 5


def test_ctrl_c_ends_what_waits(shop: Path) -> None:
    """The key, on a terminal: one word, the usual code, no traceback."""
    with Terminal(shop, ["tail", "done", "-f"]) as terminal:
        terminal.read_until("lease released")
        terminal.type("\x03")
        assert terminal.finish() == 130
    assert "stopped" in terminal.plain
    assert "Traceback" not in terminal.plain
    with Terminal(shop, ["clean", "done"]) as terminal:
        terminal.read_until("[y/N]")
        terminal.type("\x03")
        assert terminal.finish() == 130
    assert call(shop, "show done --brief").code == 0


def test_ctrl_c_during_a_run_leaves_a_session_that_can_be_resumed(shop: Path) -> None:
    """On a terminal, where the answer grows as it comes."""
    with Terminal(shop, ["run", "clerk.py", "Wait for it", "--session", "busy"]) as terminal:
        terminal.read_until("wait_for")
        terminal.type("\x03")
        assert terminal.finish() == 130
    assert "Waiting." in terminal.plain
    assert "Traceback" not in terminal.plain
    (shop / "go").touch()
    with Terminal(shop, ["resume", "clerk.py", "busy"]) as terminal:
        assert terminal.finish() == 0
    assert terminal.plain.count("It came.") == 1


def test_tail_shows_what_another_process_does(shop: Path) -> None:
    """As it becomes durable."""
    with Terminal(shop, ["tail", "torn", "-f"]) as terminal:
        terminal.read_until("I will look.")
        process = start(shop, "resume", "clerk.py", "torn")
        terminal.read_until("run completed")
        process.communicate()
        terminal.type("\x03")
        assert terminal.finish() == 130


def test_a_reader_that_goes_away_is_no_error(stocked: Path) -> None:
    """As with `| head`: nothing on stderr."""
    for line in (["export", "done", "--form", "jsonl"], ["sessions"], ["sessions", "--json"]):
        with start(stocked, *line) as process:
            assert process.stdout is not None
            process.stdout.close()
            assert process.stderr is not None
            assert (process.stderr.read(), process.wait(60)) == ("", 141)
