"""The experiment log of sessions in every message format, and the file that follows a thread."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from pydantic import BaseModel
from pydantic_ai import Agent as TheirAgent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai_harness.step_persistence import StepPersistence

import holdfast
from holdfast import Agent
from holdfast.adapters.pydantic_ai import Durable
from holdfast.adapters.pydantic_ai.step_store import HoldfastStepStore
from holdfast.agents import Decision, Prompt, ScriptedModel, Thread, experiment_log
from holdfast.messages import OWN, CallPart, Message, Shape, Text, register_format
from holdfast.records import Usage
from tests.agent.scripted_agents import World, call, fresh_store, make_tools

SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "experiment-log.schema.json").read_text())
VALIDATOR = jsonschema_rs.validator_for(SCHEMA)
LONG = "It will arrive tomorrow. " * 20
CITED = {"type": "char_location", "cited_text": "tomorrow", "document_index": 0}


async def read(store: holdfast.Store, session: str) -> list[dict[str, Any]]:
    """The log of a session, every line of which is as the schema says."""
    records = [json.loads(json.dumps(record)) async for record in experiment_log(store, session)]
    for record in records:
        VALIDATOR.validate(record)
    return records


OPENAI = {
    "role": "assistant",
    "content": LONG,
    "tool_calls": [{"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}],
    "annotations": [{"type": "url_citation", "url_citation": {"url": "https://example.org"}}],
}
ANTHROPIC = {
    "role": "assistant",
    "model": "claude-9",
    "content": [
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "text", "text": LONG, "citations": [CITED]},
        {"type": "tool_use", "id": "c", "name": "look", "input": {}},
    ],
}
PYDANTIC_AI = {
    "kind": "response",
    "model_name": "gpt-9-mini",
    "provider_name": "azure",
    "parts": [
        {"part_kind": "thinking", "content": "hm"},
        {"part_kind": "text", "content": LONG, "citations": [CITED]},
        {"part_kind": "tool-call", "tool_name": "look", "tool_call_id": "c", "args": "{}"},
    ],
}


@pytest.mark.parametrize(
    ("reply", "format", "model", "provider", "citations"),
    [
        pytest.param(OPENAI, "openai", "gpt-9", "openai", OPENAI["annotations"], id="openai"),
        pytest.param(ANTHROPIC, "anthropic", "claude-9", "openai", [CITED], id="anthropic"),
        pytest.param(PYDANTIC_AI, "pydantic-ai", "gpt-9-mini", "azure", [CITED], id="pydantic-ai"),
        pytest.param(
            Message(role="assistant", blocks=(Text(LONG, {"citations": [CITED]}), call("look"))),
            OWN,
            "gpt-9",
            "openai",
            [CITED],
            id="holdfast",
        ),
    ],
)
async def test_a_reply_in_any_format_is_text_with_the_name_of_its_agent(
    reply: Any, format: str, model: str, provider: str, citations: list[Any]
) -> None:
    """All of the text, what it cites, which model of which provider gave it, and which tools it calls."""
    async with fresh_store() as store:
        async with store.session("s") as session, session.run(agent="clerk", model="openai:gpt-9") as run:
            await session.add("Where is it?")
            async with run.request() as request:
                await request.reply(reply, format=format, usage=Usage(input_tokens=9, output_tokens=2))
            await session.add(reply, format=format)
        asked, added = await read(store, "s")
        assert (asked["agent_id"], asked["role"], asked["content"]) == ("clerk", "agent", LONG)
        about = asked["metadata"]
        assert (about["model"], about["provider"], about["citations"]) == (model, provider, citations)
        assert (about["calls"], about["input_tokens"], about["run"]) == (["look"], 9, run.id)
        assert (added["agent_id"], added["content"]) == ("clerk", LONG)
        assert added["metadata"]["model"] == model
        assert (added["metadata"]["input_tokens"], added["latency_ms"]) == (None, None)


async def test_the_model_that_answered_is_named_even_when_its_words_are_gone() -> None:
    """What was erased was said by a known agent all the same."""
    async with fresh_store() as store:
        async with store.session("s") as session, session.run(agent="clerk") as run:
            async with run.request(model="openai:gpt-9") as request:
                await request.reply(OPENAI, format="openai", model="gpt-9-2026-10-01")
            async with run.request() as request:
                await request.reply("Who am I?")
        await store.clean("s", checkpoints=False)
        named, unnamed = await read(store, "s")
        assert (named["content"], named["agent_id"], named["metadata"]["calls"]) == (
            "[erased]",
            "clerk",
            ["look"],
        )
        assert (named["metadata"]["model"], named["metadata"]["provider"]) == ("gpt-9-2026-10-01", "openai")
        assert (unnamed["metadata"]["model"], unnamed["metadata"]["provider"]) == (None, None)


@pytest.mark.parametrize(
    ("format", "reply"),
    [
        (
            "openai",
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {
                        "id": "c",
                        "type": "function",
                        "function": {"name": "final_result", "arguments": '{"n": 1}'},
                    }
                ],
            },
        ),
        (
            "anthropic",
            {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": "c", "name": "final_result", "input": {"n": 1}}],
            },
        ),
        (
            "pydantic-ai",
            {
                "kind": "response",
                "parts": [
                    {
                        "part_kind": "tool-call",
                        "tool_name": "final_result_N",
                        "tool_call_id": "c",
                        "args": {"n": 1},
                    }
                ],
            },
        ),
        (None, Message(role="assistant", blocks=(call("final_result", n=1),))),
    ],
)
async def test_a_typed_output_is_an_object_and_no_call_of_a_tool(format: str | None, reply: Any) -> None:
    """Neither in the log nor in the counters of the snapshot."""
    async with fresh_store() as store:
        async with store.session("s") as session, session.run(agent="clerk") as run:
            async with run.request() as request:
                await request.reply(reply, format=format)
            await session.flush()
            (record,) = await read(store, "s")
            assert (record["content"], record["metadata"]["calls"]) == ({"n": 1}, [])
            counted = (await store.overview("s")).tool_calls
            assert (counted.total, counted.in_step, counted.per_tool) == (0, 0, {})
            assert session.state.facts.head.tool_calls == 0


async def test_a_refusal_and_a_format_of_ones_own_are_readable() -> None:
    """A format whose text is in no usual place is given whole; a reply of calls alone has no text."""
    register_format(
        "test-log", lambda data: Shape(role="assistant", parts=tuple(CallPart(*one) for one in data["c"]))
    )
    async with fresh_store() as store:
        async with store.session("s") as session:
            await session.add({"role": "assistant", "content": None, "refusal": "No."}, format="openai")
            await session.add({"c": [], "says": "Hi"}, format="test-log")
            await session.add({"c": [], "content": "Hi"}, format="test-log")
            await session.add({"c": [["x", "look"]]}, format="test-log")
            await session.add({"c": [["y", "final_result"]], "content": "Hi"}, format="test-log")
        contents = [record["content"] for record in await read(store, "s")]
        assert contents == ["No.", {"c": [], "says": "Hi"}, "Hi", "", "Hi"]


async def test_what_a_message_says_of_itself_cannot_break_the_log() -> None:
    """Roles outside the four, iterations that are none, notes that are no citations."""
    odd: list[dict[str, Any]] = [
        {"thread": {"role": "critic", "iter": -1}},
        {"thread": {"role": ["moderator"], "iter": True}, "citations": "none"},
        {"thread": "moderator", "model_name": 5, "provider_name": None},
    ]
    async with fresh_store() as store:
        async with store.session("s") as session:
            for metadata in odd:
                await session.add(Message(role="assistant", blocks=(Text("Hm."),), metadata=metadata))
        found = [
            (record["role"], record["iter"], record["metadata"]["citations"])
            for record in await read(store, "s")
        ]
        assert found == [("agent", 0, [])] * 3


# -- sessions of pydantic-ai ---------------------------------------------------------------------------


class Answer(BaseModel):
    """A typed output."""

    text: str


def say(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Looks, then answers."""
    if len(messages) > 1:
        return ModelResponse([ToolCallPart("final_result", {"text": LONG}, "c1")])
    return ModelResponse([TextPart("I will look."), ToolCallPart("look", {"what": "it"}, "c0")])


