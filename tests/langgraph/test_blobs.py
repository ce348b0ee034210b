"""Large binary content in a graph's state: in blobs, once for equal bytes, for as long as it is needed."""

from __future__ import annotations

import asyncio
import random
import string
import threading
from base64 import b64encode
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

import holdfast
from holdfast.adapters.langgraph import CheckedSerializer, HoldfastSaver
from holdfast.adapters.langgraph.blob_extraction import cut_bytes, cut_text, join_bytes, join_text
from holdfast.adapters.langgraph.delta_encode import Elements
from holdfast.blobs import BlobContext
from holdfast.content.extract import Swap
from holdfast.content.lazy import Shared
from holdfast.drivers.memory import MemoryDriver
from holdfast.errors import LostBlob, StoreFailed
from holdfast.ids import SessionId
from holdfast.limits import INLINE_BYTES
from tests.internals import engine_of
from tests.stores import ForwardingHome

from .checkpoints_by_hand import Writer, values_at
from .graphs import chat, thread
from .test_growth import _as_stored, values
from .test_retention import delta_chat, journal_bytes

IMAGE = random.Random(1).randbytes(INLINE_BYTES + 1000)
DIGEST = sha256(IMAGE).hexdigest()
TEXT = b64encode(IMAGE).decode()


@dataclass
class Scan:
    """A type of the application's own, with bytes in it."""

    page: int
    pixels: bytes


def shown(id: str, said: str = "look") -> HumanMessage:
    """A message with a picture."""
    block = {"type": "image", "base64": TEXT, "mime_type": "image/png"}
    return HumanMessage([{"type": "text", "text": said}, block], id=id)


