"""Delegates: an agent as a tool, with a session of its own under the root's ledger and budget."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import anyio
import pytest

import holdfast
from holdfast import Agent, Budget
from holdfast.agents import Price, Prompt, Reply, ScriptedModel, Thread
from holdfast.core.entries import DelegateEnded, DelegateStarted
from holdfast.drivers.memory import MemoryDriver
from holdfast.errors import BadInput, Closed
from holdfast.limits import CRASHES_MAX
from holdfast.messages import Message, Text
from holdfast.records import Usage
from tests.agent.scripted_agents import Counting, World, call, fresh_store, make, texts
from tests.tools.example_tools import die


@pytest.fixture
def world() -> World:
    """The outside world."""
    return World()


async def child_of(store: holdfast.Store, parent: str) -> holdfast.records.Head:
    """The one delegate."""
    (head,) = [head async for head in store.sessions(parent=parent)]
    return head


async def test_a_delegate_works_in_a_session_of_its_own(world: World) -> None:
    """Its run knows its parent, by session, run and call; its answer is the call's result."""
    helper = make([call("look", what="x"), "It is fine."], world, name="helper")
    agent = make([call("helper", task="Look at x"), "Thanks."], world, name="boss", tools=[helper.as_tool()])
    async with fresh_store() as store:
        outcome = await agent.run("Go", session="s", store=store)
        assert (await texts(store, "s"))[2] == "tool: It is fine."
        child = await child_of(store, "s")
        assert (await texts(store, child.session))[0] == "user: Look at x"
        (run,) = [one async for one in store.runs(session=child.session)]
        assert run.parent is not None
        assert (run.parent.session, run.parent.run, run.parent.call) == ("s", outcome.run, "c-helper")
        assert [one.run async for one in store.runs(parent=outcome.run)] == [run.run]


async def test_what_is_done_once_per_session_is_done_once_per_root(world: World) -> None:
    """Whether the root did it first, another delegate, or both at once."""
    one = make([call("pay", what="42"), "Paid."], world, name="one")
    two = make([call("pay", what="42"), "Paid, too."], world, name="two")
    agent = make(
        [
            [call("one", task="Pay"), call("two", task="Pay")],
            call("pay", what="42"),
            call("one", id="again", task="Pay again"),
            "Done.",
        ],
        world,
        tools=[one.as_tool(), two.as_tool()],
    )
    async with fresh_store() as store:
        assert (await agent.run("Go", session="s", store=store)).output == "Done."
        rows = (await store.load("s")).facts.effects.rows.values()
        assert [row.tool for row in rows if row.changes_the_world] == ["pay"]
    assert world.done == ["pay 42"]


async def test_a_delegate_that_waits_makes_its_parent_wait(world: World) -> None:
    """The outcome says what for, and in which session; answered there, all go on."""
    helper = make([call("fire", what="bob"), "Fired."], world, name="helper")
    agent = make(
        [[call("helper", task="Fire bob"), call("look", what="x")], "Done."], world, tools=[helper.as_tool()]
    )
    async with fresh_store() as store:
        outcome = await agent.run("Go", session="s", store=store)
        assert outcome.status == "waiting"
        (one,) = outcome.waiting
        child = await child_of(store, "s")
        assert (one.session, one.tool, one.kind) == (child.session, "fire", "approval")
        assert (await agent.resume("s", store=store)).waiting == outcome.waiting
        await store.approve(one.session, one.call, by="ann")
        assert (await agent.resume("s", store=store)).output == "Done."
        assert (await texts(store, "s"))[2] == "tool: Fired., x is fine"
        assert not any(held.held for held in (await store.load("s")).facts.delegates.values())
    assert world.done == ["fire bob"]


