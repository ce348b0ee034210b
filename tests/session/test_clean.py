"""Erasing what was said, dropping versions, deleting all."""

import msgspec
import pytest

from holdfast import Budget, LeaseHeld, Store, open_store
from holdfast.core.entries import CallRef, ResultContent, SessionErased, ToolCompleted, ToolIssued
from holdfast.engine.journal import Journal
from holdfast.errors import NotFound
from holdfast.ids import SessionId
from holdfast.messages import Message, Text, ToolCall
from holdfast.records import Plan, Usage
from tests.internals import writer_of
from tests.session.example_sessions import StoreUrl, collect, driver_of, entries, own_lines, step, texts

SECRETS = (b"user secret", b"model secret", b"tool secret", b"inbox secret")


async def make_session(store: Store) -> None:
    """One in which everybody said something, something was done, and money was spent."""
    async with store.session("s", labels={"tenant": "a"}) as session:
        await session.set_budget(Budget(usd=5))
        async with session.run(run_id="r") as run:
            await session.add("the user secret")
            async with run.request() as request:
                reply = Message(
                    role="assistant", blocks=(Text("a model secret"), ToolCall(id="c", name="pay"))
                )
                await request.reply(reply, usage=Usage(input_tokens=3), cost_usd=0.5)
            await store.submit("s", "an inbox secret")
            call = CallRef(id="c", reply=session.state.seq)
            writer_of(session).record(
                ToolIssued(
                    call=call,
                    tool="pay",
                    args={"cents": 5},
                    fingerprint="f",
                    operation="op",
                    scope="session",
                    side_effects=("mutate",),
                    key="the-key",
                )
            )
            issued = session.state.seq
            writer_of(session).record(
                ToolCompleted(call=call, issued=issued),
                content=msgspec.json.encode(ResultContent(text="the tool secret")),
            )
            await session.set("k", "a value")
            await session.set_plan(Plan(goal="g"))
            await session.checkpoint()
        await step(session, "another user secret")


def check_chain(url: StoreUrl, session: str) -> None:
    """Read all of it and doubt every line."""
    with driver_of(url) as driver:
        Journal(driver, SessionId(session)).fold()


async def test_cleaning_the_transcript_erases_what_was_said(store_url: StoreUrl) -> None:
    """Messages and results, from the store itself; digests stay in their place and the chain holds."""
    async with open_store(store_url) as store:
        await make_session(store)
        before = own_lines(store_url, "s")
        assert all(any(secret in line for line in before) for secret in SECRETS)
        assert await store.clean("s", checkpoints=False) == "cleaned"
        after = own_lines(store_url, "s")
        assert not any(secret in line for line in after for secret in SECRETS)
        check_chain(store_url, "s")
        journal = await entries(store, "s")
        erased = [entry.kind for entry in journal if entry.erased]
        assert sorted(erased) == [
            "message.added",
            "message.added",
            "message.added",
            "model.replied",
            "tool.completed",
        ]
        assert isinstance(journal[-2].body, SessionErased)
        (head,) = await collect(store.sessions())
        assert head.title == ""


async def test_what_was_done_stays_when_what_was_said_is_erased(store_url: StoreUrl) -> None:
    """Ledger, spending, counters, runs, versions, state and plan; the session lives on."""
    async with open_store(store_url) as store:
        await make_session(store)
        before = await store.load("s")
        await store.clean("s", checkpoints=False)
        after = await store.load("s")
        assert after.facts.effects.rows == before.facts.effects.rows
        assert [row.key for row in after.facts.effects.rows.values()] == ["the-key"]
        assert after.facts.counters == before.facts.counters
        assert (after.facts.runs, after.budget.usd, after.budget.tokens) == (before.facts.runs, 0.5, 3)
        assert (after.facts.values, after.facts.plan) == (before.facts.values, before.facts.plan)
        assert [one.version for one in after.checkpoints] == [1, 2]
        assert after.facts.head.created_at == before.facts.head.created_at
        assert texts(after.transcript) == ["[erased]", "[erased]", "", "[erased]", "[erased]"]
        assert [message.role for message in after.transcript] == [
            message.role for message in before.transcript
        ]
        assert after.continuable
        async with store.session("s") as session:
            await step(session, "new words")
            await session.rewind(version=1)
            assert len(session.transcript) == len((await store.load("s", 1)).transcript)
        (head,) = await collect(store.sessions())
        assert head.title == "new words"
        assert await store.clean("s", checkpoints=False) == "cleaned"
        assert not any(b"new words" in line for line in own_lines(store_url, "s"))


