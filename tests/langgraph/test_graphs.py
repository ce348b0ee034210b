"""Real graphs on every kind of store: what LangGraph can do with a checkpointer, it can do with ours."""

from __future__ import annotations

from langchain_core.messages import HumanMessage
from langgraph.types import Command

import holdfast
from holdfast.adapters.langgraph import HoldfastSaver

from .conftest import on_every_store
from .graphs import chat, panel, said, thread

pytestmark = on_every_store


async def test_a_conversation_goes_on_in_another_saver(store: holdfast.Store) -> None:
    """What one saver wrote, another reads."""
    await chat(HoldfastSaver(store)).ainvoke({"messages": [HumanMessage("hello", id="h0")]}, thread())
    state = await chat(HoldfastSaver(store)).ainvoke({"messages": [HumanMessage("you", id="h1")]}, thread())
    assert said(state) == ["hello", "1: 5", "you", "3: 3"]


async def test_branches_subgraphs_and_interrupts_work(saver: HoldfastSaver) -> None:
    """Two branches at once, one with a subgraph; then the graph waits for a person, and goes on."""
    graph = panel(saver)
    waiting = await graph.ainvoke({"messages": [HumanMessage("go", id="h0")]}, thread())
    [asked] = waiting["__interrupt__"]
    assert asked.value["notes"] == ["left", "planned", "thought about 2"]
    done = await graph.ainvoke(Command(resume="yes"), thread())
    assert done["verdict"] == "yes"
    assert said(done) == ["go", "plan", "decided yes"]


async def test_a_waiting_graph_goes_on_in_another_saver(store: holdfast.Store) -> None:
    """The process that asked may be gone."""
    await panel(HoldfastSaver(store)).ainvoke({"messages": [HumanMessage("go", id="h0")]}, thread())
    done = await panel(HoldfastSaver(store)).ainvoke(Command(resume="no"), thread())
    assert done["verdict"] == "no"


async def test_every_earlier_state_can_be_gone_back_to(saver: HoldfastSaver) -> None:
    """Time travel: the history has every step, and a run from one of them is a branch of its own."""
    graph = chat(saver)
    for word in ("one", "two", "three"):
        await graph.ainvoke({"messages": [HumanMessage(word, id=word)]}, thread())
    history = [one async for one in graph.aget_state_history(thread())]
    assert [len(one.values.get("messages", [])) for one in history] == [6, 5, 4, 4, 3, 2, 2, 1, 0]
    then = next(one for one in history if len(one.values["messages"]) == 2)
    other = await graph.ainvoke({"messages": [HumanMessage("other", id="o")]}, then.config)
    assert said(other) == ["one", "1: 3", "other", "3: 5"]
    back = next(one for one in history if len(one.values["messages"]) == 6)
    kept = await graph.aget_state(back.config)
    assert said(kept.values)[-1] == "5: 5"


async def test_a_state_that_was_updated_by_hand_is_gone_on_from(saver: HoldfastSaver) -> None:
    """`update_state` replaces a message by its id; what was before is still there."""
    graph = chat(saver)
    await graph.ainvoke({"messages": [HumanMessage("hello", id="h0")]}, thread())
    before = await graph.aget_state(thread())
    await graph.aupdate_state(thread(), {"messages": [HumanMessage("corrected", id="h0")]})
    assert said((await graph.aget_state(thread())).values) == ["corrected", "1: 5"]
    assert said((await graph.aget_state(before.config)).values) == ["hello", "1: 5"]


def test_everything_works_without_an_event_loop(url: str) -> None:
    """The same saver, sync."""
    with HoldfastSaver.from_url(url) as saver:
        graph = panel(saver)
        graph.invoke({"messages": [HumanMessage("go", id="h0")]}, thread())
        assert graph.invoke(Command(resume="yes"), thread())["verdict"] == "yes"
        history = [one.values.get("notes", []) for one in graph.get_state_history(thread())]
        assert sorted(history[0]) == ["left", "planned", "thought about 2"]
        assert history[-1] == []
        saver.copy_thread("t", "copy")
        saver.delete_thread("t")
        assert graph.get_state(thread()).values == {}
        assert graph.get_state(thread("copy")).values["verdict"] == "yes"
