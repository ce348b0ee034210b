"""Which sessions a worker takes, and in which order."""

from datetime import datetime, timedelta
from typing import Any

import anyio
import pytest

from holdfast import Agent, Store, open_store
from holdfast.agents import ScriptedModel
from holdfast.drivers import Driver
from holdfast.errors import BadInput, NotFound
from holdfast.messages import Message
from holdfast.system.clock import utc_now
from holdfast.workers import Worker
from tests.agent.scripted_agents import World, call, make, texts
from tests.internals import engine_of
from tests.session.example_sessions import StoreUrl, abandon
from tests.worker.example_workers import make_worker, until, work, working


def clerk(**options: Any) -> Agent[Any, Any]:
    return make(["yes"], name="clerk", **options)


async def test_what_is_submitted_is_taken_up_and_answered(store_url: StoreUrl) -> None:
    """Also for a session that did not exist: whoever names the agent has it made."""
    async with open_store(store_url) as store:
        assert await store.submit("a", "may I?", agent="clerk", labels={"tenant": "x"}) == 1
        head = await store.head("a")
        assert (head.agent, head.labels, head.status) == ("clerk", {"tenant": "x"}, "active")
        assert await work(store, clerk()) == [("a", "taken"), ("a", "completed")]
        assert await texts(store, "a") == ["user: may I?", "assistant: yes"]
        assert (await store.head("a")).due is None
        assert await work(store, clerk()) == []


async def test_a_worker_is_told_of_what_comes_while_it_works(store_url: StoreUrl) -> None:
    """In the order in which it was sent; nothing is answered twice."""
    async with open_store(store_url) as store, working(store, make(["one", "two"], name="clerk")):
        await store.submit("a", "1", agent="clerk")
        await until(store, "a", "completed")
        await store.submit("a", "2")
        await until(store, "a", "completed", runs=2)
        assert await texts(store, "a") == ["user: 1", "assistant: one", "user: 2", "assistant: two"]


async def test_equal_keys_are_one_piece_of_work(store_url: StoreUrl) -> None:
    """Also if the first is done with by the time that the second comes."""
    async with open_store(store_url) as store:
        for text in ("first", "again"):
            await store.submit("a", text, agent="clerk", key="k")
        assert await work(store, clerk()) == [("a", "taken"), ("a", "completed")]
        await store.submit("a", "once more", agent="clerk", key="k")
        assert await work(store, clerk()) == []
        assert await texts(store, "a") == ["user: first", "assistant: yes"]


async def test_without_an_agent_no_session_is_made(store_url: StoreUrl) -> None:
    """A typo in an id is an error."""
    async with open_store(store_url) as store:
        with pytest.raises(NotFound, match="agent="):
            await store.submit("typo", "hello?")
        assert [head.session async for head in store.sessions()] == []


async def test_the_oldest_comes_first(store_url: StoreUrl) -> None:
    """By the time at which work came, not by id."""
    async with open_store(store_url) as store:
        for name in ("c", "a", "b"):
            await store.submit(name, "hello", agent="clerk")
        done = await work(store, clerk(), concurrency=1)
        assert [session for session, kind in done if kind == "taken"] == ["c", "a", "b"]


async def test_a_worker_leaves_what_is_for_others_alone(store_url: StoreUrl) -> None:
    """Agents that it does not know, labels that do not fit, and sessions of nobody's."""
    async with open_store(store_url) as store:
        await store.submit("theirs", "hello", agent="planner")
        await store.submit("elsewhere", "hello", agent="clerk", labels={"region": "us"})
        await store.submit("ours", "hello", agent="clerk", labels={"region": "eu", "tenant": "x"})
        async with store.session("plain") as session:
            await session.add("a loop of my own")
        assert await work(store, clerk(), labels={"region": "eu"}) == [
            ("ours", "taken"),
            ("ours", "completed"),
        ]
        assert (await store.head("theirs")).runs == (await store.head("plain")).runs == 0
        both = await work(store, clerk(), make(["plan"], name="planner"))
        assert {one for one, kind in both if kind == "completed"} == {"theirs", "elsewhere"}
        assert await texts(store, "theirs") == ["user: hello", "assistant: plan"]


async def test_a_message_may_be_for_another_agent_than_the_one_before(store_url: StoreUrl) -> None:
    """Who takes it in and does not know the agent leaves it to who does."""
    async with open_store(store_url) as store:
        await store.submit("a", "hello", agent="clerk")
        assert await work(store, clerk()) == [("a", "taken"), ("a", "completed")]
        await store.submit("a", "and now a plan", agent="planner")
        assert await work(store, clerk()) == []
        assert (await store.head("a")).agent == "planner"
        assert await work(store, make(["x", "plan"], name="planner")) == [("a", "taken"), ("a", "completed")]
        assert (await texts(store, "a"))[-1] == "assistant: plan"


@pytest.mark.parametrize("before", [None, "planner"])
async def test_a_message_for_an_agent_is_found_whatever_the_session_was_for(
    store_url: StoreUrl, before: str | None
) -> None:
    """A session that was nobody's, or of an agent that no worker has: what was posted names its agent."""
    async with open_store(store_url) as store:
        async with store.session("a") as session, session.run(agent=before):
            await session.add("hello")
        await store.submit("a", "are you there?", agent="clerk")
        assert await work(store, make(["x"], name="porter")) == []
        assert await work(store, clerk()) == [("a", "taken"), ("a", "completed")]
        assert (await texts(store, "a"))[-2:] == ["user: are you there?", "assistant: yes"]
        assert await work(store, clerk()) == []


