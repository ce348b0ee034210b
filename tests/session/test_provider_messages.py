"""A transcript in the shape of a provider's client, and what clients return as messages."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import anthropic
import openai
import pytest
from openai.types.chat import ChatCompletion
from pydantic import BaseModel
from pydantic_ai.messages import (
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.usage import RequestUsage

import holdfast
from holdfast import blocking
from holdfast.blobs.home import BlobContext
from holdfast.core.entries import ModelReplied
from holdfast.errors import BadInput, BadMessage
from holdfast.messages import ForeignMessage, Media, Message, Reasoning, Text, ToolCall, ToolResult
from holdfast.records import Usage
from tests.agent.provider_formats import Answer, Call
from tests.agent.provider_server import Wire, serve

PIXEL = base64.b64decode("iVBORw0KGgo=")
CALL = ToolCall(id="c1", name="look", args={"city": "Lyon"})
CHAT_CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"city": "Lyon"}'}}


def say(role: Any, *blocks: Any) -> Message:
    return Message(role=role, blocks=blocks)


async def convert(format: str, *messages: Any, **options: Any) -> Any:
    """The messages of a session that was given these."""
    async with holdfast.open_store("memory:") as store, store.session("s") as session:
        for message in messages:
            if isinstance(message, tuple):
                await session.add(message[1], format=message[0])
            else:
                await session.add(message)
        return await session.messages(format, **options)


CONVERSATION = (
    say("system", Text("Be brief.")),
    "Hello.",
    say("assistant", Reasoning("Hm.", {"signature": "sig"}), Text("Let me look."), CALL),
    say("tool", ToolResult(call_id="c1", content="18 °C")),
    say("assistant", Text("It is warm.")),
    say("user", Text("And this?"), Media(media_type="image/png", data=PIXEL)),
)


async def test_our_messages_as_a_chat_of_openai() -> None:
    """A result is a message of the role `tool`; reasoning has no place."""
    assert await convert("openai", *CONVERSATION) == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hello."},
        {
            "role": "assistant",
            "content": "Let me look.",
            "tool_calls": [
                {
                    "id": "c1",
                    "type": "function",
                    "function": {"name": "look", "arguments": '{"city":"Lyon"}'},
                }
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "18 °C"},
        {"role": "assistant", "content": "It is warm."},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "And this?"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}},
            ],
        },
    ]


async def test_our_messages_as_items_of_openais_responses() -> None:
    """Calls and their outputs are items of their own."""
    assert await convert("openai-responses", *CONVERSATION) == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hello."},
        {"role": "assistant", "content": "Let me look."},
        {"type": "function_call", "call_id": "c1", "name": "look", "arguments": '{"city":"Lyon"}'},
        {"type": "function_call_output", "call_id": "c1", "output": "18 °C"},
        {"role": "assistant", "content": "It is warm."},
        {
            "role": "user",
            "content": [
                {"type": "input_text", "text": "And this?"},
                {
                    "type": "input_image",
                    "image_url": "data:image/png;base64,iVBORw0KGgo=",
                    "detail": "auto",
                },
            ],
        },
    ]


async def test_our_messages_for_anthropic() -> None:
    """A result is in a user message right after its call; the system messages at the beginning are apart."""
    assert await convert("anthropic", *CONVERSATION) == [
        {"role": "user", "content": "Hello."},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Hm.", "signature": "sig"},
                {"type": "text", "text": "Let me look."},
                {"type": "tool_use", "id": "c1", "name": "look", "input": {"city": "Lyon"}},
            ],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "18 °C"}]},
        {"role": "assistant", "content": "It is warm."},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "And this?"},
                {
                    "type": "image",
                    "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="},
                },
            ],
        },
    ]


async def test_our_messages_as_those_of_pydantic_ai() -> None:
    """As its message objects, for `message_history`."""
    found = await convert("pydantic-ai", *CONVERSATION[1:5])
    assert [type(message) for message in found] == [ModelRequest, ModelResponse, ModelRequest, ModelResponse]
    call = found[1].parts[2]
    assert isinstance(call, ToolCallPart)
    assert (call.tool_name, call.args) == ("look", {"city": "Lyon"})
    (result,) = found[2].parts
    assert isinstance(result, ToolReturnPart)
    assert (result.tool_name, result.content) == ("look", "18 °C")


VERBATIM: dict[str, list[dict[str, Any]]] = {
    "openai": [
        {"role": "developer", "content": [{"type": "text", "text": "Be brief."}]},
        {"role": "user", "content": "Hello.", "name": "ann"},
        {"role": "assistant", "content": None, "tool_calls": [CHAT_CALL], "reasoning_content": "Hm."},
        {"role": "tool", "tool_call_id": "c1", "content": "18 °C"},
    ],
    "openai-responses": [
        {"role": "developer", "content": "Be brief."},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hello."}]},
        {
            "type": "function_call",
            "call_id": "c1",
            "name": "look",
            "arguments": '{"city": "Lyon"}',
            "status": "completed",
        },
        {"type": "function_call_output", "call_id": "c1", "output": "18 °C"},
    ],
    "anthropic": [
        {"role": "user", "content": [{"type": "text", "text": "Hello.", "cache_control": {"type": "x"}}]},
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "c1", "name": "look", "input": {"city": "Lyon"}}],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "18 °C"}]},
    ],
}


@pytest.mark.parametrize("format", VERBATIM)
async def test_what_was_given_in_a_format_comes_back_in_it_as_it_was(format: str) -> None:
    """With every field, known or not."""
    given = VERBATIM[format]
    assert await convert(format, *((format, message) for message in given)) == given


@pytest.mark.parametrize("given", VERBATIM)
@pytest.mark.parametrize("wanted", [*VERBATIM, "pydantic-ai"])
async def test_a_conversation_with_one_provider_goes_on_with_another(given: str, wanted: str) -> None:
    """The call keeps its id, its result comes right after it, and nothing is said twice."""
    found = await convert(wanted, *((given, message) for message in VERBATIM[given]))
    async with holdfast.open_store("memory:") as store, store.session("s") as session:
        for message in found:
            await (session.add(message, format=wanted) if isinstance(message, dict) else session.add(message))
        assert session.continuable
        calls = await session.messages("openai")
        again = [message for message in calls if message["role"] in ("assistant", "tool")]
    assert again[0]["tool_calls"][0]["id"] == again[1]["tool_call_id"] == "c1"
    assert again[0]["tool_calls"][0]["function"]["name"] == "look"
    assert again[1]["content"] == "18 °C"
    assert len(again) == 2


async def test_results_of_anthropic_are_in_one_message() -> None:
    """Given one by one, or by the ledger; also after a reply that was kept as it was."""
    reply = {
        "role": "assistant",
        "content": [{"type": "tool_use", "id": id, "name": "look", "input": {}} for id in ("a", "b")],
    }
    found = await convert(
        "anthropic",
        "Go.",
        ("anthropic", reply),
        say("tool", ToolResult(call_id="a", content="1")),
        say("tool", ToolResult(call_id="b", content="", is_error=True)),
        "Well?",
    )
    assert found[1:] == [
        reply,
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "a", "content": "1"},
                {"type": "tool_result", "tool_use_id": "b", "is_error": True},
            ],
        },
        {"role": "user", "content": "Well?"},
    ]


async def test_media_in_a_result_follow_all_results_of_a_chat() -> None:
    """A `tool` message of OpenAI's is text; nothing may come between two of them."""
    shown = ToolResult(call_id="a", content=(Text("A map."), Media(media_type="image/png", data=PIXEL)))
    calls = [ToolCall(id=id, name="look") for id in ("a", "b")]
    messages = ("Go.", say("assistant", *calls), say("tool", shown, ToolResult(call_id="b", content="2")))
    found = await convert("openai", *messages)
    assert [message["role"] for message in found] == ["user", "assistant", "tool", "tool", "user"]
    assert (found[2]["content"], found[4]["content"][0]["type"]) == ("A map.", "image_url")
    (result, _) = (await convert("anthropic", *messages))[2]["content"]
    assert [part["type"] for part in result["content"]] == ["text", "image"]
    output = (await convert("openai-responses", *messages))[3]["output"]
    assert [part["type"] for part in output] == ["input_text", "input_image"]


