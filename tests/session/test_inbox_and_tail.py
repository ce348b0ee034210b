"""Others than the holder: what they send, and what they see."""

from __future__ import annotations

from contextlib import aclosing

import anyio
import anyio.abc
import pytest

import holdfast
from holdfast.store.driver import Driver

Url = str | Driver


def texts(session: holdfast.Session) -> list[str]:
    return [message.text for message in session.transcript]


async def test_a_message_from_outside_waits_for_the_end_of_the_step(store_url: Url) -> None:
    """It enters the transcript after the step it came in, and never between a call and its result."""
    call = holdfast.Message(role="assistant", blocks=(holdfast.ToolCall(id="c", name="look"),))
    result = holdfast.Message(role="tool", blocks=(holdfast.ToolResult(call_id="c", content="seen"),))
    async with holdfast.open_store(store_url) as mine, holdfast.open_store(store_url) as theirs:
        async with mine.session("a") as session, session.run() as run:
            await session.add("q")
            async with run.request() as request:
                await request.reply(call)
            assert await theirs.submit("a", "by the way") == 1
            await session.flush()
            assert len(session.transcript) == 2
            await session.add(result)
            version = await session.checkpoint()
            assert texts(session) == ["q", "", "", "by the way"]
            assert session.continuable
            assert await session.checkpoint() == version + 1
        state = await theirs.load("a", version)
        assert len(state.transcript) == 3


async def test_equal_keys_are_one_submission(store_url: Url) -> None:
    """However often it is sent, also after it was taken in."""
    async with holdfast.open_store(store_url) as store:
        async with store.session("a"):
            pass
        for _ in range(2):
            await store.submit("a", "once", key="k")
        await store.submit("a", "other")
        async with store.session("a") as session:
            assert texts(session) == ["once", "other"]
        await store.submit("a", "once", key="k")
        async with store.session("a") as session:
            assert texts(session) == ["once", "other"]


async def test_somebody_can_ask_a_session_to_stop(store_url: Url) -> None:
    """The holder sees it at its next barrier; the end of the run answers it."""
    async with holdfast.open_store(store_url) as mine, holdfast.open_store(store_url) as theirs:
        async with mine.session("a") as session:
            async with session.run() as run:
                await session.add("q")
                await theirs.cancel("a", by="ann", reason="enough")
                assert session.cancel_requested is None
                await session.set("k", 1)
                await session.flush()
                assert session.cancel_requested == "enough"
                run.cancel("enough")
            assert session.status == "cancelled"
            assert session.cancel_requested is None


async def test_a_follower_sees_entries_as_they_become_durable(store_url: Url) -> None:
    """From another store, while the session is under way, in order and each once."""
    seen: list[holdfast.Entry] = []
    async with holdfast.open_store(store_url) as mine, holdfast.open_store(store_url) as theirs:
        async with mine.session("a") as session:
            await session.add("one")
            await session.flush()

            async def follow(*, task_status: anyio.abc.TaskStatus[None]) -> None:
                async with aclosing(theirs.tail("a")) as entries:
                    async for entry in entries:
                        seen.append(entry)
                        if len(seen) == 3:
                            task_status.started()
                        if entry.kind == "lease.released":
                            return

            with anyio.fail_after(20):
                async with anyio.create_task_group() as tasks:
                    await tasks.start(follow)
                    assert [entry.kind for entry in seen] == [
                        "session.opened",
                        "lease.taken",
                        "message.added",
                    ]
                    await session.add("two")
                    await session.checkpoint()
                    await session._leave()
    assert [entry.seq for entry in seen] == list(range(1, 7))


async def test_a_line_that_nobody_waits_for_is_there_soon(store_url: Url) -> None:
    """It lingers for a moment, and is then durable without anybody asking."""
    async with holdfast.open_store(store_url) as mine, holdfast.open_store(store_url) as theirs:
        async with mine.session("a") as session:
            await session.add("unasked")
            with anyio.fail_after(20):
                while len((await theirs.load("a")).transcript) == 0:  # noqa: ASYNC110
                    await anyio.sleep(0.01)


async def test_cadence_decides_when_a_checkpoint_is_waited_for(store_url: Url) -> None:
    """Per step by default; every N steps, only the N-th is durable on return. A reply always is."""
    async with (
        holdfast.open_store(store_url, linger_s=1000) as mine,
        holdfast.open_store(store_url) as theirs,
    ):

        async def durable() -> int:
            return (await theirs.load("a")).version

        async with mine.session("a", cadence=holdfast.Every(steps=3)) as session:
            for expected in (0, 0, 3, 3, 3, 6):
                await session.add("x")
                await session.checkpoint()
                assert await durable() == expected
            async with session.run() as run, run.request() as request:
                await request.reply("y")
                assert [m.text for m in (await theirs.load("a")).transcript][-1] == "y"
        async with mine.session("a") as session:
            await session.add("x")
            assert await session.checkpoint() == await durable()


