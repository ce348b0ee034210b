"""Going back, and what stays."""

import pytest

from holdfast import Budget, Store, open_store
from holdfast.errors import BadInput, NotFound
from holdfast.records import Plan, Usage
from tests.session.example_sessions import StoreUrl, calling, collect, entries, kinds, step, texts


async def test_a_rewind_by_steps_leaves_the_last_steps_behind(store_url: StoreUrl) -> None:
    """`steps=1` the last one, `steps=0` only what came after it."""
    async with open_store(store_url) as store, store.session("s") as session:
        for text in "abc":
            await step(session, text)
        await session.add("not checkpointed")
        assert (await session.rewind(steps=0)).version == 3
        assert texts(session.transcript) == ["a", "b", "c"]
        assert (await session.rewind(steps=1)).version == 2
        assert texts(session.transcript) == ["a", "b"]
        assert (await session.rewind(steps=1)).version == 1
        assert texts(session.transcript) == ["a"]
        with pytest.raises(NotFound, match="cannot go back 1 steps: it has 1 version"):
            await session.rewind(steps=1)


async def test_a_rewind_restores_the_whole_state_of_its_version(store_url: StoreUrl) -> None:
    """Messages, values, plan and summary; found so by the next process."""
    async with open_store(store_url) as store, store.session("s") as session:
        await session.set("k", 1)
        await session.set_plan(Plan(goal="old"))
        await session.set_summary("old")
        await step(session, "a")
        await session.set("k", 2)
        await session.set("other", 3)
        await session.set_plan(Plan(goal="new"))
        await session.set_summary("new")
        await session.close("failed", "went wrong")
        await step(session, "b")
        await session.rewind(version=1)
        live = (texts(session.transcript), session.get("k"), session.keys, session.plan, session.summary)
        assert live == (["a"], 1, ("k",), Plan(goal="old"), "old")
        assert (session.version, session.status) == (1, "active")
    async with open_store(store_url) as store, store.session("s") as session:
        assert live == (
            texts(session.transcript),
            session.get("k"),
            session.keys,
            session.plan,
            session.summary,
        )


async def test_what_was_spent_and_done_is_never_rewound(store_url: StoreUrl) -> None:
    """Money, tokens, runs, counters and caps stay: they happened."""
    async with open_store(store_url) as store, store.session("s") as session:
        await step(session, "a")
        await session.set_budget(Budget(usd=5))
        async with session.run(run_id="r"), session.run() as run, run.request() as request:
            usage = Usage(input_tokens=1, output_tokens=2)
            await request.reply(calling("x", "y"), usage=usage, cost_usd=0.5)
        await session.rewind(version=1)
        assert (session.budget.usd, session.budget.tokens, session.budget.caps) == (0.5, 3, Budget(usd=5))
        assert len(session.state.facts.runs) == 2
        assert session.state.facts.counters.total == 2
        assert session.state.facts.counters.in_step == 0
        assert session.state.facts.head.tool_calls == 2


async def test_the_journal_keeps_what_was_undone(store_url: StoreUrl) -> None:
    """Nothing is removed by going back."""
    async with open_store(store_url) as store, store.session("s") as session:
        await step(session, "a")
        await step(session, "b")
        before = await entries(store, "s")
        await session.rewind(steps=1)
        after = await entries(store, "s")
        assert after[: len(before)] == before
        assert [entry.kind for entry in after[len(before) :]] == ["session.rewound"]


async def test_versions_go_on_counting_after_a_rewind(store_url: StoreUrl) -> None:
    """A new branch has new numbers, and knows what it was built on."""
    async with open_store(store_url) as store, store.session("s") as session:
        for text in "abc":
            await step(session, text)
        await session.rewind(version=1)
        assert await session.checkpoint() == 1
        assert await step(session, "d") == 4
        assert [(one.version, one.base) for one in session.checkpoints] == [(1, 0), (2, 1), (3, 2), (4, 1)]
        assert texts(session.transcript) == ["a", "d"]
        assert (await session.rewind(steps=1)).version == 1