async def test_a_doubt_of_a_delegate_is_settled_in_the_root(world: World) -> None:
    helper = make([call("vanish", what="x"), "Gone."], world, name="helper")
    agent = make([call("helper", task="Vanish"), "Done."], world, tools=[helper.as_tool()])
    async with fresh_store() as store:
        outcome = await agent.run("Go", session="s", store=store)
        (one,) = outcome.waiting
        assert (one.session, one.tool, one.kind) == ("s", "vanish", "in_doubt")
        await store.resolve(one.session, one.call, "landed", by="ann", result="it is gone")
        assert (await agent.resume("s", store=store)).output == "Done."
        child = await child_of(store, "s")
        assert (await texts(store, child.session))[2] == "tool: it is gone"
    assert world.done == ["vanish x"]


@pytest.mark.parametrize("id", ["s", "s" * 180])
@pytest.mark.parametrize("deep", [False, True], ids=["a delegate", "a delegate's delegate"])
async def test_a_doubt_is_settled_by_the_agent_with_the_tool_and_not_by_its_namesake(
    deep: bool, id: str, world: World
) -> None:
    asked: list[str] = []

    def make_post(owner: str) -> Any:
        async def look(ctx: holdfast.ToolContext[Any]) -> holdfast.Landed | holdfast.Unsure:
            asked.append(owner)
            return holdfast.Landed(f"seen by {owner}") if asked.count(owner) > 1 else holdfast.Unsure()

        @holdfast.tool(name="post", side_effects={"mutate"}, verify=look)
        async def post() -> str:
            """Post something."""
            raise OSError("the line went dead")

        return post

    helper = make([call("post"), "Posted."], world, name="helper", tools=[make_post("helper")])
    if deep:
        helper = make([call("helper", task="Post"), "It did."], world, name="boss", tools=[helper.as_tool()])
    agent = make(
        [call(helper.name or "", task="Post"), "Done."], world, tools=[helper.as_tool(), make_post("root")]
    )
    async with fresh_store() as store:
        assert (await agent.run("Go", session=id, store=store)).status == "waiting"
        assert (await agent.resume(id, store=store)).output == "Done."
        state = await store.load(id)
        assert not state.in_doubt
    assert asked == ["helper", "helper"]


async def test_a_delegate_that_was_cancelled_is_taken_up_again(world: World) -> None:
    """Not begun anew: what it was told and did is kept."""
    begun = anyio.Event()

    @holdfast.tool(side_effects={"read"})
    async def stall() -> str:
        """Never ends, the first time."""
        if not begun.is_set():
            begun.set()
            await anyio.sleep_forever()
        return "at last"

    model = Counting([call("pay", what="42"), call("stall"), "Fine."])
    helper = make(model, world, name="helper", tools=[stall])
    agent = make([call("helper", task="Stall"), "Done."], world, tools=[helper.as_tool()])
    async with fresh_store() as store:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: agent.run("Go", session="s", store=store))
            await begun.wait()
            tasks.cancel_scope.cancel()
        assert (await agent.resume("s", store=store)).output == "Done."
        await child_of(store, "s")
    assert world.done == ["pay 42"]
    assert len(model.prompts) == 3


def mortal(
    script: Any,
    tools: Sequence[Any] = (),
    deep: bool = False,
    *,
    max_crashes: int = CRASHES_MAX,
    **options: Any,
) -> Agent[Any, Any]:
    """An agent whose delegate may take the process with it; what it says is "Done." and what it was told."""
    helper = make(script, name="helper", tools=tools, **options)
    if deep:
        helper = make([call("helper", task="Go"), "It did."], name="boss", tools=[helper.as_tool()])

    def answer(prompt: Prompt) -> Any:
        last = prompt.messages[-1]
        told = last.blocks[0] if isinstance(last, Message) else None
        if isinstance(told, holdfast.messages.ToolResult):
            return f"Done: {told.content}"
        return call(helper.name or "", task="Go")

    return make(answer, tools=[helper.as_tool()], max_crashes=max_crashes)