def make_clerk() -> TheirAgent[None, Answer]:
    agent = TheirAgent(FunctionModel(say, model_name="scripted"), name="clerk", output_type=Answer)

    @agent.tool_plain(metadata={"holdfast": {"side_effects": ["read"]}})
    def look(what: str) -> str:
        """Look something up."""
        return f"{what} is fine"

    return agent


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_durable_agent_of_pydantic_ai_has_a_log_and_a_snapshot_like_ours() -> None:
    """Its name, its model, its words, and calls of tools alone."""
    async with fresh_store() as store:
        await make_clerk().run("Look", capabilities=[Durable(store, session="s")])
        looked, answered = await read(store, "s")
        assert (looked["agent_id"], looked["content"]) == ("clerk", "I will look.")
        assert (looked["metadata"]["calls"], looked["metadata"]["model"]) == (["look"], "scripted")
        assert (answered["agent_id"], answered["content"]) == ("clerk", {"text": LONG})
        assert [looked["iter"], answered["iter"]] == [0, 1]
        assert (await store.overview("s")).tool_calls.per_tool == {"look": 1}


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_the_log_of_step_persistence_has_the_replies_of_its_snapshots() -> None:
    """Each once, with the time that pydantic-ai gave it."""
    async with fresh_store() as store:
        steps = StepPersistence(store=HoldfastStepStore(store))
        result = await make_clerk().run("Look", capabilities=[steps], conversation_id="talk")
        looked, answered = await read(store, "steps-talk")
        assert (looked["agent_id"], looked["content"], looked["iter"]) == ("clerk", "I will look.", 0)
        assert (answered["agent_id"], answered["content"], answered["iter"]) == ("clerk", {"text": LONG}, 1)
        times = [message.timestamp for message in result.all_messages() if isinstance(message, ModelResponse)]
        assert [looked["t"], answered["t"]] == [time.timestamp() for time in times]


