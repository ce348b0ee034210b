"""A caller that is cancelled in the middle of a side effect."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

import holdfast
from holdfast import Agent, Budget, Store
from tests.agent.scripted_agents import Counting, World, call, fresh_store, make, texts


class Carver:
    """A tool whose body ends when it is told so; several calls come one after another."""

    def __init__(self) -> None:
        self.world = World()
        self.begun, self.go_on = anyio.Event(), anyio.Event()

        @holdfast.tool(side_effects={"write"}, scope="session")
        async def carve(what: str) -> str:
            """Takes a while."""
            self.begun.set()
            await self.go_on.wait()
            return self.world.do(f"carve {what}")

        self.tool = carve

    async def cancel(self, agent: Agent[Any, Any], store: Store) -> None:
        """Run the agent, and cancel it while it carves."""
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as tasks:

                async def work() -> None:
                    await agent.run("Go", session="s", store=store)

                async def interrupt() -> None:
                    await self.begun.wait()
                    scope.cancel()
                    with anyio.CancelScope(shield=True):
                        await anyio.wait_all_tasks_blocked()
                    self.go_on.set()

                tasks.start_soon(work)
                tasks.start_soon(interrupt)
        assert scope.cancelled_caught


@pytest.fixture
async def carver() -> Carver:
    """Made inside the event loop."""
    return Carver()


CARVE = [call("carve", "c1", what="1"), call("carve", "c2", what="2"), call("look", what="x")]


async def test_a_running_effect_ends_and_no_other_begins(carver: Carver) -> None:
    """It is recorded; a resumed run makes the missing calls, and asks for no reply again."""
    model = Counting([CARVE, "Carved."])
    agent = make(model, tools=[carver.tool], grace_s=3600)
    async with fresh_store() as store:
        await carver.cancel(agent, store)
        assert carver.world.done == ["carve 1"]
        state = await store.load("s")
        assert (state.status, state.facts.head.lease, state.in_doubt) == ("cancelled", None, [])
        assert (await agent.resume("s", store=store)).output == "Carved."
        assert (await texts(store, "s"))[2] == "tool: carve 1 done, carve 2 done, x is fine"
    assert carver.world.done == ["carve 1", "carve 2"]
    assert len(model.prompts) == 2


async def test_the_effect_of_a_delegate_ends_and_nothing_stays_held(carver: Carver) -> None:
    """The same, with the effect in the root's ledger."""
    model = Counting([CARVE, "Carved."])
    helper = make(model, name="helper", tools=[carver.tool], grace_s=3600)
    agent = make(
        [call("helper", task="Carve"), "Done."], tools=[helper.as_tool()], budget=Budget(tokens=10**6)
    )
    async with fresh_store() as store:
        await carver.cancel(agent, store)
        assert carver.world.done == ["carve 1"]
        state = await store.load("s")
        assert (state.status, state.in_doubt, state.budget.reserved.tokens) == ("cancelled", [], 0)
        assert (await agent.resume("s", store=store)).output == "Done."
        rows = (await store.load("s")).facts.effects.rows.values()
        assert [row.status for row in rows if row.tool == "carve"] == ["completed", "completed"]
    assert carver.world.done == ["carve 1", "carve 2"]
    assert len(model.prompts) == 2
