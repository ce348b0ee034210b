"""Messages: what is given is what comes back, or is refused with its place."""

import math
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import BadInput, BadMessage
from holdfast.limits import JSON_DEPTH_MAX
from holdfast.messages import (
    AnyMessage,
    Block,
    CallPart,
    ForeignMessage,
    Media,
    Message,
    Reasoning,
    ResultPart,
    Shape,
    Text,
    ToolCall,
    ToolResult,
    UnknownBlock,
    as_message,
    decode_message,
    encode_message,
    foreign,
    register_format,
    shape_of,
)

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
metadata = st.dictionaries(texts, json_values, max_size=2)
medias = st.builds(
    Media, media_type=texts, data=st.none() | st.binary(), url=st.none() | texts, metadata=metadata
)
text_blocks = st.builds(Text, text=texts, metadata=metadata)
blocks: st.SearchStrategy[Block] = st.one_of(
    text_blocks,
    medias,
    st.builds(Reasoning, text=texts, metadata=metadata),
    st.builds(ToolCall, id=texts, name=texts, args=json_values, metadata=metadata),
    st.builds(
        ToolResult,
        call_id=texts,
        content=texts | st.lists(text_blocks | medias, max_size=2).map(tuple),
        is_error=st.booleans(),
        value=json_values,
        replay_of=st.none() | texts,
        metadata=metadata,
    ),
    metadata.map(lambda data: UnknownBlock({**data, "kind": "hologram"})),
)
messages = st.builds(
    Message,
    role=st.sampled_from(["system", "user", "assistant", "tool"]),
    blocks=st.lists(blocks, max_size=4).map(tuple),
    id=st.none() | texts,
    at=st.none() | st.datetimes(timezones=st.just(UTC)),
    agent=st.none() | texts,
    metadata=metadata,
)


@given(messages)
def test_every_message_comes_back_as_it_was(message: Message) -> None:
    """Every block, every field, blocks of unknown kinds included."""
    assert decode_message(encode_message(message)) == message


def test_a_block_of_an_unknown_kind_is_kept_among_the_others() -> None:
    """What a newer version wrote stays in its place, with all its fields."""
    stored = (
        b'{"role":"user","blocks":[{"kind":"text","text":"a"},'
        b'{"kind":"hologram","beams":[1.5,{"x":null}]},{"kind":"text","text":"b"}]}'
    )
    message = decode_message(stored)
    assert message.blocks == (
        Text("a"),
        UnknownBlock({"kind": "hologram", "beams": [1.5, {"x": None}]}),
        Text("b"),
    )
    assert message.text == "ab"
    assert decode_message(encode_message(message)) == message


def says(block: Block, **fields: Any) -> Message:
    return Message(role="assistant", blocks=(Text("before"), block), **fields)


NESTED: list[Any] = []
for _ in range(JSON_DEPTH_MAX + 1):
    NESTED = [NESTED]
CYCLE: dict[str, Any] = {}
CYCLE["self"] = CYCLE


