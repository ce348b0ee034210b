"""Removing and copying: what is left is whole, and what is gone takes no space."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Annotated, Any

import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langgraph.channels import DeltaChannel
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command
from typing_extensions import TypedDict

import holdfast
from holdfast.adapters.langgraph import HoldfastSaver
from holdfast.adapters.langgraph.thread_ids import ThreadNamespace

from .checkpoints_by_hand import Writer, checkpoint, values_at
from .conftest import on_every_store
from .graphs import chat, panel, said, thread
from .test_growth import kilobyte


async def journal_bytes(store: holdfast.Store, prefix: str = "") -> int:
    """What the contents of all saver sessions take."""
    size = 0
    async for head in store.sessions(label={"adapter": "langgraph"}):
        if head.session.startswith(prefix):
            async for entry in store.tail(head.session, follow=False):
                size += len(bytes(entry.content or b""))
    return size


async def fill(saver: HoldfastSaver, id: str = "t", steps: int = 10) -> list[Any]:
    """A thread whose `report` is another one each time; where each step is."""
    chance = random.Random(2)
    writer = Writer(saver, id)
    return [await writer.put(report=kilobyte(chance), kept="x" * 200) for _ in range(steps)]


async def test_pruning_returns_the_space(store: holdfast.Store) -> None:
    """Only the latest is left; what the others held is no longer in the journal, and the chain holds."""
    saver = HoldfastSaver(store)
    configs = await fill(saver, steps=40)
    before = await journal_bytes(store)
    latest = await values_at(saver, configs[-1])
    await saver.aprune(["t"])
    assert await journal_bytes(store) < before / 4
    for fresh in (saver, HoldfastSaver(store)):
        assert [one.config async for one in fresh.alist(thread())] == [configs[-1]]
        assert await values_at(fresh, thread()) == latest
    assert (await store.load("t.7c.")).seq > 10


async def test_a_thread_goes_on_after_it_was_pruned(store: holdfast.Store) -> None:
    """By the saver that pruned it, and by another."""
    saver = HoldfastSaver(store)
    graph = chat(saver)
    for word in ("one", "two"):
        await graph.ainvoke({"messages": [HumanMessage(word, id=word)]}, thread())
    await saver.aprune(["t"])
    await graph.ainvoke({"messages": [HumanMessage("three", id="three")]}, thread())
    state = await chat(HoldfastSaver(store)).ainvoke(
        {"messages": [HumanMessage("four", id="four")]}, thread()
    )
    assert said(state) == ["one", "1: 3", "two", "3: 3", "three", "5: 5", "four", "7: 4"]


async def test_what_pruning_has_begun_can_be_pruned_again(store: holdfast.Store) -> None:
    """Pruned twice, and cut off after the first half: nothing is lost, and the rest of the space returns."""
    saver = HoldfastSaver(store)
    configs = await fill(saver)
    latest = configs[-1]["configurable"]["checkpoint_id"]
    # The first half of `aprune`, which a process that dies leaves behind.
    await saver._journals.append(ThreadNamespace("t", ""), lambda thread: thread.keep({latest}))
    fresh = HoldfastSaver(store)
    assert [one.config async for one in fresh.alist(thread())] == [configs[-1]]
    writer = Writer(fresh)
    writer.config = configs[-1]
    await writer.put(report="new", kept="x" * 200)
    await fresh.aprune(["t"])
    assert await journal_bytes(store) < 2000
    assert (await values_at(HoldfastSaver(store), thread()))["report"] == "new"


async def test_an_interrupt_survives_pruning(store: holdfast.Store) -> None:
    """What tasks have written after the latest checkpoint is kept with it."""
    saver = HoldfastSaver(store)
    await panel(saver).ainvoke({"messages": [HumanMessage("go", id="h0")]}, thread())
    await saver.aprune(["t"])
    done = await panel(HoldfastSaver(store)).ainvoke(Command(resume="yes"), thread())
    assert done["verdict"] == "yes"


async def test_removing_runs_returns_the_space(store: holdfast.Store) -> None:
    """In all threads; what the other runs hold stays."""
    saver = HoldfastSaver(store)
    chance = random.Random(3)
    for id in ("a", "b"):
        writer = Writer(saver, id)
        for run in ("old", "old", "new"):
            writer.config = {**writer.config, "metadata": {"run_id": run}}
            await writer.put(report=kilobyte(chance))
    before = await journal_bytes(store)
    await saver.adelete_for_runs(["old"])
    assert await journal_bytes(store) < before / 2
    left = [one.metadata["run_id"] async for one in HoldfastSaver(store).alist(None)]
    assert left == ["new", "new"]
    await saver.adelete_for_runs(["new"])
    assert await journal_bytes(store) == 0


async def test_a_copy_takes_no_space_and_outlives_its_source(store: holdfast.Store) -> None:
    """History is shared; each goes on by itself."""
    saver = HoldfastSaver(store)
    graph = chat(saver)
    await graph.ainvoke({"messages": [HumanMessage("x" * 10_000, id="h")]}, thread())
    await saver.acopy_thread("t", "copy")
    [copied] = [one async for one in store.sessions(label={"langgraph.thread": "copy"})]
    assert copied.origin == "t.7c."
    await graph.ainvoke({"messages": [HumanMessage("one", id="one")]}, thread())
    await graph.ainvoke({"messages": [HumanMessage("another", id="two")]}, thread("copy"))
    await saver.adelete_thread("t")
    for fresh in (saver, HoldfastSaver(store)):
        state = (await chat(fresh).aget_state(thread("copy"))).values
        assert said(state)[1:] == ["1: 10000", "another", "3: 7"]
    await saver.aprune(["copy"])
    state = (await chat(HoldfastSaver(store)).aget_state(thread("copy"))).values
    assert said(state)[1:] == ["1: 10000", "another", "3: 7"]


async def test_a_copy_into_a_thread_that_is_there_joins_it(store: holdfast.Store) -> None:
    """Checkpoints that it has stay as they are."""
    saver = HoldfastSaver(store)
    await Writer(saver).put(value=1)
    await Writer(saver, "target").put(value=2)
    await saver.acopy_thread("t", "target")
    assert sorted(
        [one.checkpoint["channel_values"]["value"] async for one in saver.alist(thread("target"))]
    ) == [1, 2]
    assert len([one async for one in saver.alist(thread())]) == 1


# -- writes that come before their checkpoint -------------------------------------------------------------


async def write_ahead(saver: HoldfastSaver, id: str = "t") -> tuple[Any, Any]:
    """Writes of a checkpoint that is not put yet: where it will be, and the checkpoint."""
    later = checkpoint({}, {})
    config = thread(id, checkpoint_ns="", checkpoint_id=later["id"])
    await saver.aput_writes(config, [("value", "y" * 500), ("more", 2)], "task", "path")
    return config, later


async def pending_after_put(saver: HoldfastSaver, config: Any, later: Any) -> list[Any]:
    """What the checkpoint has been given once it is there."""
    place: Any = thread(config["configurable"]["thread_id"], checkpoint_ns="")
    await saver.aput(place, later, {}, {})
    found = await saver.aget_tuple(config)
    assert found is not None
    return list(found.pending_writes or [])


AHEAD = [("task", "value", "y" * 500), ("task", "more", 2)]


@pytest.mark.parametrize("again", [False, True])
async def test_pruning_keeps_writes_that_came_before_their_checkpoint(
    store: holdfast.Store, again: bool
) -> None:
    """LangGraph may store a task's writes before the checkpoint that they belong to."""
    saver = HoldfastSaver(store)
    await fill(saver)
    config, later = await write_ahead(saver)
    await saver.aprune(["t"])
    assert len([one async for one in saver.alist(thread())]) == 1
    if again:
        saver = HoldfastSaver(store)
        await fill(saver, steps=2)
        await saver.aprune(["t"])
    assert await pending_after_put(HoldfastSaver(store), config, later) == AHEAD