async def survive(agent: Agent[Any, Any], stores: list[holdfast.Store]) -> str:
    """Drive it in one process after another until one survives."""
    driver = MemoryDriver()
    while True:
        async with holdfast.open_store(driver) as store:
            stores.append(store)
            try:
                again = bool([head async for head in store.sessions()])
                drive = agent.resume("s", store=store) if again else agent.run("Go", session="s", store=store)
                return str((await drive).output)
            except Closed:
                assert len(stores) < 20


@pytest.mark.parametrize("deep", [False, True], ids=["a delegate", "a delegate's delegate"])
async def test_a_delegate_that_gets_on_is_not_given_up_for_any_number_of_crashes(deep: bool) -> None:
    stores: list[holdfast.Store] = []
    met: set[int] = set()

    @holdfast.tool(side_effects={"read"})
    async def survey(plot: int) -> str:
        """Kills the process whenever it sees a new plot."""
        if plot not in met:
            met.add(plot)
            die(stores[-1])
        return "fine"

    agent = mortal([*[call("survey", plot=plot) for plot in range(7)], "All."], [survey], deep)
    assert await survive(agent, stores) == ("Done: It did." if deep else "Done: All.")
    assert len(stores) == 8


async def test_a_delegate_that_gets_nowhere_is_given_up_after_three_crashes() -> None:
    stores: list[holdfast.Store] = []

    def script(prompt: Prompt) -> Any:
        if len(prompt.messages) == 1:
            return call("look", what="x")
        die(stores[-1])
        return "Never heard."

    said = await survive(mortal(script), stores)
    assert "was running each of the 3 times the process died" in said
    assert len(stores) == 5, "the first one got on"


async def cut_off(times: int, **options: Any) -> tuple[list[bool], str]:
    """A delegate whose process dies that often while its second reply is under way: whether each request said
    that the reply is the last one, and what the parent has to say in the end."""
    stores: list[holdfast.Store] = []
    told: list[bool] = []

    def script(prompt: Prompt) -> Any:
        told.append("last reply" in prompt.instructions)
        if len(prompt.messages) == 1:
            return call("look", what="x")
        if len(stores) <= times:
            die(stores[-1])
        return "All."

    said = await survive(mortal(script, max_crashes=100, **options), stores)
    return told, said


async def test_requests_that_were_cut_off_are_no_steps_however_many_they_are() -> None:
    """The limit is on replies, so the model has as many of them as without a crash."""
    told, said = await cut_off(12, max_steps=3, budget=Budget(tokens=10**9))
    assert (len(told), any(told), said) == (14, False, "Done: All.")


@pytest.mark.parametrize("times", [4, 5])
async def test_requests_that_were_cut_off_use_up_a_budget(times: int) -> None:
    """Their cost is unknown. The model is told when the next reply is the last that can be paid for,
    and there is none after that one."""
    told, said = await cut_off(times, budget=Budget(tokens=40_000), max_tokens=8_000)
    assert told == [*[False] * 5, True]
    assert said == "Done: All." if times == 4 else "budget_spent" in said


def costly(text: str) -> Reply:
    """A reply that costs a tenth of a dollar."""
    return Reply(message=Message(role="assistant", blocks=(Text(text),)), usage=Usage(output_tokens=10_000))


PRICE = Price(input_usd_per_mtok=0.0, output_usd_per_mtok=10.0)


async def test_what_a_delegate_spends_is_the_roots(world: World) -> None:
    helper = make([costly("Fine.")], world, name="helper", price=PRICE, max_tokens=20_000)
    agent = make(
        [call("helper", task="Look"), costly("Done.")],
        world,
        tools=[helper.as_tool()],
        price=PRICE,
        budget=Budget(usd=2),
        max_tokens=20_000,
    )
    async with fresh_store() as store:
        outcome = await agent.run("Go", session="s", store=store)
        assert outcome.cost_usd == pytest.approx(0.2, rel=1e-2)
        child = await store.load((await child_of(store, "s")).session)
        assert child.budget.caps.usd == pytest.approx(1.0, rel=1e-2)


