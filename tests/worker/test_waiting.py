"""Sessions that wait for a person cost nothing, and go on when somebody has answered."""

from typing import Any

from holdfast import Agent, open_store
from holdfast.agents import ScriptedModel
from tests.agent.scripted_agents import World, call, make, texts
from tests.session.example_sessions import StoreUrl
from tests.worker.example_workers import until, work, working


async def test_a_session_that_waits_goes_on_when_a_person_has_answered(store_url: StoreUrl) -> None:
    """Nobody drives it meanwhile; the answer may come from another process."""
    world = World()
    agent = make([call("fire", what="Bob"), "done"], world, name="clerk")
    async with open_store(store_url) as store, open_store(store_url) as person:
        await store.submit("a", "go", agent="clerk")
        assert await work(store, agent) == [("a", "taken"), ("a", "waiting")]
        assert (await store.head("a")).due is None
        assert await work(store, agent) == []
        assert world.done == []
        await person.approve("a", "c-fire", by="ann")
        assert await work(store, agent) == [("a", "taken"), ("a", "completed")]
        assert world.done == ["fire Bob"]


async def test_a_verdict_wakes_a_session_up_too(store_url: StoreUrl) -> None:
    """In doubt is in doubt until somebody says so; the effect is not repeated."""
    world = World()
    agent = make([call("vanish", what="money"), "done"], world, name="clerk")
    async with open_store(store_url) as store:
        await store.submit("a", "go", agent="clerk")
        assert await work(store, agent) == [("a", "taken"), ("a", "waiting")]
        await store.resolve("a", "c-vanish", "landed", by="ann", result="seen")
        assert await work(store, agent) == [("a", "taken"), ("a", "completed")]
        assert world.done == ["vanish money"]
        assert "tool: seen" in await texts(store, "a")


async def test_an_answer_that_changes_nothing_wakes_nobody(store_url: StoreUrl) -> None:
    """It came too late."""
    world = World()
    agent = make([call("vanish", what="money"), "done"], world, name="clerk")
    async with open_store(store_url) as store:
        await store.submit("a", "go", agent="clerk")
        await work(store, agent)
        await store.resolve("a", "c-vanish", "landed", by="ann")
        await work(store, agent)
        assert await store.resolve("a", "c-vanish", "not_landed", by="bob") == "late"
        assert await work(store, agent) == []


async def test_a_delegate_that_was_answered_goes_on_with_the_one_it_works_for(store_url: StoreUrl) -> None:
    """Whoever is asked, it is the root that is taken up."""
    world = World()
    helper = make([call("fire", what="Bob"), "fired"], world, name="helper")
    boss = Agent(
        ScriptedModel([call("helper", task="do it"), "all done"]), name="boss", tools=[helper.as_tool()]
    )
    async with open_store(store_url) as store, working(store, boss, helper):
        await store.submit("a", "go", agent="boss")
        await until(store, "a", "waiting")
        (delegate,) = [head.session async for head in store.sessions(parent="a")]
        await store.approve(delegate, "c-fire", by="ann")
        await until(store, "a", "completed")
        assert world.done == ["fire Bob"]
        assert (await texts(store, "a"))[-1] == "assistant: all done"
        assert (await store.head(delegate)).due is None


async def test_a_delegate_that_nobody_waits_for_is_left_alone(store_url: StoreUrl) -> None:
    """The one it worked for has gone another way: nobody tries again and again."""
    world = World()
    helper = make([call("fire", what="Bob"), "fired"], world, name="helper")
    script: list[Any] = [call("helper", task="do it"), "never mind"]
    boss = Agent(ScriptedModel(script), name="boss", tools=[helper.as_tool()])
    async with open_store(store_url) as store:
        await store.submit("a", "go", agent="boss")
        assert await work(store, boss) == [("a", "taken"), ("a", "waiting")]
        (delegate,) = [head.session async for head in store.sessions(parent="a")]
        async with store.session("a") as session:
            await session.close("completed")
        await store.approve(delegate, "c-fire", by="ann")
        assert (await store.head(delegate)).due is not None
        assert await work(store, boss, helper) == []
        assert (await store.head(delegate)).due is None
        assert world.done == []
