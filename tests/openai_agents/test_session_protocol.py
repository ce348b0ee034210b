"""What the SDK's `Session` promises: the same suite for holdfast on every store, and for the SDK's own."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from agents import (
    Agent,
    GuardrailFunctionOutput,
    InputGuardrail,
    InputGuardrailTripwireTriggered,
    RunConfig,
    Runner,
    RunState,
    SessionSettings,
    function_tool,
)
from agents.memory import Session
from agents.testing import ScriptedModel, assistant_message, function_call

from holdfast.errors import BadInput

from .conftest import OpenSession, on_every_store
from .items_by_hand import assistant, call, output, user


async def test_it_is_a_session_to_the_sdk(open_session: OpenSession) -> None:
    """`isinstance` of the SDK's own protocol, with an id and settings."""
    session = open_session("ann")
    assert isinstance(session, Session)
    assert session.session_id == "ann"
    assert session.session_settings == SessionSettings()


@on_every_store
async def test_items_come_back_as_they_were_given(open_session: OpenSession) -> None:
    """In order, unknown fields, unknown types and awkward texts included."""
    given: list[Any] = [
        user("Grüße 🚀 \x00 media+sha256://nothing"),
        {"type": "reasoning", "id": "rs_1", "summary": [], "newer": {"a": [1, None]}},
        call("c1", "pay", id="fc_1", status="completed"),
        call("c2", "pay"),
        output("c1", [{"type": "input_text", "text": "one"}]),
        output("c2", "two"),
        {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search"}},
        {"type": "of_next_year", "zeta": 1, "alpha": {"beta": 2.5}},
        {"role": "developer", "content": "Be brief."},
        assistant("Done."),
        {"role": "user", "content": [{"type": "input_image", "image_url": "data:image/png;base64,AAAA"}]},
    ]
    session = open_session()
    await session.add_items(given[:4])
    await session.add_items(given[4:])
    found = await session.get_items()
    assert found == given
    assert [list(one) for one in found] == [list(one) for one in given]


async def test_what_was_returned_can_be_changed(open_session: OpenSession) -> None:
    """The caller's copy is not the session's."""
    session = open_session()
    await session.add_items([user("one")])
    found: Any = await session.get_items()
    found[0]["content"] = "two"
    found.clear()
    assert await session.get_items() == [user("one")]


async def test_a_limit_gives_the_latest_items_in_order(open_session: OpenSession) -> None:
    """Counted in items, also inside a reply; none for zero; all for more than there are."""
    items = [user("one"), call("c1"), call("c2"), output("c1"), output("c2"), assistant("two")]
    session = open_session()
    await session.add_items(items)
    for limit in range(8):
        assert await session.get_items(limit) == items[max(len(items) - limit, 0) :]
    assert await session.get_items(limit=-1) == items


async def test_the_settings_have_a_limit(open_session: OpenSession) -> None:
    """It counts where none is given."""
    session = open_session("ann", limit=2)
    await session.add_items([user(str(number)) for number in range(5)])
    assert await session.get_items() == [user("3"), user("4")]
    assert await session.get_items(limit=3) == [user("2"), user("3"), user("4")]


@on_every_store
async def test_items_are_taken_away_from_the_end(open_session: OpenSession) -> None:
    """One at a time, whatever they belong to, until there are none; what is added then follows the rest."""
    items = [user("one"), call("c1"), call("c2"), output("c1"), output("c2"), assistant("two"), user("three")]
    session = open_session()
    await session.add_items(items[:3])
    await session.add_items(items[3:])
    for left in range(len(items) - 1, 2, -1):
        assert await session.pop_item() == items[left]
        assert await session.get_items() == items[:left]
    await session.add_items(items[3:])
    assert await session.get_items() == items
    for item in reversed(items):
        assert await session.pop_item() == item
    assert await session.pop_item() is None
    assert await session.get_items() == []


async def test_a_cleared_session_begins_anew(open_session: OpenSession) -> None:
    """Nothing is left of what it had; another session keeps what it has."""
    session, other = open_session("ann"), open_session("bob")
    await session.add_items([user("one"), assistant("two")])
    await other.add_items([user("of bob")])
    await session.clear_session()
    assert await session.get_items() == []
    await session.add_items([user("three")])
    assert await session.get_items() == [user("three")]
    assert await other.get_items() == [user("of bob")]
    await open_session("of nobody").clear_session()


async def test_another_session_of_the_same_id_has_the_same_items(open_session: OpenSession) -> None:
    """What one has written, the other reads, in turns."""
    first, second = open_session(), open_session()
    expected = []
    for number in range(6):
        item = user(str(number))
        await (first, second)[number % 2].add_items([item])
        expected.append(item)
        assert await first.get_items() == await second.get_items() == expected
    assert await first.pop_item() == expected.pop()
    assert await second.get_items() == expected


async def test_no_items_are_no_change(open_session: OpenSession) -> None:
    """An empty list, before and after there are others."""
    session = open_session()
    await session.add_items([])
    assert await session.get_items() == []
    await session.add_items([user("one")])
    await session.add_items([])
    assert await session.get_items() == [user("one")]


async def test_the_same_item_may_be_added_twice(open_session: OpenSession) -> None:
    """Outside of a run, the caller decides."""
    session = open_session()
    await session.add_items([user("yes")])
    await session.add_items([user("yes")])
    assert await session.get_items() == [user("yes"), user("yes")]


@pytest.mark.parametrize("session_id", ["a/b", "a b", "ünïcode", "x" * 300, "'; DROP TABLE items; --"])
async def test_any_text_is_an_id(open_session: OpenSession, session_id: str) -> None:
    """Also one that no file can have as its name."""
    await open_session(session_id).add_items([user("one")])
    session = open_session(session_id)
    assert session.session_id == session_id
    assert await session.get_items() == [user("one")]


async def test_adding_at_once_loses_nothing(open_session: OpenSession) -> None:
    """Tasks that share a session, or have one each."""
    shared = open_session()

    async def add(number: int) -> None:
        session = shared if number % 2 else open_session()
        await session.add_items([user(f"{number} first"), user(f"{number} second")])

    async with anyio.create_task_group() as group:
        for number in range(12):
            group.start_soon(add, number)
    found: Any = await shared.get_items()
    said = [item["content"] for item in found]
    places = ("first", "second")
    assert sorted(said) == sorted(f"{number} {place}" for number in range(12) for place in places)
    assert [said[at].split()[0] for at in range(0, 24, 2)] == [said[at].split()[0] for at in range(1, 24, 2)]


async def test_taking_away_at_once_gives_each_item_once(open_session: OpenSession) -> None:
    """To whichever task; and what is left is what came first."""
    items = [user(str(number)) for number in range(12)]
    await open_session().add_items(items)
    taken: list[Any] = []

    async def take() -> None:
        session = open_session()
        taken.extend([await session.pop_item(), await session.pop_item()])

    async with anyio.create_task_group() as group:
        for _ in range(4):
            group.start_soon(take)
    assert sorted(taken, key=items.index) == items[4:]
    assert await open_session().get_items() == items[:4]


async def test_what_cannot_be_stored_leaves_nothing_behind(open_session: OpenSession) -> None:
    """The items of one call belong together: with one that is no JSON, none is added."""
    session = open_session()
    await session.add_items([user("one")])
    wrong: Any = {"role": "user", "content": {1}}
    with pytest.raises((TypeError, BadInput)):
        await session.add_items([user("two"), wrong])
    assert await session.get_items() == [user("one")]
    await session.add_items([user("three")])
    assert await session.get_items() == [user("one"), user("three")]


# -- under the runner ------------------------------------------------------------------------------------


@function_tool
def look(place: str) -> str:
    """Look."""
    return f"nothing at {place}"


def script() -> ScriptedModel:
    """Two calls at once, a call alone, an answer, and another answer."""
    return ScriptedModel(
        [
            [
                function_call("look", {"place": "home"}, call_id="c1"),
                function_call("look", {"place": "work"}, call_id="c2"),
            ],
            [function_call("look", {"place": "there"}, call_id="c3")],
            [assistant_message("Nowhere.", item_id="m1")],
            [assistant_message("Still nowhere.", item_id="m2")],
        ]
    )


EXPECTED_KINDS = [
    "user", "function_call", "function_call", "function_call_output", "function_call_output",
    "function_call", "function_call_output", "assistant", "user", "assistant",
]  # fmt: skip


@pytest.mark.parametrize("streamed", [False, True], ids=["at once", "streamed"])
async def test_a_conversation_goes_on_where_it_was(open_session: OpenSession, streamed: bool) -> None:
    """The model of the second run is given the first one's items, and then the new message."""
    model = script()
    agent = Agent(name="clerk", model=model, tools=[look])
    for prompt in ("Where is it?", "And now?"):
        if streamed:
            result = Runner.run_streamed(agent, prompt, session=open_session())
            async for _ in result.stream_events():
                pass
        else:
            await Runner.run(agent, prompt, session=open_session())
    found: Any = await open_session().get_items()
    assert [item.get("role") or item["type"] for item in found] == EXPECTED_KINDS
    given: Any = model.calls[-1].input
    assert given == found[:-1]


async def test_a_run_may_be_given_part_of_the_history(open_session: OpenSession) -> None:
    """By the settings of the run, which win over those of the session."""
    session = open_session()
    await session.add_items([user(str(number)) for number in range(5)])
    model = ScriptedModel([[assistant_message("Yes.")]])
    config = RunConfig(session_settings=SessionSettings(limit=2))
    await Runner.run(Agent(name="clerk", model=model), "new", session=session, run_config=config)
    assert model.calls[0].input == [user("3"), user("4"), user("new")]


@function_tool(needs_approval=True)
def pay(cents: int) -> str:
    """Pay."""
    return f"paid {cents}"


@pytest.mark.parametrize("streamed", [False, True], ids=["at once", "streamed"])
async def test_a_run_that_pauses_for_an_approval_adds_each_item_once(
    open_session: OpenSession, streamed: bool
) -> None:
    """Before the pause and after it, as if there had been none. The state may be stored meanwhile."""
    model = ScriptedModel(
        [
            [
                function_call("look", {"place": "home"}, call_id="c1"),
                function_call("pay", {"cents": 5}, call_id="c2"),
            ],
            [assistant_message("Paid.", item_id="m1")],
        ]
    )
    agent = Agent(name="clerk", model=model, tools=[look, pay])
    given: Any = "Pay."
    for _ in range(2):
        if streamed:
            result: Any = Runner.run_streamed(agent, given, session=open_session())
            async for _ in result.stream_events():
                pass
        else:
            result = await Runner.run(agent, given, session=open_session())
        if result.interruptions:
            given = await RunState.from_json(agent, result.to_state().to_json())
            given.approve(given.get_interruptions()[0])
    assert result.final_output == "Paid."
    found: Any = await open_session().get_items()
    assert sorted(item.get("role") or item["type"] for item in found) == [
        "assistant", "function_call", "function_call", "function_call_output", "function_call_output", "user",
    ]  # fmt: skip
    assert (found[0], found[-1]["role"]) == (user("Pay."), "assistant")


async def test_several_agents_share_a_history(open_session: OpenSession) -> None:
    """One is called as a tool, and leaves its output only; another is handed the conversation."""
    scout = Agent(name="scout", model=ScriptedModel([[assistant_message("At the door.", item_id="m1")]]))
    closer = Agent(name="closer", model=ScriptedModel([[assistant_message("Done.", item_id="m2")]]))
    model = ScriptedModel(
        [
            [function_call("ask_scout", {"input": "Where?"}, call_id="c1")],
            [function_call("transfer_to_closer", {}, call_id="c2")],
        ]
    )
    clerk = Agent(
        name="clerk", model=model, tools=[scout.as_tool("ask_scout", "Find out.")], handoffs=[closer]
    )
    await Runner.run(clerk, "Settle it.", session=open_session())
    found: Any = await open_session().get_items()
    assert [item.get("role") or item["type"] for item in found] == [
        "user", "function_call", "function_call_output", "function_call", "function_call_output", "assistant",
    ]  # fmt: skip
    assert [item.get("call_id") for item in found] == [None, "c1", "c1", "c2", "c2", None]
    assert found[2]["output"] == "At the door."


async def test_a_message_that_a_guardrail_refuses_is_not_answered(open_session: OpenSession) -> None:
    """What the next run is given is the same whichever session it is."""

    def refuse(context: Any, agent: Any, given: Any) -> GuardrailFunctionOutput:
        return GuardrailFunctionOutput(output_info=None, tripwire_triggered="bad" in str(given[-1]))

    model = ScriptedModel([[assistant_message("Yes.", item_id="m1")]] * 3)
    agent = Agent(
        name="clerk",
        model=model,
        input_guardrails=[InputGuardrail(guardrail_function=refuse, run_in_parallel=False)],
    )
    await Runner.run(agent, "good", session=open_session())
    with pytest.raises(InputGuardrailTripwireTriggered):
        await Runner.run(agent, "bad", session=open_session())
    await Runner.run(agent, "good again", session=open_session())
    found: Any = await open_session().get_items()
    said = [item["content"] for item in found if item["role"] == "user"]
    assert said == ["good", "bad", "good again"]
    assert [item["role"] for item in found].count("assistant") == 2


async def test_a_run_that_was_begun_may_be_cancelled(open_session: OpenSession) -> None:
    """After the turn under way, which is stored whole; the next run goes on from there."""
    model = script()
    agent = Agent(name="clerk", model=model, tools=[look])
    result = Runner.run_streamed(agent, "Where is it?", session=open_session())
    async for event in result.stream_events():
        if event.type == "run_item_stream_event":
            result.cancel(mode="after_turn")
    found: Any = await open_session().get_items()
    assert [item.get("role") or item["type"] for item in found] == EXPECTED_KINDS[:5]
    await Runner.run(agent, "And now?", session=open_session())
    given: Any = model.calls[-1].input
    assert given == (await open_session().get_items())[:-1]


def test_a_run_without_an_event_loop_uses_it(open_sync_session: OpenSession) -> None:
    """`run_sync`, one after another."""
    model = ScriptedModel([[assistant_message("Yes.", item_id=f"m{number}")] for number in range(2)])
    for prompt in ("one", "two"):
        Runner.run_sync(Agent(name="clerk", model=model), prompt, session=open_sync_session())
    given: Any = model.calls[-1].input
    assert [item["role"] for item in given] == ["user", "assistant", "user"]
