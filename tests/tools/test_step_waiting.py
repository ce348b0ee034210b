"""A loop of one's own sees that a step waits, and ends instead of dispatching it again and again."""

from __future__ import annotations

import pytest

import holdfast
from holdfast import Agent, Registry, Session, tool
from holdfast.agents import ScriptedModel
from holdfast.errors import BadInput
from holdfast.messages import Message, Text, ToolCall
from tests.tools.example_tools import Url, World, call, opened, reply


@pytest.fixture
def world() -> World:
    """The outside world."""
    return World()


def make_registry(world: World) -> Registry:
    @tool(side_effects={"mutate"}, needs_approval=True)
    async def pay(to: str) -> str:
        """Pay somebody."""
        return world.do(to)

    @tool(side_effects={"mutate"})
    async def vanish(to: str) -> str:
        """Do it, and fail."""
        world.do(to)
        raise OSError("the line went dead")

    @tool(side_effects={"read"})
    async def look(to: str) -> str:
        """Look something up."""
        return f"{to} is fine"

    return Registry([pay, vanish, look])


async def test_a_step_says_what_waits_and_what_is_done(store_url: Url, world: World) -> None:
    """Calls to approve and calls in doubt, with what a person needs to answer; the results are all there."""
    registry = make_registry(world)
    async with opened(store_url) as (store, session):
        names = ("pay", "vanish", "look")
        await reply(session, *(ToolCall(id=f"call_{name}", name=name, args={"to": name}) for name in names))
        step = await registry.dispatch_step(session)
        assert [result.status for result in step] == ["waiting", "in_doubt", "completed"]
        assert [(one.session, one.call, one.kind, one.args) for one in step.waiting] == [
            ("s", "call_pay", "approval", {"to": "pay"}),
            ("s", "call_vanish", "in_doubt", {"to": "vanish"}),
        ]
        again = await registry.dispatch_step(session)
        assert (again.waiting, list(again)) == (step.waiting, [*again])
        await store.resolve("s", "call_vanish", "landed", by="ann", result="it arrived")
        await store.approve("s", "call_pay", by="ann")
        step = await registry.dispatch_step(session)
        assert step.waiting == ()
        assert [result.content for result in step] == ["did pay", "it arrived", "look is fine"]
        assert (await registry.dispatch_step(session)).waiting == ()


async def drive(session: Session, registry: Registry, replies: list[Message]) -> str:
    """The loop as the documentation has it."""
    async with session.run(agent="own") as run:
        while True:
            step = await registry.dispatch_step(session)
            if step.waiting:
                run.pause(step.waiting[0].kind)
                return "waiting"
            last = session.transcript[-1]
            if last.role == "assistant":
                return last.text
            async with run.request() as request:
                await session.messages("openai")
                await request.reply(replies.pop(0))


async def test_the_documented_loop_ends_while_a_call_waits_and_goes_on_after_the_answer(
    store_url: Url, world: World
) -> None:
    """It asks the model for nothing meanwhile, however often it is started."""
    replies = [
        Message(role="assistant", blocks=(call("pay", {"to": "ann"}),)),
        Message(role="assistant", blocks=(Text("Paid."),)),
    ]
    async with opened(store_url) as (store, session):
        await session.add("Pay Ann.")
        for _ in range(3):
            assert await drive(session, make_registry(world), replies) == "waiting"
        assert session.status == "waiting"
        assert len(replies) == 1
        await store.approve("s", "call_0", by="boss")
        assert await drive(session, make_registry(world), replies) == "Paid."
        assert world.done == ["ann"]


async def test_a_loop_that_does_not_look_ends_with_an_error(store_url: Url, world: World) -> None:
    """The transcript of an unfinished step is not given to a model; the error says what to do."""
    async with opened(store_url) as (_, session):
        await session.add("Pay Ann.")
        await reply(session, call("pay", {"to": "ann"}))

        async def spin() -> None:
            while True:
                await make_registry(world).dispatch_step(session)
                await session.messages("openai")

        with pytest.raises(BadInput, match="call 'call_0' of pay has no result"):
            await spin()


async def test_a_step_waits_for_what_its_delegate_waits_for(store_url: Url, world: World) -> None:
    """The question is in the delegate's session; its call is not listed a second time."""
    registry = make_registry(world)
    model = ScriptedModel([ToolCall(id="c", name="pay", args={"to": "ann"}), "Paid."])
    clerk = Agent(model, name="clerk", tools=[registry.get_tool("pay")])
    asking = Registry([clerk.as_tool()])
    async with opened(store_url) as (store, session):
        await reply(session, call("clerk", {"task": "Pay."}))
        step = await asking.dispatch_step(session)
        (one,) = step.waiting
        assert (one.tool, one.kind, one.session.startswith("s.clerk-")) == ("pay", "approval", True)
        await store.approve(one.session, one.call, by="boss")
        step = await asking.dispatch_step(session)
        assert (step.waiting, step[0].value, world.done) == ((), "Paid.", ["ann"])


async def test_a_step_without_calls_waits_for_nothing(store_url: Url, world: World) -> None:
    """Also in a session without a reply."""
    async with opened(store_url) as (_, session):
        step = await make_registry(world).dispatch_step(session)
        assert isinstance(step, holdfast.tools.StepResults)
        assert (step, step.waiting) == ([], ())
