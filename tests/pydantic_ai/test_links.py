"""`Durable(media_urls=True)`: the model is sent links, and what is recorded keeps the bytes."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import BinaryContent, ToolReturn
from pydantic_ai.messages import (
    AudioUrl,
    DocumentUrl,
    FileUrl,
    ImageUrl,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ToolReturnPart,
    UserPromptPart,
    VideoUrl,
)

import holdfast
from holdfast.adapters.pydantic_ai import Durable, continue_run, effects
from holdfast.blobs import BlobContext
from holdfast.limits import INLINE_BYTES

from .scripted_runs import SESSION, Script, call, kill, killed

PURE = effects(side_effects=())
LARGE = bytes(range(256)) * (INLINE_BYTES // 256)
PICTURE = BinaryContent(LARGE, media_type="image/png", vendor_metadata={"detail": "high"})
DOT = BinaryContent(LARGE[:-1], media_type="image/png")


class Signed:
    """Gives another URL each time, as a signed one is."""

    def __init__(self) -> None:
        self._numbers = count()

    def __call__(self, reference: str, context: BlobContext) -> str:
        return f"https://files.test/{reference[15:23]}?signed={next(self._numbers)}"


def files(messages: list[ModelMessage]) -> list[Any]:
    """What a model was shown beside text."""
    found: list[Any] = []
    for message in messages:
        for part in message.parts:
            if isinstance(part, UserPromptPart | ToolReturnPart):
                content = part.content if isinstance(part.content, list | tuple) else [part.content]
                found += [one for one in content if isinstance(one, BinaryContent | FileUrl)]
    return found


def snapping(script: Script) -> Any:
    agent = script.agent()

    @agent.tool_plain(metadata=PURE)
    def snap() -> Any:
        return ToolReturn(return_value=["one", PICTURE, DOT], content=["more", PICTURE])

    @agent.tool_plain(metadata=PURE)
    def draw() -> Any:
        return PICTURE

    return agent


async def test_the_model_is_sent_links_and_the_bytes_are_recorded() -> None:
    """In prompts and in what tools give; what is too small for a blob stays as it is."""
    script = Script([call("snap"), call("draw", "c1")], "nice")
    async with holdfast.open_store("memory:", blob_urls=Signed()) as store:
        durable = Durable(store, session=SESSION, media_urls=True)
        result = await snapping(script).run(["look", PICTURE, DOT], capabilities=[durable])
        seen = files(script.seen[-1])
        assert [type(one) for one in seen] == [
            ImageUrl, BinaryContent, ImageUrl, BinaryContent, ImageUrl, ImageUrl,
        ]  # fmt: skip
        assert all(one.data == DOT.data for one in seen if isinstance(one, BinaryContent))
        links = [one for one in seen if isinstance(one, ImageUrl)]
        assert {link.identifier for link in links} == {PICTURE.identifier}
        assert [link.vendor_metadata for link in links] == [{"detail": "high"}] * 4
        assert {link.media_type for link in links} == {"image/png"}
        assert files(result.all_messages()) == [PICTURE, DOT, PICTURE, DOT, PICTURE, PICTURE]
        on = await continue_run(store, session=SESSION)
        write = ModelMessagesTypeAdapter.dump_json
        assert write(on.messages) == write(result.all_messages())


async def test_links_are_made_anew_for_each_request() -> None:
    script = Script([call("gone")], "nice")
    agent = script.agent()
    agent.tool_plain(metadata=PURE)(gone)
    async with holdfast.open_store("memory:", blob_urls=Signed()) as store:
        await agent.run([PICTURE], capabilities=[Durable(store, session=SESSION, media_urls=True)])
    first, second = (files(seen) for seen in script.seen)
    assert [one.url[-9:] for one in (*first, *second)] == ["?signed=0", "?signed=1"]


def gone() -> str:
    return "gone"


@pytest.mark.parametrize(
    ("media_type", "kind"),
    [
        ("image/webp", ImageUrl),
        ("audio/mpeg", AudioUrl),
        ("video/mp4", VideoUrl),
        ("application/pdf", DocumentUrl),
        ("text/csv", DocumentUrl),
        ("application/x-unheard-of", BinaryContent),
    ],
)
async def test_a_link_is_of_the_kind_of_its_file(media_type: str, kind: type) -> None:
    """What models have no kind of link for stays as it is."""
    script = Script("nice")
    file = BinaryContent(LARGE, media_type=media_type)
    async with holdfast.open_store("memory:", blob_urls=Signed()) as store:
        durable = Durable(store, session=SESSION, media_urls=True)
        await script.agent().run([file], capabilities=[durable])
    (shown,) = files(script.seen[0])
    assert (type(shown), shown.media_type) == (kind, media_type)


async def test_streams_are_sent_links_as_well() -> None:
    script = Script("nice")
    async with holdfast.open_store("memory:", blob_urls=Signed()) as store:
        durable = Durable(store, session=SESSION, media_urls=True)
        async with script.agent().run_stream([PICTURE], capabilities=[durable]) as result:
            assert await result.get_output() == "nice "
    assert [type(one) for one in files(script.seen[0])] == [ImageUrl]


async def test_a_run_that_was_cut_off_goes_on_with_links(tmp_path: Path) -> None:
    """Recorded steps are replayed from their bytes; the next request has links to all of them."""
    url = f"sqlite:{tmp_path}/agents.db"
    signed = Signed()
    first, second = Script([call("draw")], "never"), Script("unasked", "nice")

    async def drive(store: holdfast.Store) -> None:
        agent = first.agent()

        @agent.tool_plain(metadata=PURE)
        def draw() -> Any:
            kill(store)

        await agent.run([PICTURE], capabilities=[Durable(store, session=SESSION, media_urls=True)])

    await killed(url, drive, blob_urls=signed)
    async with holdfast.open_store(url, blob_urls=signed) as store:
        durable = Durable(store, session=SESSION, media_urls=True, once=True)
        result = await snapping(second).run([PICTURE], capabilities=[durable])
        assert result.output == "nice"
        assert (first.asked, second.asked) == ([0], [1])
        assert [type(one) for one in files(second.seen[0])] == [ImageUrl, ImageUrl]
        again = await snapping(second).run([PICTURE], capabilities=[durable])
        assert again.output == "nice"
        assert [one.data for one in files(again.all_messages())] == [LARGE, LARGE]
    assert second.asked == [1]


async def test_a_blob_without_a_link_is_sent_as_it_is() -> None:
    script = Script("nice")
    async with holdfast.open_store("memory:", blob_urls=lambda reference, context: None) as store:
        durable = Durable(store, session=SESSION, media_urls=True)
        await script.agent().run([PICTURE], capabilities=[durable])
    assert files(script.seen[0]) == [PICTURE]


async def test_a_home_without_urls_is_refused_at_once(tmp_path: Path) -> None:
    """When the option is chosen, or if the store is opened later, before the run begins."""
    every: tuple[dict[str, Any], ...] = (
        {},
        {"blobs": f"dir:{tmp_path}/blobs"},
    )
    for options in every:
        opening = holdfast.open_store("memory:", **options)
        early = Durable(opening, session=SESSION, media_urls=True)
        async with opening as store:
            with pytest.raises(holdfast.errors.BadInput, match="have no URLs"):
                Durable(store, session=SESSION, media_urls=True)
            with pytest.raises(holdfast.errors.BadInput, match="have no URLs"):
                await Script("unasked").agent().run("a", capabilities=[early])
            assert [one async for one in store.sessions()] == []
    with pytest.raises(holdfast.errors.BadInput, match="whose blobs have URLs"):
        Durable("sqlite:agents.db", session=SESSION, media_urls=True)


async def test_a_directory_that_is_published_has_links(tmp_path: Path) -> None:
    script = Script("nice")
    async with holdfast.open_store(
        "memory:", blobs=f"dir:{tmp_path}/blobs", blob_urls="https://cdn.example.org"
    ) as store:
        durable = Durable(store, session=SESSION, media_urls=True)
        await script.agent().run([PICTURE], capabilities=[durable])
    (shown,) = files(script.seen[0])
    assert shown.url.startswith("https://cdn.example.org/")
    assert (tmp_path / "blobs" / shown.url.removeprefix("https://cdn.example.org/")).read_bytes() == LARGE
