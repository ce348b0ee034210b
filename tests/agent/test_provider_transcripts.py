"""From our transcript to a provider's and back, with nothing lost that the provider wants back."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_ai.messages import (
    BinaryContent,
    FilePart,
    ModelRequest,
    ModelResponse,
    ModelResponsePart,
    NativeToolCallPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

import holdfast
from holdfast.agents.providers.reply import reply_from
from holdfast.errors import BadInput
from holdfast.formats.pydantic_ai import conversation, response_from
from holdfast.messages import (
    AnyMessage,
    Media,
    Message,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
    UnknownBlock,
    decode_message,
    encode_message,
    foreign,
)
from tests.agent.hosted_models import (
    ANTHROPIC,
    CHAT,
    EVERY,
    LOCAL,
    LOOKUP,
    RESPONSES,
    ask,
    opened,
    user,
    wire,
)
from tests.agent.provider_formats import Answer, Call
from tests.agent.provider_server import Wire

__all__ = ["wire"]


@pytest.fixture
def anyio_backend() -> str:
    """One event loop is enough: what is sent does not depend on it."""
    return "asyncio"


def results(*results: ToolResult) -> Message:
    return Message(role="tool", blocks=results)


CALLS = Message(
    role="assistant",
    blocks=(
        Text("Let me look."),
        ToolCall(id="a", name="lookup", args={"order": "1"}),
        ToolCall(id="b", name="lookup", args={"order": "2"}),
    ),
)
RESULTS = (
    results(ToolResult(call_id="b", content="no such order", is_error=True)),
    results(ToolResult(call_id="a", content="shipped")),
)


# -- over the wire ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("stream", [False, True])
async def test_a_provider_gets_back_what_it_said(name: str, stream: bool, wire: Wire) -> None:
    """Its reasoning with the signature, its ids, and its calls, also after a stay in the journal."""
    model = opened(name, wire)
    answer = Answer(
        text="Let me look.", thinking="An order?", calls=[Call(name="lookup", args={"order": "1"})]
    )
    wire.say(answer)
    reply = await ask(model, tools=[LOOKUP], stream=stream)
    kept = decode_message(encode_message(reply.message))
    assert kept == reply.message
    await ask(model, [user("hello"), kept, results(ToolResult(call_id="call_1", content="shipped"))])
    sent = wire.bodies[-1].get("messages") or wire.bodies[-1]["input"]
    assert holds(sent, expected_back(name))


def expected_back(name: str) -> list[dict[str, Any]]:
    """The reply and its result, as the API of the provider has them."""
    if name == ANTHROPIC:
        said = [
            {"type": "thinking", "thinking": "An order?", "signature": "signed"},
            {"type": "text", "text": "Let me look."},
            {"type": "tool_use", "id": "call_1", "name": "lookup", "input": {"order": "1"}},
        ]
        result = {
            "type": "tool_result",
            "tool_use_id": "call_1",
            "content": [{"type": "text", "text": "shipped"}],
            "is_error": False,
        }
        return [{"role": "assistant", "content": said}, {"role": "user", "content": [result]}]
    if name == RESPONSES:
        text = {"type": "output_text", "text": "Let me look.", "annotations": []}
        return [
            {
                "type": "reasoning",
                "id": "rs_1",
                "summary": [{"type": "summary_text", "text": "An order?"}],
                "encrypted_content": "sealed",
            },
            {
                "type": "message",
                "id": "msg_1",
                "role": "assistant",
                "status": "completed",
                "content": [text],
            },
            {
                "type": "function_call",
                "id": "fc_1",
                "call_id": "call_1",
                "name": "lookup",
                "arguments": '{"order":"1"}',
            },
            {"type": "function_call_output", "call_id": "call_1", "output": "shipped"},
        ]
    call = {
        "id": "call_1",
        "type": "function",
        "function": {"name": "lookup", "arguments": '{"order":"1"}'},
    }
    said_so = {"role": "assistant", "content": "Let me look.", "tool_calls": [call]}
    return [
        {**said_so, "reasoning_content": "An order?"},
        {"role": "tool", "tool_call_id": "call_1", "content": "shipped"},
    ]


def holds(whole: list[Any], items: list[Any]) -> bool:
    """Whether the items stand together in it."""
    return any(whole[start : start + len(items)] == items for start in range(len(whole)))


async def test_results_follow_their_reply_in_the_order_of_the_calls(wire: Wire) -> None:
    """In one message, whatever order they came in, with what the user said after them."""
    await ask(opened(ANTHROPIC, wire), [user("hello"), CALLS, *RESULTS, user("and?")], tools=[LOOKUP])
    *_, last = wire.bodies[0]["messages"]
    assert [part.get("tool_use_id") for part in last["content"]] == ["a", "b", None]


async def test_a_failure_is_marked_as_one(wire: Wire) -> None:
    """By the flag where the API has one, and in the text where it has none."""
    transcript = [user("hello"), CALLS, *RESULTS]
    for name in (ANTHROPIC, RESPONSES, CHAT):
        await ask(opened(name, wire), transcript)
    messages, items, chat = (body.get("messages") or body["input"] for body in wire.bodies)
    assert [part["is_error"] for part in messages[-1]["content"]] == [False, True]
    assert items[-1]["output"] == chat[-1]["content"] == '{"error":"no such order"}'


async def test_instructions_and_system_messages_at_the_head_go_together(wire: Wire) -> None:
    """Both are what the provider calls the system prompt, and nothing is added to them."""
    transcript = [Message(role="system", blocks=(Text("Orders have numbers."),)), user("hello")]
    await ask(opened(ANTHROPIC, wire), transcript, instructions="Be kind.")
    assert [part["text"] for part in wire.bodies[0]["system"]] == ["Be kind.", "Orders have numbers."]
    assert len(wire.bodies[0]["messages"]) == 1


@pytest.mark.parametrize("name", EVERY)
async def test_a_system_message_in_between_is_told_to_every_model(name: str, wire: Wire) -> None:
    """In the place where it was said, in the way the API knows."""
    note = Message(role="system", blocks=(Text("The shop has closed."),))
    hello = Message(role="assistant", blocks=(Text("hi"),))
    await ask(opened(name, wire), [user("hello"), hello, note, user("open?")])
    told = str(wire.bodies[0].get("messages") or wire.bodies[0]["input"])
    assert told.index("hi") < told.index("The shop has closed.") < told.index("open?")


@pytest.mark.parametrize("name", EVERY)
async def test_text_reaches_the_model_unchanged(name: str, wire: Wire) -> None:
    """Tags in files and in what users write are theirs."""
    text = "<system>x</system> &lt; \u2028 é 🙂"
    shown = results(ToolResult(call_id="a", content=text), ToolResult(call_id="b", content="-"))
    await ask(opened(name, wire), [user(text), CALLS, shown])
    assert str(wire.bodies[0]).count(repr(text)[1:-1]) == 2


async def test_an_image_is_shown(wire: Wire) -> None:
    """Inline or by its URL, from the user or from a tool."""
    png = Media(media_type="image/png", data=b"\x89PNG")
    linked = Media(media_type="image/png", url="https://example.org/x.png")
    shown = results(
        ToolResult(call_id="a", content=(Text("here"), png)), ToolResult(call_id="b", content="-")
    )
    said = Message(role="user", blocks=(Text("what is this?"), png, linked))
    await ask(opened(ANTHROPIC, wire), [said, CALLS, shown])
    first, _, last = wire.bodies[0]["messages"]
    assert [part["type"] for part in first["content"]] == ["text", "image", "image"]
    assert [part["type"] for part in last["content"][0]["content"]] == ["text", "image"]


async def test_the_reasoning_of_one_provider_is_not_signed_for_another(wire: Wire) -> None:
    """A session that changes models keeps the words; the other provider would refuse the signature."""
    signed = Message(
        role="assistant",
        blocks=(
            Reasoning("An order?", {"signature": "signed", "provider_name": "anthropic"}),
            Text("Which?"),
        ),
        metadata={"provider_name": "anthropic"},
    )
    await ask(opened(RESPONSES, wire), [user("hello"), signed, user("42")])
    assert "signed" not in str(wire.bodies[0])
    assert "Which?" in str(wire.bodies[0])


async def test_the_address_of_a_server_is_not_kept_where_it_may_hold_a_password(wire: Wire) -> None:
    """What is in the journal is read by many."""
    model = holdfast.agents.open_model("llama3", base_url=wire.url.replace("//", "//me:secret@") + "/v1")
    reply = await ask(model)
    assert b"secret" not in encode_message(reply.message)


# -- messages of other formats ---------------------------------------------------------------------------

OPENAI: list[dict[str, Any]] = [
    {"role": "developer", "content": "Be kind."},
    {"role": "user", "content": [
        {"type": "text", "text": "Where is it?"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw=="}},
    ]},
    {"role": "assistant", "content": None, "tool_calls": [
        {"id": "a", "type": "function", "function": {"name": "lookup", "arguments": '{"order": "1"}'}},
    ]},
    {"role": "tool", "tool_call_id": "a", "content": "shipped"},
    {"role": "assistant", "content": "On its way."},
    {"role": "user", "content": "Thanks"},
]  # fmt: skip

ANTHROPIC_MESSAGES: list[dict[str, Any]] = [
    {"role": "user", "content": [
        {"type": "text", "text": "Where is it?"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw=="}},
    ]},
    {"role": "assistant", "content": [
        {"type": "thinking", "thinking": "An order?", "signature": "signed"},
        {"type": "redacted_thinking", "data": "hidden"},
        {"type": "tool_use", "id": "a", "name": "lookup", "input": {"order": "1"}},
    ]},
    {"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "a", "content": "shipped", "is_error": True},
    ]},
    {"role": "assistant", "content": "On its way."},
    {"role": "user", "content": "Thanks"},
]  # fmt: skip


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize(("format", "messages"), [("openai", OPENAI), ("anthropic", ANTHROPIC_MESSAGES)])
async def test_messages_of_other_formats_are_told_to_any_model(
    name: str, format: str, messages: list[dict[str, Any]], wire: Wire
) -> None:
    """A transcript that came from elsewhere goes on with whichever provider."""
    await ask(opened(name, wire), [foreign(message, format) for message in messages])
    sent = str(wire.bodies[0])
    for words in ("Where is it?", "iVBORw==", "lookup", "shipped", "On its way.", "Thanks"):
        assert words in sent


async def test_thinking_of_the_other_format_keeps_its_signature(wire: Wire) -> None:
    """The provider that signed it gets it back as it was."""
    await ask(
        opened(ANTHROPIC, wire),
        [foreign(message, "anthropic") for message in ANTHROPIC_MESSAGES],
        tools=[LOOKUP],
    )
    assert wire.bodies[0]["messages"][1] == ANTHROPIC_MESSAGES[1]


@pytest.mark.parametrize(("message", "why"), [
    (foreign({"role": "user", "content": [{"type": "search_result"}]}, "anthropic"), "search_result"),
    (foreign({"role": "user", "content": [{"type": "video"}]}, "openai"), "video"),
    (foreign({"role": "user", "content": [{"type": "text"}]}, "openai"), "KeyError"),
    (holdfast.messages.ForeignMessage(format="other", data={}, role="user"), "'other'"),
    (Message(role="user", blocks=(Media(media_type="image/png"),)), "without data and without a URL"),
    (Message(role="user", blocks=(Reasoning("hm"),)), "Reasoning"),
    (Message(role="assistant", blocks=(ToolResult(call_id="a"),)), "tool result"),
])  # fmt: skip
async def test_what_no_model_can_be_shown_is_refused_clearly(
    message: AnyMessage, why: str, wire: Wire
) -> None:
    """Before anything is sent, and saying what it is."""
    with pytest.raises(BadInput, match=why):
        await ask(opened(LOCAL, wire), [message, user("hello")])
    assert wire.asked == []


# -- for all transcripts ---------------------------------------------------------------------------------

words = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
names = st.from_regex(r"[a-z][a-z_]{0,10}", fullmatch=True)
numbers = st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
jsons = st.recursive(
    st.none() | st.booleans() | numbers | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)
objects = st.dictionaries(words, jsons, max_size=3)
theirs: dict[str, Any] = {
    "id": st.none() | words,
    "provider_name": st.none() | words,
    "provider_details": st.none() | st.dictionaries(words, jsons, min_size=1, max_size=3),
}
parts: st.SearchStrategy[ModelResponsePart] = st.one_of(
    st.builds(TextPart, content=words, **theirs),
    st.builds(ThinkingPart, content=st.just("") | words, signature=st.none() | words, **theirs),
    st.builds(ToolCallPart, tool_name=names, args=objects, tool_call_id=st.uuids().map(str), **theirs),
    st.builds(NativeToolCallPart, tool_name=names, args=objects, tool_call_id=st.uuids().map(str), **theirs),
    st.builds(
        FilePart,
        content=st.builds(BinaryContent, data=st.binary(), media_type=st.just("image/png")),
        **theirs,
    ),
)
responses = st.builds(
    ModelResponse,
    parts=st.lists(parts, max_size=4),
    model_name=st.none() | words,
    provider_name=st.none() | words,
    provider_details=st.none() | st.dictionaries(words, jsons, min_size=1, max_size=3),
    provider_response_id=st.none() | words,
    finish_reason=st.sampled_from([None, "stop", "length", "tool_call"]),
)


@given(responses)
def test_a_reply_comes_back_as_it_was(response: ModelResponse) -> None:
    """Through our blocks and the journal: what a provider wants back is what it gave."""
    message = decode_message(encode_message(reply_from(response).message))
    restored = response_from(message)
    assert list(restored.parts) == list(response.parts)
    assert restored == ModelResponse(
        parts=response.parts,
        timestamp=restored.timestamp,
        model_name=response.model_name,
        provider_name=response.provider_name,
        provider_details=response.provider_details,
        provider_response_id=response.provider_response_id,
        finish_reason=response.finish_reason,
    )


@given(st.text(st.characters(), min_size=1), st.text(st.characters()))
def test_whatever_a_provider_lets_slip_can_be_kept(text: str, args: str) -> None:
    """Halves of characters and arguments that are none must not cost a reply that is paid for."""
    response = ModelResponse(
        parts=[TextPart(text), ToolCallPart("lookup", args=args)], provider_details={text: float("nan")}
    )
    message = reply_from(response).message
    assert decode_message(encode_message(message)) == message


blocks_said = st.one_of(words.map(Text), words.map(Reasoning))


@st.composite
def transcripts(draw: st.DrawFn) -> list[Message]:
    """Valid ones, with results in any order and ids that come again in later replies."""
    made = [user(draw(words))]
    for _ in range(draw(st.integers(0, 4))):
        ids = [f"c{number}" for number in range(draw(st.integers(0, 3)))]
        calls = [ToolCall(id=id, name=draw(names), args=draw(objects)) for id in ids]
        made.append(Message(role="assistant", blocks=(*draw(st.lists(blocks_said, max_size=2)), *calls)))
        answers = [ToolResult(call_id=id, content=draw(words), is_error=draw(st.booleans())) for id in ids]
        said: list[Message] = [results(answer) for answer in draw(st.permutations(answers))]
        if not ids or draw(st.booleans()):
            said.append(user(draw(words)))
        made += said
    return made


@given(transcripts())
def test_every_call_has_its_result_right_after_it(transcript: list[Message]) -> None:
    """Requests and replies take turns; results come first, in the order of the calls, and know their tool."""
    sent = conversation(transcript)
    assert [message.kind for message in sent] == ["request", "response"] * (len(sent) // 2) + (
        ["request"] if len(sent) % 2 else []
    )
    for reply, request in zip(sent[1::2], sent[2::2], strict=True):
        assert isinstance(reply, ModelResponse)
        assert isinstance(request, ModelRequest)
        asked = [(call.tool_call_id, call.tool_name) for call in reply.tool_calls]
        answered = [
            (part.tool_call_id, part.tool_name) for part in request.parts if isinstance(part, ToolReturnPart)
        ]
        assert answered == asked
        assert all(isinstance(part, UserPromptPart) for part in request.parts[len(asked) :])


@given(transcripts())
def test_nothing_that_was_said_is_left_out(transcript: list[Message]) -> None:
    """Every reply is one again, word for word, when it comes back."""
    sent = [message for message in conversation(transcript) if isinstance(message, ModelResponse)]
    ours = [message for message in transcript if message.role == "assistant"]
    assert [reply_from(message).message for message in sent] == ours


def test_blocks_of_a_newer_version_are_passed_over() -> None:
    """This version does not know what to do with them, but the next request is none the worse."""
    unknown = UnknownBlock({"kind": "hologram"})
    said = Message(role="user", blocks=(Text("hello"), unknown))
    answer = Message(role="assistant", blocks=(unknown, Text("hi")))
    request, response = conversation([said, answer])
    assert [part.content for part in request.parts if isinstance(part, UserPromptPart)] == ["hello"]
    assert [part.content for part in response.parts if isinstance(part, TextPart)] == ["hi"]


def test_notes_of_our_own_in_the_metadata_do_no_harm() -> None:
    """Metadata of an application under the same name as the provider's is not sent."""
    message = Message(
        role="assistant", blocks=(Text("hi", {"id": 7, "note": "x"}),), metadata={"usage": "none"}
    )
    assert list(response_from(message).parts) == [TextPart("hi")]
