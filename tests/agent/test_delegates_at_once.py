"""Delegates that want the same thing at the same time."""

from __future__ import annotations

import anyio

import holdfast
from holdfast import Agent, Budget, Store, ToolContext
from holdfast.agents import Outcome, ScriptedModel
from holdfast.drivers.contract import Driver
from holdfast.messages import ToolCall
from holdfast.tools.declaration import AnyTool

BOTH = [
    ToolCall(id="a", name="scout", args={"task": "Lyon"}),
    ToolCall(id="b", name="scout", args={"task": "Bern"}),
]


def make_lead(pay: AnyTool) -> Agent:
    """Hands the same work to two scouts that both pay for it."""
    call = ToolCall(id="call_0", name="pay", args={"cents": 500})
    scout = Agent(ScriptedModel([call, "It is paid."]), name="scout", tools=[pay])
    return Agent(ScriptedModel([BOTH, "All is paid."]), name="lead", tools=[scout.as_tool()])


async def answer(store: Store, outcome: Outcome) -> None:
    """A person agrees to everything."""
    for one in outcome.waiting:
        assert await store.approve(one.session, one.call, by="ann") == "settled"


async def test_two_delegates_that_were_both_approved_pay_once(store_url: str | Driver) -> None:
    """The second finds the first at work, waits, and is given its result; no person is asked again."""
    paid: list[int] = []

    @holdfast.tool(side_effects={"mutate"}, needs_approval=True)
    async def pay(cents: int) -> str:
        paid.append(cents)
        return "paid"

    lead = make_lead(pay)
    async with holdfast.open_store(store_url) as store:
        outcome = await lead.run("Pay the bill.", session="bill", store=store)
        assert [(one.kind, one.tool) for one in outcome.waiting] == [("approval", "pay")] * 2
        await answer(store, outcome)
        outcome = await lead.resume("bill", store=store)
        assert (outcome.status, outcome.output) == ("completed", "All is paid.")
    assert paid == [500]


async def test_what_two_delegates_wait_for_is_told_once(store_url: str | Driver) -> None:
    """An effect in doubt is the root's; an answer for it answers both."""

    @holdfast.tool(side_effects={"mutate"})
    async def pay(cents: int) -> str:
        raise ConnectionError("the line went dead")

    lead = make_lead(pay)
    async with holdfast.open_store(store_url) as store:
        outcome = await lead.run("Pay the bill.", session="bill", store=store)
        (doubt,) = outcome.waiting
        assert (outcome.status, doubt.session, doubt.kind) == ("waiting", "bill", "in_doubt")
        assert await store.resolve(doubt.session, doubt.call, "landed", by="ann", result="paid") == "settled"
        outcome = await lead.resume("bill", store=store)
        assert (outcome.status, outcome.output) == ("completed", "All is paid.")


async def test_two_delegates_at_once_leave_something_for_their_parent(store_url: str | Driver) -> None:
    """Each gets half of what is left when it is its turn."""
    seen: list[int] = []
    both = anyio.Event()

    @holdfast.tool(side_effects=())
    async def measure(ctx: ToolContext[None]) -> str:
        seen.append(ctx.session.budget.caps.tokens or 0)
        if len(seen) == 2:
            both.set()
        # One that is done gives back what it did not spend: neither may be, before the other has begun.
        await both.wait()
        return "measured"

    call = ToolCall(id="m", name="measure", args={})
    scout = Agent(ScriptedModel([call, "Seen."]), name="scout", tools=[measure])
    lead = Agent(ScriptedModel([BOTH, "Done."]), tools=[scout.as_tool()], budget=Budget(tokens=400_000))
    async with holdfast.open_store(store_url) as store:
        assert (await lead.run("Look.", session="s", store=store)).output == "Done."
    small, large = sorted(seen)
    assert 190_000 < large < 200_000
    assert 95_000 < small < 100_000