async def test_cleaning_checkpoints_drops_all_versions_and_nothing_else(store_url: StoreUrl) -> None:
    """What was said stays; new versions count on."""
    async with open_store(store_url) as store:
        await make_session(store)
        before = texts((await store.load("s")).transcript)
        assert await store.clean("s", transcript=False) == "cleaned"
        assert await collect(store.checkpoints("s")) == []
        assert texts((await store.load("s")).transcript) == before
        with pytest.raises(NotFound, match="there are none"):
            await store.load("s", 1)
        async with store.session("s") as session:
            assert await step(session, "x") == 3


async def test_cleaning_nothing_changes_nothing(store_url: StoreUrl) -> None:
    """Neither words nor versions."""
    async with open_store(store_url) as store:
        await make_session(store)
        before = await store.load("s")
        assert await store.clean("s", transcript=False, checkpoints=False) == "cleaned"
        after = await store.load("s")
        assert list(after.transcript) == list(before.transcript)
        assert after.checkpoints == before.checkpoints


async def test_cleaning_both_deletes_the_session(store_url: StoreUrl) -> None:
    """Everything of it, and nothing of any other."""
    async with open_store(store_url) as store:
        await make_session(store)
        async with store.session("other") as session:
            await step(session, "stays")
        await store.submit("s", "in the inbox")
        assert await store.clean("s") == "deleted"
        assert own_lines(store_url, "s") == []
        assert [head.session for head in await collect(store.sessions())] == ["other"]
        assert await collect(store.runs()) == []
        with pytest.raises(NotFound):
            await store.load("s")
        assert texts((await store.load("other")).transcript) == ["stays"]


async def test_a_session_made_anew_is_another_one(store_url: StoreUrl) -> None:
    """The same id, another uid; nothing is inherited."""
    async with open_store(store_url) as store:
        await make_session(store)
        old = await store.load("s")
        await store.delete("s")
        async with store.session("s") as session:
            head = session.state.facts.head
            assert head.uid != old.facts.head.uid
            assert (head.created_at > old.facts.head.created_at, head.labels, head.seq) == (True, {}, 2)
            assert (len(session.transcript), list(session.keys), session.version) == (0, [], 0)
            assert await step(session, "anew") == 1


async def test_what_a_fork_refers_to_stays(store_url: StoreUrl) -> None:
    """The shared part is spared; what came after it is erased; erasing the fork spares the origin."""
    async with open_store(store_url) as store:
        async with store.session("origin") as session:
            await step(session, "shared")
            await step(session, "private")
        await store.fork("origin", version=1, into="fork")
        async with store.session("fork") as session:
            await step(session, "forked")
        await store.clean("origin", checkpoints=False)
        assert texts((await store.load("fork")).transcript) == ["shared", "forked"]
        assert texts((await store.load("origin")).transcript) == ["shared", "[erased]"]
        await store.clean("fork", checkpoints=False)
        assert texts((await store.load("fork")).transcript) == ["shared", "[erased]"]
        assert texts((await store.load("origin")).transcript) == ["shared", "[erased]"]
        for name in ("origin", "fork"):
            check_chain(store_url, name)
        await store.delete("fork")
        await store.clean("origin", checkpoints=False)
        assert texts((await store.load("origin")).transcript) == ["[erased]", "[erased]"]


async def test_a_session_that_somebody_holds_is_not_cleaned(store_url: StoreUrl) -> None:
    """In this process or another: whoever drives it would be surprised."""
    async with open_store(store_url) as one, open_store(store_url) as two, one.session("s") as session:
        await step(session, "mine")
        for store in (one, two):
            for call in (store.clean("s"), store.clean("s", checkpoints=False), store.delete("s")):
                with pytest.raises(LeaseHeld):
                    await call
        assert await step(session, "still mine") == 2


async def test_cleaning_is_found_by_who_reads_without_a_keyframe_and_with_one(
    store_url: StoreUrl, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An old keyframe must not bring back what was erased."""
    monkeypatch.setattr("holdfast.session.writer.KEYFRAME_LINES_MIN", 1)
    monkeypatch.setattr("holdfast.session.writer.KEYFRAME_GROWTH", 0)
    async with open_store(store_url) as store:
        await make_session(store)
        await store.clean("s", checkpoints=False)
        assert not any("secret" in text for text in texts((await store.overview("s")).history))
        with driver_of(store_url) as driver:
            keyframe = driver.find_keyframe(SessionId("s"))
            assert keyframe is None or not any(secret in keyframe for secret in SECRETS)
        async with store.session("s") as session:
            assert "[erased]" in texts(session.transcript)
