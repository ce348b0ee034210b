"""The views of a SQLite file, entry by entry: in any SQLite, and at a cost that grows as the journal does."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest

from holdfast.core.codec import encode_entry
from holdfast.core.entries import (
    Body,
    CallRef,
    CheckpointDropped,
    CheckpointTaken,
    MessageAdded,
    ModelReplied,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunPaused,
    RunStarted,
    StateSet,
    ToolCompleted,
    ToolInDoubt,
    ToolIssued,
    ToolRan,
    ToolSettled,
)
from holdfast.drivers.contract import Append
from holdfast.drivers.sqlite import SqliteDriver
from holdfast.engine.committer import make_append
from holdfast.testing.conformance.author import Author, at_second, erased, say
from tests.foreign_messages import CONVERSATIONS

VIEWS = ("entries", "messages", "effects", "checkpoints", "runs")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the store is."""
    return tmp_path / "agents.db"


def _commit(
    driver: SqliteDriver, author: Author, *entries: tuple[Body, bytes | None, str | None, float]
) -> Append:
    """Commit bodies, each with its content, its run, and the second in which it was made."""
    new = [
        encode_entry(body, seq, at_second(second), run, 3, content)
        for seq, (body, content, run, second) in enumerate(entries, author.seq + 1)
    ]
    head = msgspec.structs.replace(author.head, seq=new[-1].entry.seq)
    item = make_append(new, after=author.sum, head=head)
    driver.commit([item])
    author.accept(item)
    return item


def _rows(path: Path, query: str) -> list[Any]:
    """What a person gets who trusts no schema."""
    db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    db.execute("PRAGMA trusted_schema = off")
    found = db.execute(query).fetchall()
    db.close()
    return found


def _issue(number: int, **details: Any) -> ToolIssued:
    call = CallRef(id=f"c{number}")
    return ToolIssued(call=call, tool="pay", fingerprint="f", operation="o", scope="session", **details)


def test_each_entry_has_its_own_time_and_run(path: Path) -> None:
    """Within a chunk these are kept as differences; a clock may be set back in the middle of it."""
    driver, author = SqliteDriver(path), Author("a")
    author.begin(driver)
    body = MessageAdded(role="user")
    _commit(
        driver,
        author,
        (body, b"{}", "r1", 10.5),
        (body, b"{}", None, 12.000001),
        (body, b"{}", "r2", 9.999999),
        (body, b"{}", "r1", 10.5),
        (body, b"{}", "r2", 86_400 * 365.5),
    )
    _commit(driver, author, (body, b"{}", None, 11))
    driver.close()
    assert _rows(path, "SELECT seq, at, run, step, chunk FROM entries WHERE seq > 1 ORDER BY seq") == [
        (2, "2026-01-01T00:00:10.500000Z", "r1", 3, 6),
        (3, "2026-01-01T00:00:12.000001Z", None, 3, 6),
        (4, "2026-01-01T00:00:09.999999Z", "r2", 3, 6),
        (5, "2026-01-01T00:00:10.500000Z", "r1", 3, 6),
        (6, "2027-01-01T12:00:00.000000Z", "r2", 3, 6),
        (7, "2026-01-01T00:00:11.000000Z", None, 3, 7),
    ]


def test_messages_of_any_format_are_shown(path: Path) -> None:
    """With their text if they have one, and as they are stored."""
    driver, author = SqliteDriver(path), Author("a")
    author.begin(driver)
    blocks = (
        b'{"blocks":[{"kind":"text","text":"a\\"\\u00e9"},{"kind":"image"},{"kind":"text","text":"\\nb"}]}'
    )
    stored: Sequence[tuple[Body, bytes]] = [
        (MessageAdded(role="user"), blocks),
        (ModelReplied(format="openai"), b'{"content":"hi","agent":"clerk"}'),
        (ModelReplied(format="odd"), b'{"content":[{"text":"in parts"}]}'),
        (MessageAdded(role="tool", format="odd"), b'"{ no object"'),
        (MessageAdded(role="user", format="odd"), b'["{", 1]'),
        (MessageAdded(role="user", format="odd"), b"null"),
    ]
    _commit(driver, author, *((body, content, "r", 1) for body, content in stored))
    driver.close()
    assert _rows(path, "SELECT format, role, agent, text, message FROM messages ORDER BY seq") == [
        ("holdfast", "user", None, 'a"é\nb', blocks.decode()),
        ("openai", "assistant", "clerk", "hi", '{"content":"hi","agent":"clerk"}'),
        ("odd", "assistant", None, "in parts", '{"content":[{"text":"in parts"}]}'),
        ("odd", "tool", None, None, "{ no object"),
        ("odd", "user", None, None, '["{",1]'),
        ("odd", "user", None, None, None),
    ]


