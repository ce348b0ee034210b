"""Chunks whose cells another program has changed: they are reported, and not taken for something else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from holdfast.core.codec import Page
from holdfast.core.entries import RunCompleted, RunStarted
from holdfast.drivers.sqlite import SqliteDriver
from holdfast.drivers.sqlite.connections import SqliteConnections
from holdfast.errors import Corrupt
from holdfast.ids import SessionId
from holdfast.testing.conformance.author import Author, note, say
from tests.internals import write_connection

A = SessionId("a")


@pytest.fixture(params=["joined", "row by row"])
def driver(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[SqliteDriver]:
    """A store whose reader gets a page in one row, or, where that would be too large, each chunk in one."""
    driver = SqliteDriver(tmp_path / "agents.db")
    if request.param == "row by row":
        # A limit is set on each connection; the one of SQLite takes gigabytes to reach.
        open_wide = SqliteConnections._open

        def open_narrow(self: SqliteConnections, *, create: bool = False) -> apsw.Connection:
            db = open_wide(self, create=create)
            db.limit(apsw.SQLITE_LIMIT_LENGTH, 3000)
            return db

        monkeypatch.setattr(SqliteConnections, "_open", open_narrow)
        for db in driver._db._idle:  # Opened before, and not through that method.
            db.limit(apsw.SQLITE_LIMIT_LENGTH, 3000)
    yield driver
    driver.close()


@pytest.mark.parametrize(
    "change",
    [
        "facts = CAST(facts AS BLOB)",
        "facts = replace(facts, ',', ',' || char(10))",
        "facts = facts || char(10)",
        "sum = CAST(sum AS BLOB)",
        "sum = sum || char(10)",
        "sum = 'ä' || sum",
        "sum = CAST(x'ff' AS TEXT) || sum",
        "details = CAST(details AS BLOB)",
        "details = details || char(10)",
        "said = CAST(said AS BLOB)",
        "said = said || char(10)",
    ],
)
def test_a_cell_that_is_not_one_line_of_text_is_damage(driver: SqliteDriver, change: str) -> None:
    """For every reader that reads it."""
    author = Author("a")
    author.begin(driver)
    for number in range(8):
        author.commit(driver, note(f"{number}{'y' * 400}"), say(f"{number}{'x' * 400}"))
    write_connection(driver).execute(f"UPDATE chunks SET {change} WHERE seq = 9")
    with pytest.raises(Corrupt, match="not one line of text"):
        driver.read(A, 0, 100, said=True)
    if change.startswith("said"):
        assert driver.read(A, 0, 100, said=False) == Page.of(author.chunks, said=False)
    else:
        with pytest.raises(Corrupt, match="not one line of text"):
            driver.read(A, 0, 100, said=False)
    rest = [chunk for chunk in author.chunks if chunk.seq > 9]
    assert driver.read(A, 9, 100, said=True) == Page.of(rest, said=True)


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE chunks SET facts = CAST(facts AS BLOB) WHERE seq = 2",
        "UPDATE chunks SET details = CAST('[]' AS BLOB) WHERE seq = 3",
        "DELETE FROM chunks WHERE seq = 2",
        "DELETE FROM chunks WHERE seq = 3",
        "UPDATE run_chunks SET started = 4",
        "UPDATE run_chunks SET at = x'00'",
    ],
)
def test_a_run_without_its_chunks_is_damage(driver: SqliteDriver, change: str) -> None:
    """The error names the session, and the run."""
    author = Author("a")
    author.begin(driver)
    author.commit(driver, RunStarted(), run="r")
    author.commit(driver, RunCompleted(), run="r")
    assert len(driver.list_runs(None, None, 10)) == 1
    write_connection(driver).execute(change)
    with pytest.raises(Corrupt, match="session 'a', run 'r'"):
        driver.list_runs(None, None, 10)
