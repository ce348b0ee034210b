"""Making a session, opening it again, and who may have it."""

import os

import anyio
import pytest

from holdfast import LeaseHeld, Session, Store, open_store
from holdfast.errors import BadId, BadInput, Closed, NotFound
from holdfast.records import Head, Parent
from tests.session.example_sessions import StoreUrl, abandon, collect, kinds, status_of, step, texts


async def head_of(store: Store, session: str) -> Head:
    return next(head for head in await collect(store.sessions()) if head.session == session)


async def test_a_new_session_is_active_and_empty(store_url: StoreUrl) -> None:
    """It holds nothing, and is listed as soon as it is open."""
    async with open_store(store_url) as store, store.session("s") as session:
        assert (session.status, len(session.transcript), session.version) == ("active", 0, 0)
        assert (session.plan, session.summary, list(session.keys), session.labels) == (None, "", [], {})
        assert session.continuable
        assert (await head_of(store, "s")).status == "active"


async def test_opening_again_overwrites_neither_creation_time_nor_title(store_url: StoreUrl) -> None:
    """Identity is set once, whoever opens the session later and whatever is said then."""
    async with open_store(store_url) as store:
        async with store.session("s", labels={"tenant": "a"}, parent=Parent(session="root")) as session:
            await session.add("The  first\nwords")
        first = await head_of(store, "s")
    async with open_store(store_url) as store:
        async with store.session("s", labels={"tenant": "b"}, parent=Parent(session="other")) as session:
            await session.add("Other words")
            assert texts(session.transcript) == ["The  first\nwords", "Other words"]
        again = await head_of(store, "s")
    assert (again.created_at, again.title, again.uid) == (first.created_at, "The first words", first.uid)
    assert (again.labels, again.parent) == ({"tenant": "a"}, "root")
    assert again.updated_at > first.updated_at


async def test_the_title_is_the_first_user_message_in_one_line(store_url: StoreUrl) -> None:
    """Nobody else's, cut to what a listing can show."""
    async with open_store(store_url) as store:
        async with store.session("s") as session:
            await session.add({"role": "developer", "content": "Be brief."}, format="openai")
            await session.add({"role": "user", "content": "word " * 100}, format="openai")
        title = (await head_of(store, "s")).title
    assert title.startswith("word word")
    assert len(title) <= 80


async def test_a_session_that_another_holds_is_refused_with_who_and_until_when(store_url: StoreUrl) -> None:
    """The error is for a person who wants to know whom to ask and how long to wait."""
    async with (
        open_store(store_url, lease_s=25) as one,
        open_store(store_url) as two,
        one.session("s") as session,
    ):
        await session.add("mine")
        with pytest.raises(LeaseHeld) as caught:
            async with two.session("s"):
                pytest.fail("two holders")
        assert caught.value.name == "s"
        assert caught.value.holder.endswith(f":{os.getpid()}")
        assert caught.value.left_s is not None
        assert 0 < caught.value.left_s <= 25
        said = str(caught.value)
        assert f":{os.getpid()}" in said
        assert f"its lease runs out in {caught.value.left_s:.1f} s" in said
        assert "wait_s" in said
        await session.add("still mine")
        await session.flush()


async def test_a_session_that_is_open_here_is_not_opened_twice(store_url: StoreUrl) -> None:
    """The first one stays whole, and the error says where to look."""
    async with open_store(store_url) as store, store.session("s") as session:
        with pytest.raises(LeaseHeld, match="open in this process already; close it first"):
            async with store.session("s"):
                pytest.fail("opened twice")
        assert await step(session, "goes on") == 1


async def test_a_closed_session_is_free_at_once(store_url: StoreUrl) -> None:
    """Nobody waits for a lease that was given back."""
    async with open_store(store_url) as one, open_store(store_url) as two:
        async with one.session("s") as first:
            fence = first.fence
        async with two.session("s") as second:
            assert second.fence > fence
        assert (await kinds(one, "s")).count("lease.taken") == 2


async def test_a_session_whose_process_is_gone_is_free_at_once(store_url: StoreUrl) -> None:
    """A program that ended without a word can be started again without waiting for the term."""

    async def work(store: Store) -> None:
        session = await store.session("s").__aenter__()
        await session.add("half a th")

    await abandon(store_url, work)
    async with open_store(store_url) as store, store.session("s") as session:
        assert texts(session.transcript) == ["half a th"]