async def branches(store: Store) -> None:
    """Version 3 is left behind by going back to 1, and 4 is the new branch's."""
    async with store.session("s") as session:
        for text in "abc":
            await step(session, text)
        await session.rewind(version=1)
        await step(session, "d")


async def test_a_version_that_was_left_behind_can_be_gone_back_to(store_url: StoreUrl) -> None:
    """And from there to the other branch again, in the same process."""
    async with open_store(store_url) as store:
        await branches(store)
        async with store.session("s") as session:
            for version, words in ((3, "abc"), (4, "ad"), (2, "ab"), (4, "ad"), (3, "abc")):
                assert (await session.rewind(version=version)).version == version
                assert texts(session.transcript) == list(words)
            assert await step(session, "e") == 5
            assert texts(session.transcript) == list("abce")


async def test_a_version_that_was_left_behind_can_be_gone_back_to_after_opening_again(
    store_url: StoreUrl, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Although a keyframe spared the new process from reading it."""
    monkeypatch.setattr("holdfast.session.writer.KEYFRAME_ENTRIES_MIN", 1)
    monkeypatch.setattr("holdfast.session.writer.KEYFRAME_GROWTH", 0)
    async with open_store(store_url) as store:
        await branches(store)
    for version, words in ((3, "abc"), (4, "ad"), (2, "ab")):
        async with open_store(store_url) as store:
            async with store.session("s") as session:
                await session.rewind(version=version)
                assert texts(session.transcript) == list(words)
            assert texts((await store.load("s")).transcript) == list(words)
    async with open_store(store_url) as store:
        for version, words in ((1, "a"), (2, "ab"), (3, "abc"), (4, "ad")):
            assert texts((await store.load("s", version)).transcript) == list(words)


async def test_a_version_of_a_session_with_rewinds_can_be_listed_and_its_path_found(
    store_url: StoreUrl,
) -> None:
    """All are offered; `steps` counts along the branch one stands on."""
    async with open_store(store_url) as store:
        await branches(store)
        assert [one.version for one in await collect(store.checkpoints("s"))] == [1, 2, 3, 4]
        async with store.session("s") as session:
            with pytest.raises(NotFound, match="it has 2 versions"):
                await session.rewind(steps=2)


async def test_a_rewind_needs_one_target(store_url: StoreUrl) -> None:
    """Steps or a version, not both and not neither; nothing is changed by a bad one."""
    async with open_store(store_url) as store, store.session("s") as session:
        await step(session, "a")
        await session.add("b")
        before = len(await kinds(store, "s"))
        for target in ({}, {"steps": 0, "version": 1}):
            with pytest.raises(BadInput, match=r"either steps=… or version=…"):
                await session.rewind(**target)  # type: ignore[arg-type]
        with pytest.raises(NotFound):
            await session.rewind(steps=-1)
        await session.flush()
        assert texts(session.transcript) == ["a", "b"]
        assert len(await kinds(store, "s")) <= before + 1


async def test_calls_that_are_rewound_no_longer_wait_for_results(store_url: StoreUrl) -> None:
    """The transcript is continuable again, and a later reply may use the same ids."""
    async with open_store(store_url) as store, store.session("s") as session:
        await step(session, "a")
        await session.add(calling("call_0"))
        assert len(session.problems) == 1
        await session.rewind(steps=0)
        assert session.continuable
        await session.add(calling("call_0"))
        assert len(session.problems) == 1


async def test_a_message_that_waits_for_the_end_of_a_step_may_be_erased_before_a_rewind(
    store_url: StoreUrl,
) -> None:
    """It is kept as an erased one, and the journal can be read on."""
    async with open_store(store_url) as store:
        async with store.session("s") as session:
            await step(session, "a")
            await session.add(calling("x"))
            await store.submit("s", "while you work")
            await session.take_in()
        await store.clean("s", checkpoints=False)
        async with store.session("s") as session:
            await session.rewind(version=1)
            await step(session, "b")
            assert texts(session.transcript) == ["[erased]", "[erased]", "b"]
        assert texts((await store.load("s")).transcript) == ["[erased]", "[erased]", "b"]
        assert [entry.kind async for entry in store.tail("s", follow=False)].count("session.rewound") == 1
