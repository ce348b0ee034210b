"""The schema of a SQLite file: how it is brought up to date, and what its indices are for."""

from __future__ import annotations

import multiprocessing
import sqlite3
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import apsw
import pytest

from holdfast.drivers.contract import DueFilter, HeadFilter
from holdfast.drivers.sqlite import SqliteDriver, schema
from holdfast.errors import BadUrl, NewerFormat, StoreFailed
from holdfast.ids import SessionId
from holdfast.testing.conformance.author import Author, at_second, read_all, say

SPAWN = multiprocessing.get_context("spawn")

SECOND_SCRIPT = """
    CREATE TABLE migrated (process INTEGER);
    INSERT INTO migrated VALUES (1);
    ALTER TABLE sessions ADD COLUMN colour TEXT;
    UPDATE sessions SET colour = 'blue';
"""
"""For these tests only: a change that fails, or shows, if it is made twice."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the store is."""
    return tmp_path / "agents.db"


# -- files of another format --------------------------------------------------------------------------


@pytest.mark.parametrize("version", [1, 4])
def test_a_file_of_the_first_format_is_refused_and_stays_as_it_is(path: Path, version: int) -> None:
    """Its journal is lines; the error says so, and what to do."""
    db = apsw.Connection(str(path))
    db.execute("CREATE TABLE entries (session TEXT, seq INTEGER, kind TEXT, line TEXT)")
    db.pragma("application_id", 0x48464A31)
    db.pragma("user_version", version)
    db.close()
    before = path.read_bytes()
    for create in (True, False):
        with pytest.raises(BadUrl, match=r"agents\.db is a store of format 1.* another path"):
            SqliteDriver(path, create=create)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_another_programs_file_is_refused_and_stays_as_it_is(path: Path) -> None:
    """Holdfast makes its tables in files of its own only."""
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE chunks (of TEXT)")
    db.close()
    before = path.read_bytes()
    with pytest.raises(BadUrl, match="not one of holdfast's"):
        SqliteDriver(path)
    assert path.read_bytes() == before


# -- bringing a file up to date -----------------------------------------------------------------------


def _open_with_second_script(path: Path, gate: Connection) -> None:
    """In a process of its own, at the same moment as others: a later version of holdfast opens the store."""
    scripts = [*schema.migrations(), SECOND_SCRIPT]
    setattr(schema, "migrations", lambda: scripts)  # noqa: B010
    gate.send("ready")
    gate.recv()
    driver = SqliteDriver(path)
    gate.send((driver.store_id(), driver.find_tip(SessionId("a")) is not None))
    driver.close()


@pytest.mark.parametrize("exists", [True, False], ids=["an older file", "no file"])
def test_processes_that_open_a_store_at_once_run_each_script_once(path: Path, exists: bool) -> None:
    """All find the same store, with what was in it."""
    if exists:
        driver = SqliteDriver(path)
        Author("a").begin(driver)
        driver.close()
    gates, processes = [], []
    for _ in range(6):
        gate, theirs = SPAWN.Pipe()
        process = SPAWN.Process(target=_open_with_second_script, args=(path, theirs))
        process.start()
        theirs.close()
        gates.append(gate)
        processes.append(process)
    for gate in gates:
        assert gate.recv() == "ready"
    for gate in gates:
        gate.send("go")
    found = {gate.recv() for gate in gates}
    for process in processes:
        process.join()
        assert process.exitcode == 0
    assert len(found) == 1
    assert found.pop()[1] == exists
    db = apsw.Connection(str(path))
    assert db.pragma("user_version") == 2
    assert db.execute("SELECT count(*) FROM migrated").get == 1
    assert db.execute("SELECT count(*) FROM store").get == 1
    assert db.execute("SELECT colour FROM sessions").fetchall() == ([("blue",)] if exists else [])
    db.close()
    with pytest.raises(NewerFormat, match="has schema 2; this holdfast knows 1"):
        SqliteDriver(path)


