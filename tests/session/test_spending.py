"""Budgets: capped before the call, and never forgotten."""

from typing import Any

import anyio
import pytest

from holdfast import Budget, Store, open_store
from holdfast.core.entries import ModelFailed
from holdfast.errors import BadInput, BudgetSpent
from holdfast.records import Usage
from tests.session.example_sessions import StoreUrl, abandon, entries, kinds, step


async def test_what_a_request_may_cost_counts_until_its_outcome_is_known(store_url: StoreUrl) -> None:
    """Then what it did cost counts instead."""
    async with open_store(store_url) as store, store.session("s") as session, session.run() as run:
        async with run.request(reserve_usd=0.5, reserve_tokens=100) as request:
            assert (session.budget.reserved.usd, session.budget.reserved.tokens) == (0.5, 100)
            assert (session.budget.usd, session.budget.tokens) == (0, 0)
            await request.reply("x", usage=Usage(input_tokens=7, output_tokens=3), cost_usd=0.125)
        assert (session.budget.reserved.usd, session.budget.reserved.tokens) == (0, 0)
        assert (session.budget.usd, session.budget.tokens) == (0.125, 10)


@pytest.mark.parametrize(
    ("caps", "cap"),
    [
        (Budget(usd=1), "usd"),
        (Budget(tokens=100), "tokens"),
        (Budget(steps=1), "steps"),
        (Budget(seconds=0), "seconds"),
    ],
    ids=lambda value: str(value),
)
async def test_a_cap_is_enforced_before_the_call(caps: Budget, cap: str, store_url: StoreUrl) -> None:
    """Nothing is asked, nothing is recorded as asked; the error says which cap, and how far it is spent."""
    async with open_store(store_url) as store, store.session("s") as session:
        async with session.run() as run, run.request() as request:
            await request.reply("x", usage=Usage(input_tokens=90), cost_usd=0.75)
        await session.checkpoint()
        await session.set_budget(caps)
        await session.flush()
        asked = (await kinds(store, "s")).count("model.requested")
        with pytest.raises(BudgetSpent) as caught:
            async with session.run() as run, run.request(reserve_usd=0.5, reserve_tokens=11):
                pytest.fail("asked")
        assert (caught.value.cap, caught.value.session) == (cap, "s")
        assert caught.value.spent == {"usd": 0.75, "tokens": 90, "steps": 1}.get(cap, caught.value.spent)
        assert f"{cap}" in str(caught.value)
        assert (await kinds(store, "s")).count("model.requested") == asked


async def test_a_reservation_is_durable_before_the_request_is_made(store_url: StoreUrl) -> None:
    """Whoever looks while the model is thinking sees it, and so does the next process."""
    async with (
        open_store(store_url, linger_s=1000) as store,
        open_store(store_url) as other,
        store.session("s") as session,
        session.run() as run,
    ):
        async with run.request(reserve_usd=0.5) as request:
            assert (await other.load("s")).budget.reserved.usd == 0.5
            await request.reply("x", cost_usd=0.25)
            assert (await other.load("s")).budget.usd == 0.25
        await session.set_budget(Budget(usd=9))
        async with run.request() as request:
            assert (await kinds(other, "s"))[-1] == "model.requested"
            await request.reply("y")


async def test_a_request_that_was_in_flight_counts_as_spent_after_a_crash(store_url: StoreUrl) -> None:
    """A crash neither resets nor forgets: the provider may have charged for it."""

    async def work(store: Store) -> None:
        session = await store.session("s").__aenter__()
        await session.set_budget(Budget(usd=1))
        run = await session.run().__aenter__()
        async with run.request(reserve_usd=0.25) as request:
            await request.reply("x", cost_usd=0.25)
        await run.request(reserve_usd=0.5).__aenter__()

    await abandon(store_url, work)
    async with open_store(store_url) as store, store.session("s") as session:
        assert (session.budget.usd, session.budget.reserved.usd, session.budget.caps.usd) == (0.25, 0.5, 1)
        async with session.run() as run:
            with pytest.raises(BudgetSpent, match=r"has spent 0\.75 of 1 usd and 0\.5 more"):
                async with run.request(reserve_usd=0.5):
                    pytest.fail("asked")
            async with run.request(reserve_usd=0.25) as request:
                await request.reply("y", cost_usd=0.0)