# -- threads -------------------------------------------------------------------------------------------


def speaker(name: str, script: Any = None, **options: Any) -> Agent[Any, Any]:
    """Says its name, unless told otherwise."""
    return Agent(ScriptedModel(script or (lambda prompt: name)), name=name, **options)


def moderator(*decisions: Any) -> Agent[Any, Decision]:
    """Decides one after another, also after a step back."""
    left = list(decisions)
    return Agent(
        ScriptedModel(lambda prompt: call("final_result", **left.pop(0))), name="mod", output_type=Decision
    )


GO, STOP = {"type": "CONTINUE"}, {"type": "STOP"}


async def test_the_iteration_of_a_snapshot_is_that_of_the_log() -> None:
    """In every turn, tools, step backs and forks included; calls of final_result are not counted."""
    seen: list[tuple[int, int]] = []

    async with fresh_store() as store:

        async def compare() -> None:
            records = await read(store, "s")
            seen.append(((await store.overview("s")).iteration, records[-1]["iter"]))

        @holdfast.tool(side_effects={"read"})
        async def look() -> str:
            """Look at the log."""
            await compare()
            return "seen"

        def speak(prompt: Prompt) -> Any:
            return "fine" if prompt.messages[-1].role == "tool" else call("look")

        back = {"type": "STEP_BACK", "rollback": 2, "note": "Again."}
        agents = [speaker(name, speak, tools=[look]) for name in ("a", "b")]
        thread = Thread(agents, moderator=moderator(GO, GO, back, GO, STOP), summarizer=speaker("sum"))
        await thread.run("Discuss", session="s", store=store)
        assert seen == [(0, 0), (1, 1), (2, 2), (1, 1), (2, 2)]
        overview = await store.overview("s")
        assert (overview.iteration, overview.tool_calls.per_tool) == (3, {"look": 5})
        await store.fork("s", into="f")
        assert (await store.overview("f")).iteration == 3
        await speaker("a", lambda prompt: "Alone.").run("Go on", session="s", store=store)
        alone = await store.overview("s")
        last = (await read(store, "s"))[-1]
        assert (last["content"], last["iter"]) == ("Alone.", alone.iteration - 1)


