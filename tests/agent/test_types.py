"""What a type checker knows of an agent: these tests are checked, not only run."""

from __future__ import annotations

from typing import Any, assert_type

from pydantic import BaseModel

from holdfast import Agent
from holdfast.agents import Event, Outcome, ScriptedModel
from tests.agent.scripted_agents import call, fresh_store


class Answer(BaseModel):
    """What is asked for."""

    number: int


class Deps:
    """What the tools need."""


async def test_without_an_output_type_the_output_is_text() -> None:
    agent = Agent(ScriptedModel(["Hello."]))
    assert_type(agent, Agent[Any, str])
    async with fresh_store() as store:
        outcome = await agent.run("Hi", store=store)
        assert_type(outcome, Outcome[str])
        assert_type(outcome.output, str | None)


async def test_an_output_type_is_that_of_the_outcome_and_of_the_events() -> None:
    agent = Agent(ScriptedModel([call("final_result", number=3)]), output_type=Answer)
    async with fresh_store() as store:
        outcome = await agent.run("Hi", session="s", store=store)
        assert_type(outcome, Outcome[Answer])
        async for event in agent.stream(session="s", store=store):
            assert_type(event, Event[Answer])


async def test_the_dependencies_are_of_the_type_that_was_named() -> None:
    agent: Agent[Deps, str] = Agent(ScriptedModel(["Hello."]))
    async with fresh_store() as store:
        await agent.run("Hi", store=store, deps=Deps())
