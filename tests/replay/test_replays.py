"""Versions, live models, loops of one's own, and what cannot be replayed."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.agents import Prompt, ScriptedModel
from holdfast.errors import BadInput, NotFound
from holdfast.replay import RecordingEnds, ReplayTurn, SessionReplay, replay_all, replay_session
from holdfast.tools import Policy, deny
from tests.replay.clerks import DONE, MESSAGES, TOOLS, call, kinds, make_clerk, recorded, replay_with

pytestmark = pytest.mark.anyio


async def test_a_replay_can_begin_at_a_version() -> None:
    """What was said before it is there, and is not compared."""
    async with recorded() as store:
        versions = [one.version for one in (await store.load("done")).path()]
        counts = []
        for version in versions:
            if version == versions[-1]:
                with pytest.raises(BadInput, match="nothing to replay"):
                    await replay_session(store, "done", make_clerk(), version=version)
                continue
            replay = await replay_session(
                store, "done", make_clerk(policy=Policy(deny("pay"))), version=version
            )
            assert replay.version == version
            counts.append((replay.given, len(replay.differences)))
        # The payment is in the second reply and the third; each step has a version.
        assert counts == [(5, 2), (4, 1), (3, 0), (2, 0), (1, 0)][-len(counts) :]
        with pytest.raises(NotFound, match="version 99"):
            await replay_session(store, "done", make_clerk(), version=99)
    assert DONE == []


@pytest.mark.parametrize("scheme", ["dir", "sqlite"])
async def test_the_store_is_not_written_to(scheme: str, tmp_path: Path) -> None:
    """Not a byte of it, with and without differences."""
    url = f"{scheme}:{tmp_path / 'store'}"
    for message in MESSAGES:
        await make_clerk().run(message, session="done", store=url)
    async with holdfast.open_store(url) as store:
        before = _digest(tmp_path)
        for clerk in (make_clerk(), make_clerk(max_steps=1)):
            await replay_session(store, "done", clerk)
        assert [one async for one in replay_all(store, make_clerk())]
        assert _digest(tmp_path) == before


def _digest(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


# -- a live model ------------------------------------------------------------------------------------------


async def live(talk: Any, **changes: Any) -> SessionReplay:
    """The replay of a session with another model, which is asked."""
    script = [call("look_up", order="42"), call("pay", order="42", cents=500), "Paid."]
    async with recorded(make_clerk(script), ["Pay order 42"]) as store:
        found = await replay_session(store, "done", make_clerk(talk, **changes), live_model=True)
        assert DONE == []
        assert found.live
        return found


async def test_a_live_model_acts_in_the_recorded_world() -> None:
    """Calls are found by their arguments: it may make them in another order, under other ids."""
    seen: list[Prompt] = []

    def talk(prompt: Prompt) -> Any:
        seen.append(prompt)
        both = (call("pay", "x", order="42", cents=500), call("look_up", "y", order="42"))
        return both if len(seen) == 1 else "Paid, I say."

    replay = await live(talk)
    assert (replay.differences, replay.given, replay.stopped) == ((), 2, "")
    shown: Any = seen[1].messages[-1]
    results = {one.call_id: one.content for one in shown.blocks}
    assert results == {"x": '{"order":"42","cents":500}', "y": "order 42: 9900 cents"}


async def test_a_live_model_that_does_something_else_is_shown_and_stopped() -> None:
    """What is not on record has no result, and the model is not asked what it makes of that."""
    asked: list[Prompt] = []

    def talk(prompt: Prompt) -> Any:
        asked.append(prompt)
        return call("look_up", order="42") if len(asked) == 1 else call("pay", order="42", cents=9900)

    replay = await live(talk)
    assert kinds(replay) == [("arguments", "", "pay", 2)]
    assert len(asked) == 2
    assert "no result is on record of pay" in replay.stopped
    asked.clear()
    replay = await live(["No."])
    assert kinds(replay) == [("gone", "", "look_up", 0), ("gone", "", "pay", 0)]


@dataclass
class Answer:
    paid: int


async def test_a_live_model_gives_its_output_by_itself() -> None:
    """The tool of a typed output does nothing to the world, so it need not be on record."""
    script = [call("look_up", order="42"), call("final_result", paid=3)]
    async with recorded(make_clerk(script, output_type=Answer), ["Look"]) as store:
        for paid in (3, 4):
            answers = [call("final_result", paid=given) for given in ("x", paid)]
            clerk = make_clerk([call("look_up", order="42"), *answers], output_type=Answer)
            replay = await replay_session(store, "done", clerk, live_model=True)
            assert (replay.given, replay.stopped) == (3, "")
            others = [("output", "", "final_result", 3)] if paid == 4 else []
            assert kinds(replay) == [("refused", "arguments", "final_result", 2), *others]


async def test_gates_stand_before_a_live_model_too() -> None:
    """A policy refuses what was done."""
    script = [call("look_up", order="42"), call("pay", order="42", cents=500), "I may not."]
    replay = await live(script, policy=Policy(deny("pay")))
    assert kinds(replay) == [("refused", "policy", "pay", 2)]


# -- a loop of one's own -----------------------------------------------------------------------------------


async def drive(session: holdfast.Session, registry: holdfast.Registry, messages: Any, ask: Any) -> None:
    """A loop that somebody wrote for a client of OpenAI's."""
    for message in messages:
        await session.add(message)
    for _ in range(5):
        async with session.run(agent="own") as run:
            async with run.request() as request:
                reply = await ask()
                await request.reply(reply, format="openai")
            await registry.dispatch_step(session)
            await session.checkpoint()
        if not reply.get("tool_calls"):
            return


