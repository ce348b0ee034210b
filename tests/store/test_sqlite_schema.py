"""A SQLite file of an earlier schema is brought up to date when it is opened; its indices earn their keep."""

from pathlib import Path

import apsw
import pytest

import holdfast
from holdfast.drivers.sqlite import SqliteDriver, schema
from holdfast.drivers.sqlite.driver import RUNS
from holdfast.testing.conformance.author import Author, at_second, say

PAGE = {"at": "", "after": "", "seq": 0, "limit": 10}


async def test_an_older_file_goes_on_with_what_was_interrupted_in_it(tmp_path: Path) -> None:
    """What a run without an end and an item in the inbox have to be found by is made from what is there."""
    path = tmp_path / "agents.db"
    async with holdfast.open_store(path) as store:
        async with store.session("waiting"):
            pass
        await store.submit("waiting", "hello")
        session = await store.session("cut").__aenter__()
        await session.run(agent="clerk").__aenter__()
        await session.flush()
    _make_old(path)
    async with holdfast.open_store(path) as store:
        assert [head.session async for head in store.sessions(interrupted=True)] == ["cut"]
    db = apsw.Connection(str(path))
    rows = db.execute("SELECT session, due = head ->> '$.due', posted_at FROM sessions ORDER BY session")
    assert rows.fetchall() == [("cut", 1, None), ("waiting", None, "1970-01-01T00:00:00.000000Z")]
    db.close()


@pytest.mark.parametrize(
    ("query", "bindings", "indices"),
    [
        ("SELECT * FROM effects", {}, {"entries_outcome"}),
        ("SELECT * FROM checkpoints", {}, {"entries_dropped"}),
        ("SELECT * FROM runs", {}, {"entries_run_ended"}),
        (RUNS.format(session="TRUE"), PAGE, {"entries_run_started", "entries_run_ended"}),
        (
            RUNS.format(session="started.session = :session"),
            PAGE | {"session": "a"},
            {"entries_run_of_session", "entries_run_ended"},
        ),
    ],
)
def test_queries_use_the_indices_that_every_commit_pays_for(
    tmp_path: Path, query: str, bindings: dict[str, str | int], indices: set[str]
) -> None:
    """A term or a type that differs from the index's is enough that SQLite reads whole sessions instead."""
    path = tmp_path / "agents.db"
    SqliteDriver(path).close()
    db = apsw.Connection(str(path))
    plan = [step for *_, step in db.execute(f"EXPLAIN QUERY PLAN {query}", bindings)]
    db.close()
    assert all(any(f"USING INDEX {index} " in f"{step} " for step in plan) for index in indices), plan


def test_an_effect_in_a_run_writes_no_page_of_an_index_of_heads(tmp_path: Path) -> None:
    """It is there as often as tools are called, and each page is some kilobytes to be synced."""
    path = tmp_path / "agents.db"
    driver, db = SqliteDriver(path), apsw.Connection(str(path))
    author = Author("s")
    author.begin(driver, open_run="r", due=at_second(1))

    def log_pages() -> int:
        db.execute("SELECT 1 FROM store")  # Who does not read does not look at the log.
        return db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_NOOP)[0]

    def count_pages(**head: object) -> int:
        before = log_pages()
        author.commit(driver, say("so"), **head)
        return log_pages() - before

    lines_alone = count_pages()
    assert [count_pages(in_doubt=1), count_pages(in_doubt=0)] == [lines_alone] * 2
    assert count_pages(open_run=None) > lines_alone
    db.close()
    driver.close()


def _make_old(path: Path) -> None:
    """The file as the first schema had it."""
    db = apsw.Connection(str(path))
    db.execute("DROP VIEW feed")
    db.execute("DROP INDEX sessions_due")
    db.execute("DROP INDEX sessions_unfinished")
    db.execute("CREATE INDEX sessions_unfinished ON sessions (open_run, in_doubt)")
    for table, column in (
        ("sessions", "unfinished"),
        ("sessions", "holder"),
        ("sessions", "due"),
        ("sessions", "posted_at"),
        ("inbox", "at"),
        ("store", "posts"),
    ):
        db.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
    db.execute("UPDATE sessions SET head = json_remove(head, '$.due')")
    db.pragma("user_version", 1)
    assert len(schema.migrations()) > 1
    db.close()
