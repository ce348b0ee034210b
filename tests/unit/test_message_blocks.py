"""Messages of every format are shown as blocks, without the library that they come from."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from holdfast.content.message_blocks import list_blocks, list_stored_blocks
from holdfast.messages import (
    Block,
    ForeignMessage,
    Media,
    Message,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
    as_message,
    register_format,
)
from tests.foreign_messages import CONVERSATIONS, RESULTS, SAID


def blocks_of(data: Any, format: str) -> list[Block]:
    return list(list_blocks(as_message(data, format)))


@pytest.mark.parametrize("format", CONVERSATIONS)
def test_a_conversation_reads_the_same_in_every_format(format: str) -> None:
    """What was said, called and returned, in order, with arguments as data."""
    blocks = [block for data in CONVERSATIONS[format] for block in blocks_of(data, format)]
    said = "".join(block.text for block in blocks if isinstance(block, Text))
    assert said.replace("itwarm", "it warm") == "".join(SAID)
    calls = [block for block in blocks if isinstance(block, ToolCall)]
    assert [(one.id, one.name, one.args) for one in calls] == [("c1", "look", {"n": 1}), ("c2", "note", "it")]
    results = [block for block in blocks if isinstance(block, ToolResult)]
    assert [(one.call_id, one.content) for one in results] == list(zip(("c1", "c2"), RESULTS, strict=True))
    thoughts = [block.text for block in blocks if isinstance(block, Reasoning)]
    assert thoughts == ([] if format == "openai" else ["Look first."])


@pytest.mark.parametrize("format", CONVERSATIONS)
def test_a_stored_message_reads_as_it_did_before(format: str) -> None:
    """The journal has its JSON."""
    for data in CONVERSATIONS[format]:
        message = as_message(data, format)
        assert isinstance(message, ForeignMessage)
        stored = list_stored_blocks(msgspec.json.encode(data), format, message.role, message.parts)
        assert list(stored) == list(list_blocks(message))


PICTURE = "iVBORw0KGgo="
BLOB = f"media+sha256://{'0' * 64}"


@pytest.mark.parametrize(
    ("format", "part", "expected"),
    [
        (
            "openai",
            {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
            Media(media_type="image_url", url="https://example.org/a.png"),
        ),
        (
            "openai",
            {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PICTURE}"}},
            Media(media_type="image/png", data=b"\x89PNG\r\n\x1a\n"),
        ),
        (
            "openai",
            {"type": "image_url", "image_url": {"url": f"{BLOB}?after=data%3Aimage%2Fpng%3Bbase64%2C"}},
            Media(media_type="image/png", url=BLOB),
        ),
        (
            "openai-responses",
            {"type": "input_file", "filename": "a.pdf", "file_data": PICTURE},
            Media(media_type="input_file", data=b"\x89PNG\r\n\x1a\n", name="a.pdf"),
        ),
        (
            "anthropic",
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PICTURE}},
            Media(media_type="image/png", data=b"\x89PNG\r\n\x1a\n"),
        ),
        ("anthropic", {"type": "new", "of": 1}, Text('{"type":"new","of":1}')),
    ],
)
def test_media_are_named_and_what_is_unknown_is_shown_as_it_is(
    format: str, part: dict[str, Any], expected: Block
) -> None:
    """With the address or the bytes; bytes in a blob are not read."""
    assert blocks_of({"role": "user", "content": [part]}, format) == [expected]


def test_a_prompt_of_pydantic_ai_has_media_between_texts() -> None:
    """In their order."""
    content = [
        "Look:",
        {"kind": "image-url", "url": "https://example.org/a.png"},
        {"kind": "binary", "media_type": "image/png", "data": PICTURE},
    ]
    data = {"kind": "request", "parts": [{"part_kind": "user-prompt", "content": content}]}
    assert blocks_of(data, "pydantic-ai") == [
        Text("Look:"),
        Media(media_type="image-url", url="https://example.org/a.png"),
        Media(media_type="image/png", data=b"\x89PNG\r\n\x1a\n"),
    ]


def test_results_that_failed_are_errors() -> None:
    """Each format says so in its own way."""
    anthropic = {"type": "tool_result", "tool_use_id": "c", "content": "no", "is_error": True}
    retry = {"part_kind": "retry-prompt", "tool_name": "look", "tool_call_id": "c", "content": "no"}
    langchain = {"type": "tool", "tool_call_id": "c", "content": "no", "status": "error"}
    shown = [
        *blocks_of({"role": "user", "content": [anthropic]}, "anthropic"),
        *blocks_of({"kind": "request", "parts": [retry]}, "pydantic-ai"),
        *list_blocks(ForeignMessage(format="langchain", data=langchain, role="tool")),
    ]
    assert shown == [ToolResult(call_id="c", content="no", is_error=True)] * 3


def test_a_message_that_makes_no_sense_in_its_format_is_shown_as_json() -> None:
    """A reader that stumbles shows what is there, and raises nothing."""
    for format in ("openai", "anthropic", "pydantic-ai", "langchain", "openai-responses"):
        for data in ({"odd": [1]}, {"parts": 1}, {"role": "user", "content": 7, "type": []}, ["x"], 3, None):
            message = ForeignMessage(format=format, data=data, role="user")
            assert all(isinstance(block, Text) for block in list_blocks(message))


def test_calls_of_a_registered_format_are_read_by_its_reader() -> None:
    """Without one for the arguments, the names are known from the shape."""

    def read(data: Any) -> Any:
        return {"role": "assistant", "parts": [["call", "c1", "look"]]}

    register_format("test-blocks", read)
    message = as_message({"content": "Hm.", "do": "look"}, "test-blocks")
    assert list(list_blocks(message)) == [Text("Hm."), ToolCall(id="c1", name="look", args="…")]
    register_format("test-blocks", read, calls=lambda data: [ToolCall(id="c1", name="look", args='{"n":1}')])
    assert list(list_blocks(message)) == [Text("Hm."), ToolCall(id="c1", name="look", args={"n": 1})]


def test_our_own_messages_are_what_they_are() -> None:
    """The very blocks."""
    message = Message(role="user", blocks=(Text("hi"),))
    assert list_blocks(message) is message.blocks