async def test_arguments_that_are_no_json_are_given_back() -> None:
    """As the model wrote them; Anthropic wants an object."""
    broken = ToolCall(id="a", name="look", args='{"city": ')
    messages = ("Go.", say("assistant", broken), say("tool", ToolResult(call_id="a", content="no")))
    assert (await convert("openai", *messages))[1]["tool_calls"][0]["function"]["arguments"] == '{"city": '
    assert (await convert("anthropic", *messages))[1]["content"][0]["input"] == {"arguments": '{"city": '}


async def test_reasoning_of_another_provider_is_left_out() -> None:
    """Its signature would be refused; a reply of nothing else is left out, too."""
    theirs = Reasoning("Hm.", {"signature": "x", "provider_name": "openai"})
    assert await convert("anthropic", "Go.", say("assistant", theirs)) == [{"role": "user", "content": "Go."}]
    hidden = Reasoning("", {"id": "redacted_thinking", "signature": "x", "provider_name": "anthropic"})
    found = await convert("anthropic", "Go.", say("assistant", hidden, Text("Yes.")))
    assert found[1]["content"][0] == {"type": "redacted_thinking", "data": "x"}


async def test_system_messages_for_anthropic() -> None:
    """Those at the beginning are in `session.system`; a later one says what it is."""
    async with holdfast.open_store("memory:") as store, store.session("s") as session:
        assert session.system == ""
        await session.add(say("system", Text("Be brief.")))
        await session.add({"role": "developer", "content": "Be kind."}, format="openai")
        await session.add("Hello.")
        await session.add(say("system", Text("It is late.")))
        assert session.system == "Be brief.\n\nBe kind."
        assert await session.messages("anthropic") == [
            {"role": "user", "content": "Hello."},
            {"role": "user", "content": "<system>It is late.</system>"},
        ]


