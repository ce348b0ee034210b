"""What a person with the `sqlite3` shell or with `psql` sees."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import apsw
import pytest

import holdfast
from holdfast.messages import Message, Reasoning, Text, ToolCall, ToolResult
from tests.foreign_messages import CALLS, CONVERSATIONS, RESULTS, SAID
from tests.stores import rows, server_url


class Shell(NamedTuple):
    """A store that is not there yet, and what a query of its views gives, past holdfast."""

    url: str
    rows: Callable[[str], list[tuple[Any, ...]]]


@pytest.fixture(params=["sqlite", "postgresql"])
def shell(request: pytest.FixtureRequest, tmp_path: Path) -> Shell:
    """Of each driver that has views."""
    if request.param == "sqlite":
        path = tmp_path / "agents.db"
        return Shell(f"sqlite:{path}", lambda query: _rows_in_file(path, query))
    schema = request.getfixturevalue("schema")
    return Shell(server_url(schema), lambda query: rows(schema, query))


def _rows_in_file(path: Path, query: str) -> list[tuple[Any, ...]]:
    db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return db.execute(query).fetchall()
    finally:
        db.close()


@holdfast.tool(side_effects={"mutate"})
async def pay(order: str) -> str:
    """Pay for it."""
    if order == "odd":
        raise RuntimeError("the line went dead")
    return "paid"


@holdfast.tool(side_effects={"read"})
async def look(order: str) -> str:
    """Never waits, so it is one line."""
    return f"{order} is open"


async def test_the_views_follow_a_session(shell: Shell) -> None:
    """Each effect with what became of it, each version that was not dropped, each message with its words."""
    registry = holdfast.Registry([pay, look])
    async with holdfast.open_store(shell.url) as store:
        async with store.session("a") as session, session.run(run_id="r1", agent="clerk"):
            await session.add("hello")
            await session.add({"role": "assistant", "content": "hi"}, format="openai")
            await session.checkpoint()
            await registry.dispatch("pay", {"order": "1"}, call_id="c1", session=session)
            await registry.dispatch("pay", {"order": "odd"}, call_id="c2", session=session)
            await registry.dispatch("look", {"order": "1"}, call_id="c3", session=session)
            await session.checkpoint()
            await session.drop(1)
        assert shell.rows("SELECT role, format, text FROM messages ORDER BY seq") == [
            ("user", "holdfast", "hello"),
            ("assistant", "openai", "hi"),
        ]
        columns = "run, tool, call, args ->> 'order', attempt, status"
        assert shell.rows(f"SELECT {columns} FROM effects ORDER BY seq") == [
            ("r1", "pay", "c1", "1", 1, "completed"),
            ("r1", "pay", "c2", "odd", 1, "in_doubt"),
            ("r1", "look", "c3", "1", 1, "completed"),
        ]
        lines = "SELECT kind FROM entries JOIN effects USING (session, seq) ORDER BY seq"
        assert shell.rows(lines) == [("tool.issued",), ("tool.issued",), ("tool.ran",)]
        await store.resolve("a", "c2", "not_landed", by="ann")
    assert shell.rows("SELECT call, status FROM effects ORDER BY seq")[1] == ("c2", "not_landed")
    assert shell.rows("SELECT version, step, continuable FROM checkpoints") == [(2, 2, True)]
    runs = shell.rows("SELECT run, agent, status, ended_at >= started_at FROM runs")
    assert runs == [("r1", "clerk", "completed", True)]


async def test_the_views_hide_what_only_a_fork_still_needs(shell: Shell) -> None:
    """A deleted session is gone from every view, although its fork shares its lines."""
    async with holdfast.open_store(shell.url) as store:
        async with store.session("a") as session, session.run(run_id="r1"):
            await session.add("hello")
            await holdfast.Registry([look]).dispatch("look", {"order": "1"}, call_id="c1", session=session)
            await session.checkpoint()
        await store.fork("a", into="b")
        await store.delete("a")
        async with store.session("c") as session, session.run(run_id="r2"):
            await session.add("again")
    assert shell.rows("SELECT session, role, text FROM messages") == [("c", "user", "again")]
    assert shell.rows("SELECT session, run, status FROM runs") == [("c", "r2", "completed")]
    assert shell.rows("SELECT session, version FROM checkpoints") == [("c", 1)]
    assert shell.rows("SELECT * FROM effects") == []


async def test_messages_in_foreign_formats_show_texts_calls_and_results(shell: Shell) -> None:
    """As those of our own: reasoning is no text, and what a tool gave is a result."""
    async with holdfast.open_store(shell.url) as store:
        for format, messages in CONVERSATIONS.items():
            async with store.session(format) as session:
                for data in messages:
                    await session.add(data, format=format)
        async with store.session("own") as session:
            call = ToolCall(id="c1", name="look", args={"n": 1})
            await session.add(Message(role="assistant", blocks=(Reasoning("Hm."), Text("So."), call)))
            result = ToolResult(call_id="c1", content=(Text("18 "), Text("degrees")))
            await session.add(
                Message(role="tool", blocks=(result, ToolResult(call_id="c2", content="noted")))
            )
    found = shell.rows("SELECT session, text, calls, results FROM messages ORDER BY session, seq")
    for format in CONVERSATIONS:
        mine = [row[1:] for row in found if row[0] == format]
        assert [text for text, _, _ in mine if text] == SAID
        assert "\n".join(calls for _, calls, _ in mine if calls).split("\n") == CALLS
        assert "\n".join(results for _, _, results in mine if results).split("\n") == RESULTS
    own = [row[1:] for row in found if row[0] == "own"]
    assert own == [("So.", 'look({"n":1})', None), (None, None, "18 degrees\nnoted")]
