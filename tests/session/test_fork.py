"""Forks: a new session that starts where another was, sharing its history."""

import re

import pytest

from holdfast import Budget, Store, open_store
from holdfast.drivers.contract import hidden_name
from holdfast.errors import BadInput, NotFound
from holdfast.ids import SessionId
from holdfast.records import Plan, Usage
from tests.session.example_sessions import StoreUrl, collect, driver_of, entries, own_page, step, texts


async def make_origin(store: Store, *words: str) -> None:
    """A session with a version after every word."""
    async with store.session("origin") as session:
        for word in words:
            await step(session, word)


async def said_in(store: Store, session: str) -> list[str]:
    return texts((await store.load(session)).transcript)


async def test_a_fork_starts_from_any_version(store_url: StoreUrl) -> None:
    """From the latest unless one is named; under an id of its own unless one is given."""
    async with open_store(store_url) as store:
        await make_origin(store, "a", "b", "c")
        latest = await store.fork("origin")
        assert re.fullmatch(r"origin-fork-[0-9a-f]{8}", latest)
        assert await said_in(store, latest) == ["a", "b", "c"]
        for version, words in ((1, ["a"]), (2, ["a", "b"]), (3, ["a", "b", "c"])):
            assert await store.fork("origin", version=version, into=f"f{version}") == f"f{version}"
            assert await said_in(store, f"f{version}") == words
        assert len({await store.fork("origin"), await store.fork("origin"), latest}) == 3


async def test_history_is_shared_and_not_copied(store_url: StoreUrl) -> None:
    """A fork of any length costs one line; it reads the rest where it is."""
    async with open_store(store_url) as store:
        await make_origin(store, *"abcdefgh")
        before = own_page(store_url, "origin")
        await store.fork("origin", version=6, into="fork")
        only = own_page(store_url, "fork")
        assert (only.count, only.facts.count(b'"kind"')) == (1, 1)
        assert b'"kind":"session.forked"' in only.facts
        assert own_page(store_url, "origin") == before
        async with store.session("fork") as session:
            await step(session, "own")
            assert texts(session.transcript) == [*"abcdef", "own"]
        own = own_page(store_url, "fork")
        assert b'"a"' not in (own.said or b"")
        assert own.facts.count(b'"kind"') == 5


async def test_origin_and_fork_never_see_what_the_other_does_later(store_url: StoreUrl) -> None:
    """They part at the version, and each goes its way, also in its lines."""
    async with open_store(store_url) as store:
        await make_origin(store, "a", "b")
        await store.fork("origin", version=1, into="fork")
        async with store.session("origin") as session:
            await session.set("k", "origin")
            await step(session, "c")
        async with store.session("fork") as session:
            assert (texts(session.transcript), list(session.keys)) == (["a"], [])
            await session.set("k", "fork")
            assert await step(session, "d") == 2
        assert await said_in(store, "origin") == ["a", "b", "c"]
        assert await said_in(store, "fork") == ["a", "d"]
        assert texts((await store.load("fork", 2)).transcript) == ["a", "d"]
        assert texts((await store.load("origin", 2)).transcript) == ["a", "b"]
        journal = await entries(store, "fork")
        assert [entry.seq for entry in journal] == list(range(1, len(journal) + 1))
        assert not any(entry.content and b'"c"' in bytes(entry.content) for entry in journal)


async def test_a_fork_inherits_content_and_not_identity(store_url: StoreUrl) -> None:
    """Values, plan, summary, caps, labels and versions are there; spending, runs and times are its own."""
    async with open_store(store_url) as store:
        async with store.session("origin", labels={"tenant": "a", "kind": "x"}) as session:
            await session.set("k", [1])
            await session.set_plan(Plan(goal="g"))
            await session.set_summary("s")
            await session.set_budget(Budget(usd=1))
            async with session.run(agent="old") as run, run.request(reserve_usd=0.5) as request:
                await session.add("Hello there")
                await request.reply("hi", usage=Usage(input_tokens=5), cost_usd=0.5)
            uid = session.state.facts.head.uid
        await store.fork("origin", into="fork", labels={"kind": "y"})
        async with store.session("fork") as session:
            head = session.state.facts.head
            assert (session.get("k"), session.plan, session.summary) == ([1], Plan(goal="g"), "s")
            assert (head.title, head.labels) == ("Hello there", {"tenant": "a", "kind": "y"})
            assert session.budget.caps == Budget(usd=1)
            assert (session.budget.usd, session.budget.tokens, session.budget.reserved.usd) == (0, 0, 0)
            assert (head.origin, head.runs, head.agent, head.open_run) == ("origin", 0, None, None)
            assert head.uid != uid
            assert [one.version for one in session.checkpoints] == [1]
            assert head.created_at > session.state.get_checkpoint(1).at
        assert await collect(store.runs(session="fork")) == []
        origins = {str(head.session): head.origin async for head in store.sessions()}
        assert origins == {"fork": "origin", "origin": None}


