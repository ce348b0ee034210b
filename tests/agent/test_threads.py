"""Several agents in one session: turns, a moderator that sends them back, a running summary, the log."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

import holdfast
from holdfast import Agent
from holdfast.agents import Decision, Prompt, ScriptedModel, Thread, experiment_log
from holdfast.agents.model import ModelEvent
from holdfast.errors import BadInput
from tests.agent.scripted_agents import World, call, fresh_store, make_tools, texts

SCHEMA = Path(__file__).parents[2] / "docs" / "experiment-log.schema.json"


def speaker(name: str, script: Any = None, **options: Any) -> Agent[Any, Any]:
    """Says how often it has spoken, unless told otherwise."""

    def count(prompt: Prompt) -> str:
        return f"{name} {sum(message.role == 'assistant' for message in prompt.messages)}"

    return Agent(ScriptedModel(script or count, name=f"model-{name}"), name=name, **options)


def moderator(*decisions: dict[str, Any]) -> Agent[Any, Decision]:
    """Decides one after another; after a step back it sees the note, and goes on with the next decision."""
    back = max([one.get("rollback", 1) for one in decisions])

    def decide(prompt: Prompt) -> Any:
        decided = sum(message.role == "assistant" for message in prompt.messages)
        notes = sum("[mod]" in message.text for message in prompt.messages if message.role == "user")
        return call("final_result", **decisions[min(decided + back * notes, len(decisions) - 1)])

    return Agent(ScriptedModel(decide), name="mod", output_type=Decision)


GO = {"type": "CONTINUE"}
STOP = {"type": "STOP"}


async def said(store: holdfast.Store, session: str) -> list[str]:
    """What the speakers said."""
    return [
        one for one in await texts(store, session) if one.startswith(("user", "assistant: a", "assistant: b"))
    ]


async def test_agents_take_turns_and_hear_each_other() -> None:
    heard: list[list[str]] = []

    def listen(prompt: Prompt) -> str:
        heard.append([f"{message.role}: {message.text}" for message in prompt.messages])
        return "b here"

    thread = Thread([speaker("a"), speaker("b", listen)], max_iterations=4)
    async with fresh_store() as store:
        outcome = await thread.run("Discuss", session="s", store=store)
        assert (outcome.status, outcome.reason, outcome.output) == ("completed", "iteration_limit", "b here")
        assert await said(store, "s") == [
            "user: Discuss",
            "assistant: a 0",
            "assistant: b here",
            "assistant: a 1",
            "assistant: b here",
        ]
        assert heard[1] == ["user: Discuss", "user: [a] a 0", "assistant: b here", "user: [a] a 1"]
        runs = [(run.agent, run.parent is not None) async for run in store.runs(session="s")]
        assert runs == [("thread", False), ("a", True), ("b", True), ("a", True), ("b", True)]


async def test_a_function_may_choose_the_speaker() -> None:
    thread = Thread([speaker("a"), speaker("b")], order=lambda session, iteration: "b", max_iterations=2)
    async with fresh_store() as store:
        await thread.run("Discuss", session="s", store=store)
        assert (await said(store, "s"))[1:] == ["assistant: b 0", "assistant: b 1"]


async def test_a_moderator_stops_the_thread() -> None:
    thread = Thread([speaker("a"), speaker("b")], moderator=moderator(GO, GO, STOP))
    async with fresh_store() as store:
        outcome = await thread.run("Discuss", session="s", store=store)
        assert (outcome.status, outcome.reason, outcome.output) == ("completed", "", "a 1")
        again = await thread.resume("s", store=store)
        assert (again.status, again.output, again.usage) == ("completed", "a 1", outcome.usage)


async def test_a_step_back_leaves_iterations_behind_and_says_why() -> None:
    back = {"type": "STEP_BACK", "rollback": 2, "note": "Off topic.", "clear_summaries": True}
    thread = Thread(
        [speaker("a"), speaker("b")],
        moderator=moderator(GO, GO, back, GO, STOP),
        summarizer=speaker("sum", lambda prompt: f"{len(prompt.messages)} messages"),
    )
    async with fresh_store() as store:
        outcome = await thread.run("Discuss", session="s", store=store)
        assert outcome.status == "completed"
        assert await said(store, "s") == [
            "user: Discuss",
            "assistant: a 0",
            "user: [mod] Off topic.",
            "assistant: b 0",
            "assistant: a 1",
        ]
        state = await store.load("s")
        assert state.summary
        assert not state.problems
        assert [one.name for one in state.path() if one.name] == [f"iteration {n}" for n in range(4)]


async def test_what_was_said_at_one_step_back_is_still_heard_after_the_next() -> None:
    first = {"type": "STEP_BACK", "note": "Off topic."}
    second = {"type": "STEP_BACK", "note": "Still off topic."}
    thread = Thread([speaker("a"), speaker("b")], moderator=moderator(GO, first, second, STOP))
    async with fresh_store() as store:
        await thread.run("Discuss", session="s", store=store)
        assert await said(store, "s") == [
            "user: Discuss",
            "assistant: a 0",
            "user: [mod] Off topic.",
            "user: [mod] Still off topic.",
            "assistant: b 0",
        ]


async def test_the_summary_reaches_all_agents_and_stays_unless_it_is_cleared() -> None:
    told: list[str] = []

    def listen(prompt: Prompt) -> str:
        told.append(prompt.instructions)
        return "fine"

    back = {"type": "STEP_BACK", "note": "Again."}
    thread = Thread(
        [speaker("a", listen, instructions="Be kind.")],
        moderator=moderator(GO, back, STOP),
        summarizer=speaker("sum", lambda prompt: "all agree"),
        window=20,
    )
    async with fresh_store() as store:
        await thread.run("Discuss", session="s", store=store)
        assert all(one.startswith("Be kind.") for one in told)
        assert ["all agree" in one for one in told] == [False, True, True]
        assert (await store.load("s")).summary == "all agree"


@pytest.mark.parametrize("window", [1, 2, 3])
async def test_the_narrowest_window_shows_an_agent_its_own_calls_with_their_results(window: int) -> None:
    """Without them it would ask for the same for ever, and a moderator's decision would not be heard."""
    seen: list[Prompt] = []

    def look(prompt: Prompt) -> Any:
        seen.append(prompt)
        return "Seen." if prompt.messages[-1].role == "tool" else call("look", what="x")

    thread = Thread(
        [speaker("a", look, tools=make_tools(World()))], moderator=moderator(GO, STOP), window=window
    )
    async with fresh_store() as store:
        outcome = await thread.run("Discuss", session="s", store=store)
        assert (outcome.status, outcome.output) == ("completed", "Seen.")
    assert not any(holdfast.records.find_problems(prompt.messages) for prompt in seen)
    assert all(prompt.messages[0].text == "Discuss" for prompt in seen)


