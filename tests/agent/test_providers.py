"""Models of hosted and local providers, over real HTTP."""

import functools
import os
import subprocess
import sys
from pathlib import Path

import anyio
import pytest
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel

import holdfast
from holdfast.agents import Prompt, TextDelta
from holdfast.agents.providers.provider_model import ProviderModel
from holdfast.errors import BadInput
from holdfast.records import Usage
from tests.agent.hosted_models import (
    ANTHROPIC,
    CHAT,
    EVERY,
    LOCAL,
    LOOKUP,
    RESPONSES,
    ask,
    listen,
    opened,
    user,
    wire,
)
from tests.agent.provider_formats import Answer, Call
from tests.agent.provider_server import Stall, Wire

__all__ = ["wire"]

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def anyio_backend() -> str:
    """Streams that end early leave generators to the event loop, of which trio complains loudly."""
    return "asyncio"


@pytest.mark.parametrize("name", EVERY)
async def test_a_model_answers(name: str, wire: Wire) -> None:
    """A prompt becomes one request, and the reply says what it took and which model answered."""
    wire.say(Answer(text="Good day", input_tokens=70, output_tokens=5, cache_read_tokens=30))
    deltas, reply = await listen(
        opened(name, wire), Prompt(messages=[user("hello")], instructions="Be kind.")
    )
    assert (deltas, reply.message.role, reply.message.text) == ([], "assistant", "Good day")
    assert reply.usage == Usage(input_tokens=70, output_tokens=5, cache_read_tokens=30)
    assert reply.model == ("llama3:8b" if name == LOCAL else name.partition(":")[2])
    assert len(wire.asked) == 1
    assert "Be kind." in str(wire.bodies[0])


@pytest.mark.parametrize("name", [ANTHROPIC, RESPONSES])
async def test_tokens_written_to_the_cache_are_counted(name: str, wire: Wire) -> None:
    """They are among the input tokens, and have a price of their own."""
    wire.say(Answer(text="hm", input_tokens=100, cache_read_tokens=30, cache_write_tokens=20))
    usage = (await ask(opened(name, wire))).usage
    assert usage == Usage(input_tokens=100, output_tokens=20, cache_read_tokens=30, cache_write_tokens=20)


@pytest.mark.parametrize("name", EVERY)
async def test_a_streamed_reply_is_the_plain_one_in_pieces(name: str, wire: Wire) -> None:
    """The deltas are the text; whether it was streamed makes no difference to what is kept."""
    answer = Answer(
        text="Let me look.", thinking="An order?", calls=[Call(name="lookup", args={"order": "42"})]
    )
    model = opened(name, wire)
    wire.say(answer, answer)
    _, plain = await listen(model, Prompt(messages=[user("hello")], tools=[LOOKUP], max_tokens=100))
    deltas, streamed = await listen(
        model, Prompt(messages=[user("hello")], tools=[LOOKUP], max_tokens=100, stream=True)
    )
    assert deltas == ["Let me", " look."]
    assert streamed == plain
    assert [body.get("stream", False) for body in wire.bodies] == [False, True]


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("stream", [False, True])
async def test_a_tool_call_arrives_with_its_arguments(name: str, stream: bool, wire: Wire) -> None:
    """Parsed, with the id the provider gave it; and the tool was offered as it is."""
    wire.say(Answer(calls=[Call(name="lookup", args={"order": "42"}, id="c9")]))
    reply = await ask(opened(name, wire), tools=[LOOKUP], stream=stream)
    (call,) = reply.message.tool_calls
    assert (call.id, call.name, call.args) == ("c9", "lookup", {"order": "42"})
    (offered,) = wire.asked[0].tools
    assert (offered.name, offered.schema) == ("lookup", LOOKUP.schema)


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("raw", ['{"order": ', "42", '{"order": NaN}', '{"order": "\\ud800"}', "[" * 5000])
async def test_malformed_arguments_are_kept_as_they_came(name: str, raw: str, wire: Wire) -> None:
    """The call is not lost, and the gate for arguments can say what is wrong with it."""
    wire.say(Answer(calls=[Call(name="lookup", args=raw)]))
    stream = name == ANTHROPIC  # Its plain replies hold objects, not text.
    reply = await ask(opened(name, wire), tools=[LOOKUP], stream=stream)
    assert reply.message.tool_calls[0].args == raw
    outcome = await holdfast.Registry([lookup]).dispatch("lookup", reply.message.tool_calls[0].args)
    assert outcome.is_error


