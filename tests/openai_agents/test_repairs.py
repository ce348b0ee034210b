"""What a crash or a limit leaves does not stand in the way of the next run."""

from __future__ import annotations

from typing import Any

import pytest
from agents import Agent, RunConfig, Runner, SessionSettings
from agents.testing import ScriptedModel, assistant_message

import holdfast
from holdfast.adapters.openai_agents import HoldfastSession

from .items_by_hand import assistant, call, output, user


def answering(*texts: str) -> ScriptedModel:
    """A model that only talks."""
    return ScriptedModel([[assistant_message(text, item_id=f"m{text}")] for text in texts])


async def given_to_a_model(session: HoldfastSession, prompt: Any = "new", **config: Any) -> list[Any]:
    """The input of a run."""
    model = answering("Yes.")
    await Runner.run(
        Agent(name="clerk", model=model), prompt, session=session, run_config=RunConfig(**config)
    )
    found: Any = model.calls[0].input
    return list(found)


async def test_no_output_without_its_call_is_given_to_a_model(store: holdfast.Store) -> None:
    """Whatever kind of call: a provider would refuse the whole input. What is stored stays."""
    session = HoldfastSession("ann", store)
    stored = [
        output("gone"),
        {"type": "shell_call_output", "call_id": "gone", "output": []},
        call("c1"),
        {"type": "shell_call_output", "call_id": "c1", "output": []},
        output("c1"),
        assistant("Done."),
    ]
    await session.add_items([user("one"), *stored])
    assert await given_to_a_model(session) == [
        user("one"), call("c1"), output("c1"), assistant("Done."), user("new"),
    ]  # fmt: skip
    assert (await session.get_items())[1:7] == stored


async def test_no_call_without_its_output_is_given_to_a_model(store: holdfast.Store) -> None:
    """A process that ended in the middle of a turn left it."""
    session = HoldfastSession("ann", store)
    await session.add_items([user("one"), call("c1"), call("c2"), output("c1")])
    assert await given_to_a_model(session) == [user("one"), call("c1"), output("c1"), user("new")]


@pytest.mark.parametrize("callback", [False, True])
async def test_a_limit_does_not_part_an_output_from_its_call(store: holdfast.Store, callback: bool) -> None:
    """The output alone is not given to the model; also if the run merges by itself."""
    session = HoldfastSession("ann", store)
    await session.add_items([user("one"), call("c1"), output("c1"), assistant("Done.")])
    settings = SessionSettings(limit=2)
    merging = {"session_input_callback": lambda history, new: history + new} if callback else {}
    given = await given_to_a_model(session, session_settings=settings, **merging)
    assert given == [assistant("Done."), user("new")]


async def test_what_is_said_again_after_a_failure_stands_once(store: holdfast.Store) -> None:
    """The run had stored its input, and ended before there was a reply."""
    session = HoldfastSession("ann", store)
    await session.add_items([user("one"), assistant("Yes?")])
    failing = ScriptedModel([RuntimeError("no connection"), RuntimeError("no connection")])
    for _ in range(2):
        with pytest.raises(RuntimeError):
            await Runner.run(Agent(name="clerk", model=failing), "two", session=session)
    assert await session.get_items() == [user("one"), assistant("Yes?"), user("two")]
    await given_to_a_model(session, "two")
    found: Any = await session.get_items()
    assert [item["role"] for item in found] == ["user", "assistant", "user", "assistant"]


async def test_of_several_messages_those_that_are_said_again_stand_once(store: holdfast.Store) -> None:
    """Where the new input goes on from what ends the history, the rest of it is added."""
    session = HoldfastSession("ann", store)
    await session.add_items([user("one"), user("two")])
    await given_to_a_model(session, [user("two"), user("three")])
    assert (await session.get_items())[:-1] == [user("one"), user("two"), user("three")]


async def test_calls_that_were_only_begun_are_no_answer(store: holdfast.Store) -> None:
    """The message before them is said again, and stands once."""
    session = HoldfastSession("ann", store)
    begun = [{"type": "reasoning", "id": "rs_1", "summary": []}, call("c1"), call("c2")]
    await session.add_items([assistant("Yes?"), user("one")])
    await session.add_items(begun)
    await given_to_a_model(session, "one")
    assert (await session.get_items())[:-1] == [assistant("Yes?"), user("one"), *begun]


async def test_another_message_is_added_to_an_unanswered_one(store: holdfast.Store) -> None:
    """Nothing that a user said is lost, and the model is given both."""
    session = HoldfastSession("ann", store)
    await session.add_items([user("Book a flight.")])
    assert await given_to_a_model(session, "Hello?") == [user("Book a flight."), user("Hello?")]
    assert (await session.get_items())[:2] == [user("Book a flight."), user("Hello?")]


async def test_an_answered_message_may_be_said_again(store: holdfast.Store) -> None:
    """It is another one then."""
    session = HoldfastSession("ann", store)
    for _ in range(2):
        await given_to_a_model(session, "yes")
    found: Any = await session.get_items()
    assert [item["role"] for item in found] == ["user", "assistant", "user", "assistant"]


async def test_with_merge_the_model_is_given_it_once_as_well(store: holdfast.Store) -> None:
    """`session_input_callback=session.merge` sees history and new input together."""
    session = HoldfastSession("ann", store)
    await session.add_items([user("one"), assistant("Yes?"), user("two")])
    given = await given_to_a_model(session, "two", session_input_callback=session.merge)
    assert given == [user("one"), assistant("Yes?"), user("two")]
    assert (await session.get_items())[:-1] == given