@pytest.mark.parametrize(
    ("message", "place"),
    [
        (says(ToolCall(id="c", name="t", args={"a": [0, math.nan]})), r"blocks\[1\]\.args\.a\[1\] is nan"),
        (says(ToolCall(id="c", name="t", args={"a": math.inf})), r"blocks\[1\]\.args\.a is inf"),
        (says(ToolCall(id="c", name="t", args={1: 2})), r"blocks\[1\]\.args has the key 1"),
        (says(ToolCall(id="c", name="t", args={"a": {3, 4}})), r"blocks\[1\]\.args\.a is a set"),
        (says(ToolCall(id="c", name="t", args={"a": b"x"})), r"blocks\[1\]\.args\.a is a bytes"),
        (says(ToolCall(id="c", name="t", args={"a": ["\ud800"]})), r"blocks\[1\]\.args\.a\[0\] holds half"),
        (says(ToolCall(id="c", name="t", args={"\udfff": 1})), r"a key of blocks\[1\]\.args holds half"),
        (says(ToolCall(id="c", name="t", args=NESTED)), "levels deep"),
        (says(ToolCall(id="c", name="t", args=CYCLE)), "levels deep"),
        (says(ToolCall(id="c", name="t", metadata={"m": math.nan})), r"blocks\[1\]\.metadata\.m is nan"),
        (says(ToolCall(id="\ud800", name="t")), r"blocks\[1\]\.id holds half"),
        (says(Text("\ud83d")), r"blocks\[1\]\.text holds half a character \(U\+D83D\)"),
        (says(Text("x", metadata={"m": math.nan})), r"blocks\[1\]\.metadata\.m is nan"),
        (says(Reasoning("x", metadata={"m": -math.inf})), r"blocks\[1\]\.metadata\.m is -inf"),
        (says(Media(media_type="image/png", metadata={"m": math.nan})), r"blocks\[1\]\.metadata\.m is nan"),
        (says(ToolResult(call_id="c", value=math.nan)), r"blocks\[1\]\.value is nan"),
        (says(ToolResult(call_id="c", metadata={"m": math.nan})), r"blocks\[1\]\.metadata\.m is nan"),
        (
            says(ToolResult(call_id="c", content=(Text("x", metadata={"m": math.nan}),))),
            r"blocks\[1\]\.content\[0\]\.metadata\.m is nan",
        ),
        (says(UnknownBlock({"kind": "hologram", "x": math.nan})), r"blocks\[1\]\.x is nan"),
        (says(Text("x"), metadata={"m": [math.nan]}), r"metadata\.m\[0\] is nan"),
        (ForeignMessage(format="openai", data={"x": [math.nan]}, role="user"), r"message\.x\[0\] is nan"),
        (ForeignMessage(format="openai", data={"x": "\ud800"}, role="user"), r"message\.x holds half"),
    ],
)
def test_what_json_would_change_is_refused_with_its_place(message: AnyMessage, place: str) -> None:
    """Nothing is silently turned into null, nor fails later without a word about where."""
    with pytest.raises(BadMessage, match=place):
        encode_message(message)


@pytest.mark.parametrize(
    "message",
    [
        Message(role="moderator", blocks=(Text("x"),)),  # type: ignore[arg-type]
        says(Text(3)),  # type: ignore[arg-type]
        says(ToolCall(id=3, name="t")),  # type: ignore[arg-type]
        says(ToolResult(call_id="c", content=3)),  # type: ignore[arg-type]
        says({"kind": "text", "text": "x"}),  # type: ignore[arg-type]
        says(Text("x"), at="yesterday"),
        Message(role="user", blocks=None),  # type: ignore[arg-type]
    ],
)
def test_a_message_of_the_wrong_types_is_refused(message: Message) -> None:
    """Written, it could not be read again, and the session with it."""
    with pytest.raises(BadMessage):
        encode_message(message)


def test_a_plain_string_is_the_users() -> None:
    """Unless another role is named."""
    assert as_message("hello") == Message(role="user", blocks=(Text("hello"),))
    assert as_message("hello", role="assistant") == Message(role="assistant", blocks=(Text("hello"),))


def test_what_is_no_message_is_refused_with_a_hint() -> None:
    """A foreign message without its format cannot be understood."""
    with pytest.raises(BadInput, match=r"got dict.*format="):
        as_message({"role": "user", "content": "hi"})


def test_the_shape_lists_calls_and_results_in_order() -> None:
    """This is all that the fold needs to know of a message."""
    message = Message(
        role="assistant",
        blocks=(ToolResult(call_id="a"), Text("x"), ToolCall(id="b", name="f"), ToolCall(id="c", name="g")),
    )
    assert shape_of(message).parts == (ResultPart("a"), CallPart("b", "f"), CallPart("c", "g"))
    assert message.tool_calls == (ToolCall(id="b", name="f"), ToolCall(id="c", name="g"))


@pytest.mark.parametrize(
    ("data", "shape"),
    [
        ({"role": "user", "content": "hi"}, Shape(role="user")),
        ({"role": "developer", "content": "be brief"}, Shape(role="system")),
        ({"role": "user", "content": [{"type": "text", "text": "hi"}]}, Shape(role="user")),
        (
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}},
                    {"id": "b", "type": "custom", "custom": {"name": "g", "input": ""}},
                ],
            },
            Shape(role="assistant", parts=(CallPart("a", "f"), CallPart("b", "g"))),
        ),
        ({"role": "assistant", "content": "x", "tool_calls": None}, Shape(role="assistant")),
        (
            {"role": "tool", "tool_call_id": "a", "content": "42"},
            Shape(role="tool", parts=(ResultPart("a"),)),
        ),
    ],
)
def test_openai_messages_are_read(data: dict[str, Any], shape: Shape) -> None:
    """Calls and results of chat-completion messages are found; the message itself is kept verbatim."""
    message = foreign(data, "openai")
    assert (message.role, message.parts) == (shape.role, shape.parts)
    assert message.data == data


