"""What tests of hosted models share: a server in their place, and short ways to ask."""

from collections.abc import Iterator, Sequence
from contextlib import aclosing
from typing import Any

import pytest

import holdfast
from holdfast.agents import Prompt, Reply, TextDelta, ToolSpec
from holdfast.agents.providers.provider_model import ProviderModel
from holdfast.messages import AnyMessage, Json, Message, Text
from tests.agent.provider_server import Wire, serve

ANTHROPIC = "anthropic:claude-sonnet-5"
RESPONSES = "openai:gpt-5"
CHAT = "openai-chat:gpt-5"
LOCAL = "local"
EVERY = (ANTHROPIC, RESPONSES, CHAT, LOCAL)

LOOKUP = ToolSpec(
    name="lookup",
    description="Find an order.",
    schema={
        "type": "object",
        "properties": {"order": {"type": "string"}},
        "required": ["order"],
        "additionalProperties": False,
    },
)


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> Iterator[Wire]:
    """A server where the clients of hosted providers look for theirs."""
    with serve() as running:
        for name, value in running.environment.items():
            monkeypatch.setenv(name, value)
        yield running


def opened(name: str, wire: Wire, **settings: Json) -> ProviderModel:
    """A model of the server, by one of the names above."""
    if name == LOCAL:
        return holdfast.agents.open_model("llama3:8b", base_url=f"{wire.url}/v1", settings=settings)
    return holdfast.agents.open_model(name, settings=settings)


def user(text: str) -> Message:
    return Message(role="user", blocks=(Text(text),))


async def listen(model: ProviderModel, prompt: Prompt) -> tuple[list[str], Reply]:
    """The deltas, and the reply."""
    async with aclosing(model.ask(prompt)) as saying:
        said = [one async for one in saying]
    deltas = [one.text for one in said[:-1] if isinstance(one, TextDelta)]
    assert len(deltas) == len(said) - 1
    assert isinstance(said[-1], Reply)
    return deltas, said[-1]


async def ask(model: ProviderModel, messages: Sequence[AnyMessage] = (), **prompt: Any) -> Reply:
    """The reply to these messages, or to a greeting."""
    return (await listen(model, Prompt(messages=messages or [user("hello")], **prompt)))[1]