async def test_large_media_are_read_back_or_linked() -> None:
    """From the blobs that they are kept in; the call does not depend on where the bytes are."""
    large = PIXEL * 20_000
    picture = Media(media_type="image/png", data=large)
    chat = {
        "type": "image_url",
        "image_url": {"url": f"data:image/png;base64,{base64.b64encode(large).decode()}"},
    }

    def links(digest: str, context: BlobContext) -> str:
        return f"https://blobs.example/{digest}"

    async with holdfast.open_store("memory:", blob_urls=links) as store, store.session("s") as session:
        await session.add(say("user", picture))
        await session.add({"role": "user", "content": [chat]}, format="openai")
        await session.add("What is it?")
    async with holdfast.open_store("memory:", blob_urls=links) as store, store.session("s") as session:
        await session.add(say("user", picture))
        await session.add({"role": "user", "content": [chat]}, format="openai")
        await session.flush()
        for found in await session.messages("openai"):
            assert found["content"] == [chat]
        for found in await session.messages("openai", links=True):
            assert found["content"][0]["image_url"]["url"].startswith("https://blobs.example/")


async def test_a_transcript_that_cannot_go_on_is_refused_unless_asked_for() -> None:
    """A provider would refuse it; the error names the call, and what to do."""
    async with holdfast.open_store("memory:") as store, store.session("s") as session:
        await session.add("Go.")
        await session.add(say("assistant", CALL))
        with pytest.raises(BadInput, match=r"call 'c1' of look has no result .*dispatch_step"):
            await session.messages("openai")
        assert len(await session.messages("openai", unfinished=True)) == 2


async def test_an_unknown_format_is_refused_with_a_suggestion() -> None:
    """And so is a conversion that does not exist."""
    for name, expected in (("openia", "did you mean 'openai'"), ("holdfast", "session.transcript has")):
        with pytest.raises(BadInput, match=expected):
            await convert(name, "Go.")
    holdfast.messages.register_format(
        "mine", lambda data: holdfast.messages.Shape(role="user"), calls=lambda data: []
    )
    assert await convert("mine", ("mine", {"text": "Go."})) == [{"text": "Go."}]
    with pytest.raises(BadInput, match="cannot be converted to 'mine'"):
        await convert("mine", "Go.")
    with pytest.raises(BadInput, match="'mine' cannot be shown to a model"):
        await convert("openai", ("mine", {"text": "Go."}))
    with pytest.raises(BadInput, match="takes no audio/wav as bytes"):
        await convert("anthropic", say("user", Media(media_type="audio/wav", data=b"RIFF")))


# -- what clients return ---------------------------------------------------------------------------------


@pytest.fixture
def wire() -> Iterator[Wire]:
    """A server that speaks the formats of the clients."""
    with serve() as running:
        yield running


@holdfast.tool(side_effects={"read"})
def look(city: str) -> str:
    """Look something up."""
    return f"{city} is warm"


class Chat:
    """OpenAI's client for chat completions."""

    format, provider = "openai", "openai"

    def __init__(self, wire: Wire) -> None:
        self.client = openai.OpenAI(base_url=f"{wire.url}/v1", api_key="none")

    def ask(self, messages: Any, tools: Any, system: str) -> Any:
        return self.client.chat.completions.create(model="m", messages=messages, tools=tools)


class Responses(Chat):
    """… for responses."""

    format = "openai-responses"

    def ask(self, messages: Any, tools: Any, system: str) -> Any:
        flat: Any = [{"type": "function", **tool["function"]} for tool in tools]
        return self.client.responses.create(model="m", input=messages, tools=flat)


class Claude:
    """Anthropic's client."""

    format, provider = "anthropic", "anthropic"

    def __init__(self, wire: Wire) -> None:
        self.client = anthropic.Anthropic(base_url=wire.url, api_key="none")

    def ask(self, messages: Any, tools: Any, system: str) -> Any:
        return self.client.messages.create(
            model="m", max_tokens=100, messages=messages, tools=tools, system=system
        )