async def test_a_window_shows_the_topic_of_today() -> None:
    heard: list[str] = []

    def listen(prompt: Prompt) -> str:
        heard.append(prompt.messages[0].text)
        return "fine"

    thread = Thread([speaker("a", listen), speaker("b", listen)], window=2, max_iterations=4)
    async with fresh_store() as store:
        for topic in ("Tea", "Coffee"):
            await thread.run(topic, session="s", store=store)
            assert heard[-1] == topic


async def test_a_thread_goes_on_from_what_another_program_left() -> None:
    async with fresh_store() as store:
        async with store.session("s") as session:
            await session.add("Discuss")
            await session.add({"role": "assistant", "content": "Let us."}, format="openai")
            await session.checkpoint()
        back = {"type": "STEP_BACK", "note": "Again."}
        thread = Thread([speaker("a")], moderator=moderator(back, STOP))
        outcome = await thread.resume("s", store=store)
        assert (outcome.status, outcome.output) == ("completed", "a 1")


async def test_a_thread_that_is_told_to_stop_does_not_step_back_first() -> None:
    """It does when it goes on."""
    async with fresh_store() as store:

        class Told(ScriptedModel):
            """A cancel request arrives during the moderator's first turn."""

            async def ask(self, prompt: Prompt) -> AsyncGenerator[ModelEvent, None]:
                if not any("Again." in message.text for message in prompt.messages):
                    await store.cancel("s", reason="enough")
                async for one in super().ask(prompt):
                    yield one

        def decide(prompt: Prompt) -> Any:
            told = any("Again." in message.text for message in prompt.messages)
            return call("final_result", type="STOP" if told else "STEP_BACK", note="Again.")

        mod: Agent[Any, Decision] = Agent(Told(decide), name="mod", output_type=Decision)
        thread = Thread([speaker("a")], moderator=mod)
        outcome = await thread.run("Discuss", session="s", store=store)
        assert (outcome.status, outcome.reason) == ("cancelled", "enough")
        assert (await thread.resume("s", store=store)).status == "completed"
        assert await said(store, "s") == ["user: Discuss", "user: [mod] Again.", "assistant: a 0"]