async def test_who_waits_gets_the_session_when_it_is_free(store_url: StoreUrl) -> None:
    """`wait_s` is for schedulers that start the next before the last has ended."""
    async with open_store(store_url) as one, open_store(store_url) as two, anyio.create_task_group() as tasks:
        first = await one.session("s").__aenter__()
        second = two.session("s", wait_s=60)
        opened = anyio.Event()

        async def wait() -> None:
            async with second:
                opened.set()

        tasks.start_soon(wait)
        await anyio.wait_all_tasks_blocked()
        assert not opened.is_set()
        await first.__aexit__(None, None, None)
        with anyio.fail_after(60):
            await opened.wait()


async def test_waiting_ends(store_url: StoreUrl) -> None:
    """Then the error is the same as without."""
    async with open_store(store_url) as one, open_store(store_url) as two, one.session("s"):
        with pytest.raises(LeaseHeld):
            async with two.session("s", wait_s=0.01):
                pytest.fail("two holders")


async def test_a_session_is_not_made_by_who_only_wants_to_find_it(store_url: StoreUrl) -> None:
    """`create=False`, loading, tailing, submitting: all of them find nothing and leave nothing."""
    async with open_store(store_url) as store:
        with pytest.raises(NotFound, match="'s'"):
            async with store.session("s", create=False):
                pytest.fail("found")
        for look in (store.load("s"), store.overview("s"), store.submit("s", "hi"), store.fork("s")):
            with pytest.raises(NotFound, match="'s'"):
                await look
        with pytest.raises(NotFound, match="'s'"):
            await collect(store.tail("s", follow=False))
        with pytest.raises(NotFound, match="'s'"):
            await store.delete("s")
        assert await collect(store.sessions()) == []


async def test_a_bad_id_is_refused_everywhere(store_url: StoreUrl) -> None:
    """Before it gets near a file name, and whatever is asked for under it."""
    async with open_store(store_url) as store:
        async with store.session("s") as session:
            await step(session, "x")
            for id in BAD_IDS:
                with pytest.raises(BadId):
                    async with session.run(run_id=id):
                        pytest.fail("accepted")
        for id in BAD_IDS:
            with pytest.raises(BadId):
                store.session(id)
            for call in (
                store.load(id),
                store.overview(id),
                store.submit(id, "x"),
                store.cancel(id),
                store.diff(id, 1, 1),
                store.clean(id),
                store.fork(id),
                store.fork("s", into=id),
            ):
                with pytest.raises(BadId):
                    await call
            with pytest.raises(BadId):
                await collect(store.tail(id))
        assert [head.session for head in await collect(store.sessions())] == ["s"]


BAD_IDS = ["", ".", "..", "a/b", "../s", "x" * 201, "\u0430", "a\0"]


async def test_what_was_closed_writes_nothing_more(store_url: StoreUrl) -> None:
    """An object that outlived its block says so, and its journal stays as it is."""
    async with open_store(store_url) as store:
        async with store.session("s") as session:
            await session.add("in time")
        before = await kinds(store, "s")
        with pytest.raises(Closed, match="'s' was closed"):
            await session.add("too late")
        with pytest.raises(Closed):
            await session.flush()
        assert session.is_lost
        assert texts(session.transcript) == ["in time"]
        assert await kinds(store, "s") == before


async def test_a_store_that_is_closed_first_keeps_what_was_recorded(store_url: StoreUrl) -> None:
    """Lines that nobody waited for are written when the store closes."""

    async def work(store: Store) -> Session:
        session = await store.session("s").__aenter__()
        await session.add("nobody waited")
        return session

    await abandon(store_url, work)
    async with open_store(store_url) as store:
        assert texts((await store.load("s")).transcript) == ["nobody waited"]


async def test_the_status_is_set_by_hand_and_a_new_message_makes_it_active(store_url: StoreUrl) -> None:
    """A conversation that was over goes on when its user speaks."""
    async with open_store(store_url) as store:
        async with store.session("s") as session:
            await session.close("failed", "gave up")
            assert status_of(session) == "failed"
            head = await head_of(store, "s")
            assert (head.status, head.reason) == ("failed", "gave up")
            await session.add("try again")
            assert status_of(session) == "active"
            with pytest.raises(BadInput, match="no such status"):
                await session.close("done")  # type: ignore[arg-type]
        assert (await head_of(store, "s")).status == "active"
        async with store.session("s") as session:
            await session.close()
        await store.submit("s", "one more thing")
        async with store.session("s") as session:
            assert status_of(session) == "active"
