"""Following a session live, from elsewhere."""

from contextlib import aclosing

import anyio
import pytest

from holdfast import Store, open_store
from holdfast.errors import NotFound
from holdfast.records import Entry
from tests.session.example_sessions import StoreUrl, abandon, collect, entries, step


async def test_a_follower_sees_entries_as_they_become_durable(store_url: StoreUrl) -> None:
    """From another store object, while the session is under way: each once, in order."""
    async with (
        open_store(store_url) as writer,
        open_store(store_url) as reader,
        writer.session("s") as session,
        aclosing(reader.tail("s")) as tail,
    ):
        seen: list[Entry] = []

        async def see(count: int) -> list[str]:
            with anyio.fail_after(60):
                while len(seen) < count:
                    seen.append(await anext(tail))
            return [entry.kind for entry in seen]

        assert await see(2) == ["session.opened", "lease.taken"]
        for number in range(3):
            await step(session, f"m{number}")
            assert (await see(4 + 2 * number))[-2:] == ["message.added", "checkpoint.taken"]
            assert seen[-2].content is not None
            assert f"m{number}".encode() in bytes(seen[-2].content)
        assert [entry.seq for entry in seen] == list(range(1, 9))


async def test_a_follower_waits_for_what_is_not_there_yet(store_url: StoreUrl) -> None:
    """It asks again by itself until somebody writes."""
    async with (
        open_store(store_url) as writer,
        open_store(store_url) as reader,
        writer.session("s") as session,
        anyio.create_task_group() as tasks,
    ):
        got = anyio.Event()

        async def follow() -> None:
            async with aclosing(reader.tail("s", after=session.state.seq)) as tail:
                entry = await anext(tail)
                assert entry.kind == "message.added"
                got.set()

        tasks.start_soon(follow)
        await anyio.wait_all_tasks_blocked()
        assert not got.is_set()
        await session.add("at last")
        with anyio.fail_after(60):
            await got.wait()


async def test_a_follower_can_begin_anywhere(store_url: StoreUrl) -> None:
    """After an entry it has seen before; without following, it ends with the last one."""
    async with open_store(store_url) as store:
        async with store.session("s") as session:
            for text in "abc":
                await step(session, text)
        journal = await entries(store, "s")
        for after in range(len(journal) + 1):
            assert await collect(store.tail("s", after=after, follow=False)) == journal[after:]


async def test_a_long_journal_comes_page_by_page(
    store_url: StoreUrl, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of it, across pages and reads."""
    monkeypatch.setattr("holdfast.store.store.PAGE_ROWS", 3)
    monkeypatch.setattr("holdfast.engine.journal.READ_CHUNKS", 2)
    async with open_store(store_url) as store:
        async with store.session("s") as session:
            for number in range(10):
                await session.add(f"m{number}")
        assert [entry.seq for entry in await entries(store, "s")] == list(range(1, 14))


async def test_a_run_that_was_killed_leaves_its_trail(store_url: StoreUrl) -> None:
    """What it had begun is visible, although nobody ended it."""

    async def work(store: Store) -> None:
        session = await store.session("s").__aenter__()
        run = await session.run(run_id="r").__aenter__()
        await run.request(model="m").__aenter__()

    await abandon(store_url, work)
    async with open_store(store_url) as store:
        found = [(entry.kind, entry.run) for entry in await entries(store, "s")]
    assert found[-2:] == [("run.started", "r"), ("model.requested", "r")]


async def test_a_session_that_is_not_there_cannot_be_followed(store_url: StoreUrl) -> None:
    """A typo does not wait for ever."""
    async with open_store(store_url) as store, aclosing(store.tail("nobody")) as tail:
        with pytest.raises(NotFound, match="nobody"):
            await anext(tail)


async def test_following_ends_with_the_session(store_url: StoreUrl) -> None:
    """Who follows a session that is deleted is not left waiting."""
    async with open_store(store_url) as store:
        async with store.session("s") as session:
            await session.add("short lived")
        entries = store.tail("s")
        async with aclosing(entries):
            assert (await anext(entries)).kind == "session.opened"
            await store.delete("s")
            with anyio.fail_after(60):
                async for _ in entries:
                    pass


@pytest.mark.parametrize("longer", [False, True])
async def test_a_new_session_of_the_same_id_is_not_followed(store_url: StoreUrl, longer: bool) -> None:
    """The old one was deleted: that is the end, whether the new one has fewer entries or more."""
    async with open_store(store_url) as writer, open_store(store_url) as reader:
        async with writer.session("s") as session:
            await step(session, "old")
        async with aclosing(reader.tail("s")) as tail:
            seen = [await anext(tail) for _ in range(5)]
            assert seen[-1].kind == "lease.released"
            await writer.delete("s")
            async with writer.session("s") as session:
                for number in range(9 if longer else 0):
                    await step(session, f"new {number}")
                with anyio.fail_after(60):
                    assert await collect(tail) == []


async def test_a_fork_is_followed_on_when_its_origin_is_deleted_and_made_anew(store_url: StoreUrl) -> None:
    """What it shares is found where it is kept, and never in the session that has the origin's id now."""
    async with open_store(store_url) as writer, open_store(store_url) as reader:
        async with writer.session("s") as session:
            await step(session, "old")
        await writer.fork("s", into="f")
        whole = await entries(writer, "f")
        async with aclosing(reader.tail("f")) as tail:
            seen = [await anext(tail)]
            await writer.delete("s")
            async with writer.session("s") as session:
                await step(session, "new")
            with anyio.fail_after(60):
                seen += [await anext(tail) for _ in range(len(whole) - 1)]
        assert [entry.content for entry in seen] == [entry.content for entry in whole]
        async with aclosing(reader.tail("f", after=2, follow=False)) as tail:
            assert [entry.seq for entry in await collect(tail)] == [entry.seq for entry in whole[2:]]