def test_the_last_entry_about_an_effect_tells_its_status(path: Path) -> None:
    """Whether intent and outcome are in one chunk or in several, and in whichever order effects end."""
    driver, author = SqliteDriver(path), Author("a")
    author.begin(driver)
    call = CallRef(id="c")
    _commit(
        driver,
        author,
        (_issue(2, args={"order": 1}), None, "r", 1),
        (_issue(3, attempt=2, key="k"), None, "r", 1),
        (_issue(4), None, "r", 1),
        (ToolCompleted(call=call, issued=2), b'{"text":"paid"}', "r", 1),
        (ToolRan(call=call, tool="look", args=[1], fingerprint="f"), b"{}", "r", 1),
    )
    _commit(driver, author, (ToolInDoubt(call=call, issued=3), None, "r", 1))
    _commit(driver, author, (ToolSettled(call=call, issued=3, verdict="landed", by="ann"), None, None, 1))
    _commit(driver, author, (ToolCompleted(call=call, original=4, replay_of="c"), b"{}", None, 1))
    driver.close()
    assert _rows(path, "SELECT seq, tool, call, args, attempt, key, status FROM effects ORDER BY seq") == [
        (2, "pay", "c2", '{"order":1}', 1, None, "completed"),
        (3, "pay", "c3", None, 2, "k", "landed"),
        (4, "pay", "c4", None, 1, None, "issued"),
        (6, "look", "c", "[1]", 1, None, "completed"),
    ]


def test_versions_that_were_dropped_are_not_shown(path: Path) -> None:
    """In this session; another one may have a version of the same number."""
    driver = SqliteDriver(path)
    for name in ("a", "b"):
        author = Author(name)
        author.begin(driver)
        for version in (1, 2):
            _commit(driver, author, (CheckpointTaken(version=version), None, "r", version))
        _commit(driver, author, (CheckpointTaken(version=3, why=("a call has no result",)), None, "r", 3))
        if name == "a":
            _commit(driver, author, (CheckpointDropped(version=1), None, None, 4))
    driver.close()
    assert _rows(path, "SELECT session, version, continuable FROM checkpoints ORDER BY session, version") == [
        ("a", 2, 1),
        ("a", 3, 0),
        ("b", 1, 1),
        ("b", 2, 1),
        ("b", 3, 0),
    ]


def test_a_run_is_shown_with_its_last_end(path: Path) -> None:
    """Also if several ends, of one run or of several, are in one chunk."""
    driver, author = SqliteDriver(path), Author("a")
    author.begin(driver)
    _commit(
        driver,
        author,
        (RunStarted(agent="clerk", model="m"), None, "r1", 1),
        (RunPaused(reason="approval"), None, "r1", 2),
        (RunStarted(), None, "r2", 3),
        (RunFailed(reason="budget", error="spent"), None, "r2", 4),
        (RunCancelled(reason="by a person"), None, "r1", 5.25),
        (RunStarted(), None, "r3", 6),
    )
    _commit(driver, author, (RunStarted(), None, "r4", 7))
    _commit(driver, author, (RunCompleted(output=1), None, "r4", 8))
    driver.close()
    columns = "run, agent, model, substr(started_at, 18), substr(ended_at, 18), status, reason"
    assert _rows(path, f"SELECT {columns} FROM runs ORDER BY run") == [
        ("r1", "clerk", "m", "01.000000Z", "05.250000Z", "cancelled", "by a person"),
        ("r2", None, None, "03.000000Z", "04.000000Z", "failed", "budget"),
        ("r3", None, None, "06.000000Z", None, "no end", None),
        ("r4", None, None, "07.000000Z", "08.000000Z", "completed", None),
    ]


