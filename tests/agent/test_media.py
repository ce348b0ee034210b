"""Agents and large content: shown to the model as bytes or as links, and gone on without if it is lost."""

from __future__ import annotations

import hashlib

import holdfast
from holdfast import Agent, Media, Message, Text, ToolResult, open_store
from holdfast.store.memory import MemoryDriver
from tests.agent.stage import Counting, call
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


def shown(messages: object) -> list[Media | Text]:
    """What the model saw, results included."""
    found: list[Media | Text] = []
    for message in messages:  # type: ignore[attr-defined]
        for block in message.blocks:
            parts = block.content if isinstance(block, ToolResult) else (block,)
            found += [part for part in parts if isinstance(part, Media)]
            found += [part for part in parts if isinstance(part, Text) and "missing" in part.text]
    return found


async def test_a_model_is_shown_the_bytes() -> None:
    """Those of messages, and those that tools gave."""
    model = Counting([[call("picture")], "a cat"])
    async with open_store("memory:") as store:
        outcome = await Agent(model, tools=[picture]).run(QUESTION, session="s", store=store)
    assert outcome.output == "a cat"
    assert [media.data for media in shown(model.prompts[-1].messages)] == [IMAGE, IMAGE]  # type: ignore[union-attr]


async def test_a_model_that_wants_links_gets_links() -> None:
    """Where there are any: small content has none."""
    model = Counting([[call("picture")], "a cat"])
    model.links = True  # type: ignore[attr-defined]
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
    assert [(media.url, media.data) for media in shown(linked[:1])] == [(None, b"dot")]  # type: ignore[union-attr]
    foreign = linked[1]
    assert isinstance(foreign, holdfast.ForeignMessage)
    assert foreign.data["content"] == [
        {"type": "image_url", "image_url": {"url": link}},
        {"type": "image", "source": {"type": "url", "url": link}},
    ]
    assert [media.url for media in shown(linked[2:])] == [link, link]  # type: ignore[union-attr]
    asked = [message for message in model.prompts[-1].messages if isinstance(message, Message)]
    assert [media.url for media in shown(asked[1:])] == [link, link]  # type: ignore[union-attr]


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
        assert store._engine.home.remove(DIGEST, put_before=blob.put_at.replace(year=9000))
    model = Counting(["I cannot see it"])
    async with open_store(driver) as store:
        outcome = await Agent(model).run("Well?", session="s", store=store)
    assert outcome.output == "I cannot see it"
    assert shown(model.prompts[0].messages) == [Text(f"[image/png is missing: blob {DIGEST}]")]