def test_a_script_that_fails_leaves_the_file_as_it_was(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A script and the version that it comes to are one transaction."""
    driver = SqliteDriver(path)
    author = Author("a")
    author.begin(driver, say("hello"))
    driver.close()
    scripts = [*schema.migrations(), f"{SECOND_SCRIPT}; INSERT INTO migrated VALUES (no_such_column);"]
    with monkeypatch.context() as patched:
        patched.setattr(schema, "migrations", lambda: scripts)
        with pytest.raises(StoreFailed, match="no_such_column"):
            SqliteDriver(path)
    driver = SqliteDriver(path)
    assert read_all(driver, "a") == author.page
    driver.close()


# -- what other programs can do with the file ---------------------------------------------------------


def test_no_index_is_on_an_expression_and_no_trigger_uses_json(path: Path) -> None:
    """A SQLite that lacks a function, or does not trust it in a schema, could not write to the file."""
    SqliteDriver(path).close()
    db = apsw.Connection(str(path))
    columns: list[Any] = db.execute(
        """
        SELECT index_list.name, cid FROM sqlite_schema
        JOIN pragma_index_list(sqlite_schema.name) AS index_list
        JOIN pragma_index_info(index_list.name)
        WHERE type = 'table'
        """
    ).fetchall()
    assert "sessions_due" in [index for index, _ in columns]
    assert [index for index, column in columns if column == -2] == []  # Of an expression.
    query = "SELECT sql FROM sqlite_schema WHERE type <> 'view' AND sql IS NOT NULL"
    written: list[Any] = db.execute(query).fetchall()
    assert not [sql for (sql,) in written if "json" in sql or "->" in sql or "GENERATED" in sql]
    db.close()


@pytest.mark.skipif(sqlite3.sqlite_version_info < (3, 38), reason="Python's own SQLite is older than 3.38")
def test_an_sqlite_that_trusts_no_schema_writes_to_the_file(path: Path) -> None:
    """Python's own is an older one here than holdfast's; what it writes is read."""
    driver = SqliteDriver(path)
    author = Author("a")
    author.begin(driver)
    driver.close()
    item = author.write(say("hello"))
    (chunk,) = item.chunks
    db = sqlite3.connect(path)
    db.execute("PRAGMA trusted_schema = off")
    columns = {
        "session": item.session,
        "seq": chunk.seq,
        "sum": chunk.sum,
        "facts": chunk.facts,
        "said": chunk.said,
        "after": item.after,
        "head": b'{"session":"a","uid":"u","seq":2,"sum":"%b","status":"waiting","created_at":'
        b'"2026-01-01T00:00:00Z","updated_at":"2026-01-01T00:00:00Z"}' % chunk.sum.encode(),
        "status": "waiting",
        "in_doubt": 0,
        "due": "2026-01-01T00:00:00.000000Z",
    }
    names = ", ".join(columns)
    db.execute(
        f"INSERT INTO feed ({names}) VALUES ({', '.join('?' * len(columns))})", tuple(columns.values())
    )
    db.commit()
    assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    db.close()
    author.accept(item)
    driver = SqliteDriver(path)
    assert read_all(driver, "a") == author.page
    (tip,) = driver.list_tips(HeadFilter(status="waiting"), None, 10)
    assert tip.sum == chunk.sum
    assert [tip.session for tip in driver.list_due(DueFilter(until=at_second(0)), 10)] == ["a"]
    driver.close()


# -- indices ------------------------------------------------------------------------------------------


def _plan(driver: SqliteDriver, call: Callable[[SqliteDriver], object]) -> list[str]:
    """How SQLite runs the queries of a call of the driver's."""
    ran: list[str] = []
    with driver._db.reading() as db:  # Which connection a call gets is the driver's own choice.
        db.trace_v2(apsw.SQLITE_TRACE_STMT, lambda traced: ran.append(traced["sql"]))
    call(driver)
    with driver._db.reading() as db:
        db.trace_v2(0, None)
        return [step for sql in ran for *_, step in _explain(db, sql)]


def _explain(db: apsw.Connection, sql: str) -> list[Any]:
    unbound = apsw.allow_missing_dict_bindings(True)
    try:
        return db.execute(
            f"EXPLAIN QUERY PLAN {sql}", {} if ":" in sql else (None,) * sql.count("?")
        ).fetchall()
    finally:
        apsw.allow_missing_dict_bindings(unbound)


@pytest.mark.parametrize(
    ("call", "index"),
    [
        (lambda driver: driver.list_tips(HeadFilter(status="waiting"), None, 10), "sessions_status"),
        (
            lambda driver: driver.list_tips(HeadFilter(status="failed", labels={"a": "b"}), None, 10),
            "sessions_status",
        ),
        (lambda driver: driver.list_tips(HeadFilter(parent=SessionId("a")), None, 10), "sessions_parent"),
        (lambda driver: driver.list_tips(HeadFilter(open_run=True), None, 10), "sessions_unfinished"),
        (lambda driver: driver.list_due(DueFilter(until=at_second(0)), 10), "sessions_due"),
        (lambda driver: driver.list_runs(None, None, 10), "run_chunks_at"),
        (lambda driver: driver.list_runs(SessionId("a"), None, 10), "PRIMARY KEY (session=?)"),
        (lambda driver: driver.read(SessionId("a"), 0, 10, said=True), "sqlite_autoindex_chunks_1"),
    ],
)
def test_queries_use_the_indices_that_commits_pay_for(
    path: Path, call: Callable[[SqliteDriver], object], index: str
) -> None:
    """A term that differs from an index's is enough that SQLite reads the whole table instead."""
    driver = SqliteDriver(path)
    plan = _plan(driver, call)
    driver.close()
    assert any(index in step for step in plan), plan
    assert not any(step in ("SCAN sessions", "SCAN chunks", "SCAN run_chunks") for step in plan), plan
    if index.startswith("sessions"):
        assert not any("TEMP B-TREE" in step for step in plan), plan


def test_holders_are_found_without_reading_their_sessions(path: Path) -> None:
    """One step through the index of what is due for each of them."""
    driver = SqliteDriver(path)
    plan = _plan(driver, lambda driver: driver.list_holders())
    driver.close()
    touching = [step for step in plan if "sessions" in step]
    assert touching
    assert all("SEARCH sessions USING COVERING INDEX sessions_due" in step for step in touching), plan


def test_a_step_of_a_run_writes_no_page_of_an_index_of_sessions(path: Path) -> None:
    """Every tool call has an effect that begins and ends, and each page is some kilobytes to sync."""
    driver, db = SqliteDriver(path), apsw.Connection(str(path))
    author = Author("s")
    author.begin(driver, open_run="r", due=at_second(1))

    def log_pages() -> int:
        db.execute("SELECT 1 FROM store")  # Without a read, the connection does not see the log grow.
        return db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_NOOP)[0]

    def count_pages(**head: object) -> int:
        before = log_pages()
        author.commit(driver, say("so"), **head)
        return log_pages() - before

    chunk_alone = count_pages()
    assert [count_pages(in_doubt=1), count_pages(in_doubt=0)] == [chunk_alone] * 2
    assert count_pages(open_run=None) > chunk_alone
    assert count_pages() == chunk_alone
    assert count_pages(status="waiting") > chunk_alone
    assert count_pages(status="active") > chunk_alone
    assert count_pages(due=at_second(1) + timedelta(days=1)) > chunk_alone
    db.close()
    driver.close()
