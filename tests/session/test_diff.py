"""What changed between two versions."""

from holdfast import Registry, open_store, tool
from holdfast.messages import Message, ToolCall
from holdfast.records import ABSENT, Change, Plan, PlanStep, Usage
from tests.session.example_sessions import StoreUrl, step, texts


async def test_a_diff_tells_messages_state_plan_summary_and_spending(store_url: StoreUrl) -> None:
    """From the one to the other, and back."""
    plan = Plan(steps=(PlanStep(id="a", what="x"), PlanStep(id="b", what="y")))
    async with open_store(store_url) as store:
        async with store.session("s") as session, session.run() as run:
            await session.set("kept", 0)
            await session.set("changed", {"n": 1})
            await session.set("removed", "x")
            await session.set_plan(plan)
            one = await step(session, "first")
            await session.set("kept", 0)
            await session.set("changed", {"n": 2})
            await session.unset("removed")
            await session.set("new", None)
            await session.set_plan(
                Plan(
                    steps=(plan.update("a", status="done", evidence="e").steps[0], PlanStep(id="c", what="z"))
                )
            )
            await session.set_summary("short")
            await session.add("second")
            async with run.request() as request:
                await request.reply("third", usage=Usage(input_tokens=3, output_tokens=4), cost_usd=0.25)
            two = await session.checkpoint()
        diff, back = await store.diff("s", one, two), await store.diff("s", two, one)
    assert texts(diff.messages_added) == ["second", "third"]
    assert diff.messages_removed == ()
    assert diff.state == {
        "changed": Change({"n": 1}, {"n": 2}),
        "removed": Change("x", ABSENT),
        "new": Change(ABSENT, None),
    }
    assert {id: (a and a.status, b and b.status) for id, (a, b) in diff.plan.items()} == {
        "a": ("todo", "done"),
        "b": ("todo", None),
        "c": (None, "todo"),
    }
    assert diff.summary == ("", "short")
    assert (diff.spending.usd, diff.spending.tokens, diff.spending.steps) == (0.25, 7, 1)
    assert diff.spending.seconds >= 0
    assert diff
    assert texts(back.messages_removed) == ["second", "third"]
    assert back.messages_added == ()
    assert back.state["new"] == Change(None, ABSENT)
    assert back.spending.usd == -0.25


async def test_equal_versions_have_no_difference(store_url: StoreUrl) -> None:
    """An empty diff is false."""
    async with open_store(store_url) as store:
        async with store.session("s") as session:
            await step(session, "a")
        assert not await store.diff("s", 1, 1)


async def test_versions_of_two_branches_are_compared_from_where_they_part(store_url: StoreUrl) -> None:
    """What the one has is removed, what the other has is added; what they share is neither."""
    async with open_store(store_url) as store:
        async with store.session("s") as session:
            await step(session, "shared")
            await step(session, "left")
            await session.rewind(version=1)
            await step(session, "right")
        diff = await store.diff("s", 2, 3)
    assert (texts(diff.messages_removed), texts(diff.messages_added)) == (["left"], ["right"])


async def test_equal_words_said_twice_are_told_apart(store_url: StoreUrl) -> None:
    """A message is what was recorded, not what it says."""
    async with open_store(store_url) as store:
        async with store.session("s") as session:
            await step(session, "again")
            await step(session, "again")
        assert texts((await store.diff("s", 1, 2)).messages_added) == ["again"]


async def test_results_that_both_versions_have_are_no_difference(store_url: StoreUrl) -> None:
    """A result is the same if it was recorded by the same entry, whether or not it was looked at."""

    @tool(side_effects={"read"})
    async def look() -> str:
        return "seen"

    registry = Registry([look])
    async with open_store(store_url) as store:
        async with store.session("s") as session:
            await session.add(Message(role="assistant", blocks=(ToolCall(id="c", name="look", args={}),)))
            await registry.dispatch_step(session)
            await step(session, "one")
            await step(session, "two")
        diff = await store.diff("s", 1, 2)
    assert (texts(diff.messages_removed), texts(diff.messages_added)) == ([], ["two"])