@pytest.mark.parametrize("kind", [Chat, Responses, Claude])
def test_a_loop_with_a_providers_own_client(kind: Any, wire: Wire) -> None:
    """What the client returns is taken as it is, with its usage; the next request has it word for word."""
    client, registry = kind(wire), blocking.Registry([look])
    wire.say(
        Answer(calls=[Call(name="look", args={"city": "Lyon"}, id="call_a")], cache_read_tokens=40),
        Answer(text="It is warm."),
    )
    with blocking.open_store("memory:") as store, store.session("s") as session:
        session.add("How is Lyon?")
        with session.run() as run:
            for _ in range(2):
                with run.request() as request:
                    messages = session.messages(client.format)
                    reply = client.ask(messages, registry.schemas(client.provider), session.system)
                    request.reply(reply)
                assert registry.dispatch_step(session).waiting == ()
        assert session.transcript[-1].text == "It is warm."
        usage = session.state.facts.head.usage
        assert usage == Usage(input_tokens=200, output_tokens=40, cache_read_tokens=40)
        assert session.budget.tokens == 240
        kept = session.transcript[1]
        assert isinstance(kept, ForeignMessage)
        assert kept.format == client.format
        sent = wire.asked[1].body.get("messages") or wire.asked[1].body["input"]
        again = session.messages(client.format)
        assert sent == again[: len(sent)]
        results = session.transcript[2]
        assert isinstance(results, Message)
        assert [block.content for block in results.blocks if isinstance(block, ToolResult)] == [
            "Lyon is warm"
        ]
        bodies = [entry.body for entry in store.tail("s", follow=False)]
        replies = [body.model for body in bodies if isinstance(body, ModelReplied)]
        assert len(replies) == 2
        assert all(replies)


def completion(**message: Any) -> ChatCompletion:
    data = {
        "id": "x",
        "object": "chat.completion",
        "created": 1,
        "model": "m-1",
        "choices": [
            {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", **message}},
        ],
        "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10},
    }
    return ChatCompletion.model_validate(data)


async def test_objects_of_clients_can_be_added() -> None:
    """A message, or the reply that holds it; fields that the server did not send are not there."""
    whole = completion(content="Hi.", refusal=None)
    sent = {"role": "assistant", "content": "Hi.", "refusal": None}
    response = ModelResponse([TextPart("Yes.")], usage=RequestUsage(input_tokens=5, output_tokens=2))
    async with holdfast.open_store("memory:") as store, store.session("s") as session:
        await session.add(whole)
        await session.add(whole.choices[0].message)
        await session.add(whole.choices[0].message, format="openai")
        data: Any = whole.model_dump(mode="json", exclude_unset=True)
        await session.add(data)
        assert await session.messages("openai") == [sent] * 4
        await session.add(ModelRequest([UserPromptPart("Well?")]))
        async with session.run() as run, run.request() as request:
            await request.reply(response)
        assert session.budget.tokens == 7
        assert (await session.messages("pydantic-ai"))[-1] == response
        await session.add(ToolCall.__name__)
        with pytest.raises(BadMessage):
            await session.add(whole, format="anthropic")


async def test_what_the_caller_says_of_a_reply_wins_over_the_object() -> None:
    """A cap in tokens stops the next request by the usage that the object has."""
    async with holdfast.open_store("memory:") as store, store.session("s") as session:
        await session.set_budget(holdfast.Budget(tokens=15))
        async with session.run(model="m") as run:
            async with run.request(reserve_tokens=10) as request:
                await request.reply(completion(content="Hi."))
            assert session.budget.tokens == 10
            with pytest.raises(holdfast.errors.BudgetSpent):
                async with run.request(reserve_tokens=10):
                    raise AssertionError
            async with run.request() as request:
                await request.reply(completion(content="Hi."), usage=Usage(output_tokens=1), model="other")
            assert session.budget.tokens == 11


async def test_a_completion_with_several_choices_is_refused() -> None:
    """The conversation goes on with one of them; the caller says with which."""
    whole = completion(content="Hi.")
    whole.choices.append(whole.choices[0])
    async with holdfast.open_store("memory:") as store, store.session("s") as session:
        with pytest.raises(BadInput, match="2 choices: give the message of the one"):
            await session.add(whole)

        class Mine(BaseModel):
            text: str

        with pytest.raises(BadInput, match="got Mine"):
            await session.add(Mine(text="Hi."))
        assert len(session.transcript) == 0


async def test_what_a_parsing_client_adds_is_not_sent_back() -> None:
    """Servers refuse fields that their client made up."""
    whole = completion(content='{"a": 1}')
    data = whole.model_dump(mode="json", exclude_unset=True)
    data["choices"][0]["message"] |= {"parsed": {"a": 1}}
    parsed = ChatCompletion.model_validate(data)
    async with holdfast.open_store("memory:") as store, store.session("s") as session:
        await session.add(parsed)
        assert await session.messages("openai") == [{"role": "assistant", "content": '{"a": 1}'}]
