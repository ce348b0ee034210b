"""Typed output: the model ends by calling a tool, and what it gives is checked."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from datetime import date
from typing import Any

import pytest
from pydantic import BaseModel, Field, field_validator

from holdfast import Agent
from holdfast.agents import Prompt, ScriptedModel
from holdfast.agents.model import ModelEvent
from holdfast.errors import BadInput
from tests.agent.scripted_agents import call, fresh_store, make, texts


class Refund(BaseModel):
    """What came of it."""

    order: str
    cents: int = Field(gt=0)

    @field_validator("order")
    @classmethod
    def check_order(cls, order: str) -> str:
        """What a schema cannot say."""
        if not order.startswith("o-"):
            raise ValueError("orders begin with o-")
        return order


@dataclass
class Point:
    """A place."""

    x: int


class Visit(BaseModel, strict=True):
    """Takes no text for a date, unless it is JSON."""

    day: date


@pytest.mark.parametrize(
    ("type", "args", "expected"),
    [
        (Refund, {"order": "o-42", "cents": 5}, Refund(order="o-42", cents=5)),
        (Point, {"x": 3}, Point(3)),
        (int, {"result": 7}, 7),
        (list[Point], {"result": [{"x": 1}]}, [Point(1)]),
        (dict[str, int], {"a": 1}, {"a": 1}),
        (Visit, {"day": "2026-05-04"}, Visit(day=date(2026, 5, 4))),
    ],
)
async def test_the_output_is_of_its_type(type: Any, args: Any, expected: Any) -> None:
    agent = make([call("final_result", **args)], output_type=type)
    async with fresh_store() as store:
        first = await agent.run("Go", session="s", store=store)
        assert (first.status, first.output) == ("completed", expected)
        assert (await agent.resume("s", store=store)).output == expected


async def test_a_wrong_one_goes_back_to_the_model() -> None:
    agent = make(
        [
            call("final_result", order="o-42", cents=0),
            call("final_result", order="42", cents=5),
            call("final_result", order="o-42", cents=5),
        ],
        output_type=Refund,
    )
    async with fresh_store() as store:
        assert (await agent.run("Go", session="s", store=store)).output == Refund(order="o-42", cents=5)
        said = await texts(store, "s")
        assert "args.cents" in said[2]
        assert "orders begin with o-" in said[4]


async def test_text_is_taken_if_it_is_what_was_asked_for() -> None:
    agent = make(['{"x": 4}'], output_type=Point)
    async with fresh_store() as store:
        assert (await agent.run("Go", store=store)).output == Point(4)


class Letter(BaseModel):
    """With a model in it."""

    to: Refund
    copy_to: Point | None = None


async def test_an_unknown_name_in_the_output_goes_back_to_the_model_at_every_depth() -> None:
    """Whether it is given with the tool or as text; dropped, it would leave a default in its place."""
    whole: dict[str, Any] = {"order": "o-42", "cents": 5}
    agent = make(
        [
            call("final_result", to={**whole, "cnets": 6}),
            '{"to": {"order": "o-42", "cents": 5}, "copy_too": {"x": 1}}',
            call("final_result", to=whole, copy_to={"x": 1}),
        ],
        output_type=Letter,
    )
    async with fresh_store() as store:
        outcome = await agent.run("Go", session="s", store=store)
        assert outcome.output == Letter(to=Refund(**whole), copy_to=Point(1))
        said = await texts(store, "s")
        assert "args.to.cnets: unknown argument; did you mean 'cents'?" in said[2]


async def test_a_model_that_only_talks_is_reminded_and_then_given_up() -> None:
    agent = make(lambda prompt: "Well …", output_type=Point)
    async with fresh_store() as store:
        outcome = await agent.run("Go", session="s", store=store)
        assert (outcome.status, outcome.reason, outcome.output) == ("failed", "no_output", None)
        assert [said for said in await texts(store, "s") if said.startswith("user")] == [
            "user: Go",
            *["user: Give your answer by calling final_result; plain text is not read."] * 3,
        ]


async def test_a_cancel_request_is_obeyed_though_a_reminder_is_due() -> None:
    async with fresh_store() as store:

        class Talker(ScriptedModel):
            """A cancel request arrives during the reply."""

            async def ask(self, prompt: Prompt) -> AsyncGenerator[ModelEvent, None]:
                await store.cancel("s", reason="enough")
                async for said in super().ask(prompt):
                    yield said

        agent = make(Talker(["Well …"]), output_type=Point)
        outcome = await agent.run("Go", session="s", store=store)
        assert (outcome.status, outcome.reason) == ("cancelled", "enough")


async def test_the_session_goes_on_after_a_typed_output() -> None:
    agent = make([call("final_result", x=1), call("final_result", id="c2", x=2)], output_type=Point)
    async with fresh_store() as store:
        await agent.run("Go", session="s", store=store)
        assert (await agent.run("Again", session="s", store=store)).output == Point(2)


async def test_the_same_answer_may_be_given_to_any_number_of_questions() -> None:
    agent = make(lambda prompt: call("final_result", result=True), output_type=bool, max_steps=2)
    async with fresh_store() as store:
        for number in range(5):
            outcome = await agent.run(f"And {number}?", session="s", store=store)
            assert (outcome.status, outcome.output) == ("completed", True)


async def test_the_output_of_an_agent_with_another_type_is_not_its_own() -> None:
    """Nor is that of its own last version: it is asked for what it is after today."""
    before = make([call("final_result", x=1)], output_type=Point)
    agent = make([call("final_result", x=1), call("final_result", result=7)], output_type=int)
    talker = make([call("final_result", x=1), "A point."])
    async with fresh_store() as store:
        for session, one, output in (("s", agent, 7), ("t", talker, "A point.")):
            await before.run("Go", session=session, store=store)
            assert (await one.resume(session, store=store)).output == output
            assert (await one.resume(session, store=store)).output == output


@pytest.mark.parametrize("odd", [type("Odd", (), {}), type, "Undefined", 5])
def test_what_has_no_schema_is_refused_at_once(odd: Any) -> None:
    """In one line."""
    with pytest.raises(BadInput, match="output_type") as caught:
        Agent(ScriptedModel([]), output_type=odd)
    assert "\n" not in str(caught.value)