@holdfast.tool(side_effects={"read"})
def lookup(order: str) -> str:
    """Find an order."""
    return order


async def test_calls_that_a_server_numbers_alike_are_told_apart(wire: Wire) -> None:
    """Each has an id of its own within the reply, so that each result has its call."""
    wire.say(
        Answer(calls=[Call(name="lookup", id="0"), Call(name="lookup", id="0"), Call(name="lookup", id="0")])
    )
    reply = await ask(opened(LOCAL, wire), tools=[LOOKUP])
    assert len({call.id for call in reply.message.tool_calls}) == 3


@pytest.mark.parametrize(("name", "field"), [
    (ANTHROPIC, "max_tokens"), (RESPONSES, "max_output_tokens"), (CHAT, "max_completion_tokens"),
])  # fmt: skip
async def test_the_length_of_a_reply_is_capped(name: str, field: str, wire: Wire) -> None:
    """What the loop allows is what the provider is told; and a reply that hit the cap is still a reply."""
    wire.say(Answer(text="Once upon a", cut_short=True))
    reply = await ask(opened(name, wire), max_tokens=77)
    assert wire.bodies[0][field] == 77
    assert reply.message.text == "Once upon a"
    assert reply.message.metadata["finish_reason"] == "length"


async def test_settings_reach_the_provider(wire: Wire) -> None:
    """Temperature and the like are given once, when the model is opened."""
    await ask(opened(LOCAL, wire, temperature=0.25))
    assert wire.bodies[0]["temperature"] == 0.25


async def test_a_local_server_is_named_in_one_string_too(wire: Wire) -> None:
    """For configuration files and command lines."""
    model = holdfast.agents.open_model(f"{wire.url}/v1#qwen3:4b", api_key="local-key")
    assert (await ask(model)).message.text == "Done."
    assert model.name == "openai-compatible:qwen3:4b"
    assert wire.bodies[0]["model"] == "qwen3:4b"
    assert wire.asked[0].headers["authorization"] == "Bearer local-key"


async def test_the_key_of_a_hosted_provider_never_goes_to_another_server(wire: Wire) -> None:
    """Without a key of its own a local server gets none that means anything."""
    await ask(opened(LOCAL, wire))
    assert "sk-none" not in wire.asked[0].headers["authorization"]


async def test_a_key_may_be_given(wire: Wire) -> None:
    """Instead of the one in the environment."""
    await ask(holdfast.agents.open_model(ANTHROPIC, api_key="mine"))
    assert wire.asked[0].headers["authorization"] == "Bearer mine"


async def test_a_model_of_pydantic_ai_is_taken_as_it_is() -> None:
    """Whatever it supports, and however it was set up."""

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return ModelResponse(parts=[TextPart(f"{len(info.function_tools)} tools")])

    model = holdfast.agents.open_model(FunctionModel(answer, model_name="mine"))
    assert model.name == "function:mine"
    assert (await ask(model, tools=[LOOKUP])).message.text == "1 tools"


async def test_a_model_of_pydantic_ai_streams_as_well() -> None:
    """Even one that is no server, and so never says why its reply ended."""
    prompt = Prompt(messages=[user("hello")], stream=True)
    deltas, reply = await listen(holdfast.agents.open_model(TestModel(custom_output_text="a b")), prompt)
    assert "".join(deltas) == reply.message.text == "a b"


@pytest.mark.parametrize("name", EVERY)
async def test_closing_the_generator_ends_the_request(name: str, wire: Wire) -> None:
    """A caller that closes the stream does not pay for the rest."""
    wire.say(Stall())
    said = opened(name, wire).ask(Prompt(messages=[user("hello")], stream=True))
    assert isinstance(await anext(said), TextDelta)
    await said.aclose()
    assert await anyio.to_thread.run_sync(wire.hung_up.wait, 10)