async def test_an_erased_thread_still_names_the_speaker_of_each_iteration() -> None:
    """What each one said is gone, and not that it was the moderator."""
    back = {"type": "STEP_BACK", "rollback": 1, "note": "Again."}
    thread = Thread(
        [speaker("a"), speaker("b")], moderator=moderator(GO, back, GO, STOP), advisors=[speaker("adv")]
    )
    async with fresh_store() as store:
        await thread.run("Discuss", session="s", store=store)
        before = await read(store, "s")
        await store.clean("s", checkpoints=False)
        after = await read(store, "s")
        for record in after:
            assert (record["content"], record["actions"]) == ("[erased]", None)
        names = ("t", "iter", "agent_id", "role", "latency_ms")
        assert [[one[name] for name in names] for one in after] == [
            [one[name] for name in names] for one in before
        ]


@pytest.mark.parametrize(
    "refused",
    [{"type": "MAYBE"}, {"type": "STEP_BACK", "rollback": None}, {"type": "STEP_BACK", "rollback": "two"}],
)
async def test_a_decision_that_was_refused_is_no_action(refused: dict[str, Any]) -> None:
    """The moderator is told, and decides again."""
    async with fresh_store() as store:
        thread = Thread([speaker("a")], moderator=moderator(refused, STOP))
        await thread.run("Discuss", session="s", store=store)
        decided = [one["actions"] for one in await read(store, "s") if one["role"] == "moderator"]
        assert decided == [None, {"type": "STOP", "rollback": 0, "clear_summaries": False}]


def lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize("newline", [True, False])
async def test_lines_of_others_in_a_log_file_stay_as_they_are(tmp_path: Path, newline: bool) -> None:
    """Without metadata, of another form, with numbers that no journal has, without a newline at the end."""
    log = tmp_path / "log.jsonl"
    others = [
        {"t": 1.0, "iter": 0, "metadata": None},
        {"t": 1.0, "metadata": {"session": "s", "seq": "1"}},
        {"t": 1.0, "metadata": {"session": "s", "seq": 10**30}},
        {"t": 1.0, "metadata": {"session": "s", "seq": -1}},
        ["not", "an", "object"],
        {"metadata": None},
    ]
    text = "\n".join(json.dumps(one) for one in others)
    log.write_text(f"{text}\n" if newline else text)
    async with fresh_store() as store:
        await Thread([speaker("a")], max_iterations=2, log=log).run("Discuss", session="s", store=store)
        assert lines(log) == [*others, *(await read(store, "s"))]


async def test_a_session_made_anew_under_an_old_id_is_logged_from_its_beginning(tmp_path: Path) -> None:
    """By the same thread, and by one of another process, which knows the file alone."""
    log = tmp_path / "log.jsonl"
    thread = Thread([speaker("a"), speaker("b")], max_iterations=4, log=log)
    async with fresh_store() as store:
        expected: list[Any] = []
        for again in (thread, thread, Thread([speaker("a")], max_iterations=1, log=log)):
            await again.run("Discuss", session="s", store=store)
            expected += await read(store, "s")
            await store.delete("s")
        assert lines(log) == expected


async def test_a_log_file_goes_on_where_another_process_left_it(tmp_path: Path) -> None:
    """Whole lines are not written again, whatever was cut off behind them; sessions share the file."""
    log = tmp_path / "log.jsonl"
    async with fresh_store() as store:
        for session in ("s", "t"):
            await Thread([speaker("a")], max_iterations=2, log=log).run("One", session=session, store=store)
        whole = log.read_bytes()
        log.write_bytes(whole[:-30])
        for session in ("s", "t"):
            await Thread([speaker("a")], max_iterations=1, log=log).run("Two", session=session, store=store)
        assert log.read_bytes().startswith(b"".join(whole.splitlines(keepends=True)[:-1]))
        for session in ("s", "t"):
            own = [one for one in lines(log) if one["metadata"]["session"] == session]
            assert own == await read(store, session)


async def test_tools_of_a_turn_are_in_its_line(tmp_path: Path) -> None:
    """A turn with tools is several replies of one iteration."""
    world = World()
    a = speaker("a", [call("pay", what="42"), "Paid."], tools=make_tools(world))
    async with fresh_store() as store:
        await Thread([a], max_iterations=1).run("Discuss", session="s", store=store)
        found = [(one["iter"], one["metadata"]["calls"], one["content"]) for one in await read(store, "s")]
        assert found == [(0, ["pay"], ""), (0, [], "Paid.")]
