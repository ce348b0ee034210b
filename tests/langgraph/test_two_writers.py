"""Two savers on one thread: the second one to write is told, and nothing forks silently."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.serde.types import ERROR

import holdfast
from holdfast.adapters.langgraph import HoldfastSaver
from holdfast.adapters.langgraph.thread_ids import ThreadNamespace
from holdfast.adapters.langgraph.thread_index import PUT
from holdfast.content.extract import Piece
from holdfast.drivers.contract import Tip
from holdfast.ids import SessionId
from tests.internals import engine_of

from .checkpoints_by_hand import Writer, checkpoint, values_at
from .graphs import chat, said, thread


async def test_a_put_is_refused_if_another_saver_wrote_since_this_one_read(store: holdfast.Store) -> None:
    """The error names the other; reading again makes it right."""
    one, other = HoldfastSaver(store), HoldfastSaver(store)
    first = Writer(one)
    await first.put(value=1)
    second = Writer(other)
    found = await other.aget_tuple(thread(checkpoint_ns=""))
    assert found is not None
    second.config = found.config
    await second.put(value=2)
    entries = [entry async for entry in store.tail(ThreadNamespace("t", "").session, follow=False)]
    bodies: list[Any] = [entry.body for entry in entries if entry.kind == PUT]
    signed = [body.data["by"] for body in bodies]
    assert len(signed) == len(set(signed)) == 2
    for _ in range(2):  # Trying again changes nothing.
        with pytest.raises(holdfast.errors.Overtaken, match="thread 't'") as refused:
            await first.put(value=3)
        assert refused.value.name == engine_of(store).heartbeat.name
        assert refused.value.writer == signed[-1]
    with pytest.raises(holdfast.errors.Overtaken):
        await one.aput_writes(first.config, [("value", 1)], "task")
    assert (await values_at(one, thread()))["value"] == 2
    await first.put(value=3)
    assert (await values_at(other, thread()))["value"] == 3


async def test_another_namespace_or_thread_is_nobodys_business(store: holdfast.Store) -> None:
    """Only the same thread and namespace count."""
    one, other = HoldfastSaver(store), HoldfastSaver(store)
    first = Writer(one)
    await first.put(value=1)
    await Writer(other, ns="child:1").put(value=2)
    await Writer(other, "elsewhere").put(value=2)
    await first.put(value=3)
    found = await one.aget_tuple(thread())
    assert found is not None
    assert found.checkpoint["channel_values"]["value"] == 3


async def test_whoever_has_only_looked_is_no_writer(store: holdfast.Store) -> None:
    """Reading, and what the command line does to a session, hinders no writer."""
    saver = HoldfastSaver(store)
    writer = Writer(saver)
    await writer.put(value=1)
    await HoldfastSaver(store).aget_tuple(thread())
    async with store.session("t.7c.") as session:
        await session.label(seen="yes")
        with pytest.raises(holdfast.LeaseHeld):
            await writer.put(value=2)
    await writer.put(value=2)
    assert (await values_at(saver, thread()))["value"] == 2


async def test_whoever_only_failed_overtakes_nobody(store: holdfast.Store) -> None:
    """A process that finds a tool in use notes its error; the one that uses the tool goes on."""
    one, other = HoldfastSaver(store), HoldfastSaver(store)
    first = Writer(one)
    config = await first.put(value=1)
    await other.aput_writes(config, [(ERROR, "it is in use")], "task")
    await one.aput_writes(config, [("value", 2)], "task")
    found = await other.aget_tuple(config)
    assert found is not None
    assert found.pending_writes == [("task", ERROR, "it is in use"), ("task", "value", 2)]
    await first.put(value=2)
    assert (await values_at(other, thread()))["value"] == 2


async def test_of_two_graphs_at_once_one_goes_on(store: holdfast.Store) -> None:
    """Both read the same state; one gets its answer, the other one an error, and the chain does not fork."""
    graphs = [chat(HoldfastSaver(store)) for _ in range(2)]
    await graphs[0].ainvoke({"messages": [HumanMessage("hello", id="h0")]}, thread())
    refused: list[BaseException] = []

    async def say(at: int) -> None:
        try:
            await graphs[at].ainvoke({"messages": [HumanMessage(f"from {at}", id=f"h{at}")]}, thread())
        except holdfast.errors.Overtaken as error:
            refused.append(error)

    while not refused:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(say, 0)
            tasks.start_soon(say, 1)
    history = [one async for one in graphs[0].aget_state_history(thread())]
    parents = [one.parent_config["configurable"]["checkpoint_id"] for one in history if one.parent_config]
    assert len(parents) == len(set(parents))


async def test_one_saver_writes_to_many_threads_at_once(store: holdfast.Store) -> None:
    """And to one thread from many tasks: a saver does not overtake itself."""
    saver = HoldfastSaver(store)
    writer = Writer(saver)
    config = await writer.put(value=0)

    async def put(at: int) -> None:
        await Writer(saver, f"t{at}").put(value=at)
        await saver.aput_writes(config, [("value", at)], f"task {at}")

    async with anyio.create_task_group() as tasks:
        for at in range(20):
            tasks.start_soon(put, at)
    found = await HoldfastSaver(store).aget_tuple(config)
    assert found is not None
    assert sorted(value for _, _, value in found.pending_writes or []) == list(range(20))
    assert [(await values_at(saver, thread(f"t{at}")))["value"] for at in range(20)] == list(range(20))


async def test_a_saver_that_is_used_with_and_without_a_loop_is_one_writer(store: holdfast.Store) -> None:
    """Threads and the event loop share it."""
    saver = HoldfastSaver(store)

    def put(at: int) -> None:
        saver.put(thread(f"t{at}", checkpoint_ns=""), checkpoint({"v": at}, {"v": 1}), {}, {"v": 1})

    async with anyio.create_task_group() as tasks:
        for at in range(8):
            tasks.start_soon(anyio.to_thread.run_sync, put, at)
            tasks.start_soon(Writer(saver, f"a{at}").put)
    assert [(await values_at(saver, thread(f"t{at}")))["v"] for at in range(8)] == [*range(8)]
    assert len([*saver.list(None)]) == 16
    saver.close()


async def test_a_thread_that_somebody_deleted_begins_anew(store: holdfast.Store) -> None:
    """A saver that has it in memory notices."""
    saver, other = HoldfastSaver(store), HoldfastSaver(store)
    await Writer(saver).put(value=1)
    await other.adelete_thread("t")
    assert await saver.aget_tuple(thread()) is None
    await Writer(saver).put(value=2)
    state = await chat(saver).ainvoke({"messages": [HumanMessage("hello", id="h0")]}, thread("new"))
    assert said(state) == ["hello", "1: 5"]


async def test_a_thread_that_another_saver_wrote_is_copied(store: holdfast.Store) -> None:
    """What is in the source counts as seen: the copy has no other writer."""
    await Writer(HoldfastSaver(store)).put(value=1)
    saver = HoldfastSaver(store)
    await saver.acopy_thread("t", "copy")
    assert await values_at(saver, thread("copy")) == {"value": 1}


@pytest.mark.parametrize("fresh", [True, False], ids=["a new thread", "one that is there"])
async def test_a_put_that_is_too_large_changes_nothing(
    fresh: bool, store: holdfast.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What comes after it is as if it had never been tried."""
    writer = Writer(HoldfastSaver(store))
    if not fresh:
        await writer.put(note="before")
    with monkeypatch.context() as small:
        small.setattr("holdfast.core.codec.LINE_BYTES_MAX", 10)
        with pytest.raises(holdfast.errors.BadInput, match="over the limit"):
            await writer.put(note="too large")
    await writer.put(note="after")
    assert await values_at(HoldfastSaver(store), thread("t")) == {"note": "after"}