@pytest.mark.parametrize("others", [0, 1])
async def test_removing_runs_keeps_writes_that_came_before_their_checkpoint(
    store: holdfast.Store, others: int
) -> None:
    """Also if nothing else is left of the thread."""
    saver = HoldfastSaver(store)
    writer = Writer(saver)
    for run in ["old", "old", *["new"] * others]:
        writer.config = {**writer.config, "metadata": {"run_id": run}}
        await writer.put(value=run)
    config, later = await write_ahead(saver)
    await saver.adelete_for_runs(["old"])
    assert len([one async for one in HoldfastSaver(store).alist(None)]) == others
    assert await pending_after_put(HoldfastSaver(store), config, later) == AHEAD


async def test_a_copy_has_writes_that_came_before_their_checkpoint(store: holdfast.Store) -> None:
    """Whether the target was there before or not."""
    saver = HoldfastSaver(store)
    await fill(saver, steps=2)
    await fill(saver, "there", steps=2)
    _, later = await write_ahead(saver)
    for target in ("new", "there"):
        await saver.acopy_thread("t", target)
        config = thread(target, checkpoint_ns="", checkpoint_id=later["id"])
        assert await pending_after_put(saver, config, later) == AHEAD


async def test_writes_that_come_after_their_checkpoint_was_removed_go_with_the_next_removal(
    store: holdfast.Store,
) -> None:
    """They belong to nothing that will come: the space returns."""
    saver = HoldfastSaver(store)
    configs = await fill(saver, steps=3)
    await saver.aprune(["t"])
    late = HoldfastSaver(store)
    await late.aput_writes(configs[0], [("report", "z" * 5000)], "task")
    writer = Writer(late)
    writer.config = configs[-1]
    await writer.put(report="new")
    await late.aprune(["t"])
    assert await journal_bytes(store) < 2000


