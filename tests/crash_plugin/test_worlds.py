"""The worlds, and how processes are found and started."""

from __future__ import annotations

import json
import os
import sqlite3
import urllib.request
from contextlib import closing
from pathlib import Path

import pytest

import holdfast
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


def change_files(world: DirectoryWorld) -> str:
    """Writes a file anew in each way there is, and says what it had been."""
    path = world.path / "count.txt"
    found = path.read_text() if path.exists() else "none"
    path.write_text("12\n", encoding="utf-8", newline="\n")
    with open(path, "wb", 4) as binary:
        assert binary.write(b"3456\n7") == 6
    with open(path, "a", encoding="ascii") as text:
        assert (text.name, text.mode) == (str(path), "a")
        text.write("8")
    with pytest.raises(ValueError, match="binary"), open(path, "wb", encoding="ascii"):
        pass
    with pytest.raises(FileNotFoundError):
        os.remove(world.path / "other.txt")
    os.replace(path, world.path / "moved.txt")
    os.replace(world.path / "moved.txt", path)
    return found


def commit_in_each_way(world: SqliteWorld) -> None:
    """With `with`, by `commit`, by a statement, each by itself; one fails, and one is undone."""
    with closing(sqlite3.connect(world.path)) as bank:
        with bank:
            bank.execute("INSERT INTO payments (cents) VALUES (1)")
        bank.cursor().executemany("INSERT INTO payments (cents) VALUES (?)", [(2,), (3,)])
        bank.commit()
        bank.execute("BEGIN")
        bank.execute("INSERT INTO payments (cents) VALUES (4)")
        bank.execute("COMMIT")
        bank.execute("INSERT INTO payments (cents) VALUES (5)")
        bank.rollback()
        bank.isolation_level = None
        with pytest.raises(sqlite3.IntegrityError):
            bank.execute("INSERT INTO payments (id, cents) VALUES (1, 6)")
        bank.executescript("INSERT INTO payments (cents) VALUES (7); DELETE FROM payments WHERE cents = 7;")


async def hold_and_post(world: DirectoryWorld) -> None:
    """A named lease, and a message for an inbox."""
    async with holdfast.open_store(f"sqlite:{world.agent_dir}/agent.db") as store:
        async with store.session("s", wait_s=60) as session, session.hold("printer", wait_s=60):
            await session.flush()
        await store.submit("s", "Hello", key="1")


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
    report = run_crash_test(pay_from_sqlite, world=SqliteWorld(schema), twice=False)
    assert report.boundaries == ("before commit world.db#1", "after commit world.db#1", "before end")
    assert report.verdicts == {
        "before commit world.db#1": "same end",
        "after commit world.db#1": "done twice",
        "before end": "done twice",
    }


def test_each_way_to_write_a_file_has_a_beginning_a_middle_and_an_end() -> None:
    """A file that is written anew is empty for a moment; one that is added to is not."""
    kill = "during write world/count.txt#2"
    report = run_crash_test(change_files, world=DirectoryWorld(), kill=kill, twice=False)
    write, there, back = (
        "write world/count.txt",
        "rename world/count.txt to world/moved.txt#1",
        "rename world/moved.txt to world/count.txt#1",
    )
    assert report.boundaries == (
        *(f"{phase} {write}#{number}" for number in (1, 2) for phase in ("before", "during", "after")),
        f"before {write}#3",
        f"after {write}#3",
        "before remove world/other.txt#1",
        *(f"{phase} {name}" for name in (there, back) for phase in ("before", "after")),
        "before end",
    )
    # The second process found what the first one had left: nothing.
    assert report.findings[0].first.what == 'it returned "", not "none"'


def test_each_way_to_commit_to_sqlite_has_a_beginning_and_an_end() -> None:
    """What fails or is undone has no end."""
    schema = "CREATE TABLE payments (id INTEGER PRIMARY KEY, cents INT)"
    report = run_crash_test(commit_in_each_way, world=SqliteWorld(schema), sample=1, twice=False)
    assert report.boundaries == (
        *(f"{phase} commit world.db#{number}" for number in (1, 2, 3) for phase in ("before", "after")),
        "before insert payments#1",
        "before insert payments#2",
        "after insert payments#2",
        "before delete payments#1",
        "after delete payments#1",
        "before end",
    )


def test_claims_and_messages_for_inboxes_are_boundaries() -> None:
    """They are no commits of a journal; a kill at them changes nothing."""
    report = run_crash_test(hold_and_post, world=DirectoryWorld(), kill="after post#1")
    assert {"before claim#1", "after claim#1", "before post#1", "after post#1"} <= set(report.boundaries)
    assert report.findings == ()
    assert run_crash_test(hold_and_post, world=DirectoryWorld(), kill="after claim#1").findings == ()


def test_changes_of_files_are_boundaries() -> None:
    """The line is there before the note that says so."""
    report = run_crash_test(append_a_line, world=DirectoryWorld(), twice=False)
    assert report.boundaries == (
        "before write world/log.txt#1",
        "after write world/log.txt#1",
        "before write agent/noted#1",
        "before end",
    )
    assert report.verdicts["after write world/log.txt#1"] == "done twice"
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


class Queue(CrashWorld):
    """A world outside of its folder."""

    def __init__(self, outside: Path) -> None:
        super().__init__()
        self.outside = outside

    @property
    def file(self) -> Path:
        """One for each run."""
        return self.outside / f"{self.folder.parent.name}.txt"

    def set_up(self) -> None:
        """Nothing was sent."""
        self.file.write_text("")

    def facts(self) -> list[str]:
        """A fact for each line."""
        return [f"queue: {line}" for line in self.file.read_text().splitlines()]

    def save(self) -> str:
        """What was sent."""
        return self.file.read_text()

    def restore(self, saved: str) -> None:
        """Take back what came after."""
        self.file.write_text(saved)


def send_once(world: Queue) -> None:
    """Sends, unless it has noted that it did."""
    noted = world.agent_dir / "noted"
    if not noted.exists():
        with world.operation("queue"):
            world.file.write_text(world.file.read_text() + "hello\n")
        noted.write_text("yes")


def test_a_world_outside_of_its_folder_is_saved_and_restored(tmp_path: Path) -> None:
    """Before the second kill, it is put back to where the first one left it."""
    # Not put back, the first resumption's message would be there as well.
    kill = "before queue#1 > before queue#1"
    assert run_crash_test(send_once, world=Queue(tmp_path), kill=kill).findings == ()
    kill = "before write agent/noted#1 > before end"
    (finding,) = run_crash_test(send_once, world=Queue(tmp_path), kill=kill).findings
    assert finding.first.what == "queue: hello (2 times, not 1)"


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
