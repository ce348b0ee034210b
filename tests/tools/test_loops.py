"""Gate 3: the same call over and over is stopped, polling is not, and a restart forgets nothing."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from holdfast import Registry, Session, Store, ToolContext, tool
from holdfast.core.entries import ToolRefused
from holdfast.errors import Closed
from holdfast.messages import Message, Text
from holdfast.tools import Policy, Result, deny
from holdfast.tools.declaration import SideEffect
from tests.tools.example_tools import Url, bodies, call, die, opened, reply, results


def tools() -> tuple[Registry, list[str]]:
    """A tool that always says the same, one that always says something else, and another one."""
    ran: list[str] = []
    numbers: Iterator[int] = count()

    @tool(side_effects={"read"})
    async def look(at: str) -> str:
        ran.append(at)
        return "nothing new"

    @tool(side_effects={"read"})
    async def progress(of: str) -> int:
        ran.append(of)
        return next(numbers)

    @tool(side_effects={"read"}, pollable=True)
    async def poll(of: str) -> str:
        ran.append(of)
        return "still busy"

    @tool(side_effects=())
    async def other() -> None:
        ran.append("other")

    @tool(side_effects={"read"})
    async def broken(how: str = "badly") -> None:
        ran.append(how)
        raise ValueError(f"broken {how}")

    return Registry([look, progress, poll, other, broken]), ran


async def times(
    number: int, registry: Registry, name: str, args: dict[str, Any], session: Session | None = None
) -> list[Result]:
    """The same call some times in a row."""
    return [await registry.dispatch(name, args, session=session) for _ in range(number)]


async def test_the_third_identical_call_in_a_row_is_not_run(store_url: Url) -> None:
    """It is told what to do instead, and that is on record."""
    registry, ran = tools()
    async with opened(store_url) as (store, session):
        found = await times(3, registry, "look", {"at": "x"}, session)
        assert [one.status for one in found] == ["completed", "completed", "refused"]
        assert found[2].content == (
            "tool-call loop detected: look was called 2 times in a row with the same arguments and the same "
            "result. Use the result you have, change the arguments, or try another tool."
        )
        refused = await bodies(store, session, ToolRefused)
        assert [(one.tool, one.gate) for one in refused] == [("look", "loop")]
    assert ran == ["x", "x"]


async def test_without_a_session_the_history_is_in_memory() -> None:
    """The gates are the same."""
    registry, ran = tools()
    found = await times(3, registry, "look", {"at": "x"})
    assert found[2].content.startswith("tool-call loop detected: look was called 2 times in a row")
    assert ran == ["x", "x"]


async def test_a_refused_call_counts_too(store_url: Url) -> None:
    """A fourth and a fifth time is no way around it, and a call that the policy denied is a call."""
    registry, ran = tools()
    async with opened(store_url) as (_, session):
        found = await times(5, registry, "look", {"at": "x"}, session)
        assert [one.status for one in found] == ["completed"] * 2 + ["refused"] * 3
        registry = Registry(registry.tools.values(), policy=Policy(deny("poll*"), deny("look")))
        found = await times(3, registry, "look", {"at": "y"}, session)
        assert [one.content.split(":")[0] for one in found] == ["look", "look", "tool-call loop detected"]
    assert ran == ["x", "x"]


@pytest.mark.parametrize(
    ("name", "args"),
    [("other", {}), ("look", {"at": "y"}), ("nonsense", {}), ("look", {"at": 5}), ("look", {})],
    ids=["another tool", "other arguments", "an unknown tool", "bad arguments", "no arguments"],
)
async def test_any_other_call_resets_the_count(name: str, args: dict[str, Any], store_url: Url) -> None:
    """Also one that a gate refused: the agent is trying something else."""
    registry, ran = tools()
    async with opened(store_url) as (_, session):
        await times(2, registry, "look", {"at": "x"}, session)
        await registry.dispatch(name, args, session=session)
        found = await times(3, registry, "look", {"at": "x"}, session)
        assert [one.status for one in found] == ["completed", "completed", "refused"]
    assert ran.count("x") == 4


async def test_a_users_message_resets_the_count(store_url: Url) -> None:
    """To do the same again when one is asked again is no loop; what the model says itself changes nothing."""
    registry, ran = tools()
    async with opened(store_url) as (_, session):
        await times(2, registry, "look", {"at": "x"}, session)
        await session.add("Please look again.")
        found = await times(2, registry, "look", {"at": "x"}, session)
        await session.add(Message(role="assistant", blocks=(Text("Nothing new."),)))
        found += await times(1, registry, "look", {"at": "x"}, session)
        assert [one.status for one in found] == ["completed", "completed", "refused"]
    assert ran.count("x") == 4


async def test_arguments_are_compared_in_canonical_form(store_url: Url) -> None:
    """Another order or spelling is the same call; another type of number is not another number."""
    ran: list[Any] = []

    @tool(side_effects=())
    async def add(a: float, b: float = 0, c: dict[str, int] | None = None) -> None:
        ran.append(a)

    registry = Registry([add])
    async with opened(store_url) as (_, session):
        await registry.dispatch("add", {"a": 1, "c": {"x": 1, "y": 2}}, session=session)
        await registry.dispatch("add", {"b": 0.0, "a": 1.0, "c": {"y": 2, "x": 1}}, session=session)
        third = await registry.dispatch("add", '{"c": {"x": 1, "y": 2.0}, "a": 1}', session=session)
        assert third.content.startswith("tool-call loop detected")
    assert ran == [1, 1]


@pytest.mark.parametrize("with_session", [True, False])
async def test_a_result_that_changes_is_progress(with_session: bool, store_url: Url) -> None:
    """Polling is not being stuck."""
    registry, ran = tools()
    async with opened(store_url) as (_, session):
        found = await times(20, registry, "progress", {"of": "x"}, session if with_session else None)
    assert {one.status for one in found} == {"completed"}
    assert len(ran) == 20


async def test_progress_that_stops_is_noticed(store_url: Url) -> None:
    """Three equal results in a row are what counts, wherever they begin."""
    said = iter(["1 %", "2 %", "3 %", "3 %", "3 %", "3 %"])

    @tool(side_effects={"read"})
    async def progress() -> str:
        return next(said)

    registry = Registry([progress])
    async with opened(store_url) as (_, session):
        found = await times(5, registry, "progress", {}, session)
        assert [one.status for one in found] == ["completed"] * 4 + ["refused"]


@pytest.mark.parametrize("with_session", [True, False])
async def test_a_pollable_tool_is_never_stopped(with_session: bool, store_url: Url) -> None:
    """It said that calling it again is what it is for."""
    registry, ran = tools()
    async with opened(store_url) as (_, session):
        found = await times(10, registry, "poll", {"of": "x"}, session if with_session else None)
    assert {one.status for one in found} == {"completed"}
    assert len(ran) == 10


@pytest.mark.parametrize("with_session", [True, False])
async def test_the_same_error_three_times_is_a_loop_as_well(with_session: bool, store_url: Url) -> None:
    """Trying the same again is no way to mend it."""
    registry, ran = tools()
    async with opened(store_url) as (_, session):
        found = await times(3, registry, "broken", {}, session if with_session else None)
    assert [one.status for one in found] == ["failed", "failed", "refused"]
    assert found[0].content == "broken raised ValueError: broken badly"
    assert len(ran) == 2


async def test_an_error_after_a_result_is_a_change(store_url: Url) -> None:
    """The third call has not yet seen the same thing twice."""
    said = iter(["ready", ValueError("oh"), "ready", "ready", "ready"])

    @tool(side_effects={"read"})
    async def state() -> str:
        found = next(said)
        if isinstance(found, ValueError):
            raise found
        return str(found)

    registry = Registry([state])
    async with opened(store_url) as (_, session):
        found = await times(5, registry, "state", {}, session)
        assert [one.status for one in found] == ["completed", "failed", "completed", "completed", "refused"]


async def test_the_history_survives_a_restart(store_url: Url) -> None:
    """Being stuck does not become better by dying."""
    registry, ran = tools()
    async with opened(store_url) as (_, session):
        await times(2, registry, "look", {"at": "x"}, session)
    registry, ran = tools()
    async with opened(store_url) as (_, session):
        found = await registry.dispatch("look", {"at": "x"}, session=session)
        assert found.content.startswith("tool-call loop detected")
    assert ran == []


async def test_a_loop_over_several_replies_is_stopped(store_url: Url) -> None:
    """That is how a model goes in circles; the transcript stays valid all the while."""
    registry, ran = tools()
    async with opened(store_url) as (_, session):
        for _ in range(3):
            await reply(session, call("look", {"at": "x"}))
            await registry.dispatch_step(session)
            assert session.continuable
        assert results(session)[0].is_error
        assert "tool-call loop detected" in str(results(session)[0].content)
    assert ran == ["x", "x"]


async def test_how_often_is_configurable(store_url: Url) -> None:
    """`max_repeats` names the call that is no longer run."""
    registry, ran = tools()
    registry = Registry(registry.tools.values(), max_repeats=5)
    async with opened(store_url) as (_, session):
        found = await times(5, registry, "look", {"at": "x"}, session)
    assert [one.status for one in found] == ["completed"] * 4 + ["refused"]
    assert len(ran) == 4


@pytest.mark.parametrize("limit", [3, 1])
@pytest.mark.parametrize("side_effects", [{"read"}, {"write"}])
async def test_a_call_that_kills_the_process_is_not_tried_for_ever(
    side_effects: set[SideEffect], limit: int, store_url: Url
) -> None:
    """It was running each time the process died: it is told so, and the transcript can go on.

    A harmless call that kills the process at once is counted from the second time on.
    """
    ran: list[str] = []

    @tool(side_effects=side_effects)
    async def crash(ctx: ToolContext[Store]) -> None:
        ran.append("crash")
        die(ctx.deps)

    registry = Registry([crash], max_crashes=limit)
    async with opened(store_url) as (store, session):
        await reply(session, call("crash"))
        await session.flush()
    while True:
        async with opened(store_url) as (store, session):
            try:
                found = await registry.dispatch_step(session, deps=store)
                break
            except Closed:
                assert len(ran) <= limit
    async with opened(store_url) as (_, session):
        assert (
            f"this call of crash was running each of the {limit} times the process died" in found[0].content
        )
        assert session.continuable
    assert len(ran) == limit