async def test_everybody_who_was_overtaken_is_told_so(store: holdfast.Store) -> None:
    """Also who comes when the first one has been refused, and does not know it yet."""
    one, other = HoldfastSaver(store), HoldfastSaver(store)
    first = Writer(one)
    await first.put(value=1)
    second = Writer(other)
    found = await other.aget_tuple(thread(checkpoint_ns=""))
    assert found is not None
    second.config = found.config
    await second.put(value=2)
    refused: list[str] = []

    async def write(task: str) -> None:
        try:
            await one.aput_writes(first.config, [("value", 1)], task)
        except holdfast.HoldfastError as error:
            refused.append(type(error).__name__)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(write, "a")
        await anyio.lowlevel.checkpoint()
        tasks.start_soon(write, "b")
        time.sleep(0.2)  # noqa: ASYNC251 - the event loop is busy, and the committer is not
    assert refused == ["Overtaken", "Overtaken"]


async def test_a_picture_that_is_being_put_is_not_lost(
    store: holdfast.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who reads meanwhile waits for it."""
    blobs, driver = engine_of(store).blobs, engine_of(store).driver
    keep, find_tip = blobs.keep, driver.find_tip

    def find_slowly(session: SessionId) -> Tip | None:
        found = find_tip(session)
        time.sleep(0.2)
        return found

    def keep_slowly(pieces: Iterable[Piece]) -> None:
        time.sleep(0.3)
        keep(pieces)

    saver = HoldfastSaver(store)
    writer = Writer(saver)
    await writer.put(value=1)
    monkeypatch.setattr(driver, "find_tip", find_slowly)
    monkeypatch.setattr(blobs, "keep", keep_slowly)
    found: list[object] = []

    async def read() -> None:
        found.append(await values_at(saver, thread()))

    async def put() -> None:
        await writer.put(value=bytes(200_000))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read)
        await anyio.sleep(0.1)
        tasks.start_soon(put)
    assert found in ([{"value": 1}], [{"value": bytes(200_000)}])
