"""A graph with one of LangGraph's own savers: only the import is swapped."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import tool as langchain_tool

import holdfast
from holdfast import blocking
from holdfast.adapters.langgraph import HoldfastSaver, durable_tools, effects
from holdfast.errors import BadInput, BadUrl, Closed

from .graphs import chat, said, thread
from .test_tools import calls, clerk

ROOT = Path(__file__).resolve().parents[2]

SYNC = """
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import StateGraph

builder = StateGraph(int)
builder.add_node("add_one", lambda x: x + 1)
builder.set_entry_point("add_one")
builder.set_finish_point("add_one")

with SqliteSaver.from_conn_string(path) as memory:
    memory.setup()
    graph = builder.compile(checkpointer=memory)
    config = {"configurable": {"thread_id": "1"}}
    result = graph.invoke(3, config)
    state = graph.get_state(config)
    listed = [one.metadata["step"] for one in memory.list(config)]
"""

ASYNC = """
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import StateGraph

async def main():
    builder = StateGraph(int)
    builder.add_node("add_one", lambda x: x + 1)
    builder.set_entry_point("add_one")
    builder.set_finish_point("add_one")
    async with AsyncSqliteSaver.from_conn_string(path) as memory:
        await memory.setup()
        graph = builder.compile(checkpointer=memory)
        config = {"configurable": {"thread_id": "thread-1"}}
        result = await graph.ainvoke(1, config)
        state = await graph.aget_state(config)
        listed = [one.metadata["step"] async for one in memory.alist(config)]
    return result, state, listed
"""

OURS = "from holdfast.adapters.langgraph import HoldfastSaver as "


def run_sync(source: str, path: str) -> tuple[Any, ...]:
    names: dict[str, Any] = {"path": path}
    exec(source, names)
    return names["result"], names["state"], names["listed"]


def run_async(source: str, path: str) -> tuple[Any, ...]:
    names: dict[str, Any] = {"path": path}
    exec(source, names)
    found: tuple[Any, ...] = anyio.run(names["main"])
    return found


@pytest.mark.parametrize("place", ["file", ":memory:"])
@pytest.mark.parametrize(
    ("source", "line", "run"),
    [
        (SYNC, "from langgraph.checkpoint.sqlite import ", run_sync),
        (ASYNC, "from langgraph.checkpoint.sqlite.aio import ", run_async),
    ],
    ids=["sync", "async"],
)
def test_a_quickstart_needs_another_import_only(
    source: str, line: str, run: Callable[[str, str], tuple[Any, ...]], place: str, tmp_path: Path
) -> None:
    """The graph, the results and the history are the same."""
    assert source.count(line) == 1

    def place_of(name: str) -> str:
        return place if place == ":memory:" else str(tmp_path / name)

    stock = run(source, place_of("stock.db"))
    ours = run(source.replace(line, OURS), place_of("ours.db"))
    assert ours[0] == stock[0]
    assert (ours[1].values, ours[1].next, ours[1].metadata) == (
        stock[1].values,
        stock[1].next,
        stock[1].metadata,
    )
    assert ours[2] == stock[2]
    assert (tmp_path / "ours.db").exists() == (place == "file")


def test_a_connection_string_is_a_path_or_a_url(tmp_path: Path) -> None:
    """The first run's thread is there in each way."""
    path = tmp_path / "graphs.db"
    for given in (str(path), f"sqlite:{path}"):
        with HoldfastSaver.from_conn_string(given, pipeline=False) as saver:
            state = chat(saver).invoke({"messages": [HumanMessage("Hello")]}, thread())
    assert said(state)[-1] == "3: 5"


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        ("host=localhost password=hunter2 dbname=x", r"'postgresql://user:password@host:5432/database'"),
        ("sqlit:graphs.db", "did you mean 'sqlite:graphs.db'"),
        ("", "names no scheme"),
    ],
)
def test_what_is_neither_is_refused(given: str, hint: str) -> None:
    """A typo makes no file, and a password is not shown."""
    with pytest.raises(BadUrl, match=hint) as caught, HoldfastSaver.from_conn_string(given):
        pass
    assert "hunter2" not in str(caught.value)


async def test_setup_does_nothing_awaited_or_not(tmp_path: Path) -> None:
    """PostgreSQL's savers want it called: one as a method, the other as a coroutine."""
    async with HoldfastSaver.from_url(tmp_path / "graphs.db") as saver:
        saver.setup()
        await saver.setup()
        await saver.asetup()
        assert [one async for one in saver.alist(None)] == []


# -- the saver's own store --------------------------------------------------------------------------------


paid: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_paid() -> None:
    paid.clear()


@langchain_tool
def pay(order: str) -> str:
    """Pay for an order."""
    paid.append(order)
    return f"paid {order}"