def openai_call(name: str, args: str) -> dict[str, Any]:
    """A reply with one call."""
    made = {"id": "call_1", "type": "function", "function": {"name": name, "arguments": args}}
    return {"role": "assistant", "content": None, "tool_calls": [made]}


async def test_a_loop_of_ones_own_is_replayed_by_a_function() -> None:
    """The recorded replies in the format of its client, and its own registry."""
    script = iter([openai_call("look_up", '{"order": "42"}'), {"role": "assistant", "content": "There."}])

    async def ask() -> Any:
        return next(script)

    async with holdfast.open_store("memory:") as store:
        async with store.session("own") as session:
            await drive(session, holdfast.Registry(TOOLS), ["Look"], ask)
        DONE.clear()

        async def unchanged(turn: ReplayTurn) -> None:
            await drive(turn.session, turn.registry(holdfast.Registry(TOOLS)), turn.messages, turn.ask)

        replay = await replay_session(store, "own", unchanged)
        assert (replay.differences, replay.given, replay.stopped) == ((), 2, "")

        async def without_tools(turn: ReplayTurn) -> None:
            await drive(turn.session, turn.registry(holdfast.Registry()), turn.messages, turn.ask)

        assert kinds(await replay_session(store, "own", without_tools)) == [("refused", "name", "look_up", 1)]

        async def goes_on(turn: ReplayTurn) -> None:
            await unchanged(turn)
            with pytest.raises(RecordingEnds):
                await turn.ask()
            await turn.ask()

        assert kinds(await replay_session(store, "own", goes_on)) == [("output", "", "", 0)]
        with pytest.raises(BadInput, match="a function that is your loop"):
            await replay_session(store, "own", make_clerk())
        with pytest.raises(BadInput, match="live_model"):
            await replay_session(store, "own", unchanged, live_model=True)
    assert DONE == []


# -- what cannot be replayed -------------------------------------------------------------------------------


async def test_what_was_erased_cannot_be_replayed() -> None:
    """It says so, and does not make a reply up."""
    async with recorded() as store:
        await store.clean("done", checkpoints=False)
        with pytest.raises(BadInput, match="was erased"):
            await replay_with(store)


async def test_sessions_of_other_frameworks_are_refused() -> None:
    """In words, and not by a replay that shows nothing."""
    async with holdfast.open_store("memory:") as store:
        async with store.session("s", labels={"agent_framework": "pydantic-ai"}) as session:
            await session.add("Hello")
        with pytest.raises(BadInput, match="driven by pydantic-ai"):
            await replay_session(store, "s", make_clerk())


async def test_all_sessions_of_an_agent_are_replayed() -> None:
    """Its own, and not those of its delegates; one that cannot be replayed stops no other."""
    async with recorded() as store:
        other = holdfast.Agent(ScriptedModel(["Hello."]), name="other")
        await other.run("Hello", session="others", store=store)
        await make_clerk().run("Pay", session="erased", store=store)
        await store.clean("erased", checkpoints=False)
        found = {str(id): one async for id, one in replay_all(store, make_clerk(max_steps=1))}
        assert found.keys() == {"done", "erased"}
        assert isinstance(found["erased"], BadInput)
        assert isinstance(found["done"], SessionReplay)
        assert found["done"].first is not None
        assert found["done"].first.kind == "steps"
        none = [one async for one in replay_all(store, make_clerk(), choose=lambda head: False)]
        assert none == []
