"""A long transcript is shortened for the model; the journal keeps the original."""

from __future__ import annotations

import pytest

from holdfast import Budget, Session
from holdfast.agents import Compaction, Prompt
from holdfast.errors import BadInput
from holdfast.messages import ToolCall
from tests.agent.scripted_agents import Counting, World, call, fresh_store, make, texts


async def test_the_hook_shortens_what_the_model_is_given() -> None:
    """And is asked again when it has grown once more."""

    async def compact(session: Session) -> Compaction | None:
        return Compaction(message="So far: looked.", keep=2) if len(session.transcript) > 5 else None

    def script(prompt: Prompt) -> ToolCall | str:
        return call("look", what=str(len(prompt.messages))) if len(model.prompts) < 8 else "Done."

    model = Counting(script)
    agent = make(model, World(), compact=compact)
    async with fresh_store() as store:
        outcome = await agent.run("Go", session="s", store=store)
        assert outcome.output == "Done."
        assert max(len(prompt.messages) for prompt in model.prompts) <= 5
        state = await store.load("s")
        assert state.transcript[0].text == "So far: looked."
        assert not state.problems
        said = [entry async for entry in store.tail("s", follow=False) if entry.kind == "model.replied"]
        assert len(said) == 8
        first = await store.load("s", version=1)
        assert first.transcript[0].text == "Go"


async def test_what_is_kept_stays_in_order_through_several_compactions() -> None:
    async with fresh_store() as store, store.session("s") as session:
        for number in range(6):
            await session.add(f"m{number}")
        await session.compact("summary of 0 to 2", keep=3)
        await session.add("m6")
        assert await _texts(session) == ["summary of 0 to 2", "m3", "m4", "m5", "m6"]
        await session.compact("summary of 0 to 3", keep=3)
        assert await _texts(session) == ["summary of 0 to 3", "m4", "m5", "m6"]
        await session.compact("all of it", keep=0)
        assert await _texts(session) == ["all of it"]
        await session.flush()
        assert await texts(store, "s") == ["user: all of it"]


@pytest.mark.parametrize("keep", [1, 2, 3])
async def test_a_message_that_waited_for_the_end_of_the_step_is_not_lost(keep: int) -> None:
    """It was sent before the reply that it stands after."""
    async with fresh_store() as store:

        async def compact(session: Session) -> Compaction | None:
            if len(session.transcript) == 1:
                await store.submit("s", "One more thing")
                return None
            return Compaction(message="summary", keep=keep)

        agent = make([call("look", what="x"), "Done."], compact=compact, budget=Budget(tokens=100_000))
        await agent.run("Go", session="s", store=store)
        said = await texts(store, "s")
        assert (said[0], said[-2:]) == ("user: summary", ["user: One more thing", "assistant: Done."])


async def _texts(session: Session) -> list[str]:
    return [message.text for message in session.transcript]


async def test_a_compaction_that_makes_no_sense_is_refused() -> None:
    async with fresh_store() as store, store.session("s") as session:
        with pytest.raises(BadInput, match="has 0 messages"):
            await session.compact("nothing", keep=0)
        await session.add("m0")
        with pytest.raises(BadInput, match="has 1 messages"):
            await session.compact("nothing", keep=1)