async def test_delegates_side_by_side_never_hold_more_than_there_is(world: World) -> None:
    """Each gets a share of what the others leave."""
    staff = [make(["Fine."], world, name=name, price=PRICE) for name in ("one", "two", "three")]
    agent = make(
        [[call("one", task="Look"), call("two", task="Look"), call("three", task="Look")], "Done."],
        world,
        tools=[one.as_tool() for one in staff],
        price=PRICE,
        budget=Budget(usd=8),
    )
    async with fresh_store() as store:
        assert (await agent.run("Go", session="s", store=store)).output == "Done."
        held: dict[str, float] = {}
        async for entry in store.tail("s", follow=False):
            if isinstance(entry.body, DelegateStarted):
                left = 8 - sum(held.values())
                held[entry.body.session] = entry.body.reserved.usd
                # Less where another one ended after the share was measured.
                assert 0 < entry.body.reserved.usd <= left / 2 * 1.001
            elif isinstance(entry.body, DelegateEnded):
                del held[entry.body.session]
        assert not held


async def test_a_delegate_hits_the_wall_of_its_share(world: World) -> None:
    """Its parent goes on with what is left."""
    helper = make(lambda prompt: _look(len(prompt.messages)), world, name="helper", max_tokens=500)
    agent = make(
        [call("helper", task="Look for ever"), "Never mind."],
        world,
        tools=[helper.as_tool()],
        budget=Budget(tokens=20_000),
        max_tokens=500,
    )
    async with fresh_store() as store:
        outcome = await agent.run("Go", session="s", store=store)
        assert outcome.output == "Never mind."
        assert "budget_spent" in (await texts(store, "s"))[2]
        assert outcome.usage.tokens <= 20_000


async def test_a_delegate_that_was_left_behind_is_not_waited_for(world: World) -> None:
    """A person is not asked about what a rewind has left behind."""
    helper = make([call("fire", what="bob"), "Fired."], world, name="helper")

    def boss(prompt: holdfast.agents.Prompt) -> Any:
        return call("helper", task="Fire") if prompt.messages[-1].text == "Go" else call("fire", what="eve")

    agent = make(ScriptedModel(boss), world, tools=[helper.as_tool()])
    async with fresh_store() as store:
        await make(["Hello."]).run("Hi", session="s", store=store)
        await agent.run("Go", session="s", store=store)
        async with store.session("s") as session:
            await session.rewind(steps=0)
        outcome = await agent.run("Or rather", session="s", store=store)
        assert [(one.session, one.args) for one in outcome.waiting] == [("s", {"what": "eve"})]


async def test_a_delegate_that_was_deleted_is_not_begun_anew(world: World) -> None:
    """It would do again what it did before, and what it spent would be forgotten."""
    helper = make([call("mail"), call("fire", what="bob"), "Fired."], world, name="helper")

    @helper.registry.add
    @holdfast.tool(side_effects={"mutate"}, scope="call")
    async def mail() -> str:
        """Send a mail."""
        return world.do("mail")

    agent = make(
        [call("helper", task="Fire bob"), "Never mind."],
        world,
        tools=[helper.as_tool()],
        budget=Budget(tokens=100_000),
    )
    async with fresh_store() as store:
        before = await agent.run("Go", session="s", store=store)
        await store.delete(before.waiting[0].session)
        outcome = await agent.resume("s", store=store)
        assert outcome.output == "Never mind."
        assert outcome.usage.tokens > before.usage.tokens
        assert "is gone" in (await texts(store, "s"))[2]
    assert world.done == ["mail"]