PAY = effects(pay, side_effects={"mutate"})
SCRIPT = [calls(("pay", {"order": "42"})), AIMessage("Done.")]
ASK = {"messages": [HumanMessage("Pay 42")]}


async def test_the_savers_store_is_for_its_tools(tmp_path: Path) -> None:
    """With an event loop: checkpoints and the ledger are in one place."""
    path = tmp_path / "graphs.db"
    async with HoldfastSaver.from_url(path) as saver:
        state = await clerk(saver, durable_tools([PAY], store=saver.store), SCRIPT).ainvoke(ASK, thread())
    assert said(state)[-2:] == ["paid 42", "Done."]
    async with holdfast.open_store(path) as store:
        assert [
            head.session async for head in store.sessions() if head.labels["adapter"] == "langgraph.tools"
        ]


def test_the_savers_store_is_for_its_tools_without_an_event_loop(tmp_path: Path) -> None:
    """And can be listed there."""
    with HoldfastSaver.from_url(tmp_path / "graphs.db") as saver:
        assert isinstance(saver.store, blocking.Store)
        state = clerk(saver, durable_tools([PAY], store=saver.store), SCRIPT).invoke(ASK, thread())
        assert said(state)[-2:] == ["paid 42", "Done."]
        assert "langgraph.tools" in {head.labels["adapter"] for head in saver.store.sessions()}


@pytest.mark.parametrize("kind", ["url", "path"])
async def test_tools_take_an_address_and_do_nothing_twice(kind: str, tmp_path: Path) -> None:
    """The ledger is opened for each batch of calls, and finds what an earlier one did."""
    path = tmp_path / "graphs.db"
    store: Any = path if kind == "path" else f"sqlite:{path}"
    (wrapped,) = durable_tools([PAY], store=store)
    request = {"type": "tool_call", "name": "pay", "args": {"order": "42"}, "id": "call_0"}
    config = thread(checkpoint_ns="tools:1")
    assert (await wrapped.ainvoke(request, config)).content == "paid 42"
    assert (await wrapped.ainvoke(request, config)).content == "paid 42"
    assert paid == ["42"]


def test_tools_take_an_address_without_an_event_loop(tmp_path: Path) -> None:
    """The same."""
    (wrapped,) = durable_tools([PAY], store=tmp_path / "graphs.db")
    request = {"type": "tool_call", "name": "pay", "args": {"order": "42"}, "id": "call_0"}
    config = thread(checkpoint_ns="tools:1")
    assert [wrapped.invoke(request, config).content for _ in range(2)] == ["paid 42"] * 2
    assert paid == ["42"]


def test_tools_refuse_a_store_that_forgets() -> None:
    """`memory:` would be empty each time that it is opened."""
    with pytest.raises(BadInput, match=r"store=saver\.store"):
        durable_tools([PAY], store="memory:")


def test_a_saver_opens_an_address_and_closes_it(tmp_path: Path) -> None:
    """In its constructor; a store that was given stays open."""
    path = tmp_path / "graphs.db"
    for address in (path, f"sqlite:{path}"):
        saver = HoldfastSaver(address)
        state = chat(saver).invoke({"messages": [HumanMessage("Hello")]}, thread())
        saver.close()
        with pytest.raises(Closed):
            saver.get_tuple(thread())
    assert said(state)[-1] == "3: 5"
    with blocking.open_store(path) as store:
        saver = HoldfastSaver(store)
        saver.close()
        assert saver.get_tuple(thread()) is not None


async def test_a_saver_that_opened_an_address_works_with_an_event_loop(tmp_path: Path) -> None:
    """It has a loop of its own for the rest."""
    saver = HoldfastSaver(tmp_path / "graphs.db")
    try:
        state = await chat(saver).ainvoke({"messages": [HumanMessage("Hello")]}, thread())
        assert said(state)[-1] == "1: 5"
    finally:
        saver.close()


FORGOTTEN = """
import sys
from tests.langgraph.graphs import chat, thread
from holdfast.adapters.langgraph import HoldfastSaver

saver = HoldfastSaver(sys.argv[1])
chat(saver).invoke({"messages": ["Hello"]}, thread())
print("done")
"""


def test_a_process_ends_though_its_saver_was_not_closed(tmp_path: Path) -> None:
    """It does not wait for threads that no longer run; every checkpoint is there."""
    path = tmp_path / "graphs.db"
    command = [sys.executable, "-c", FORGOTTEN, f"sqlite:{path}"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=240)
    assert (ended.returncode, ended.stdout) == (0, "done\n"), ended.stderr
    with HoldfastSaver.from_url(path) as saver:
        assert said(chat(saver).invoke({"messages": [HumanMessage("Hi")]}, thread()))[-1] == "3: 2"
