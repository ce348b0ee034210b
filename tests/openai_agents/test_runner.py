"""`DurableRunner`: a run that was cut off goes on with what is on record."""

from __future__ import annotations

import inspect
from typing import Any

import anyio
import pytest
from agents import Agent, Runner, SQLiteSession, function_tool

import holdfast
from holdfast.adapters.openai_agents import DurableRunner, HoldfastSession, RunWaits, effects
from holdfast.errors import BadInput, LeaseHeld

from .runs import Cut, Office, answering, call, count_turns, get_root_cause, kinds_of, play, say

pytestmark = pytest.mark.anyio
STREAMED = pytest.mark.parametrize("streamed", [False, True], ids=["at once", "streamed"])


@pytest.mark.parametrize("name", ["run", "run_sync", "run_streamed"])
def test_the_signatures_are_those_of_the_runner_and_a_key(name: str) -> None:
    ours, theirs = (inspect.signature(getattr(kind, name)) for kind in (DurableRunner, Runner))
    added = ours.parameters["run_key"]
    assert (added.kind, added.default) == (added.KEYWORD_ONLY, None)
    kept = [one for one in ours.parameters.values() if one.name != "run_key"]
    assert ours.replace(parameters=kept) == theirs


@STREAMED
async def test_a_run_leaves_what_a_run_without_a_record_leaves(store: holdfast.Store, streamed: bool) -> None:
    """The same items in the session, the same result, the same usage."""
    plain, durable = Office(), Office()
    theirs, ours = SQLiteSession("ann"), HoldfastSession("ann", store)
    for question in ("Pay.", "Thanks."):
        wanted = await play(Runner, plain.agent, question, session=theirs, streamed=streamed)
        found = await play(DurableRunner, durable.agent, question, session=ours, streamed=streamed)
        assert found.final_output == wanted.final_output
        assert found.to_input_list() == wanted.to_input_list()
        assert found.context_wrapper.usage == wanted.context_wrapper.usage
        assert found.last_agent is durable.agent
        assert {item.agent.name for item in found.new_items} == {"clerk"}
        assert all(item.agent is durable.agent for item in found.new_items)
    assert await ours.get_items() == await theirs.get_items()
    assert sorted(durable.paid) == plain.paid == [1, 2]
    theirs.close()


@STREAMED
@pytest.mark.parametrize("place", ["before the model", "in a tool", "after the model"])
async def test_a_run_that_was_cut_off_goes_on(store: holdfast.Store, streamed: bool, place: str) -> None:
    """Replies are not asked for again, completed tools are not run again, and the items are those of a run
    that was not disturbed."""
    undisturbed, other = Office(), HoldfastSession("bob", store)
    whole = await play(DurableRunner, undisturbed.agent, "Pay.", session=other)
    office, session = Office(cut=place), HoldfastSession("ann", store)

    async def ask() -> Any:
        options: Any = {"session": session, "streamed": streamed, "hooks": office.hooks}
        return await play(DurableRunner, office.agent, "Pay.", **options)

    assert isinstance(await get_root_cause(ask()), Cut)
    asked = len(office.model.calls)
    office.cut = None
    found = await ask()
    assert found.final_output == whole.final_output
    assert found.context_wrapper.usage == whole.context_wrapper.usage
    assert await session.get_items() == await other.get_items()
    assert sorted(office.paid) == [1, 2]
    assert office.looked == 1
    left = {"before the model": 3, "in a tool": 2, "after the model": 0}[place]
    assert len(office.model.calls) - asked == left


async def test_another_input_begins_another_run(store: holdfast.Store) -> None:
    """What was cut off stays in the journal, and the session goes on before it."""
    office, session = Office(cut="in a tool"), HoldfastSession("ann", store)
    await get_root_cause(play(DurableRunner, office.agent, "Pay.", session=session))
    office.cut = None
    found = await DurableRunner.run(office.agent, "Thanks.", session=session)
    assert found.final_output == "Paid [1]."
    assert kinds_of(await session.get_items()) == ["user", "user", "assistant"]


async def test_a_run_that_had_ended_is_followed_by_another(store: holdfast.Store) -> None:
    office, session = Office(), HoldfastSession("ann", store)
    for _ in range(2):
        await DurableRunner.run(office.agent, "Thanks.", session=session)
    assert len(office.model.calls) == 2
    assert kinds_of(await session.get_items()) == ["user", "assistant"] * 2


