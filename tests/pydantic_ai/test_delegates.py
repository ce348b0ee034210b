"""An agent in another agent's tool: its session, its parent, and what it does once."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

import holdfast
from holdfast.adapters.pydantic_ai import Durable, RunWaits, effects
from holdfast.drivers.memory import MemoryDriver

from .scripted_runs import SESSION, Script, call, kill, killed, look, results

PURE = effects(side_effects=())


class Two:
    """A planner that asks a worker, who sends something; either may die."""

    def __init__(self) -> None:
        self.outer = Script([call("ask", task="x")], "planned")
        self.inner = Script([call("send", to="a")], "sent")
        self.log: list[str] = []
        self.dies = ""

    async def drive(self, store: holdfast.Store) -> Any:
        durable = Durable(store, session=SESSION)
        worker = self.inner.agent(name="worker", capabilities=[durable])

        def was_sent(to: str) -> object:
            return holdfast.Landed(f"sent to {to}") if to in self.log else holdfast.NotLanded()

        @worker.tool_plain(metadata=effects(side_effects={"mutate"}, verify=was_sent))
        async def send(to: str) -> str:
            self.log.append(to)
            if self.dies == "inside":
                kill(store)
            return f"sent to {to}"

        planner = self.outer.agent(name="planner", capabilities=[durable])

        @planner.tool_plain(metadata=PURE)
        async def ask(task: str) -> str:
            said = str((await worker.run(task)).output)
            if self.dies == "after":
                kill(store)
            return said

        return await planner.run("a")


async def test_a_delegate_has_a_session_of_its_own_and_knows_its_parent() -> None:
    two = Two()
    async with holdfast.open_store("memory:") as store:
        result = await two.drive(store)
        assert results(result.all_messages()) == ["sent"]
        (run,) = [run async for run in store.runs(session=SESSION)]
        (below,) = [one async for one in store.runs(parent=run.run)]
        assert (below.agent, below.session.startswith(f"{SESSION}.worker-")) == ("worker", True)
        assert (await store.head(below.session)).parent == SESSION
        assert len((await look(store, below.session)).transcript) == 4


async def test_a_delegate_that_waits_makes_its_parent_wait() -> None:
    outer, inner = (
        Script([call("ask"), call("note", "c1")], "planned"),
        Script([call("pay", cents=5)], "paid"),
    )
    log: list[str] = []
    async with holdfast.open_store("memory:") as store:
        durable = Durable(store, session=SESSION)
        worker = inner.agent(name="worker", capabilities=[durable])

        @worker.tool_plain(metadata=effects(side_effects={"mutate"}, needs_approval=True))
        async def pay(cents: int) -> str:
            log.append("pay")
            return "paid"

        planner = outer.agent(name="planner", capabilities=[durable])

        @planner.tool_plain(metadata=PURE)
        async def ask() -> str:
            return str((await worker.run("task")).output)

        @planner.tool_plain(metadata=effects(side_effects={"mutate"}))
        async def note() -> str:
            await anyio.sleep(0.05)
            log.append("note")
            return "noted"

        with pytest.raises(RunWaits) as waits:
            await planner.run("a")
        (one,) = waits.value.waiting
        assert (await look(store)).facts.head.status == "waiting"
        assert log == ["note"], "its neighbour was not cut off"
        await store.approve(one.session, one.call, by="ann")
        assert (await planner.run("a")).output == "planned"
    assert log == ["note", "pay"]
    assert (outer.asked, inner.asked) == ([0, 1], [0, 1])


@pytest.mark.parametrize("where", ["after", "inside"])
async def test_a_parent_that_is_run_again_finds_its_delegates_work(where: str) -> None:
    two, url = Two(), MemoryDriver()
    two.dies = where
    await killed(url, two.drive)
    two.dies = ""
    async with holdfast.open_store(url) as store:
        assert (await two.drive(store)).output == "planned"
        sessions = [head.session async for head in store.sessions()]
        assert len(sessions) == 2
    assert two.log == ["a"]
    assert (two.outer.asked, two.inner.asked) == ([0, 1], [0, 1])


async def test_an_effect_that_another_session_is_in_doubt_of_is_named() -> None:
    sent: list[str] = []
    async with holdfast.open_store("memory:") as store:
        for name in ("ann", "bob", "bob"):
            script = Script([call("send", to="x")], "sent")
            agent = script.agent(name="clerk", capabilities=[Durable(store, session=name)])

            @agent.tool_plain(metadata=effects(side_effects={"mutate"}, scope="global"))
            async def send(to: str) -> str:
                sent.append(to)
                raise TimeoutError

            with pytest.raises((RunWaits, TimeoutError)) as found:
                await agent.run("a")
            if name == "bob":
                assert isinstance(found.value, RunWaits)
                assert [(one.tool, one.kind) for one in found.value.waiting] == [("send", "in_doubt")]
                assert (await look(store, name)).facts.head.status == "waiting"
    assert sent == ["x"]