@pytest.mark.parametrize("id", ["s", "s" * 120, "s" * 200])
async def test_the_delegate_of_a_fork_is_not_its_origins(world: World, id: str) -> None:
    """Also where their ids begin alike; what was done once is not done again for the fork."""
    helper = make([call("pay", what="42"), call("fire", what="bob"), "Fired."], world, name="h" * 60)
    agent = make([call("h" * 60, task="Fire bob"), "Done."], world, tools=[helper.as_tool()])
    async with fresh_store() as store:
        (question,) = (await agent.run("Go", session=id, store=store)).waiting
        async with store.session(id) as session:
            await session.checkpoint()
        fork = await store.fork(id)
        (other,) = (await agent.resume(fork, store=store)).waiting
        assert other.session != question.session
        await store.approve(question.session, question.call, by="ann")
        assert (await agent.resume(id, store=store)).output == "Done."
        assert (await agent.resume(fork, store=store)).status == "waiting"
    assert world.done == ["pay 42", "fire bob"]


@pytest.mark.parametrize("own", [None, Budget(steps=9)])
@pytest.mark.parametrize("cap", [1, 2, 3, 5])
async def test_steps_of_delegates_keep_to_the_cap_too(world: World, cap: int, own: Budget | None) -> None:
    """The step that the parent is in is one of them."""
    helper = make(lambda prompt: _look(len(prompt.messages)), world, name="helper", budget=own)
    agent = make(
        lambda prompt: call("helper", task=f"Look {len(prompt.messages)}"),
        world,
        tools=[helper.as_tool()],
        budget=Budget(steps=cap),
    )
    async with fresh_store() as store:
        outcome = await agent.run("Go", session="s", store=store)
        assert (outcome.status, outcome.reason) == ("failed", "budget_spent")
        assert (await store.load("s")).budget.steps == cap


def _look(number: int) -> Reply:
    said = Message(role="assistant", blocks=(call("look", what=str(number)),))
    return Reply(message=said, usage=Usage(input_tokens=200, output_tokens=200))


async def test_agents_that_feed_each_other_hit_a_wall(world: World) -> None:
    """With a budget or without one."""

    def feed(prompt: holdfast.agents.Prompt) -> Any:
        last = prompt.messages[-1]
        return call("other", task="You do it") if last.role == "user" else "They could not."

    agent = make(ScriptedModel(feed), world, name="other")
    agent.registry.add(agent.as_tool())
    async with fresh_store() as store:
        outcome = await agent.run("Go", session="s", store=store)
        assert outcome.output == "They could not."
        assert len([head async for head in store.sessions()]) == 9


async def test_a_delegate_gives_data_where_it_has_an_output_type(world: World) -> None:
    helper = make([call("final_result", result=7)], world, name="helper", output_type=int)
    agent = make([call("helper", task="Count"), "Done."], world, tools=[helper.as_tool()])
    async with fresh_store() as store:
        await agent.run("Go", session="s", store=store)
        message = (await store.load("s")).transcript[2]
        assert isinstance(message, Message)
        (block,) = message.blocks
        assert isinstance(block, holdfast.messages.ToolResult)
        assert block.value == 7


async def test_a_delegate_cannot_be_driven_past_its_parent(world: World) -> None:
    helper = make([call("fire", what="bob"), "Fired."], world, name="helper")
    agent = make([call("helper", task="Fire bob"), "Done."], world, tools=[helper.as_tool()])
    async with fresh_store() as store:
        await agent.run("Go", session="s", store=store)
        child = (await child_of(store, "s")).session
        for driver in (helper, Thread([helper])):
            with pytest.raises(BadInput, match="works for 's': resume that session"):
                await driver.resume(child, store=store)
            with pytest.raises(BadInput, match="works for 's': resume that session"):
                await driver.run("More", session=child, store=store)


async def test_delegates_are_not_taken_up_without_their_parents(world: World) -> None:
    helper = make(lambda prompt: "Fine.", world, name="helper")
    async with fresh_store() as store:
        async with store.session("child", parent=holdfast.records.Parent(session="s")) as session:
            await session.run(agent="helper").__aenter__()
            await session.add("Go")
            await session.flush()
        assert await helper.resume_all(store) == []
