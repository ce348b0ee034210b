"""A verify hook that is wrong says so: to the person who has to find out, to the model, and in the log."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import anyio
import anyio.from_thread
import pytest

import holdfast
import holdfast.tools.reconcile
from holdfast import Landed, NotLanded, Registry, ToolContext, Unsure, tool
from holdfast.core.entries import ToolInDoubt
from holdfast.errors import BadInput
from tests.tools.example_tools import Url, bodies, call, die, opened, reply, results

RAISED = "it raised OSError: reset"
ANSWERS = "not Landed(result) if it happened, NotLanded() if it did not, or Unsure() if that is not known"


class Gone(Exception):
    """Not one of ours."""


def raising(error: Exception) -> Callable[[], Any]:
    """A hook that fails."""

    def answer() -> Any:
        raise error

    return answer


WRONG: list[tuple[Callable[[], Any], str]] = [
    (raising(Gone("no such account")), "verify raised Gone: no such account"),
    (raising(TimeoutError("the bank is slow")), "verify raised TimeoutError: the bank is slow"),
    (raising(BadInput("not now")), "verify raised BadInput: not now"),
    (lambda: True, f"verify returned True, {ANSWERS}"),
    (lambda: False, f"verify returned False, {ANSWERS}"),
    (lambda: None, f"verify returned None, {ANSWERS}"),
    (lambda: NotLanded, f"verify returned the class NotLanded without calling it, {ANSWERS}"),
    (
        lambda: anyio.sleep(1),
        "verify returned a coroutine that was not awaited (an async hook is declared with async def), "
        + ANSWERS,
    ),
    (lambda: {"paid": "secret"}, f"verify returned a value of type dict, {ANSWERS}"),
]


def asking(answer: Callable[[], Any], *, sync: bool = False, **options: Any) -> Registry:
    """A tool that may have paid, with this hook."""

    async def check(order: str) -> Any:
        return answer()

    @tool(side_effects={"mutate"}, verify=(lambda order: answer()) if sync else check, **options)
    async def pay(ctx: ToolContext[Any], order: str) -> str:
        await ctx.annotate(vendor="v-1")
        raise OSError("reset")

    return Registry([pay], max_repeats=100)


async def reason_elsewhere(url: Url) -> str:
    """Why the one call in doubt of the store is in doubt, as another process reads it."""
    async with holdfast.open_store(url) as store:
        (doubt,) = [one async for one in store.in_doubt()]
    assert doubt.effect.notes == {"vendor": "v-1"}
    return doubt.effect.reason


@pytest.mark.parametrize("sync", [False, True])
@pytest.mark.parametrize(("answer", "reason"), WRONG)
async def test_what_is_wrong_with_a_hook_is_on_record_and_in_the_log(
    answer: Callable[[], Any], reason: str, sync: bool, store_url: Url, caplog: pytest.LogCaptureFixture
) -> None:
    """With the type and the text of an exception, beside why the call is in doubt at all."""
    async with opened(store_url) as (_, session):
        found = await asking(answer, sync=sync).dispatch("pay", {"order": "7"}, call_id="c1", session=session)
    assert found.status == "in_doubt"
    assert f"is in doubt: {RAISED}; {reason}" in found.content
    assert await reason_elsewhere(store_url) == f"{RAISED}; {reason}"
    assert f"session s: call 'c1' of pay: {reason}" in caplog.messages
    assert "secret" not in caplog.text


@pytest.mark.parametrize("sync", [False, True])
async def test_a_hook_that_hangs_is_on_record(
    sync: bool, store_url: Url, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the time that it had."""
    monkeypatch.setattr(holdfast.tools.reconcile, "VERIFY_S", 0.01)
    release = threading.Event()

    async def hang(order: str) -> Any:
        await anyio.sleep_forever()

    def hang_in_thread(order: str) -> Any:
        release.wait(60)

    @tool(side_effects={"mutate"}, verify=hang_in_thread if sync else hang)
    async def pay(ctx: ToolContext[Any], order: str) -> str:
        await ctx.annotate(vendor="v-1")
        raise OSError("reset")

    async with opened(store_url) as (_, session):
        await Registry([pay]).dispatch("pay", {"order": "7"}, session=session)
        release.set()
    assert await reason_elsewhere(store_url) == f"{RAISED}; verify did not answer within 0.01 s"


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (Unsure(), "verify is unsure"),
        (Unsure("they are closed"), "verify is unsure: they are closed"),
        (Unsure({"half": "\ud800"}), 'verify is unsure: {"half":"\\\\ud800"}'),  # type: ignore[arg-type]
    ],
)
async def test_a_hook_that_is_unsure_says_why(
    answer: Unsure, reason: str, store_url: Url, caplog: pytest.LogCaptureFixture
) -> None:
    """It is a right answer, so the log does not warn of it."""
    async with opened(store_url) as (_, session):
        await asking(lambda: answer).dispatch("pay", {"order": "7"}, session=session)
    assert await reason_elsewhere(store_url) == f"{RAISED}; {reason}"
    assert caplog.messages == []


