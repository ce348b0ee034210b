"""`holdfast.blocking` where an event loop runs already, as in the cell of a notebook."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import anyio
import anyio.lowlevel
import pytest

import holdfast
from holdfast import LeaseHeld, blocking, tool
from holdfast.agents import ScriptedModel
from holdfast.messages import ToolCall
from tests.interrupts import one_interrupt
from tests.session.example_sessions import StoreUrl, texts

EVERY_LOOP = pytest.mark.parametrize("loop", ["asyncio", "trio"])
HANGS_S = 240


def run_cells(loop: str, *cells: Callable[[], object]) -> list[BaseException | None]:
    """Run each cell in the thread of a running event loop, in a task of its own; how each of them ended.

    As a notebook does it: an error or Ctrl-C ends the cell, and the loop runs on.
    """
    ended: list[BaseException | None] = []

    async def run(cell: Callable[[], object]) -> None:
        await anyio.lowlevel.checkpoint()
        try:
            cell()
        except (Exception, KeyboardInterrupt) as error:
            ended.append(error)
        else:
            ended.append(None)
        await anyio.lowlevel.checkpoint()

    async def kernel() -> None:
        for cell in cells:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(run, cell)

    anyio.run(kernel, backend=loop)
    return ended


@tool(side_effects="mutate")
def pay(cents: int) -> str:
    """Pay, in a thread, which opens a store of its own."""
    with blocking.open_store("memory:") as store, store.session("inner") as session:
        session.add("in a tool")
    return f"paid {cents}"


@tool(side_effects="mutate")
async def send(to: str) -> str:
    """Send, in the store's event loop."""
    await anyio.lowlevel.checkpoint()
    return f"sent to {to}"


@EVERY_LOOP
def test_a_cell_uses_sessions_tools_and_agents(loop: str, store_url: StoreUrl) -> None:
    """In the thread whose event loop runs; tools with sync and with async bodies."""
    found: list[str] = []

    def cell() -> None:
        with blocking.open_store(store_url) as store:
            with store.session("s") as session, session.run(agent="me"):
                session.add("Hello")
                registry = blocking.Registry([pay, send])
                for name, args in (("pay", {"cents": 5}), ("send", {"to": "ann"})):
                    found.append(registry.dispatch(name, args, session=session).content)
                assert session.checkpoint() == 1
            calls: list[Any] = [
                ToolCall(id="c1", name="pay", args={"cents": 5}),
                ToolCall(id="c2", name="send", args={"to": "ann"}),
                "Done.",
            ]
            agent = blocking.Agent(ScriptedModel(calls), tools=[pay, send])
            assert agent.run("Pay and send.", session="a", store=store).output == "Done."
            assert list(agent.stream("More?", session="b", store=store))
            assert [head.session for head in store.sessions()] == ["a", "b", "s"]
            assert [entry.kind for entry in store.tail("s", follow=False)][-1] == "lease.released"

    assert run_cells(loop, cell) == [None]
    assert found == ["paid 5", "sent to ann"]


@EVERY_LOOP
def test_a_store_stays_open_from_cell_to_cell(loop: str) -> None:
    """Each cell is a task with a context of its own."""
    notebook = ExitStack()
    names: dict[str, Any] = {}

    def first() -> None:
        names["store"] = notebook.enter_context(blocking.open_store("memory:"))
        names["session"] = notebook.enter_context(names["store"].session("s"))
        names["run"] = notebook.enter_context(names["session"].run(run_id="r"))
        names["session"].add("one")

    def second() -> None:
        names["session"].add("two")
        assert names["session"].checkpoint() == 1

    def third() -> None:
        assert texts(names["session"].transcript) == ["one", "two"]
        notebook.close()

    assert run_cells(loop, first, second, third) == [None] * 3


@EVERY_LOOP
def test_a_store_of_the_loop_itself_can_be_open_meanwhile(loop: str, store_url: StoreUrl) -> None:
    """A cell may have both; what the blocked loop holds is refused at once, and does not hang."""

    async def kernel() -> None:
        async with holdfast.open_store(store_url) as store, store.session("mine") as mine:
            await mine.add("async")
            agent = blocking.Agent(ScriptedModel(["Done."]))
            assert agent.run("Go", session="other", store=store).output == "Done."
            with blocking.open_store(store_url) as other:
                with pytest.raises(LeaseHeld), other.session("mine"):
                    pytest.fail("two holders")
                other.submit("mine", "blocking")
            await mine.checkpoint()
            assert texts(mine.transcript) == ["async", "blocking"]

    anyio.run(kernel, backend=loop)


@EVERY_LOOP
@pytest.mark.parametrize("kind", ["sync", "async"])
def test_ctrl_c_ends_the_cell_and_not_the_notebook(loop: str, kind: str, store_url: StoreUrl) -> None:
    """The call is in doubt and on record; the next cell goes on with the same store."""
    began, stop = threading.Event(), threading.Event()

    @tool(side_effects="mutate", name="act")
    def act_sync() -> None:
        began.set()
        stop.wait(HANGS_S)

    @tool(side_effects="mutate", name="act")
    async def act_async() -> None:
        began.set()
        await anyio.sleep(HANGS_S)

    act: Any = act_sync if kind == "sync" else act_async
    registry = blocking.Registry([act, send], grace_s=0.01)
    notebook = ExitStack()
    names: dict[str, Any] = {}

    def first() -> None:
        names["store"] = notebook.enter_context(blocking.open_store(store_url))
        names["session"] = notebook.enter_context(names["store"].session("s"))

    def second() -> None:
        with one_interrupt() as press:
            waiter = threading.Thread(target=lambda: began.wait(HANGS_S) and press())
            waiter.start()
            try:
                registry.dispatch("act", {}, session=names["session"])
            finally:
                waiter.join(HANGS_S)

    def third() -> None:
        (row,) = names["session"].in_doubt
        assert row.tool == "act"
        assert registry.dispatch("send", {"to": "ann"}, session=names["session"]).content == "sent to ann"
        stop.set()
        notebook.close()

    ended = run_cells(loop, first, second, third)
    assert [type(one) for one in ended] == [type(None), KeyboardInterrupt, type(None)], ended
    with blocking.open_store(store_url) as store, store.session("s") as session:
        rows = list(session.state.facts.effects.rows.values())
    assert rows[0].tool == "act"
    # A sync body cannot be stopped: it may have ended, and told so, before the store was closed.
    assert rows[0].status in ({"in_doubt"} if kind == "async" else {"in_doubt", "completed"})
