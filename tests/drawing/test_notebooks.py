"""Sessions and outcomes in notebooks: small, from memory alone, and never an error."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

import holdfast
from holdfast import blocking
from holdfast.agents import Outcome, ScriptedModel
from holdfast.drivers.memory import MemoryDriver
from holdfast.messages import ToolCall


@holdfast.tool(side_effects={"read"})
def look_up(order: str) -> str:
    """Find an order."""
    return f"order {order}"


@holdfast.tool(side_effects={"mutate"}, needs_approval=True)
def refund(order: str) -> str:
    """Give the money back."""
    return "refunded"


def _agent(*lines: Any) -> holdfast.Agent:
    return holdfast.Agent(ScriptedModel(lines), name="clerk", tools=[look_up, refund])


LOOK = (ToolCall(id="c1", name="look_up", args={"order": "42"}), "It is <b>there</b>.")
ASK = (ToolCall(id="c1", name="refund", args={"order": "42"}), "Done.")


class _Refusing(MemoryDriver):
    """A store that can be forbidden to be used."""

    forbidden = False

    def __getattribute__(self, name: str) -> Any:
        if not name.startswith("_") and name != "forbidden" and _Refusing.forbidden:
            raise AssertionError(f"{name} was used")
        return super().__getattribute__(name)


async def test_an_outcome_has_the_drawing_of_its_run() -> None:
    """Its calls, replies and output; the drawing is no field of it."""
    async with holdfast.open_store("memory:") as store:
        outcome = await _agent(*LOOK).run("Where is 42?", session="s", store=store)
    drawn = outcome._repr_html_()  # What a notebook asks for.
    assert "completed" in drawn
    assert "It is &lt;b&gt;there&lt;/b&gt;." in drawn
    assert drawn.count('class="hf-bar') >= 3
    assert len(drawn) < 40_000
    same = Outcome(
        status=outcome.status,
        session=outcome.session,
        run=outcome.run,
        output=outcome.output,
        usage=outcome.usage,
        cost_usd=outcome.cost_usd,
    )
    assert outcome == same
    assert "drawing" not in repr(outcome)
    assert "completed" in same._repr_html_()


async def test_an_outcome_that_waits_says_for_what() -> None:
    """The call, with its arguments."""
    async with holdfast.open_store("memory:") as store:
        outcome = await _agent(*ASK).run("Refund it", session="s", store=store)
    drawn = outcome._repr_html_()  # What a notebook asks for.
    assert "waiting" in drawn
    assert "refund(order=&quot;42&quot;) waits for approval" in drawn


async def test_a_session_is_drawn_without_its_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """While it is open, after it was closed and before it was opened, nothing is read and no lease taken."""
    driver = _Refusing()
    monkeypatch.setattr(_Refusing, "forbidden", False)
    async with holdfast.open_store(driver) as store:
        await _agent(*LOOK).run("Where is 42?", session="s", store=store)
        loaded = await store.load("s")
        never = store.session("s")
        async with store.session("s") as session:
            monkeypatch.setattr(_Refusing, "forbidden", True)
            opened = session._repr_html_()  # What a notebook asks for.
            before = never._repr_html_()
            state = loaded._repr_html_()
            monkeypatch.setattr(_Refusing, "forbidden", False)
            list(session.transcript)
            monkeypatch.setattr(_Refusing, "forbidden", True)
            known = session._repr_html_()
            monkeypatch.setattr(_Refusing, "forbidden", False)
        closed = session._repr_html_()
    assert "not open here" in before
    for one in (opened, known, closed, state):
        assert "Where is 42?" in one
        assert "completed" in one
    assert known.count("hf-bar hf-model") == 2
    assert max(map(len, (opened, known, closed, state))) < 40_000


async def test_what_cannot_be_drawn_is_no_error() -> None:
    """A foreign output may raise when it is looked at; so may a state that is broken."""

    class Broken:
        def __repr__(self) -> str:
            raise SystemExit

        __str__ = __repr__

    kind: Any = Outcome
    outcome = kind(
        status="completed",
        session=holdfast.records.SessionId("s"),
        run="r",
        output=Broken(),
    )
    assert "Broken" in outcome._repr_html_()  # What a notebook asks for.
    async with holdfast.open_store("memory:") as store:
        state = await store.load((await _agent(*LOOK).run("Go", session="s", store=store)).session)
    del state.facts.checkpoints
    assert "cannot be drawn" in state._repr_html_()


async def test_a_long_session_has_a_small_card() -> None:
    """Only its latest calls are drawn."""
    calls = [ToolCall(id=f"c{number}", name="look_up", args={"order": str(number)}) for number in range(30)]
    lines = [tuple(calls)] * 20
    async with holdfast.open_store("memory:") as store:
        await _agent(*lines, "Done.").run("Go", session="s", store=store)
        async with store.session("s") as session:
            await anyio.lowlevel.checkpoint()
            list(session.transcript)
            assert len(session._repr_html_()) < 250_000  # What a notebook asks for.


def test_twins_without_an_event_loop_are_drawn_too() -> None:
    """The session of `holdfast.blocking`, and the outcome of its agents."""
    agent: Any = blocking.Agent(ScriptedModel(LOOK), name="clerk", tools=[look_up])
    with blocking.open_store("memory:") as store:
        outcome = agent.run("Where is 42?", session="s", store=store)
        with store.session("s") as session:
            drawn: Any = session
            assert "Where is 42?" in drawn._repr_html_()  # What a notebook asks for.
        assert "completed" in outcome._repr_html_()