async def test_settling_again_records_a_reason_once(store_url: Url) -> None:
    """A journal does not grow because a hook is asked in vain; another reason takes the place of the last."""
    reasons: Iterator[str] = iter(["down"] * 3 + ["up, and confused"])

    def answer() -> Any:
        raise Gone(next(reasons))

    registry = asking(answer)
    async with opened(store_url) as (store, session):
        await registry.dispatch("pay", {"order": "7"}, session=session)
        for _ in range(2):
            (row,) = await session.settle(registry)
        assert row.reason == f"{RAISED}; verify raised Gone: down"
        assert len(await bodies(store, session, ToolInDoubt)) == 2
        (row,) = await session.settle(registry)
        assert len(await bodies(store, session, ToolInDoubt)) == 3
    assert await reason_elsewhere(store_url) == f"{RAISED}; verify raised Gone: up, and confused"


async def test_the_reason_goes_when_the_hook_is_mended(store_url: Url) -> None:
    """The call has its true result, and says nothing of the doubt any more."""
    async with opened(store_url) as (_, session):
        await asking(lambda: True).dispatch("pay", {"order": "7"}, call_id="c1", session=session)
    async with opened(store_url) as (_, session):
        mended = asking(lambda: Landed("receipt 7"))
        assert await session.settle(mended) == []
        (row,) = session.state.facts.effects.rows.values()
        assert (row.status, row.reason) == ("completed", "")
        found = await mended.dispatch("pay", {"order": "7"}, call_id="c1", session=session)
        assert found.value == "receipt 7"


async def test_after_a_crash_the_reason_is_beside_that_of_the_crash(store_url: Url) -> None:
    """The model is told both, where the policy is to tell it, and may go on."""

    @tool(side_effects={"mutate"}, verify=lambda: True)
    async def pay(ctx: ToolContext[Any]) -> None:
        die(ctx.deps)

    registry = Registry([pay])
    async with opened(store_url) as (store, session):
        await reply(session, call("pay"))
        with pytest.raises(holdfast.errors.Closed):
            await registry.dispatch_step(session, deps=store)
    async with opened(store_url) as (_, session):
        await session.settle(registry, policy="tell")
        assert session.continuable
        (block,) = results(session)
        crash = "the process that ran it is gone and left no outcome"
        assert f"is in doubt: {crash}; verify returned True, {ANSWERS}" in str(block.content)


async def test_an_agent_that_waits_says_what_for(store_url: Url) -> None:
    """Its outcome has the reason and the notes, for the application to show."""
    asks = holdfast.messages.ToolCall(id="c1", name="pay", args={"order": "7"})
    agent = holdfast.Agent(
        holdfast.agents.ScriptedModel([asks]), tools=asking(raising(Gone("no such account"))).tools.values()
    )
    async with holdfast.open_store(store_url) as store:
        outcome = await agent.run("Pay.", session="s", store=store)
    (waiting,) = outcome.waiting
    assert waiting.why == f"{RAISED}; verify raised Gone: no such account"
    assert waiting.notes == {"vendor": "v-1"}


async def test_a_reason_stays_while_it_is_needed(store_url: Url) -> None:
    """Erasing what was said leaves what a person must know to settle the call."""
    async with opened(store_url) as (_, session):
        await asking(lambda: True).dispatch("pay", {"order": "7"}, session=session)
    async with holdfast.open_store(store_url) as store:
        await store.clean("s", checkpoints=False)
    assert await reason_elsewhere(store_url) == f"{RAISED}; verify returned True, {ANSWERS}"


async def test_not_landed_that_cannot_be_believed_is_on_record(store_url: Url) -> None:
    """The body was left behind in its thread, and may still do it."""
    release = threading.Event()

    @tool(side_effects={"mutate"}, verify=lambda: NotLanded())
    def pay() -> None:
        anyio.from_thread.run_sync(scope.cancel)
        release.wait(60)

    registry = Registry([pay], grace_s=0)
    async with opened(store_url) as (_, session):
        with anyio.CancelScope() as scope:
            await registry.dispatch("pay", {}, session=session)
        (row,) = await session.settle(registry)
        assert row.reason.endswith(
            "; verify says that it did not land, but its body may still run: its process has not ended"
        )
        release.set()


def test_a_hook_that_is_declared_to_return_a_bool_is_refused() -> None:
    """When the tool is declared: before anything is in doubt."""

    async def was_paid(order: str) -> bool:
        return True

    with pytest.raises(BadInput, match=r"tool 'pay': verify is declared to return a bool, not Landed"):

        @tool(side_effects={"mutate"}, verify=was_paid)
        async def pay(order: str) -> str:
            return "paid"