def linked(id: str) -> HumanMessage:
    """A message with a picture, as OpenAI has it."""
    return HumanMessage([{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{TEXT}"}}], id=id)


async def digests(store: holdfast.Store) -> list[str]:
    """The blobs of the store."""
    return [blob.digest async for blob in store.blobs()]


async def collect(store: holdfast.Store) -> list[str]:
    """Remove blobs without a reference; what is left."""
    await store.collect_blobs(grace_s=0, dry_run=False, alone=True)
    return await digests(store)


async def test_equal_content_is_stored_once_wherever_it_stands(store: holdfast.Store) -> None:
    """In messages, in dicts, as bytes, in types of one's own, in two threads: one blob, and short lines."""
    folded = {"x": {"y": [TEXT]}}
    values: dict[str, Any] = {
        "messages": [shown("a"), shown("b", "again"), linked("c"), AIMessage("nice", id="d")],
        "blocks": [{"type": "image", "data": TEXT}, {"url": f"data:image/png;base64,{TEXT}"}],
        "raw": IMAGE,
        "array": bytearray(IMAGE),
        "scan": Scan(1, IMAGE),
        "by number": {1: IMAGE},
        "deep": {"rows": [{"cells": (TEXT, Scan(2, IMAGE))}, [AIMessage("", additional_kwargs=folded)]]},
    }
    saver = HoldfastSaver(store, allow=[Scan])
    for id in ("t", "other"):
        await Writer(saver, id).put(**values)
    assert await digests(store) == [DIGEST]
    assert await journal_bytes(store) < 20_000
    for fresh in (saver, HoldfastSaver(store, allow=[Scan])):
        assert await values_at(fresh, thread()) == values


async def test_small_content_and_long_texts_stay_in_the_journal(store: holdfast.Store) -> None:
    """Exactly the threshold is large; a text is, if it is base64."""
    writer = Writer(HoldfastSaver(store))
    given = {"small": IMAGE[: INLINE_BYTES - 1], "text": "words, and more words. " * 10_000}
    config = await writer.put(**given)
    assert await digests(store) == []
    assert await values_at(HoldfastSaver(store), config) == given
    await writer.put(large=IMAGE[:INLINE_BYTES])
    assert await digests(store) == [sha256(IMAGE[:INLINE_BYTES]).hexdigest()]


@pytest.mark.parametrize("inline_bytes", [1000, None])
async def test_the_threshold_is_the_stores(url: str, inline_bytes: int | None) -> None:
    async with holdfast.open_store(url, inline_bytes=inline_bytes) as store:
        saver = HoldfastSaver(store)
        config = await Writer(saver).put(messages=[shown("a")], raw=IMAGE[:1000])
        assert len(await digests(store)) == (0 if inline_bytes is None else 2)
        assert await values_at(HoldfastSaver(store), config) == {
            "messages": [shown("a")],
            "raw": IMAGE[:1000],
        }


async def test_pictures_of_a_conversation_are_not_stored_again_at_each_step(store: holdfast.Store) -> None:
    """A real graph, and a history that is looked through."""
    graph = chat(HoldfastSaver(store))
    for turn in range(4):
        await graph.ainvoke({"messages": [shown(f"h{turn}", f"turn {turn}")]}, thread())
    assert await digests(store) == [DIGEST]
    assert await journal_bytes(store) < 30_000
    fresh = chat(HoldfastSaver(store))
    history = [state async for state in fresh.aget_state_history(thread())]
    pictures = [
        one.content[1]["base64"]
        for state in history
        for one in state.values.get("messages", [])
        if one.type == "human"
    ]
    assert len(pictures) > 10
    assert set(pictures) == {TEXT}


def test_it_works_without_an_event_loop(url: str) -> None:
    with HoldfastSaver.from_url(url) as saver:
        graph = chat(saver)
        graph.invoke({"messages": [shown("h0")]}, thread())
        state = graph.invoke({"messages": [shown("h1")]}, thread())
        assert [one.content for one in state["messages"][::2]] == [shown("h").content] * 2


async def test_what_tasks_write_is_in_blobs_too(store: holdfast.Store) -> None:
    """And is there for the process that resumes."""
    saver = HoldfastSaver(store)
    config = await Writer(saver).put(messages=[])
    await saver.aput_writes(config, [("messages", [shown("a")]), ("raw", IMAGE)], "task")
    assert await digests(store) == [DIGEST]
    found = await HoldfastSaver(store).aget_tuple(config)
    assert found is not None
    assert found.pending_writes == [("task", "messages", [shown("a")]), ("task", "raw", IMAGE)]


@pytest.mark.filterwarnings("ignore:.*[Bb]eta.*")
async def test_delta_channels_are_rebuilt_with_their_pictures(store: holdfast.Store) -> None:
    graph = delta_chat(HoldfastSaver(store))
    for turn in range(6):
        await graph.ainvoke({"messages": [shown(f"h{turn}")]}, thread())
    assert await digests(store) == [DIGEST]
    state = (await delta_chat(HoldfastSaver(store)).aget_state(thread())).values
    assert [one.content for one in state["messages"][::2]] == [shown("h").content] * 6


async def test_content_that_is_encrypted_is_so_in_its_blob(store: holdfast.Store) -> None:
    """What goes past the serializer is what it wrote."""

    class Shifted:
        def encrypt(self, plaintext: bytes) -> tuple[str, bytes]:
            return "shifted", bytes((one + 1) % 256 for one in plaintext)

        def decrypt(self, ciphername: str, ciphertext: bytes) -> bytes:
            return bytes((one - 1) % 256 for one in ciphertext)

    serde = EncryptedSerializer(Shifted(), JsonPlusSerializer())
    config = await Writer(HoldfastSaver(store, serde=serde)).put(messages=[shown("a")], text=TEXT)
    assert await journal_bytes(store) < 5000
    kept_as = await digests(store)
    assert len(kept_as) == 2, "each value as a whole"
    for digest in kept_as:
        async with store.open_blob(digest) as blob:
            kept = await blob.read()
        assert TEXT[:100].encode() not in kept
        assert IMAGE[:100] not in kept
    found = await values_at(HoldfastSaver(store, serde=serde), config)
    assert found == {"messages": [shown("a")], "text": TEXT}


async def test_words_that_look_like_a_reference_are_words(store: holdfast.Store) -> None:
    """Nothing is put in their place, long or short."""
    word = f"media+sha256://{DIGEST}"
    given = {"text": word, "long": word * 2000, "nodes": ["u", word], "message": [HumanMessage(word, id="a")]}
    config = await Writer(HoldfastSaver(store)).put(**given)
    assert await values_at(HoldfastSaver(store), config) == given


# -- for how long -----------------------------------------------------------------------------------------


async def test_a_blob_goes_with_the_last_thread_that_refers_to_it(store: holdfast.Store) -> None:
    saver = HoldfastSaver(store)
    for id in ("t", "other"):
        await Writer(saver, id).put(raw=IMAGE)
    await saver.adelete_thread("t")
    assert await collect(store) == [DIGEST]
    assert await values_at(HoldfastSaver(store), thread("other")) == {"raw": IMAGE}
    await saver.adelete_thread("other")
    assert await collect(store) == []


async def test_pruning_keeps_the_blobs_of_what_is_left(store: holdfast.Store) -> None:
    """Those of the others are collected."""
    saver, later = HoldfastSaver(store), IMAGE[::-1]
    writer = Writer(saver)
    await writer.put(raw=IMAGE)
    config = await writer.put(raw=later)
    await saver.aput_writes(config, [("raw", IMAGE[1:])], "task")
    await saver.aprune(["t"])
    assert await collect(store) == sorted(sha256(one).hexdigest() for one in (later, IMAGE[1:]))
    for fresh in (saver, HoldfastSaver(store)):
        assert await values_at(fresh, thread()) == {"raw": later}
    writer.saver = HoldfastSaver(store)
    await writer.put(raw=IMAGE)
    assert await values_at(saver, thread()) == {"raw": IMAGE}, "put again after it was collected"


async def test_removing_runs_releases_their_blobs(store: holdfast.Store) -> None:
    saver, later = HoldfastSaver(store), IMAGE[::-1]
    writer = Writer(saver)
    for run, raw in (("old", IMAGE), ("new", later)):
        writer.config = {**writer.config, "metadata": {"run_id": run}}
        await writer.put(raw=raw)
    await saver.adelete_for_runs(["old"])
    assert await collect(store) == [sha256(later).hexdigest()]
    assert await values_at(HoldfastSaver(store), thread()) == {"raw": later}


async def test_a_copy_keeps_the_blobs_that_it_shares(store: holdfast.Store) -> None:
    """Also when its source is gone, and when it was pruned; one into a thread that is there has its own."""
    saver = HoldfastSaver(store)
    await Writer(saver).put(messages=[shown("a")])
    await Writer(saver, "there").put(value=1)
    await saver.acopy_thread("t", "copy")
    await saver.acopy_thread("t", "there")
    await saver.adelete_thread("t")
    assert await collect(store) == [DIGEST]
    await Writer(saver, "copy").put(messages=[shown("a"), shown("b")])
    await saver.aprune(["copy"])
    await saver.adelete_thread("there")
    assert await collect(store) == [DIGEST]
    assert await values_at(HoldfastSaver(store), thread("copy")) == {"messages": [shown("a"), shown("b")]}
    await saver.adelete_thread("copy")
    assert await collect(store) == []


async def test_threads_that_are_brought_over_bring_their_content(store: holdfast.Store) -> None:
    async with holdfast.open_store("memory:") as old:
        await Writer(HoldfastSaver(old)).put(messages=[shown("a")])
        await HoldfastSaver(store).acopy_from(HoldfastSaver(old))
    assert await collect(store) == [DIGEST]
    assert await values_at(HoldfastSaver(store), thread()) == {"messages": [shown("a")]}


async def test_a_blob_that_is_missing_is_named(store: holdfast.Store) -> None:
    """Nothing else comes in its place; what does not need it can be read."""
    saver = HoldfastSaver(store)
    writer = Writer(saver)
    first = await writer.put(note="no picture")
    await writer.put(raw=IMAGE)
    later = engine_of(store).now() + timedelta(days=1)
    await anyio.to_thread.run_sync(lambda: engine_of(store).home.remove(DIGEST, put_before=later))
    with pytest.raises(LostBlob, match=f"thread 't': blob {DIGEST}"):
        await HoldfastSaver(store).aget_tuple(thread())
    assert await values_at(HoldfastSaver(store), first) == {"note": "no picture"}


# -- durable before the line that refers to it ------------------------------------------------------------


class Gate(ForwardingHome):
    """A home where each put of some bytes goes through a function first."""

    def __init__(self, driver: MemoryDriver) -> None:
        super().__init__(driver)
        self.before: Callable[[], None] = lambda: None

    def put(self, digest: str, parts: Iterable[bytes], context: BlobContext, *, owner: str) -> None:
        self.before()
        super().put(digest, parts, context, owner=owner)

    def stop(self) -> tuple[threading.Event, threading.Event]:
        """Have the next put wait: what tells that it has begun, and what lets it go on."""
        begun, go_on = threading.Event(), threading.Event()

        def wait() -> None:
            begun.set()
            assert go_on.wait(30)

        self.before = wait
        return begun, go_on


@pytest.fixture
def gated() -> tuple[MemoryDriver, Gate]:
    """A store, and its home."""
    driver = MemoryDriver()
    return driver, Gate(driver)


def fail() -> None:
    raise StoreFailed("the home is on fire")


async def test_a_blob_that_cannot_be_kept_leaves_nothing_behind(gated: tuple[MemoryDriver, Gate]) -> None:
    """The call fails, and may be made again; the thread is as it was."""
    driver, home = gated
    async with holdfast.open_store(driver, blobs=home) as store:
        saver = HoldfastSaver(store)
        writer = Writer(saver)
        first = await writer.put(note="one")
        home.before = fail
        with pytest.raises(StoreFailed, match="on fire"):
            await writer.put(raw=IMAGE)
        assert [one.config async for one in saver.alist(thread())] == [first]
        home.before = lambda: None
        await writer.put(raw=IMAGE)
        assert await values_at(HoldfastSaver(store), thread()) == {"raw": IMAGE}
        assert len([one async for one in saver.alist(thread())]) == 2


async def test_an_upload_keeps_nobody_else_waiting(gated: tuple[MemoryDriver, Gate]) -> None:
    """What is written to the same thread meanwhile comes after it; other threads go on."""
    driver, home = gated
    async with holdfast.open_store(driver, blobs=home) as store:
        saver = HoldfastSaver(store)
        config = await Writer(saver).put(note="one")
        begun, go_on = home.stop()
        order: list[str] = []

        async def write(task: str, value: Any) -> None:
            await saver.aput_writes(config, [("raw", value)], task)
            order.append(task)

        async with anyio.create_task_group() as group:
            group.start_soon(write, "large", IMAGE)
            await anyio.to_thread.run_sync(begun.wait)
            group.start_soon(write, "small", 1)
            await Writer(saver, "other").put(note="two")
            assert order == []
            tip = driver.find_tip(SessionId("t.7c."))
            assert tip is not None
            assert tip.seq == 3
            go_on.set()
        assert sorted(order) == ["large", "small"]
        found = await HoldfastSaver(store).aget_tuple(config)
        assert found is not None
        assert found.pending_writes == [("large", "raw", IMAGE), ("small", "raw", 1)]


async def test_a_writer_that_is_cut_off_does_not_take_others_with_it(
    gated: tuple[MemoryDriver, Gate],
) -> None:
    """Cancelled during its upload, it has written nothing; who came after it has."""
    driver, home = gated
    async with holdfast.open_store(driver, blobs=home) as store:
        saver = HoldfastSaver(store)
        config = await Writer(saver).put(note="one")
        begun, go_on = home.stop()
        large = asyncio.create_task(saver.aput_writes(config, [("raw", IMAGE)], "large"))
        await anyio.to_thread.run_sync(begun.wait)
        small = asyncio.create_task(saver.aput_writes(config, [("raw", 1)], "small"))
        await anyio.lowlevel.checkpoint()
        large.cancel()
        await asyncio.wait([large])
        go_on.set()
        await small
        assert large.cancelled()
        found = await HoldfastSaver(store).aget_tuple(config)
        assert found is not None
        assert found.pending_writes == [("small", "raw", 1)]


async def test_who_is_overtaken_during_an_upload_has_written_nothing(
    gated: tuple[MemoryDriver, Gate],
) -> None:
    """As without blobs: the error names the other, and the thread is theirs."""
    driver, home = gated
    async with holdfast.open_store(driver, blobs=home) as store:
        here, there = Writer(HoldfastSaver(store)), Writer(HoldfastSaver(store))
        there.config = await here.put(note="one")
        await values_at(there.saver, there.config)
        begun, go_on = home.stop()
        large = asyncio.create_task(here.put(raw=IMAGE))
        await anyio.to_thread.run_sync(begun.wait)
        await there.put(note="two")
        go_on.set()
        with pytest.raises(holdfast.errors.Overtaken):
            await large
        assert await values_at(HoldfastSaver(store), thread()) == {"note": "two"}
        assert len([one async for one in here.saver.alist(thread())]) == 2
        assert await collect(store) == []


# -- cutting ----------------------------------------------------------------------------------------------


@settings(max_examples=60)
@given(
    value=values,
    large=st.binary(min_size=300, max_size=70_000),
    noise=st.text(string.printable, max_size=600),
    least=st.sampled_from([1, 300, 1000, 65_536]),
)
def test_any_value_comes_back_whatever_is_cut_out_of_it(
    value: Any, large: bytes, noise: str, least: int
) -> None:
    """Taken apart or serialized as a whole, deep inside or by itself."""
    elements = Elements(CheckedSerializer(), trust_objects=False, inline_bytes=least)
    text = b64encode(large).decode()
    around = {1: [large, text, noise * 50], 2: f"data:image/png;base64,{text}"}
    given = [value, large, text, around, HumanMessage(text), noise * 50]
    node, _ = elements.write(given)
    blobs = {piece.digest: Shared(b"".join(piece.parts())) for piece in elements.take_pieces()}
    assert elements.find_blobs(lambda: elements.read(node)) == blobs.keys()
    with elements.with_blobs(blobs):
        assert elements.read(node)[0] == _as_stored(given)
    if len(large) >= least:
        assert sha256(large).hexdigest() in blobs


def _decoded(node: bytes) -> Any:
    return msgspec.json.decode(node)


@pytest.mark.parametrize("text", [TEXT, f"data:image/png;base64,{TEXT}", TEXT.rstrip("="), "ab" * 100_000])
def test_a_text_that_is_cut_out_comes_back_as_it_was(text: str) -> None:
    swap = Swap(INLINE_BYTES)
    node = cut_text(text, swap)
    assert node is not None
    kept = {digest: b"".join(piece.parts()) for digest, piece in swap.pieces.items()}
    assert join_text(_decoded(node)[1], kept.__getitem__) == text


def test_bytes_that_only_look_like_a_head_do_no_harm() -> None:
    """Numbers and texts full of what announces long content elsewhere."""
    serde = CheckedSerializer()
    hostile = b"\xc6\x00\x00\x02\x00\xdb\x00\x00\x01\x50\xc5\x01\x00" * 100
    form, data = serde.dumps_typed({"a": hostile[:250], "b": [hostile[:200]] * 20, "c": "Û" * 500})
    swap = Swap(256)
    node = cut_bytes(form, data, swap)
    assert node is not None
    kept = {digest: b"".join(piece.parts()) for digest, piece in swap.pieces.items()}
    assert join_bytes(_decoded(node)[2], kept.__getitem__) == data


def test_elements_with_equal_content_are_one() -> None:
    """Serialized again, a message is the element that it was."""
    elements = Elements(CheckedSerializer(), trust_objects=False, inline_bytes=INLINE_BYTES)
    first, _ = elements.write(shown("a"))
    assert len(elements.take_pieces()) == 1
    assert len(elements.take_fresh()[1]) == 1
    assert elements.write(shown("a"))[0] == first
    assert elements.take_fresh()[1] == []
