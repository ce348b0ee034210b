"""What a person with the `sqlite3` shell sees."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import apsw

import holdfast


def rows(path: Path, query: str) -> list[Any]:
    """What the query gives, through a connection of our own."""
    db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return db.execute(query).fetchall()
    finally:
        db.close()


async def test_the_views_hide_what_only_a_fork_still_needs(tmp_path: Path) -> None:
    """A deleted session is gone from every view, although its fork shares its lines."""
    path = tmp_path / "agents.db"
    async with holdfast.open_store(path) as store:
        async with store.session("a") as session, session.run(run_id="r1"):
            await session.add("hello")
            await session.checkpoint()
        await store.fork("a", into="b")
        await store.delete("a")
        async with store.session("c") as session, session.run(run_id="r2"):
            await session.add("again")
    assert rows(path, "SELECT session, role, text FROM messages") == [("c", "user", "again")]
    assert rows(path, "SELECT session, run, status FROM runs") == [("c", "r2", "completed")]


async def test_the_views_follow_a_session(tmp_path: Path) -> None:
    """Each effect with what became of it, each version that was not dropped, each message with its words."""

    @holdfast.tool(side_effects={"mutate"})
    async def pay(order: str) -> str:
        if order == "odd":
            raise RuntimeError("the line went dead")
        return "paid"

    path = tmp_path / "agents.db"
    registry = holdfast.Registry([pay])
    async with holdfast.open_store(path) as store:
        async with store.session("a") as session, session.run(run_id="r1", agent="clerk"):
            await session.add("hello")
            await session.add({"role": "assistant", "content": "hi"}, format="openai")
            await session.checkpoint()
            await registry.dispatch("pay", {"order": "1"}, call_id="c1", session=session)
            await registry.dispatch("pay", {"order": "odd"}, call_id="c2", session=session)
            await session.checkpoint()
            await session.drop(1)
        assert rows(path, "SELECT role, format, text FROM messages ORDER BY seq") == [
            ("user", "holdfast", "hello"),
            ("assistant", "openai", "hi"),
        ]
        effects = rows(path, "SELECT tool, call, status FROM effects ORDER BY seq")
        assert effects == [("pay", "c1", "completed"), ("pay", "c2", "in_doubt")]
        await store.resolve("a", "c2", "not_landed", by="ann")
    assert rows(path, "SELECT call, status FROM effects ORDER BY seq")[1] == ("c2", "not_landed")
    assert rows(path, "SELECT version, step, continuable FROM checkpoints") == [(2, 2, 1)]
    assert rows(path, "SELECT run, agent, status FROM runs") == [("r1", "clerk", "completed")]