async def test_a_moderator_may_decide_the_same_any_number_of_times() -> None:
    async with fresh_store() as store:
        for kind in ("CONTINUE", "STEP_BACK"):
            thread = Thread([speaker("a")], moderator=moderator({"type": kind}), max_iterations=6)
            outcome = await thread.run("Discuss", session=kind, store=store)
            assert (outcome.status, outcome.reason) == ("completed", "iteration_limit")


async def test_advisors_speak_in_every_iteration() -> None:
    thread = Thread([speaker("a")], advisors=[speaker("b")], max_iterations=2)
    async with fresh_store() as store:
        await thread.run("Discuss", session="s", store=store)
        records = [record async for record in experiment_log(store, "s")]
        assert [(record["agent_id"], record["role"], record["iter"]) for record in records] == [
            ("a", "agent", 0),
            ("b", "advisor", 0),
            ("a", "agent", 1),
            ("b", "advisor", 1),
        ]


async def test_tools_are_each_agents_own(tmp_path: Path) -> None:
    world = World()
    a = speaker("a", [call("pay", what="42"), "Paid.", "Paid before."], tools=make_tools(world))
    thread = Thread([a, speaker("b")], max_iterations=3)
    async with fresh_store() as store:
        outcome = await thread.run("Discuss", session="s", store=store)
        assert outcome.output == "Paid before."
    assert world.done == ["pay 42"]


async def test_a_turn_that_waits_makes_the_thread_wait() -> None:
    world = World()
    a = speaker("a", [call("fire", what="bob"), "Fired."], tools=make_tools(world))
    thread = Thread([speaker("b"), a], max_iterations=2)
    async with fresh_store() as store:
        outcome = await thread.run("Discuss", session="s", store=store)
        assert (outcome.status, outcome.waiting[0].tool) == ("waiting", "fire")
        assert (await store.load("s")).status == "waiting"
        await store.approve("s", "c-fire", by="ann")
        assert (await thread.resume("s", store=store)).output == "Fired."
    assert world.done == ["fire bob"]


async def test_a_new_topic_goes_on_after_the_old_one() -> None:
    thread = Thread([speaker("a")], max_iterations=1)
    async with fresh_store() as store:
        await thread.run("One", session="s", store=store)
        outcome = await thread.run("Two", session="s", store=store)
        assert outcome.output == "a 1"
        assert await said(store, "s") == ["user: One", "assistant: a 0", "user: Two", "assistant: a 1"]


async def test_the_log_is_in_the_form_of_its_schema_and_the_same_live(tmp_path: Path) -> None:
    """Also those iterations that were left behind. A torn last line is written again."""
    back = {"type": "STEP_BACK", "rollback": 1, "note": "Again.", "clear_summaries": True}
    live = tmp_path / "logs" / "live.jsonl"
    thread = Thread(
        [speaker("a"), speaker("b")],
        moderator=moderator(GO, back, STOP),
        summarizer=speaker("sum"),
        log=live,
    )
    async with fresh_store() as store:
        await thread.run("Discuss", session="s", store=store)
        records = [record async for record in experiment_log(store, "s")]
        written = [json.loads(line) for line in live.read_text().splitlines()]
        assert written == json.loads(json.dumps(records))
        validator = jsonschema_rs.validator_for(json.loads(SCHEMA.read_text()))
        for record in written:
            validator.validate(record)
        decided = [record["actions"] for record in written if record["role"] == "moderator"]
        assert decided == [
            {"type": "CONTINUE", "rollback": 0, "clear_summaries": False},
            {"type": "STEP_BACK", "rollback": 1, "clear_summaries": True},
            {"type": "STOP", "rollback": 0, "clear_summaries": False},
        ]
        live.write_bytes(live.read_bytes()[:-20])
        again = Thread([speaker("a")], max_iterations=1, log=live)
        await again.run("More", session="s", store=store)
        written = [json.loads(line) for line in live.read_text().splitlines()]
        assert [one["metadata"]["seq"] for one in written] == sorted(
            {record["metadata"]["seq"] async for record in experiment_log(store, "s")}
        )


def test_nonsense_is_refused_when_a_thread_is_made() -> None:
    with pytest.raises(BadInput, match="at least one agent"):
        Thread([])
    with pytest.raises(BadInput, match="needs a name"):
        Thread([Agent(ScriptedModel([]))])
    with pytest.raises(BadInput, match="two agents of the thread are called 'a'"):
        Thread([speaker("a"), speaker("a")])
    for own in (speaker("mod"), speaker("mod", output_type=int)):
        with pytest.raises(BadInput, match=r"output_type is .*; it must be holdfast\.agents\.Decision"):
            Thread([speaker("a")], moderator=own)