# -- parents that lead in a circle ------------------------------------------------------------------------


@pytest.mark.parametrize("length", [1, 2, 3])
@on_every_store
async def test_a_circle_of_parents_ends(url: str, length: int) -> None:
    """`put` takes any parent, and an id that is there again: a checkpoint can become its own ancestor."""
    async with holdfast.open_store(url) as store:
        saver = HoldfastSaver(store)
        made = [checkpoint({}, {"log": saver.get_next_version(None, None)}) for _ in range(length)]
        for parent, one in zip([made[-1], *made], made, strict=False):
            config = thread(checkpoint_ns="", checkpoint_id=parent["id"])
            put = await saver.aput(config, one, {"run_id": "run"}, one["channel_versions"])
            await saver.aput_writes(put, [("log", one["id"])], "task")
        for fresh in (saver, HoldfastSaver(store)):
            found = await fresh.aget_delta_channel_history(config=thread(), channels=["log"])
            assert [one[2] for one in found["log"]["writes"]] == [one["id"] for one in made[:-1]]
        await saver.aprune(["t"])
        await saver.adelete_for_runs(["another"])
        assert len([one async for one in saver.alist(thread())]) == length
        await saver.adelete_for_runs(["run"])
        assert [one async for one in saver.alist(thread())] == []


# -- lists that are none ----------------------------------------------------------------------------------


async def test_a_thread_is_not_taken_for_its_letters(store: holdfast.Store) -> None:
    """A text where a list belongs is refused, and nothing is removed."""
    saver = HoldfastSaver(store)
    for id in "th":
        await fill(saver, id, steps=2)
    for wrong in (
        saver.aprune("th"),
        saver.aprune("th", strategy="delete"),
        saver.adelete_for_runs("th"),
        saver.aget_delta_channel_history(config=thread(), channels="th"),
    ):
        with pytest.raises(TypeError, match=r"is a list: write .*=\['th'\]"):
            await wrong
    for id in "th":
        assert len([one async for one in saver.alist(thread(id))]) == 2


# -- delta channels ---------------------------------------------------------------------------------------


def add(left: list[AnyMessage], right: list[Any]) -> list[AnyMessage]:
    """What a delta channel is rebuilt with: the writes of several steps."""
    return [*left, *(one for batch in right for one in (batch if isinstance(batch, list) else [batch]))]


def add_plain(left: list[AnyMessage], right: list[AnyMessage]) -> list[AnyMessage]:
    """What any other channel adds with: the write of one step."""
    return [*left, *right]


class Delta(TypedDict):
    """A conversation whose checkpoints hold a snapshot now and then."""

    messages: Annotated[list[AnyMessage], DeltaChannel(add, snapshot_frequency=4)]


def delta_chat(saver: BaseCheckpointSaver[Any]) -> Any:
    """The same conversation as `chat`."""

    def answer(state: Delta) -> dict[str, Any]:
        count = len(state["messages"])
        return {"messages": [AIMessage(f"{count}", id=f"a{count}")]}

    builder = StateGraph(Delta)
    builder.add_node("answer", answer)
    builder.add_edge(START, "answer")
    builder.add_edge("answer", END)
    return builder.compile(checkpointer=saver)


