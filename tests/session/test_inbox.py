"""Others than the holder: what they send, and when it arrives."""

import pytest

from holdfast import Session, Store, open_store
from holdfast.errors import BadInput, BadMessage, NotFound
from holdfast.messages import ForeignMessage, Message, Text
from tests.session.example_sessions import (
    StoreUrl,
    abandon,
    calling,
    entries,
    eventually,
    kinds,
    results,
    status_of,
    step,
    texts,
)


async def test_a_message_is_submitted_to_a_session_that_another_holds(store_url: StoreUrl) -> None:
    """Durable at once, numbered, and taken in at the holder's next barrier."""
    async with (
        open_store(store_url) as holder,
        open_store(store_url) as sender,
        holder.session("s") as session,
    ):
        assert [await sender.submit("s", text) for text in ("one", "two")] == [1, 2]
        await session.add("mine")
        await session.flush()
        assert texts(session.transcript) == ["mine", "one", "two"]
        assert texts((await sender.load("s")).transcript) == ["mine", "one", "two"]
        assert await session.take_in() == 0


async def test_a_message_waits_for_who_opens_the_session_next(store_url: StoreUrl) -> None:
    """Nobody needs to hold it; the sender's process may be gone by then."""
    async with open_store(store_url) as store:
        async with store.session("s") as session:
            await session.add("before")
        await store.submit("s", "while nobody was there")
    async with open_store(store_url) as store:
        async with store.session("s") as session:
            assert texts(session.transcript) == ["before", "while nobody was there"]
        async with store.session("s") as session:
            assert texts(session.transcript) == ["before", "while nobody was there"]


async def test_a_message_in_the_middle_of_a_step_enters_at_its_end(store_url: StoreUrl) -> None:
    """It never comes between a call and its result, which no provider would accept."""
    async with (
        open_store(store_url) as holder,
        open_store(store_url) as sender,
        holder.session("s") as session,
        session.run() as run,
    ):
        async with run.request() as request:
            await sender.submit("s", "by the way")
            await request.reply(calling("x"))
        assert await session.take_in() == 0
        assert (await kinds(sender, "s"))[-2:] == ["inbox.taken", "message.added"]
        assert texts(session.transcript) == ["let me see"]
        await session.add(results("x"))
        assert texts(session.transcript) == ["let me see", ""]
        version = await session.checkpoint()
        assert texts(session.transcript) == ["let me see", "", "by the way"]
        assert session.continuable
        assert texts((await sender.load("s", version)).transcript) == ["let me see", "", "by the way"]


async def test_a_message_that_waits_for_the_end_of_a_step_survives_a_crash(store_url: StoreUrl) -> None:
    """It was taken in, but nobody has seen it yet: the next process ends the step, and there it is."""

    async def work(store: Store) -> None:
        session = await store.session("s").__aenter__()
        run = await session.run().__aenter__()
        request = await run.request().__aenter__()
        await store.submit("s", "by the way")
        await request.reply(calling("x"))

    await abandon(store_url, work)
    async with open_store(store_url) as store, store.session("s") as session:
        assert texts(session.transcript) == ["let me see"]
        await session.add(results("x"))
        await session.checkpoint()
        assert texts(session.transcript) == ["let me see", "", "by the way"]


async def test_equal_keys_are_one_submission(store_url: StoreUrl) -> None:
    """A sender that does not know whether it got through may send again, also after a crash or days later."""
    async with open_store(store_url) as store:
        async with store.session("s") as session:
            for text in ("first", "again"):
                await store.submit("s", text, key="k1")
            await store.submit("s", "another", key="k2")
            await store.submit("s", "without a key")
            await store.submit("s", "without a key")
            await step(session, "mine")
            expected = ["mine", "first", "another", "without a key", "without a key"]
            assert texts(session.transcript) == expected
    async with open_store(store_url) as store:
        await store.submit("s", "once more", key="k1")
        async with store.session("s") as session:
            assert texts(session.transcript) == expected
            assert (await kinds(store, "s"))[-1] == "inbox.taken"


async def test_any_message_can_be_submitted(store_url: StoreUrl) -> None:
    """Our own with its blocks, a foreign one verbatim."""
    own = Message(role="user", blocks=(Text("own"),), id="m-1", metadata={"x": 1})
    data = {"role": "user", "content": "foreign", "name": "Zoë"}
    async with open_store(store_url) as store:
        async with store.session("s"):
            await store.submit("s", own)
            await store.submit("s", data, format="openai")
        async with store.session("s") as session:
            first, second = session.transcript
    assert isinstance(first, Message)
    assert (first.id, first.metadata, first.text) == ("m-1", {"x": 1}, "own")
    assert isinstance(second, ForeignMessage)
    assert second.data == data