async def test_a_session_whose_holder_died_is_taken_over(store_url: StoreUrl) -> None:
    """At once, where there is proof; what it had done is not done again."""
    world = World()
    script = [call("pay", what="rent"), "done"]

    async def die(store: Store) -> None:
        await store.submit("a", "go", agent="clerk")
        session = await store.session("a").__aenter__()
        run = await session.run(agent="clerk").__aenter__()
        request = await run.request().__aenter__()
        await request.reply(Message(role="assistant", blocks=(call("pay", what="rent"),)))
        await make(script, world).registry.dispatch_step(session)

    await abandon(store_url, die)
    async with open_store(store_url) as store:
        assert await work(store, make(script, world, name="clerk")) == [("a", "taken"), ("a", "completed")]
        assert world.done == ["pay rent"]
        assert [run.status async for run in store.runs(session="a")] == ["interrupted", "completed"]


async def test_work_of_a_clock_that_was_ahead_is_found_at_once(store_url: StoreUrl) -> None:
    """An orphaned run, and a message that came too late for one: neither waits until this clock is as far."""

    def ahead() -> datetime:
        return utc_now() + timedelta(days=400)

    async def die(store: Store) -> None:
        engine_of(store).now = ahead
        async with store.session("late") as session, session.run(agent="clerk"):
            await store.submit("late", "one more thing")
            await session.take_in()
        session = await store.session("orphan").__aenter__()
        await session.run(agent="clerk").__aenter__()
        await session.add("go")
        await session.flush()

    await abandon(store_url, die)
    async with open_store(store_url) as store:
        found = await work(store, make(["hi"], name="clerk"))
        assert sorted(found) == [
            (name, kind) for name in ("late", "orphan") for kind in ("completed", "taken")
        ]


async def test_a_session_that_somebody_drives_is_not_taken(store_url: StoreUrl) -> None:
    """Not while they may be alive."""
    async with open_store(store_url) as theirs, open_store(store_url) as store:
        async with theirs.session("a") as session, session.run(agent="clerk"):
            await session.add("hello")
            await session.flush()
            await store.submit("a", "are you there?")
            assert await work(store, clerk()) == []
        assert (await store.head("a")).status == "completed"


async def test_a_message_that_comes_when_the_run_has_ended_is_work(store_url: StoreUrl) -> None:
    """The run's own end may take it in: it is answered all the same."""
    async with open_store(store_url) as store:

        class Late(ScriptedModel):
            async def ask(self, prompt: Any) -> Any:
                async for said in super().ask(prompt):
                    if len(prompt.messages) == 1:
                        await store.submit("a", "one more thing")
                    yield said

        agent = Agent(Late(["first", "second"]), name="clerk")
        await store.submit("a", "hello", agent="clerk")
        await work(store, agent)
        assert (await texts(store, "a"))[-1] == "assistant: second"
        assert (await store.head("a")).due is None


@pytest.mark.parametrize("end", ["completed", "cancelled", "failed"])
async def test_a_message_that_a_run_took_in_and_did_not_answer_is_work(store_url: StoreUrl, end: str) -> None:
    """However the run ended."""
    async with open_store(store_url) as store:
        async with store.session("a") as session, session.run(agent="clerk") as run:
            await store.submit("a", "one more thing")
            assert await session.take_in() == 1
            if end == "cancelled":
                run.cancel("enough")
            elif end == "failed":
                run.fail("budget_spent", "no more")
        assert (await store.head("a")).status == end
        assert await work(store, make(["hi"], name="clerk")) == [("a", "taken"), ("a", "completed")]
        assert await texts(store, "a") == ["user: one more thing", "assistant: hi"]


async def test_a_worker_says_what_it_cannot_do(store_url: StoreUrl) -> None:
    """Before it does anything."""
    async with open_store(store_url) as store:
        with pytest.raises(BadInput, match="needs a name"):
            Worker(store, make(["x"]))
        with pytest.raises(BadInput, match="called 'clerk'"):
            make_worker(store, clerk(), clerk())
        with pytest.raises(BadInput, match="needs an agent"):
            Worker(store, [])
        with pytest.raises(BadInput, match="concurrency"):
            make_worker(store, clerk(), concurrency=0)


async def test_workers_are_listed_with_what_they_do(store_url: str | Driver) -> None:
    """Agents, labels and load; gone when they have stopped."""
    started, go_on = anyio.Event(), anyio.Event()

    class Slow(ScriptedModel):
        async def ask(self, prompt: Any) -> Any:
            started.set()
            await go_on.wait()
            async for said in super().ask(prompt):
                yield said

    async with open_store(store_url) as store, open_store(store_url) as looking:
        assert [one async for one in looking.workers()] == []
        agent = Agent(Slow(["yes"]), name="clerk")
        async with working(store, agent, concurrency=3, labels={"tenant": "x"}):
            await store.submit("a", "hello", agent="clerk", labels={"tenant": "x"})
            await started.wait()
            (found,) = [one async for one in looking.workers()]
            assert (found.duty.agents, found.duty.concurrency, found.duty.labels) == (
                ("clerk",),
                3,
                {"tenant": "x"},
            )
            assert (found.alive, found.sessions, found.duty.draining) == (True, ("a",), False)
            assert found.beat_age_s is None or found.beat_age_s < 60
            go_on.set()
            await until(store, "a", "completed")
        assert [one async for one in looking.workers()] == []