async def test_requests_side_by_side_are_capped_together(store_url: StoreUrl) -> None:
    """Two that would each fit do not both go out."""
    async with open_store(store_url) as store, store.session("s") as session, session.run() as run:
        await session.set_budget(Budget(usd=1))
        refused = 0

        async def ask() -> None:
            nonlocal refused
            try:
                async with run.request(reserve_usd=0.4) as request:
                    await anyio.lowlevel.checkpoint()
                    await request.reply("x", cost_usd=0.4)
            except BudgetSpent:
                refused += 1

        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(ask)
        assert (refused, session.budget.usd) == (3, 0.8)


async def test_a_request_that_failed_frees_what_it_reserved(store_url: StoreUrl) -> None:
    """The error is on record; leaving without a reply is one, too."""
    async with open_store(store_url) as store, store.session("s") as session, session.run() as run:
        with pytest.raises(ConnectionError):
            async with run.request(reserve_usd=0.5):
                raise ConnectionError("refused")
        async with run.request(reserve_usd=0.5):
            pass
        assert (session.budget.usd, session.budget.reserved.usd) == (0, 0)
        await session.flush()
        failed = [entry.body for entry in await entries(store, "s") if isinstance(entry.body, ModelFailed)]
        assert [body.error for body in failed] == ["ConnectionError: refused", "left without a reply"]


async def test_a_cancelled_request_counts_as_spent(store_url: StoreUrl) -> None:
    """Nobody knows what it cost: the whole reservation stays gone."""
    async with open_store(store_url) as store, store.session("s") as session, session.run() as run:
        with anyio.CancelScope() as scope:
            async with run.request(reserve_usd=0.5, reserve_tokens=10):
                scope.cancel()
                await anyio.sleep_forever()
        assert (session.budget.usd, session.budget.tokens) == (0.5, 10)
        assert session.budget.reserved.usd == 0


async def test_time_counts_while_a_run_is_under_way(store_url: StoreUrl) -> None:
    """Seconds between the entries of a run; the pause between two runs costs nothing."""
    async with open_store(store_url) as store, store.session("s") as session:
        await step(session, "no run, no time")
        assert session.budget.seconds == 0
        async with session.run():
            await session.add("a")
            await session.add("b")
        spent = session.budget.seconds
        assert spent > 0
        await session.add("later")
        assert session.budget.seconds == spent
    async with open_store(store_url) as store:
        assert (await store.load("s")).budget.seconds == spent


@pytest.mark.parametrize("cap", [-1, float("nan"), float("inf"), "5"])
def test_a_cap_that_is_no_amount_is_refused(cap: Any) -> None:
    """When the budget is made; also what came out of the environment, as text."""
    with pytest.raises(BadInput, match="a cap is a finite number"):
        Budget(usd=cap)


@pytest.mark.parametrize(
    "given", [{"cost_usd": -1.0}, {"usage": Usage(output_tokens=-5)}, {"latency_ms": -0.1}], ids=str
)
async def test_a_reply_gives_nothing_back(given: dict[str, Any]) -> None:
    """A negative amount would lift the caps: it is refused, and the request counts as failed."""
    async with open_store("memory:") as store, store.session("s") as session, session.run() as run:
        with pytest.raises(BadInput, match="is negative"):
            async with run.request() as request:
                await request.reply("x", **given)
        assert (session.budget.usd, session.budget.tokens) == (0, 0)
        assert (await kinds(store, "s"))[-1] != "model.replied"
