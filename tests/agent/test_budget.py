"""Budgets: reserved before a request, settled after it, and the model is told before they end."""

from __future__ import annotations

from typing import Any

import pytest

import holdfast
from holdfast import Budget
from holdfast.agents import Price, Reply, ScriptedModel
from holdfast.core.entries import ModelRequested
from holdfast.errors import BadInput, ModelError
from holdfast.messages import Message, Text
from holdfast.records import Usage
from tests.agent.scripted_agents import Counting, World, call, fresh_store, make

PRICE = Price(input_usd_per_mtok=1.0, output_usd_per_mtok=10.0)


def looks(prompt: holdfast.agents.Prompt) -> Any:
    """Goes on for ever."""
    said = Message(role="assistant", blocks=(call("look", what=str(len(prompt.messages))),))
    return Reply(message=said, usage=Usage(input_tokens=100, output_tokens=50))


@pytest.mark.parametrize(
    ("budget", "cap"),
    [
        (Budget(tokens=2_000), "tokens"),
        (Budget(usd=0.01), "usd"),
        (Budget(steps=4), "steps"),
        (Budget(seconds=0.0), "seconds"),
    ],
)
async def test_every_cap_is_a_wall(budget: Budget, cap: str) -> None:
    """It is never passed, whatever the model wants, and the outcome says which it was."""
    agent = make(looks, budget=budget, price=PRICE, max_tokens=500)
    async with fresh_store() as store:
        outcome = await agent.run("Go", session="s", store=store)
        assert (outcome.status, outcome.reason) == ("failed", "budget_spent")
        assert cap in outcome.error
        spent = (await store.load("s")).budget
        assert spent.tokens <= (budget.tokens or 10**9)
        assert spent.usd <= (budget.usd or 10**9)
        assert spent.steps <= (budget.steps or 10**9)
        again = await agent.resume("s", store=store)
        assert (again.reason, again.usage) == ("budget_spent", outcome.usage)


async def test_what_a_reply_costs_follows_from_its_usage() -> None:
    said = Reply(
        message=Message(role="assistant", blocks=(Text("Hello."),)),
        usage=Usage(input_tokens=1_000_000, output_tokens=100_000),
    )
    agent = make([said], price=PRICE)
    async with fresh_store() as store:
        assert (await agent.run("Hi", store=store)).cost_usd == pytest.approx(2.0)


async def test_near_the_end_replies_must_be_shorter_and_the_model_is_told() -> None:
    model = Counting(looks)
    agent = make(model, budget=Budget(tokens=3_000), max_tokens=1_000)
    async with fresh_store() as store:
        await agent.run("Go", session="s", store=store)
        limits = [prompt.max_tokens or 0 for prompt in model.prompts]
        assert limits[0] == 1_000
        assert 0 < limits[-1] < 1_000
        assert "last reply" in model.prompts[-1].instructions
        assert "last reply" not in model.prompts[0].instructions


@pytest.mark.parametrize("usage", [Usage(input_tokens=100, output_tokens=50), Usage(input_tokens=900)])
@pytest.mark.parametrize("capped", ["tokens", "usd"])
async def test_no_run_ends_with_its_budget_spent_before_the_model_was_told(capped: str, usage: Usage) -> None:
    """Short replies and a long prompt: what is left after one of them may be less than the next one needs."""

    def reply(prompt: holdfast.agents.Prompt) -> Any:
        looked = call("look", what=str(len(prompt.messages)))
        return Reply(message=Message(role="assistant", blocks=(looked,)), usage=usage)

    async with fresh_store() as store:
        for cap in range(1_500, 4_000, 100):
            budget = Budget(tokens=cap) if capped == "tokens" else Budget(usd=cap / 1_000_000)
            model = Counting(reply)
            agent = make(model, budget=budget, price=PRICE, max_tokens=70)
            outcome = await agent.run("Go", session=f"{capped}-{cap}-{usage.tokens}", store=store)
            assert outcome.reason == "budget_spent"
            if model.prompts:
                assert "last reply" in model.prompts[-1].instructions, (cap, len(model.prompts))
        assert "last reply" not in model.prompts[0].instructions


async def test_a_request_is_reserved_for_as_it_may_cost_at_most() -> None:
    agent = make(["Hello."], budget=Budget(tokens=10_000, usd=1.0), price=PRICE, max_tokens=500)
    async with fresh_store() as store:
        await agent.run("Hi", session="s", store=store)
        (asked,) = [
            entry.body
            async for entry in store.tail("s", follow=False)
            if isinstance(entry.body, ModelRequested)
        ]
        assert asked.reserved.tokens > 500
        assert asked.reserved.usd > 500 * 10.0 / 1_000_000
        assert (await store.load("s")).budget.reserved == holdfast.records.Reservation()


async def test_a_reply_that_was_cut_off_counts_as_made() -> None:
    cut = ModelError("connection lost", retryable=True, charged=True)
    agent = make([cut, "Hello."], budget=Budget(tokens=10_000), max_tokens=500)
    async with fresh_store() as store:
        outcome = await agent.run("Hi", session="s", store=store)
        assert outcome.output == "Hello."
        assert outcome.usage.tokens > 500


@pytest.mark.parametrize(
    "usage",
    [
        Usage(input_tokens=10, output_tokens=10, cache_read_tokens=500),
        Usage(input_tokens=-900, output_tokens=1),
    ],
)
async def test_a_reply_whose_cost_is_not_known_costs_what_was_reserved(usage: Usage) -> None:
    """A provider may report counts that contradict each other, or less than none: nothing is given back."""
    odd = Reply(message=Message(role="assistant", blocks=(Text("Fine."),)), usage=usage)
    agent = make(ScriptedModel([odd], name="anthropic:claude-sonnet-4-5"), budget=Budget(usd=1))
    async with fresh_store() as store:
        outcome = await agent.run("Go", session="s", store=store)
        assert outcome.status == "completed"
        assert 0.1 < outcome.cost_usd < 0.2
        assert outcome.usage.tokens >= 0


async def test_a_cap_in_usd_needs_a_price() -> None:
    agent = make(["Hello."], budget=Budget(usd=1))
    async with fresh_store() as store:
        with pytest.raises(BadInput, match="a budget in USD needs a price"):
            await agent.run("Hi", session="s", store=store)
        state = await store.load("s")
        assert (len(state.transcript), state.budget.caps) == (0, Budget())


async def test_more_budget_lets_a_session_go_on() -> None:
    world = World()
    poor = make([call("look", what="a"), "Done."], world, budget=Budget(steps=1))
    rich = make([call("look", what="a"), "Done."], world, budget=Budget(steps=5))
    async with fresh_store() as store:
        assert (await poor.run("Go", session="s", store=store)).reason == "budget_spent"
        assert (await rich.resume("s", store=store)).output == "Done."
