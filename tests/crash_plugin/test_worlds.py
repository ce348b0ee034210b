"""The worlds, and how processes are found and started."""

from __future__ import annotations

import json
import os
import sqlite3
import urllib.request
from contextlib import closing
from pathlib import Path

import pytest

from holdfast.crash_test import CrashWorld, DirectoryWorld, HttpWorld, SqliteWorld, run_crash_test
from holdfast.errors import BadInput

from . import own_agents


def begun(world: CrashWorld, folder: Path) -> CrashWorld:
    """The world in its folder, with no one who kills."""
    return world.begin(folder / "state", lambda phase, operation, detail: True)


def pay_from_sqlite(world: SqliteWorld) -> None:
    """Books a payment, in one file, and says so, in another."""
    with closing(sqlite3.connect(world.path)) as bank, bank:
        (booked,) = bank.execute("SELECT count(*) FROM payments").fetchone()
        if booked < 2:
            bank.execute("INSERT INTO payments (cents) VALUES (500)")
            bank.execute("UPDATE account SET cents = cents - 500")


def append_a_line(world: DirectoryWorld) -> str:
    """Appends, and notes it."""
    note = world.agent_dir / "noted"
    if not note.exists():
        with open(world.path / "log.txt", "a") as log:
            log.write("one\n")
        note.touch()
    return (world.path / "log.txt").read_text()


class Mail(CrashWorld):
    """A world of a user's own: a spool file."""

    def facts(self) -> list[str]:
        """A fact for each mail."""
        spool = self.folder / "spool"
        return [f"mail: {line}" for line in spool.read_text().splitlines()] if spool.exists() else []


def send_mail(world: Mail) -> None:
    """Sends, always."""
    with world.operation("mail", "hello"):
        spool = os.open(world.folder / "spool", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(spool, b"hello\n")
        os.close(spool)


def leaves_early(world: CrashWorld) -> None:
    """Exits without a word."""
    os._exit(3)


def fails(world: CrashWorld) -> None:
    """Does not even work undisturbed."""
    raise ValueError("it never works")


def test_a_directory_is_read_line_by_line(tmp_path: Path) -> None:
    """Each line is a fact; keys of effects and what is ignored do not count."""
    world = begun(DirectoryWorld({"a/b.txt": "x\nx\n", "empty": ""}, ignore=[r"\d+"]), tmp_path)
    assert world.facts() == ["a/b.txt: x", "a/b.txt: x", "empty: (empty)"]
    assert world.masked(f"12 {'0a' * 32}") == "… …"


def test_a_sqlite_file_is_read_row_by_row_without_counting_keys(tmp_path: Path) -> None:
    """The same row twice is the same fact twice, whatever number it got."""
    schema = "CREATE TABLE p (id INTEGER PRIMARY KEY, cents INT); INSERT INTO p (cents) VALUES (5), (5);"
    assert begun(SqliteWorld(schema), tmp_path).facts() == ['p: {"cents": 5}', 'p: {"cents": 5}']


def test_a_server_logs_what_changed_something(tmp_path: Path) -> None:
    """A GET changes nothing; a repeated key does nothing again, if the server knows keys."""
    world = HttpWorld(knows_keys=True)
    world = world.begin(tmp_path / "state", lambda phase, operation, detail: True)
    try:
        for _ in range(2):
            own_agents.post(world, "/refunds", {"order": "1"}, "key")
        assert own_agents.was_posted(world, "/refunds", "key")
        assert not own_agents.was_posted(world, "/refunds", "other")
        saved = world.save()
        own_agents.post(world, "/refunds", {"order": "2"})
        assert len(world.facts()) == 2
        world.restore(saved)
        assert world.facts() == ['POST /refunds: {"order": "1"}']
        with urllib.request.urlopen(world.url + "/nothing") as answer:
            assert json.load(answer) == []
    finally:
        world.tear_down()


def test_commits_of_sqlite_are_boundaries() -> None:
    """Killed before a commit, the transaction is not there; the next process makes it, and one more."""
    schema = """
        CREATE TABLE payments (id INTEGER PRIMARY KEY, cents INT);
        CREATE TABLE account (cents INT);
        INSERT INTO account VALUES (1000);
    """
    report = run_crash_test(pay_from_sqlite, world=SqliteWorld(schema))
    assert report.boundaries == ("before commit world.db#1", "before end")
    assert report.verdicts == {"before commit world.db#1": "same end", "before end": "done twice"}


def test_changes_of_files_are_boundaries() -> None:
    """The line is there before the note that says so."""
    report = run_crash_test(append_a_line, world=DirectoryWorld(), twice=False)
    assert report.boundaries == ("before write world/log.txt#1", "before write agent/noted#1", "before end")
    assert report.verdicts["before write agent/noted#1"] == "done twice"
    assert report.verdicts["before end"] == "same end"
    assert report.findings[0].line.startswith("tests/crash_plugin/test_worlds.py:")


def test_processes_that_are_started_afresh_end_as_forked_ones() -> None:
    """The way of platforms that cannot fork safely, and of modules that start threads."""
    kill = "before write agent/noted#1"
    report = run_crash_test(append_a_line, world=DirectoryWorld(), fork=False, kill=kill, twice=False)
    assert report.verdicts == {kill: "done twice"}


def test_a_world_of_ones_own_names_its_operations() -> None:
    """What is in `operation` happens between two boundaries."""
    report = run_crash_test(send_mail, world=Mail())
    assert "before mail#1" in report.boundaries
    assert report.verdicts["before mail#1"] == "done twice"  # The resumption is killed after it sent one.
    assert report.verdicts["after mail#1"] == "done twice"


def test_check_decides_in_the_place_of_the_comparison() -> None:
    """One mail too many is no matter, says this check; no mail at all is."""

    def check(world: Mail) -> None:
        assert world.facts(), "no mail went out"

    assert run_crash_test(send_mail, world=Mail(), check=check).findings == ()


def test_what_does_not_work_undisturbed_is_an_error() -> None:
    """It says what failed, with the traceback of the user's code."""
    with pytest.raises(BadInput, match="it never works"):
        run_crash_test(fails, world=DirectoryWorld())
    with pytest.raises(BadInput, match="ended by itself"):
        run_crash_test(leaves_early, world=DirectoryWorld())


def test_a_scenario_that_another_process_cannot_import_is_refused() -> None:
    """A function in a function has no name there."""
    with pytest.raises(BadInput, match="at the top of a module"):
        run_crash_test(lambda world: None, world=DirectoryWorld())


def test_a_boundary_that_does_not_exist_is_refused_with_the_one_that_was_meant() -> None:
    """As misspelt names are everywhere."""
    with pytest.raises(BadInput, match="did you mean 'before write agent/noted#1'"):
        run_crash_test(append_a_line, world=DirectoryWorld(), kill="before write agent/notes#1")
