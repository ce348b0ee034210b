"""What the tests of durable pydantic-ai agents share: scripted models, a world, a process that dies."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, TypeAlias

from pydantic_ai import Agent
from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    ModelResponsePart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel

import holdfast
from holdfast import Store
from holdfast.records import SessionState
from tests.tools.example_tools import die

Step: TypeAlias = "Sequence[ModelResponsePart] | str"
SESSION = "s"


class Killed(BaseException):
    """The process is gone."""


def kill(store: Store) -> None:
    """As if the process had been killed: nothing more is written by it."""
    die(store)
    raise Killed


class Script:
    """A model that gives these replies in turn, by how many there are in the history; counts the asking."""

    def __init__(self, *steps: Step) -> None:
        self.steps: list[list[ModelResponsePart]] = [
            [TextPart(step)] if isinstance(step, str) else list(step) for step in steps
        ]
        self.asked: list[int] = []
        self.seen: list[list[ModelMessage]] = []

    def __call__(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return ModelResponse(parts=self._next(messages))

    def _next(self, messages: list[ModelMessage]) -> list[ModelResponsePart]:
        step = sum(isinstance(message, ModelResponse) for message in messages)
        self.asked.append(step)
        self.seen.append(list(messages))
        return self.steps[min(step, len(self.steps) - 1)]

    async def stream(self, messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        """The same, bit by bit."""
        for index, part in enumerate(self._next(messages)):
            if isinstance(part, TextPart):
                for word in part.content.split(" "):
                    yield f"{word} "
            elif isinstance(part, ToolCallPart):
                made = DeltaToolCall(part.tool_name, part.args_as_json_str(), tool_call_id=part.tool_call_id)
                yield {index: made}

    def agent(self, **options: Any) -> Agent[Any, Any]:
        """An agent that asks it."""
        model = FunctionModel(self, stream_function=self.stream)
        return Agent(model, **{"name": "clerk", **options})


def call(name: str, id: str = "c0", **args: Any) -> ToolCallPart:
    """A call in a reply."""
    return ToolCallPart(name, args, id)


def results(messages: Sequence[ModelMessage]) -> list[Any]:
    """What tools gave."""
    return [
        part.content for message in messages for part in message.parts if isinstance(part, ToolReturnPart)
    ]


async def look(store: Store, session: str = SESSION) -> SessionState:
    """The session, as it is."""
    return await store.load(session)


async def killed(url: Any, drive: Callable[[Store], Any], **options: Any) -> None:
    """Drive an agent in a process that dies of it."""
    try:
        async with holdfast.open_store(url, **options) as store:
            try:
                await drive(store)
            except Killed:
                return
            raise AssertionError("it was not killed")
    except holdfast.errors.Closed:
        return  # The store of a process that is gone is not closed.