def test_what_was_erased_is_null(path: Path) -> None:
    """And every entry stays where it was."""
    driver, author = SqliteDriver(path), Author("a")
    author.begin(driver)
    item = _commit(
        driver,
        author,
        (MessageAdded(role="user"), b'{"content":"secret"}', "r", 1),
        (_issue(3, args={"card": "secret"}), None, "r", 2),
        (RunStarted(), None, "r", 2),
        (RunCancelled(reason="secret"), None, "r", 3),
    )
    (chunk,) = item.chunks
    driver.erase(author.session, author.sum, {chunk.seq: erased(chunk)}, author.head)
    driver.close()
    assert _rows(path, "SELECT seq, role, text, message FROM messages") == [(2, "user", None, None)]
    assert _rows(path, "SELECT seq, tool, args, status FROM effects") == [(3, "pay", None, "issued")]
    assert _rows(path, "SELECT run, status, reason FROM runs") == [("r", "cancelled", None)]
    assert _rows(path, "SELECT details, content FROM entries WHERE seq > 1") == [(None, None)] * 4


@pytest.mark.skipif(sqlite3.sqlite_version_info < (3, 38), reason="Python's own SQLite is older than 3.38")
def test_an_older_sqlite_that_trusts_no_schema_shows_the_same(path: Path) -> None:
    """Before 3.41, SQLite then runs hardly a function of JSON in a view."""
    driver, author = SqliteDriver(path), Author("a")
    author.begin(driver, say("hello"))
    for format, messages in CONVERSATIONS.items():
        contents = [msgspec.json.encode(data) for data in messages]
        body = MessageAdded(role="user", format=format)
        _commit(driver, author, *((body, content, None, 0.0) for content in contents))
    for number in range(3):
        _commit(
            driver,
            author,
            (RunStarted(agent="clerk"), None, f"r{number}", number),
            (MessageAdded(role="user", title="t"), b'{"blocks":[{"kind":"text","text":"hi"}]}', None, number),
            (_issue(number, args={"order": number}), None, f"r{number}", number + 0.5),
            (RunFailed(reason="budget", error="spent"), None, f"r{number}", number + 0.7),
            (CheckpointTaken(version=number + 1), None, None, number),
        )
    driver.close()
    older = sqlite3.connect(path)
    older.execute("PRAGMA trusted_schema = off")
    for view in VIEWS:
        expected = _rows(path, f"SELECT * FROM {view} ORDER BY session, 3, 4")
        assert expected
        assert older.execute(f"SELECT * FROM {view} ORDER BY session, 3, 4").fetchall() == expected
    older.close()


# -- cost ---------------------------------------------------------------------------------------------


def _steps_of(path: Path, view: str) -> int:
    """How much SQLite's machine has to do for all rows of a view."""
    db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    counted = 0

    def count() -> bool:
        nonlocal counted
        counted += 1
        return False

    db.set_progress_handler(count, 100)
    assert db.execute(f"SELECT * FROM {view}").fetchall()
    db.close()
    return counted


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("kept", ["in many chunks", "in one chunk"])
def test_a_view_costs_as_much_as_the_journal_is_long(tmp_path: Path, view: str, kept: str) -> None:
    """Four times the entries, four times the work; not sixteen times, as if each entry looked for its
    fellows in all others."""
    costs = []
    for times in (40, 160):
        path = tmp_path / f"{times}.db"
        driver, author = SqliteDriver(path), Author("a")
        author.begin(driver)
        steps: list[tuple[Body, bytes | None, str | None, float]] = []
        for number in range(times):
            issued = author.seq + len(steps) + 2
            steps += [
                (RunStarted(), None, f"r{number}", 0),
                (_issue(number, args=[number]), None, f"r{number}", 1),
                (MessageAdded(role="user"), b'{"content":"hi"}', f"r{number}", 1),
                (ToolCompleted(call=CallRef(id="c"), issued=issued), b"{}", f"r{number}", 1),
                (StateSet(key="k", value=msgspec.Raw(b"1")), None, None, 1.5),
                (RunCompleted(), None, f"r{number}", 2),
            ]
            if kept == "in many chunks":
                _commit(driver, author, *steps)
                steps = []
        _commit(driver, author, *steps, (CheckpointTaken(version=1), None, None, 2 + times / 1000))
        driver.close()
        costs.append(_steps_of(path, view))
    if kept == "in many chunks" or view != "runs":  # A run reads the chunks with its two ends.
        assert costs[1] < 6 * costs[0]