async def test_what_no_holder_could_take_in_is_not_sent(
    store_url: StoreUrl, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One bad item would keep everybody from opening the session; so the sender is told."""
    async with open_store(store_url) as store:
        async with store.session("s"):
            pass
        with pytest.raises(BadMessage):
            await store.submit("s", Message(role="moderator", blocks=()))  # type: ignore[arg-type]
        with pytest.raises(BadMessage):
            await store.submit("s", "\ud800")
        with pytest.raises(BadInput):
            await store.submit("s", "x", key=3)  # type: ignore[arg-type]
        with pytest.raises(BadInput):
            await store.submit("s", {"role": "user"})
        with pytest.raises(BadInput):
            await store.cancel("s", by=3)  # type: ignore[arg-type]
        monkeypatch.setattr("holdfast.session.inbox.LINE_BYTES_MAX", 1000)
        with pytest.raises(BadInput, match="over the limit"):
            await store.submit("s", "x" * 1000)
        async with store.session("s") as session:
            assert session.state.facts.head.taken == 0
            assert len(session.transcript) == 0


async def test_a_session_is_asked_to_stop_from_elsewhere(store_url: StoreUrl) -> None:
    """The holder learns who wants it and why; the end of the run answers the request."""
    async with (
        open_store(store_url) as holder,
        open_store(store_url) as other,
        holder.session("s") as session,
    ):
        async with session.run() as run:
            await other.cancel("s", by="ann", reason="enough")
            await session.add("x")
            await session.flush()
            assert wish(session) == "enough"
            assert (await other.overview("s")).stop
            run.cancel("enough")
        assert status_of(session) == "cancelled"
        assert wish(session) is None
        await other.cancel("s")
        await session.add("y")
        await session.flush()
        assert wish(session) == "cancelled"
        await session.close("active")
        assert wish(session) is None


def wish(session: Session) -> str | None:
    return session.cancel_requested


async def test_a_request_to_stop_is_there_for_the_next_process(store_url: StoreUrl) -> None:
    """Also if nobody was there when it came."""
    async with open_store(store_url) as store:
        async with store.session("s"):
            pass
        await store.cancel("s", reason="stop it")
    async with open_store(store_url) as store, store.session("s") as session:
        assert session.cancel_requested == "stop it"


async def test_the_heartbeat_brings_word_of_the_inbox(store_url: StoreUrl) -> None:
    """A holder that writes nothing for a while still learns of a message."""
    async with (
        open_store(store_url, lease_s=0.15) as holder,
        open_store(store_url) as sender,
        holder.session("s") as session,
    ):
        await sender.submit("s", "hello?")

        async def flushed() -> list[str]:
            await session.flush()  # There is nothing to write, so no commit tells.
            return texts(session.transcript)

        assert await eventually(flushed) == ["hello?"]


async def test_many_items_are_taken_in_page_by_page(
    store_url: StoreUrl, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of them, in order, each once."""
    monkeypatch.setattr("holdfast.session.writer.PAGE_ROWS", 3)
    async with open_store(store_url) as store:
        async with store.session("s"):
            pass
        for number in range(8):
            assert await store.submit("s", f"m{number}") == number + 1
        async with store.session("s") as session:
            assert texts(session.transcript) == [f"m{number}" for number in range(8)]
        found = [entry.kind for entry in await entries(store, "s") if entry.kind == "inbox.taken"]
        assert len(found) == 8


async def test_numbers_go_on_after_items_were_taken_in(store_url: StoreUrl) -> None:
    """They are never used again, so a line that takes one in can be told from a repeat."""
    async with open_store(store_url) as store:
        async with store.session("s"):
            assert await store.submit("s", "a") == 1
        async with store.session("s") as session:
            assert session.state.facts.head.taken == 1
        assert await store.submit("s", "b") == 2
        async with store.session("s") as session:
            assert texts(session.transcript) == ["a", "b"]


async def test_a_deleted_session_takes_nothing_more(store_url: StoreUrl) -> None:
    """And one that is made anew under its id starts with an empty inbox."""
    async with open_store(store_url) as store:
        async with store.session("s"):
            pass
        await store.submit("s", "for the old one")
        await store.delete("s")
        with pytest.raises(NotFound):
            await store.submit("s", "too late")
        async with store.session("s") as session:
            assert len(session.transcript) == 0


async def test_going_back_does_not_lose_a_message_that_nobody_has_seen(store_url: StoreUrl) -> None:
    """It waited for the end of a step that is left behind; it was sent to the session, not to the step."""
    async with open_store(store_url) as store:
        async with store.session("s") as session, session.run() as run:
            await step(session, "a")
            async with run.request() as request:
                await store.submit("s", "by the way", key="k")
                await request.reply(calling("x"))
            assert texts(session.transcript) == ["a", "let me see"]
            assert await session.continue_() == 1
            assert texts(session.transcript) == ["a", "by the way"]
        async with store.session("s") as session:
            assert texts(session.transcript) == ["a", "by the way"]
        await store.submit("s", "by the way", key="k")
        async with store.session("s") as session:
            assert texts(session.transcript) == ["a", "by the way"]
