"""Images in a session, under LangGraph's saver and in a step store: shown one by one, and looked at."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable
from typing import Any, Final, Protocol

from langchain_core.messages import HumanMessage
from pydantic_ai.messages import BinaryImage, ModelMessage, ModelRequest, UserPromptPart

from holdfast import Store
from holdfast.adapters.langgraph import HoldfastSaver
from holdfast.adapters.pydantic_ai.step_store import HoldfastStepStore
from holdfast.messages import AnyMessage, Media, Message

from ..langgraph.checkpoints_by_hand import Writer
from ..langgraph.graphs import thread
from ..steps.example_histories import at, snapshot

IMAGES: Final = 6
SIZE: Final = 150_000


def image(number: int) -> bytes:
    """Each one is another; every third comes again."""
    return bytes([number % 4]) * SIZE


class Gallery(Protocol):
    """A way to keep images."""

    async def fill(self, store: Store, acknowledge: Callable[[], None]) -> None:
        """Show the images that are not there yet."""

    async def look(self, store: Store) -> list[bytes]:
        """The images that are there."""


class InSession:
    """In messages and in user state."""

    async def fill(self, store: Store, acknowledge: Callable[[], None]) -> None:
        async with store.session("s", wait_s=60) as session:
            for number in range(len(session.transcript), IMAGES):
                media = Media(media_type="image/png", data=image(number))
                await session.add(Message(role="user", blocks=(media,)))
                await session.set("last", image(number))
                await session.flush()
                acknowledge()

    async def look(self, store: Store) -> list[bytes]:
        state = await store.load("s")
        shown = [_image_in(message) for message in state.transcript]
        assert "last" not in state.facts.values or state.get("last") in shown
        return shown


def _image_in(message: AnyMessage) -> bytes:
    assert isinstance(message, Message)
    (media,) = message.blocks
    assert isinstance(media, Media)
    assert media.data is not None
    return media.data


class UnderSaver:
    """In the messages of a graph's state."""

    async def fill(self, store: Store, acknowledge: Callable[[], None]) -> None:
        saver = HoldfastSaver(store)
        writer, found = Writer(saver), await saver.aget_tuple(thread())
        messages: list[HumanMessage] = []
        if found is not None:
            messages, writer.config = found.checkpoint["channel_values"]["messages"], found.config
        for number in range(len(messages), IMAGES):
            block = {"type": "image", "base64": b64encode(image(number)).decode()}
            messages = [*messages, HumanMessage([block], id=str(number))]
            await writer.put(messages=messages)
            acknowledge()

    async def look(self, store: Store) -> list[bytes]:
        found = await HoldfastSaver(store).aget_tuple(thread())
        messages = [] if found is None else found.checkpoint["channel_values"]["messages"]
        return [b64decode(one.content[0]["base64"]) for one in messages]


class InSteps:
    """In the histories of a run."""

    async def fill(self, store: Store, acknowledge: Callable[[], None]) -> None:
        steps = HoldfastStepStore(store)
        found = await steps.latest_snapshot(run_id="r")
        messages: list[ModelMessage] = [] if found is None else found.messages
        for number in range(len(messages), IMAGES):
            picture = BinaryImage(image(number), media_type="image/png")
            shown = ModelRequest(parts=[UserPromptPart(content=[picture], timestamp=at(number))])
            messages = [*messages, shown]
            await steps.save_snapshot(snapshot("r", messages))
            acknowledge()

    async def look(self, store: Store) -> list[bytes]:
        found = await HoldfastStepStore(store).latest_snapshot(run_id="r")
        parts: list[Any] = [] if found is None else [message.parts[0] for message in found.messages]
        return [part.content[0].data for part in parts]


GALLERIES: Final[dict[str, Gallery]] = {
    "session": InSession(),
    "saver": UnderSaver(),
    "steps": InSteps(),
}
