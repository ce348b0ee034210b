"""What a person with the `sqlite3` shell sees."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import apsw

import holdfast


def rows(path: Path, query: str) -> list[Any]:
    """What the query gives, through a connection of our own."""
    with apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY) as db:
        return db.execute(query).fetchall()


async def test_the_views_say_what_the_words_mean(tmp_path: Path) -> None:
    """Messages, effects, checkpoints and runs are there as rows, without holdfast."""

    @holdfast.tool(side_effects={"mutate"})
    async def pay(order: str) -> str:
        if order == "odd":
            raise RuntimeError("the line went dead")
        return "paid"

    path = tmp_path / "agents.db"
    registry = holdfast.Registry([pay])
    async with holdfast.open_store(path) as store:
        async with store.session("a") as session:
            async with session.run(run_id="r1", agent="clerk"):
                await session.add("hello")
                await session.add({"role": "assistant", "content": "hi"}, format="openai")
                await session.checkpoint()
                await registry.dispatch("pay", {"order": "1"}, call_id="c1", session=session)
                await registry.dispatch("pay", {"order": "odd"}, call_id="c2", session=session)
                await session.checkpoint()
                await session.drop(1)
        await store.fork("a", into="b")
        await store.delete("a")
        async with store.session("a2") as session, session.run(run_id="r2"):
            await session.add("again")
    assert rows(path, "SELECT session, role, text FROM messages") == [("a2", "user", "again")]
    assert rows(path, "SELECT session, run, status FROM runs") == [("a2", "r2", "completed")]


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
