"""Erasing what was said, dropping versions, deleting all."""

import msgspec
import pytest

from holdfast import Agent, Budget, LeaseHeld, NotDone, Store, open_store, tool
from holdfast.agents import ScriptedModel
from holdfast.core.entries import (
    CallRef,
    ResultContent,
    SessionErased,
    ToolAnnotated,
    ToolCompleted,
    ToolIssued,
)
from holdfast.engine.journal import Journal
from holdfast.errors import NotFound
from holdfast.ids import SessionId
from holdfast.messages import Message, Text, ToolCall
from holdfast.records import Plan, Usage
from tests.internals import writer_of
from tests.session.example_sessions import StoreUrl, collect, driver_of, entries, own_bytes, step, texts

SECRETS = (
    b"user secret",
    b"model secret",
    b"tool secret",
    b"inbox secret",
    b"argument secret",
    b"note secret",
    b"plan secret",
    b"summary secret",
    b"output secret",
    b"error secret",
    b"reason secret",
)


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
                    args={"cents": 5, "to": "an argument secret"},
                    fingerprint="f",
                    operation="op",
                    scope="session",
                    side_effects=("mutate",),
                    key="the-key",
                )
            )
            issued = session.state.seq
            writer_of(session).record(ToolAnnotated(issued=issued, notes={"vendor": "a note secret"}))
            writer_of(session).record(
                ToolCompleted(call=call, issued=issued),
                content=msgspec.json.encode(ResultContent(text="the tool secret")),
            )
            await session.set("k", "a value")
            await session.set_plan(Plan(goal="a plan secret"))
            await session.set_summary("a summary secret")
            await session.checkpoint()
            run.complete("an output secret")
        with pytest.raises(ValueError, match="error secret"):
            async with session.run(run_id="q"):
                raise ValueError("an error secret")
        await step(session, "another user secret")
        await session.close("cancelled", reason="a reason secret")


def check_chain(url: StoreUrl, session: str) -> None:
    """Read all of it and doubt every line."""
    with driver_of(url) as driver:
        Journal(driver, SessionId(session)).fold()


async def test_cleaning_the_transcript_erases_what_was_said(store_url: StoreUrl) -> None:
    """Messages and results, from the store itself; digests stay in their place and the chain holds."""
    async with open_store(store_url) as store:
        await make_session(store)
        before = own_bytes(store_url, "s")
        assert all(secret in before for secret in SECRETS)
        assert await store.clean("s", checkpoints=False) == "cleaned"
        after = own_bytes(store_url, "s")
        assert not any(secret in after for secret in SECRETS)
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
    """Ledger, spending, counters, runs, versions and state; the session lives on."""
    async with open_store(store_url) as store:
        await make_session(store)
        before = await store.load("s")
        await store.clean("s", checkpoints=False)
        after = await store.load("s")
        (row,) = before.facts.effects.rows.values()
        assert list(after.facts.effects.rows.values()) == [msgspec.structs.replace(row, notes={})]
        assert [row.key for row in after.facts.effects.rows.values()] == ["the-key"]
        assert after.facts.counters == before.facts.counters
        assert (after.facts.runs, after.budget.usd, after.budget.tokens) == (before.facts.runs, 0.5, 3)
        assert (after.facts.values, after.get("k")) == (before.facts.values, "a value")
        assert (after.plan, after.summary, after.facts.head.reason) == (None, "", "")
        assert [one.version for one in after.checkpoints] == [1, 2, 3]
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
        assert b"new words" not in own_bytes(store_url, "s")


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
            assert await step(session, "x") == 4


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
        assert own_bytes(store_url, "s") == b""
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
    monkeypatch.setattr("holdfast.session.writer.KEYFRAME_ENTRIES_MIN", 1)
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


async def test_an_approved_call_is_made_after_what_was_said_was_erased(store_url: StoreUrl) -> None:
    """The reply that holds the call stays until the call has a result."""
    made: list[int] = []

    @tool(side_effects={"mutate"}, needs_approval=True)
    def pay(cents: int) -> str:
        """Pay."""
        made.append(cents)
        return "paid"

    call = ToolCall(id="c", name="pay", args={"cents": 7})
    agent = Agent(ScriptedModel([call, "all done"]), name="clerk", tools=[pay])
    async with open_store(store_url) as store:
        outcome = await agent.run("pay, please", session="s", store=store)
        assert outcome.status == "waiting"
        await store.clean("s", checkpoints=False)
        assert texts((await store.load("s")).transcript)[0] == "[erased]"
        await store.approve("s", "c", by="ann")
        outcome = await agent.resume("s", store=store)
        assert (outcome.status, outcome.output, made) == ("completed", "all done", [7])
        await store.clean("s", checkpoints=False)
        assert texts((await store.load("s")).transcript)[1] == "[erased]"


async def test_the_answer_to_an_approval_is_erased_once_its_call_has_ended(store_url: StoreUrl) -> None:
    """Also if the call has failed: it is not made again."""

    @tool(side_effects={"mutate"}, needs_approval=True)
    def pay(to: str) -> str:
        """Pay."""
        raise NotDone("the bank is closed")

    agent = Agent(
        ScriptedModel([ToolCall(id="c", name="pay", args={"to": "x"}), "sorry"]), name="clerk", tools=[pay]
    )
    async with open_store(store_url) as store:
        await agent.run("pay, please", session="s", store=store)
        await store.approve("s", "c", by="ann", args={"to": "a corrected secret"})
        await store.clean("s", checkpoints=False)
        assert b"a corrected secret" in own_bytes(store_url, "s")
        outcome = await agent.resume("s", store=store)
        assert outcome.output == "sorry"
        await store.clean("s", checkpoints=False)
        assert b"a corrected secret" not in own_bytes(store_url, "s")
