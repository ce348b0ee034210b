"""A session has one drive of the loop at a time; a second is refused."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import anyio
import pytest

import holdfast
from holdfast import ToolContext
from holdfast.agents import ScriptedModel, Thread
from holdfast.agents.model import ModelEvent, Prompt
from holdfast.errors import BadInput
from tests.agent.scripted_agents import World, call, fresh_store, make, texts


async def test_a_tool_cannot_drive_the_session_that_it_works_for() -> None:
    """It would be called again by what it began, and so on: it is told what to do instead."""

    @holdfast.tool(side_effects={"read"})
    async def again(ctx: ToolContext[None]) -> str:
        """Run the agent inside itself."""
        return str(await agent.run("Once more", session=ctx.session))

    @holdfast.tool(side_effects={"read"})
    async def by_name() -> str:
        """The same, by the name of the session."""
        return str(await agent.run("Once more", session="s", store=store))

    agent = make([call("again"), call("by_name"), "Done."], tools=[again, by_name])
    async with fresh_store() as store:
        assert (await agent.run("Go", session="s", store=store)).output == "Done."
        said = await texts(store, "s")
        assert "is driven already: send it a message" in said[2]
        assert "LeaseHeld" in said[4]
        assert not any("Once more" in one for one in said)


async def test_two_agents_at_once_in_an_open_session_are_refused() -> None:
    """Each would take the other's calls for its own. One after another they may."""
    world = World()
    asked, go_on = anyio.Event(), anyio.Event()

    class Thinking(ScriptedModel):
        async def ask(self, prompt: Prompt) -> AsyncGenerator[ModelEvent, None]:
            asked.set()
            await go_on.wait()
            async for said in super().ask(prompt):
                yield said

    agent = make(Thinking([call("pay", what="42"), "Paid."]), world)
    other = make([call("pay", what="1"), "Paid.", "Never.", "Now."], world)
    thread = Thread([make(["Never."], name="a")])
    async with fresh_store() as store, store.session("s") as session:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: agent.run("Go", session=session))
            await asked.wait()
            for one in (other, thread):
                with pytest.raises(BadInput, match="is driven already"):
                    await one.run("Me, too", session=session)
            go_on.set()
        assert session.status == "completed"
        assert (await agent.resume(session)).output == "Paid."
        assert (await other.run("And now?", session=session)).output == "Never."
        assert not session.problems
    assert world.done == ["pay 42"]


async def test_a_session_that_a_tool_leaves_and_enters_again_is_still_driven() -> None:
    """The session object is the same one, and so is the loop that drives it."""
    other = make(["Never."], name="other")

    @holdfast.tool(side_effects=())
    async def again(ctx: ToolContext[None]) -> str:
        await ctx.session.__aexit__(None, None, None)
        await ctx.session.__aenter__()
        with pytest.raises(BadInput, match="is driven already"):
            await other.run("Me, too", session=ctx.session)
        return "entered again"

    agent = make([call("again"), "Done."], tools=[again])
    async with fresh_store() as store, store.session("s") as session:
        assert (await agent.run("Go", session=session)).output == "Done."