async def test_a_fork_can_go_back_into_what_it_shares(store_url: StoreUrl) -> None:
    """Rewind, load and diff know the versions of the origin up to the point."""
    async with open_store(store_url) as store:
        await make_origin(store, "a", "b", "c")
        await store.fork("origin", version=2, into="fork")
        async with store.session("fork") as session:
            await step(session, "d")
            assert (await session.rewind(version=1)).version == 1
            assert texts(session.transcript) == ["a"]
            assert await step(session, "e") == 4
            with pytest.raises(NotFound):
                await session.rewind(version=5)
        assert texts((await store.load("fork", 3)).transcript) == ["a", "b", "d"]
        assert texts((await store.diff("fork", 1, 3)).messages_added) == ["b", "d"]
        assert await said_in(store, "origin") == ["a", "b", "c"]


async def test_a_fork_can_be_forked(store_url: StoreUrl) -> None:
    """Each shares with the one before it, to any depth; also a version that the first had."""
    async with open_store(store_url) as store:
        await make_origin(store, "a", "b")
        name = "origin"
        for word in "cde":
            name = await store.fork(name, into=f"{name[:8]}-{word}")
            async with store.session(name) as session:
                await step(session, word)
        assert await said_in(store, name) == list("abcde")
        assert own_page(store_url, name).facts.count(b'"kind"') == 5
        early = await store.fork(name, version=1)
        assert await said_in(store, early) == ["a"]
        async with store.session(early) as session:
            await step(session, "z")
        assert await said_in(store, early) == ["a", "z"]


async def test_a_fork_outlives_its_origin(store_url: StoreUrl) -> None:
    """What it shares stays for it, hidden from all others; the origin's id is free for another session."""
    async with open_store(store_url) as store:
        await make_origin(store, "a", "b", "c")
        uid = (await store.load("origin")).facts.head.uid
        await store.fork("origin", version=2, into="fork")
        await store.delete("origin")
        with pytest.raises(NotFound):
            await store.load("origin")
        assert [head.session for head in await collect(store.sessions())] == ["fork"]
        await make_origin(store, "something else")
        assert await said_in(store, "fork") == ["a", "b"]
        async with store.session("fork") as session:
            await step(session, "d")
            await session.rewind(version=1)
            assert texts(session.transcript) == ["a"]
            await session.rewind(version=3)
        second = await store.fork("fork")
        assert await said_in(store, second) == ["a", "b", "d"]
        with driver_of(store_url) as driver:
            kept = driver.read(hidden_name(uid), 0, 1000, said=True)
        assert kept.count
        assert b'"c"' not in (kept.said or b"")
        await store.delete("fork")
        assert await said_in(store, second) == ["a", "b", "d"]
        await store.delete(second)
        with driver_of(store_url) as driver:
            assert driver.read(hidden_name(uid), 0, 1000, said=True).count == 0
        assert await said_in(store, "origin") == ["something else"]


async def test_a_fork_needs_no_lease_on_its_origin(store_url: StoreUrl) -> None:
    """Another process may fork what this one is driving."""
    async with (
        open_store(store_url) as one,
        open_store(store_url) as two,
        one.session("origin") as session,
    ):
        await step(session, "a")
        await two.fork("origin", into="fork")
        await step(session, "b")
        async with two.session("fork") as fork:
            await step(fork, "c")
        assert await said_in(one, "fork") == ["a", "c"]
        assert texts(session.transcript) == ["a", "b"]


async def test_a_fork_has_an_inbox_of_its_own(store_url: StoreUrl) -> None:
    """Numbers and keys begin anew: what was sent to the origin says nothing about it."""
    async with open_store(store_url) as store:
        await make_origin(store, "a")
        await store.submit("origin", "once", key="k")
        async with store.session("origin") as session:
            await session.checkpoint()
        await store.fork("origin", into="fork")
        assert await store.submit("fork", "once more", key="k") == 1
        async with store.session("fork") as session:
            assert texts(session.transcript) == ["a", "once", "once more"]
        assert await said_in(store, "origin") == ["a", "once"]


async def test_what_cannot_be_forked_is_said(store_url: StoreUrl) -> None:
    """No version yet, an id that is taken, its own id, a version that was dropped: nothing is made."""
    async with open_store(store_url) as store:
        async with store.session("empty") as session:
            await session.add("a")
        with pytest.raises(NotFound, match="take a checkpoint first"):
            await store.fork("empty")
        await make_origin(store, "a", "b")
        await store.drop("origin", 1)
        with pytest.raises(NotFound, match="version 1 was dropped"):
            await store.fork("origin", version=1)
        with pytest.raises(BadInput, match="'empty' exists already"):
            await store.fork("origin", into="empty")
        with pytest.raises(BadInput, match="an id of its own"):
            await store.fork("origin", into="origin")
        with pytest.raises(BadInput, match="label"):
            await store.fork("origin", labels={"x": ""})
        assert [head.session for head in await collect(store.sessions())] == ["empty", "origin"]
        assert await said_in(store, "empty") == ["a"]
        with driver_of(store_url) as driver:
            tip = driver.find_tip(SessionId("empty"))
        assert tip is not None
        assert tip.seq == (await store.load("empty")).seq