async def test_a_cancelled_request_leaves_the_model_usable(wire: Wire) -> None:
    """Its connection is closed, and the next request gets another."""
    model = opened(ANTHROPIC, wire)
    wire.say(Stall())
    async with anyio.create_task_group() as group:
        group.start_soon(ask, model)
        assert await anyio.to_thread.run_sync(wire.stalling.wait, 10)
        group.cancel_scope.cancel()
    assert await anyio.to_thread.run_sync(wire.hung_up.wait, 10)
    assert (await ask(model)).message.text == "Done."


async def test_requests_may_overlap(wire: Wire) -> None:
    """Each generator has its own request."""
    model = opened(RESPONSES, wire)
    replies: list[str] = []

    async def one() -> None:
        replies.append((await ask(model)).message.text)

    async with anyio.create_task_group() as group:
        for _ in range(5):
            group.start_soon(one)
    assert replies == ["Done."] * 5


async def test_an_entered_model_keeps_its_connection(wire: Wire) -> None:
    """One connection for all of the requests in the block."""
    model = opened(LOCAL, wire)
    async with model:
        await ask(model)
        await ask(model)
    await ask(model)
    first, second, third = (asked.port for asked in wire.asked)
    assert first == second != third


def test_one_model_serves_several_event_loops(wire: Wire) -> None:
    """One after the other and in several threads: what belongs to a loop is not shared between them."""
    model = opened(ANTHROPIC, wire)
    for _ in range(2):
        assert anyio.run(ask, model).message.text == "Done."

    async def in_threads() -> None:
        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(anyio.to_thread.run_sync, functools.partial(anyio.run, ask, model))
            await ask(model)

    anyio.run(in_threads)
    assert len(wire.asked) == 6


@pytest.mark.parametrize("stream", [False, True])
def test_a_model_answers_under_trio(stream: bool, wire: Wire) -> None:
    """The same code on either event loop."""
    model = opened(RESPONSES, wire)
    reply = anyio.run(functools.partial(ask, model, stream=stream), backend="trio")
    assert reply.message.text == "Done."


@pytest.mark.parametrize(("name", "why"), [
    ("nobody:nothing", "nobody:nothing"),
    ("gpt-5", "Did you mean"),
    ("nothing", "a name is like 'anthropic:claude-sonnet-5'"),
    ("http://127.0.0.1:8080/v1", "after a '#'"),
    ("groq:llama", "groq"),
])  # fmt: skip
def test_a_name_that_leads_nowhere_is_refused_at_once(name: str, why: str) -> None:
    """Before anything was asked, and with a hint."""
    with pytest.raises(BadInput, match=why):
        holdfast.agents.open_model(name)


def test_a_missing_key_is_known_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the variable."""
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    with pytest.raises(BadInput, match="ANTHROPIC_API_KEY") as caught:
        holdfast.agents.open_model(ANTHROPIC)
    assert "Pydantic AI" not in str(caught.value)


def test_without_the_extra_the_error_names_it() -> None:
    """A core installation says what to install."""
    hide = "import sys; sys.modules['pydantic_ai'] = None; import holdfast; "
    found = subprocess.run(
        [sys.executable, "-c", f"{hide}holdfast.agents.open_model('{ANTHROPIC}')"],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
    )
    assert "MissingExtra" in found.stderr
    assert "holdfast[models]" in found.stderr


async def test_an_agent_runs_on_a_hosted_model(wire: Wire) -> None:
    """From its name to its outcome: the tool is called once, and the model is told what came of it."""
    called: list[str] = []

    @holdfast.tool(side_effects={"read"})
    def lookup(order: str) -> str:
        """Find an order."""
        called.append(order)
        return "it is on its way"

    async with holdfast.open_store("memory:") as store:
        agent = holdfast.Agent(ANTHROPIC, tools=[lookup], budget=holdfast.Budget(usd=5))
        outcome = await agent.run("Where is my order?", session="order", store=store)
    assert (outcome.status, outcome.output, called) == ("completed", "Done.", ["example"])
    assert "it is on its way" in str(wire.bodies[-1])
    assert outcome.cost_usd > 0


def test_a_model_does_not_show_its_key(wire: Wire) -> None:
    """Neither in its name nor in its representation."""
    model = holdfast.agents.open_model(ANTHROPIC, api_key="secret")
    assert isinstance(model, ProviderModel)
    assert "secret" not in f"{model!r} {model.name} {vars(model)}"