async def test_a_cancelled_caller_loses_nothing(store_url: Url) -> None:
    """The lines are committed all the same, and the session goes on."""
    async with holdfast.open_store(store_url) as store, store.session("a") as session:
        await session.add("one")
        with anyio.CancelScope() as scope:
            scope.cancel()
            await session.checkpoint()
        await session.add("two")
        await session.checkpoint()
        assert [m.text for m in (await store.load("a")).transcript] == ["one", "two"]


async def test_an_overview_is_quick_and_complete(store_url: Url) -> None:
    """The last twenty messages, the counters, the summary and the configuration."""
    call = holdfast.Message(role="assistant", blocks=(holdfast.ToolCall(id="c", name="look"),))
    result = holdfast.Message(role="tool", blocks=(holdfast.ToolResult(call_id="c", content="seen"),))
    async with holdfast.open_store(store_url) as store:
        async with store.session("a") as session, session.run(config={"model": "m"}):
            for number in range(30):
                await session.add(f"m{number}")
            await session.checkpoint()
            await session.add(call)
            await session.add(result)
            await session.set_summary("long story")
        overview = await store.overview("a")
        assert [m.text for m in overview.history[:2]] == ["m12", "m13"]
        assert len(overview.history) == 20
        assert overview.tool_calls.per_tool == {"look": 1}
        assert (overview.iteration, overview.summary, overview.config) == (1, "long story", {"model": "m"})
        assert overview.stop is True


async def test_cleaning_erases_what_was_said_and_keeps_what_was_done(store_url: Url) -> None:
    """Digests stay, the chain holds, money and counters stay; state is not touched; versions still load."""
    reply = holdfast.Message(
        role="assistant", blocks=(holdfast.Text("my secret"), holdfast.ToolCall(id="c", name="look"))
    )
    async with holdfast.open_store(store_url) as store:
        async with store.session("a") as session, session.run() as run:
            await session.add("your secret")
            async with run.request() as request:
                await request.reply(reply, cost_usd=2)
            await session.set("k", 1)
            await session.checkpoint()
        assert await store.clean("a", checkpoints=False) == "cleaned"
        async with store.session("a") as session:
            assert [m.text for m in session.transcript] == ["[erased]", "[erased]"]
            assert [m.role for m in session.transcript] == ["user", "assistant"]
            assert session.budget.usd == 2
            assert session.get("k") == 1
            assert (await store.overview("a")).tool_calls.per_tool == {"look": 1}
            assert session.state.facts.head.title == ""
        assert (await store.load("a", 1)).version == 1
        entries = [entry async for entry in store.tail("a", follow=False)]
        assert [entry.kind for entry in entries if entry.erased] == ["message.added", "model.replied"]


async def test_cleaning_checkpoints_drops_all_versions(store_url: Url) -> None:
    """The transcript stays."""
    async with holdfast.open_store(store_url) as store:
        async with store.session("a") as session:
            await session.add("x")
            await session.checkpoint()
        assert await store.clean("a", transcript=False) == "cleaned"
        assert [one async for one in store.checkpoints("a")] == []
        assert len((await store.load("a")).transcript) == 1


async def test_cleaning_spares_what_a_fork_refers_to(store_url: Url) -> None:
    """The fork reads on as before; what came after its point is erased in the origin."""
    async with holdfast.open_store(store_url) as store:
        async with store.session("a") as session:
            await session.add("shared")
            await session.checkpoint()
            await session.add("private")
            await session.checkpoint()
        await store.fork("a", version=1, into="b")
        await store.clean("a", checkpoints=False)
        assert [m.text for m in (await store.load("b")).transcript] == ["shared"]
        assert [m.text for m in (await store.load("a")).transcript] == ["shared", "[erased]"]


async def test_keyframes_change_nothing_but_time(store_url: Url, monkeypatch: pytest.MonkeyPatch) -> None:
    """A long session with rewinds opens to the same state with and without its keyframe."""
    from holdfast.session import session as module

    monkeypatch.setattr(module, "KEYFRAME_LINES_MIN", 5)
    async with holdfast.open_store(store_url) as store:
        async with store.session("a") as session:
            for number in range(30):
                await session.add(f"m{number}")
                await session.set("n", number)
                await session.checkpoint()
                if number % 7 == 6:
                    await session.rewind(steps=2)
            expected = texts(session), session.get("n"), session.version
        async with store.session("a") as session:
            assert session.state.keyframe_seq > 0
            assert (texts(session), session.get("n"), session.version) == expected
            await session.rewind(version=7)
            assert session.get("n") == 6