@STREAMED
async def test_with_a_key_the_outcome_is_given_again(
    store: holdfast.Store, streamed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when other runs came after it, and without a session."""
    office, session = Office(), HoldfastSession("ann", store)
    first = await play(DurableRunner, office.agent, "Pay.", session=session, run_key="k1", streamed=streamed)
    await play(DurableRunner, office.agent, "Thanks.", session=session)
    items = await session.get_items()
    asked = len(office.model.calls)
    again = await play(DurableRunner, office.agent, "Pay.", session=session, run_key="k1", streamed=streamed)
    assert again.final_output == first.final_output
    assert again.to_input_list() == first.to_input_list()
    assert again.context_wrapper.usage == first.context_wrapper.usage
    assert (len(office.model.calls), await session.get_items()) == (asked, items)
    with pytest.raises(BadInput, match="used before, for another input"):
        await play(DurableRunner, office.agent, "Pay more.", session=session, run_key="k1")


async def test_options_need_no_store(store: holdfast.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """That of the session counts, and `HOLDFAST_STORE` is not read."""
    monkeypatch.delenv("HOLDFAST_STORE", raising=False)
    runner = DurableRunner.with_options(wait_s=1.0)
    agent = Agent(name="clerk", model=answering(lambda items: say("Yes.")))
    assert (await runner.run(agent, "Hello?", session=HoldfastSession("ann", store))).final_output == "Yes."


async def test_without_a_session_a_key_names_the_run(store: holdfast.Store) -> None:
    office = Office()
    runner = DurableRunner.with_options(store=store)
    first = await runner.run(office.agent, "Pay.", run_key="order 42")
    again = await runner.run(office.agent, "Pay.", run_key="order 42")
    assert again.to_input_list() == first.to_input_list()
    assert (sorted(office.paid), len(office.model.calls)) == ([1, 2], 3)


async def test_what_the_record_cannot_hold_is_refused_in_words(store: holdfast.Store) -> None:
    agent, session = Office().agent, HoldfastSession("ann", store)
    with pytest.raises(BadInput, match="HOLDFAST_STORE"):
        await DurableRunner.run(agent, "Pay.")
    theirs = SQLiteSession("ann")
    with pytest.raises(BadInput, match="copy_from"):
        await DurableRunner.run(agent, "Pay.", session=theirs)
    theirs.close()
    for name in ("conversation_id", "previous_response_id"):
        given: dict[str, Any] = {name: "x"}
        with pytest.raises(BadInput, match=name):
            await DurableRunner.run(agent, "Pay.", session=session, **given)
        with pytest.raises(BadInput, match=name):
            DurableRunner.run_streamed(agent, "Pay.", session=session, **given)
    wrong: Any
    for wrong in ("", 5):
        with pytest.raises(BadInput, match="run_key is a text"):
            await DurableRunner.run(agent, "Pay.", session=session, run_key=wrong)
    wrong = None
    with pytest.raises(BadInput, match="input is a text"):
        await DurableRunner.run(agent, wrong, session=session)
    with pytest.raises(BadInput, match="starting_agent is an Agent"):
        await DurableRunner.run(wrong, "Pay.", session=session)
    with pytest.raises(BadInput, match="timeout_s is a number of seconds"):
        DurableRunner.with_options(timeout_s=0)
    with pytest.raises(BadInput, match="wait_s is a number of seconds"):
        DurableRunner.with_options(wait_s=-1)


@STREAMED
async def test_two_runs_of_a_session_at_once_do_not_both_succeed(
    store: holdfast.Store, streamed: bool
) -> None:
    session, began = HoldfastSession("ann", store), anyio.Event()

    @effects(side_effects="read")
    @function_tool
    async def wait() -> str:
        """Wait."""
        began.set()
        await anyio.sleep_forever()
        return ""

    slow: Agent[Any] = Agent(name="slow", model=answering(lambda _: [call("wait", "t0-a")]), tools=[wait])
    async with anyio.create_task_group() as group:
        group.start_soon(lambda: DurableRunner.run(slow, "Wait.", session=session))
        await began.wait()
        with pytest.raises(LeaseHeld):
            await play(DurableRunner, Office().agent, "Pay.", session=session, streamed=streamed)
        group.cancel_scope.cancel()


async def test_a_call_in_doubt_waits_for_a_person(store: holdfast.Store) -> None:
    """Its siblings are not cut off; the same call goes on after the answer."""
    done: list[str] = []

    @effects(side_effects="mutate")
    @function_tool
    async def send(to: str) -> str:
        """Send."""
        done.append(to)
        if to == "ann":
            raise ConnectionError
        return f"sent to {to}"

    def reply(items: list[Any]) -> Any:
        if count_turns(items) == 0:
            return [call("send", "t0-a", to="ann"), call("send", "t0-b", to="bob")]
        return say(str([item["output"] for item in items if item.get("type") == "function_call_output"]))

    agent: Agent[Any] = Agent(name="clerk", model=answering(reply), tools=[send])
    session = HoldfastSession("mails", store)
    with pytest.raises(RunWaits, match="holdfast pending") as waits:
        await DurableRunner.run(agent, "Send.", session=session)
    (waiting,) = waits.value.waiting
    assert (waiting.tool, waiting.kind, waiting.args) == ("send", "in_doubt", {"to": "ann"})
    assert [one.effect.tool async for one in store.in_doubt()] == ["send"]
    with pytest.raises(RunWaits):
        await DurableRunner.run(agent, "Send.", session=session)
    await store.resolve("mails", waiting.call, "landed", by="cat", result="sent to ann")
    found = await DurableRunner.run(agent, "Send.", session=session)
    assert found.final_output == str(["sent to ann", "sent to bob"])
    assert sorted(done) == ["ann", "bob"]