@pytest.mark.parametrize(
    ("data", "shape"),
    [
        ({"role": "user", "content": "hi"}, Shape(role="user")),
        (
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "…", "signature": "s"},
                    {"type": "tool_use", "id": "a", "name": "f", "input": {}},
                    {"type": "tool_use", "id": "b", "name": "g", "input": {}},
                ],
            },
            Shape(role="assistant", parts=(CallPart("a", "f"), CallPart("b", "g"))),
        ),
        (
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "b", "content": "2"},
                    {"type": "tool_result", "tool_use_id": "a", "content": "1"},
                    {"type": "text", "text": "go on"},
                ],
            },
            Shape(role="user", parts=(ResultPart("b"), ResultPart("a"))),
        ),
    ],
)
def test_anthropic_messages_are_read(data: dict[str, Any], shape: Shape) -> None:
    """Calls and results in content blocks are found; the message itself is kept verbatim."""
    message = foreign(data, "anthropic")
    assert (message.role, message.parts) == (shape.role, shape.parts)
    assert message.data == data


@pytest.mark.parametrize(
    ("format", "data"),
    [
        ("openai", "hello"),
        ("openai", {}),
        ("openai", {"role": "nobody", "content": "x"}),
        ("openai", {"role": "tool", "content": "no id"}),
        ("openai", {"role": "assistant", "tool_calls": [{"id": None, "function": {"name": "f"}}]}),
        ("anthropic", {"role": "user"}),
        ("anthropic", {"role": "user", "content": [{"no": "type"}]}),
        ("anthropic", {"role": "assistant", "content": [{"type": "tool_use"}]}),
    ],
)
def test_what_its_reader_cannot_understand_is_refused(format: str, data: Any) -> None:
    """The error names the format."""
    with pytest.raises(BadMessage, match=f"not a message of the format '{format}'"):
        foreign(data, format)


def test_a_foreign_message_knows_its_text() -> None:
    """Listings take a session's title from it."""
    assert foreign({"role": "user", "content": "hi there"}, "openai").text == "hi there"
    said = [{"type": "text", "text": "hi "}, {"type": "image"}, {"type": "text", "text": "there"}]
    assert foreign({"role": "user", "content": said}, "anthropic").text == "hi there"


def test_an_unknown_format_is_refused_with_those_that_are_known() -> None:
    """A typo in `format=` is an error, never a guess."""
    with pytest.raises(BadInput, match=r"'opnai'; known are .*anthropic.*openai.*register_format"):
        as_message({"role": "user"}, "opnai")


def test_an_application_can_teach_its_own_format(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its reader finds the calls; whatever it stumbles over is the message's fault."""
    monkeypatch.setattr("holdfast.messages._readers", {})

    def read(data: Any) -> Shape:
        return Shape(role="assistant", parts=(CallPart(data["call"], data["tool"]),))

    register_format("mine", read)
    message = as_message({"call": "7", "tool": "f", "content": "hm"}, "mine")
    assert isinstance(message, ForeignMessage)
    assert (message.role, message.parts, message.text) == ("assistant", (CallPart("7", "f"),), "hm")
    with pytest.raises(BadMessage, match="KeyError"):
        as_message({"call": "7"}, "mine")
    register_format("broken", lambda data: 1 / 0)  # type: ignore[arg-type,return-value]
    with pytest.raises(BadMessage, match="ZeroDivisionError"):
        as_message({}, "broken")
    register_format("lying", lambda data: Shape(role="moderator"))  # type: ignore[arg-type]
    with pytest.raises(BadMessage, match="moderator"):
        as_message({}, "lying")


def test_our_own_format_cannot_be_replaced() -> None:
    """Its meaning is fixed by the journal's format."""
    with pytest.raises(BadInput, match="holdfast's own format"):
        register_format("holdfast", lambda data: Shape(role="user"))


def test_a_foreign_message_whose_reader_is_gone_still_says_what_it_is() -> None:
    """Role and calls were written down when it was added."""
    message = ForeignMessage(
        format="extinct", data={"x": 1}, role="assistant", parts=(CallPart("a", "f"),), at=datetime.now(UTC)
    )
    assert message.text == ""
    assert shape_of(message) == Shape(role="assistant", parts=(CallPart("a", "f"),))