@pytest.mark.filterwarnings("ignore:.*[Bb]eta.*")
async def test_delta_channels_are_rebuilt_also_after_pruning_and_copying(store: holdfast.Store) -> None:
    """The same as on LangGraph's own saver, at each step."""
    stock, saver = InMemorySaver(), HoldfastSaver(store)
    for turn in range(7):
        for one in (stock, saver):
            await delta_chat(one).ainvoke({"messages": [HumanMessage(str(turn), id=f"h{turn}")]}, thread())
        expected = said((await delta_chat(stock).aget_state(thread())).values)
        assert said((await delta_chat(HoldfastSaver(store)).aget_state(thread())).values) == expected
        if turn == 2:
            await saver.acopy_thread("t", "copy")
        if turn == 4:
            await saver.aprune(["t"])
    latest = await stock.aget_tuple(thread())
    assert latest is not None
    ours = await saver.aget_delta_channel_history(config=thread(), channels=["messages"])
    theirs = await stock.aget_delta_channel_history(config=latest.config, channels=["messages"])
    assert [one[1:] for one in ours["messages"]["writes"]] == [
        one[1:] for one in theirs["messages"]["writes"]
    ]
    assert ours["messages"].get("seed") == theirs["messages"].get("seed")
    assert len((await delta_chat(saver).aget_state(thread("copy"))).values["messages"]) == 6


class Plain(TypedDict):
    """The same conversation, before its channel became a delta channel."""

    messages: Annotated[list[AnyMessage], add_plain]


@pytest.mark.filterwarnings("ignore:.*[Bb]eta.*")
async def test_a_channel_that_became_a_delta_channel_survives_pruning(store: holdfast.Store) -> None:
    """It is rebuilt from the plain value that it had before, and what was written since."""
    saver = HoldfastSaver(store)
    plain = StateGraph(Plain)
    plain.add_node("answer", lambda state: {"messages": [AIMessage("plain", id="p")]})
    plain.add_edge(START, "answer")
    await plain.compile(checkpointer=saver).ainvoke({"messages": [HumanMessage("a", id="a")]}, thread())
    await delta_chat(saver).ainvoke({"messages": [HumanMessage("b", id="b")]}, thread())
    before = said((await delta_chat(saver).aget_state(thread())).values)
    assert before[:3] == ["a", "plain", "b"]
    await saver.aprune(["t"])
    assert said((await delta_chat(HoldfastSaver(store)).aget_state(thread())).values) == before


# -- from other savers ------------------------------------------------------------------------------------


async def test_threads_of_other_savers_are_brought_over(store: holdfast.Store, tmp_path: Path) -> None:
    """All checkpoints, writes and namespaces of each; the graph goes on here. Twice is once."""
    async with AsyncSqliteSaver.from_conn_string(str(tmp_path / "theirs.db")) as theirs:
        await chat(theirs).ainvoke({"messages": [HumanMessage("hello", id="h0")]}, thread("chat"))
        await panel(theirs).ainvoke({"messages": [HumanMessage("go", id="h0")]}, thread("panel"))
        saver = HoldfastSaver(store)
        count = await saver.acopy_from(theirs)
        assert count == len([one async for one in theirs.alist(None)]) > 3
        assert await saver.acopy_from(theirs) == 0
        for id in ("chat", "panel"):
            async for one in theirs.alist(thread(id)):
                ours = await saver.aget_tuple(one.config)
                assert ours is not None
                assert ours.checkpoint == one.checkpoint
                assert ours.metadata == one.metadata
                assert ours.parent_config == one.parent_config
                assert ours.pending_writes == one.pending_writes
    state = await chat(saver).ainvoke({"messages": [HumanMessage("you", id="h1")]}, thread("chat"))
    assert said(state) == ["hello", "1: 5", "you", "3: 3"]
    assert (await panel(saver).ainvoke(Command(resume="yes"), thread("panel")))["verdict"] == "yes"


def test_a_saver_for_code_without_an_event_loop_is_brought_over_too(url: str, tmp_path: Path) -> None:
    """From sync to sync."""
    with SqliteSaver.from_conn_string(str(tmp_path / "theirs.db")) as theirs:
        chat(theirs).invoke({"messages": [HumanMessage("hello", id="h0")]}, thread())
        with HoldfastSaver.from_url(url) as saver:
            assert saver.copy_from(theirs) == 3
            state = chat(saver).invoke({"messages": [HumanMessage("you", id="h1")]}, thread())
    assert said(state) == ["hello", "1: 5", "you", "3: 3"]
