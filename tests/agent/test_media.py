"""Agents and large content: shown to the model as bytes or as links, and gone on without if it is lost."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from pydantic_ai.messages import (
    BinaryContent,
    ImageUrl,
    ModelMessage,
    ModelResponse,
    TextPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel

import holdfast
from holdfast import Agent, open_store
from holdfast.drivers.memory import MemoryDriver
from holdfast.messages import AnyMessage, Media, Message, Text, ToolResult
from tests.agent.scripted_agents import Counting, call
from tests.internals import engine_of
from tests.unit.shapes import plain

IMAGE = bytes(range(256)) * 400
DIGEST = hashlib.sha256(IMAGE).hexdigest()
QUESTION = Message(role="user", blocks=(Text("What is it?"), Media(media_type="image/png", data=IMAGE)))


@holdfast.tool(side_effects={"read"})
async def picture() -> Media:
    """Take a picture."""
    return Media(media_type="image/png", data=IMAGE)


def urls(reference: str, context: object) -> str:
    return f"https://files.test/{reference.removeprefix('media+sha256://')[:8]}"


class Linking(Counting):
    """A model that wants links in the place of bytes."""

    links = True


def shown(messages: Iterable[AnyMessage]) -> list[object]:
    """What the model saw, results included."""
    found: list[object] = []
    for message in messages:
        assert isinstance(message, Message)
        for block in message.blocks:
            found += block.content if isinstance(block, ToolResult) else (block,)
    return found


def media_in(messages: Iterable[AnyMessage]) -> list[Media]:
    """The pictures among it."""
    return [part for part in shown(messages) if isinstance(part, Media)]


async def test_a_model_is_shown_the_bytes() -> None:
    """Those of messages, and those that tools gave."""
    model = Counting([[call("picture")], "a cat"])
    async with open_store("memory:") as store:
        outcome = await Agent(model, tools=[picture]).run(QUESTION, session="s", store=store)
    assert outcome.output == "a cat"
    assert [media.data for media in media_in(model.prompts[-1].messages)] == [IMAGE, IMAGE]


async def test_a_model_that_wants_links_gets_links() -> None:
    """Where there are any: small content has none."""
    model = Linking([[call("picture")], "a cat"])
    small = Message(role="user", blocks=(Media(media_type="image/png", data=b"dot"),))
    async with open_store("memory:", blob_urls=urls) as store:
        agent = Agent(model, tools=[picture])
        async with store.session("s") as session:
            await session.add(small)
            await session.add(
                {"role": "user", "content": [_openai(), _anthropic()]},
                format="openai",
            )
        await agent.run(QUESTION, session="s", store=store)
        state = await store.load("s")
        linked = await state.transcript.with_urls()
    link = f"https://files.test/{DIGEST[:8]}"
    assert [(media.url, media.data) for media in media_in(linked[:1])] == [(None, b"dot")]
    foreign = linked[1]
    assert isinstance(foreign, holdfast.messages.ForeignMessage)
    assert foreign.data["content"] == [
        {"type": "image_url", "image_url": {"url": link}},
        {"type": "image", "source": {"type": "url", "url": link}},
    ]
    assert [media.url for media in media_in(linked[2:])] == [link, link]
    asked = [message for message in model.prompts[-1].messages if isinstance(message, Message)]
    assert [media.url for media in media_in(asked[1:])] == [link, link]


async def test_a_model_that_is_opened_with_links_is_sent_links() -> None:
    """In the place of the bytes."""
    sent: list[object] = []

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        (asked,) = [
            part for message in messages for part in message.parts if isinstance(part, UserPromptPart)
        ]
        sent.extend(asked.content)
        return ModelResponse(parts=[TextPart("a cat")])

    model = holdfast.agents.open_model(FunctionModel(answer), links=True)
    async with open_store("memory:", blob_urls=urls) as store:
        await Agent(model).run(QUESTION, session="s", store=store)
    (link,) = [part for part in sent if isinstance(part, ImageUrl)]
    assert link.url == f"https://files.test/{DIGEST[:8]}"
    assert not any(isinstance(part, BinaryContent) for part in sent)


def _openai() -> dict[str, object]:
    return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{plain(IMAGE)}"}}


def _anthropic() -> dict[str, object]:
    return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": plain(IMAGE)}}


async def test_an_agent_goes_on_without_what_is_lost() -> None:
    """The model is told what is missing."""
    driver = MemoryDriver()
    async with open_store(driver) as store:
        async with store.session("s") as session:
            await session.add(QUESTION)
        (blob,) = [blob async for blob in store.blobs()]
        assert blob.put_at is not None
        assert engine_of(store).home.remove(DIGEST, put_before=blob.put_at.replace(year=9000))
    model = Counting(["I cannot see it"])
    async with open_store(driver) as store:
        outcome = await Agent(model).run("Well?", session="s", store=store)
    assert outcome.output == "I cannot see it"
    said = [Text("What is it?"), Text(f"[image/png is missing: blob {DIGEST}]"), Text("Well?")]
    assert shown(model.prompts[0].messages) == said
