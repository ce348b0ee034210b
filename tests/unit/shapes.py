"""Messages of many formats with media in random places, and unknown fields."""

from __future__ import annotations

import base64
from typing import Any

from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from pydantic_ai.messages import (
    BinaryContent,
    FilePart,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolReturnPart,
    UserPromptPart,
)

from holdfast.messages import Block, Media, Message, Reasoning, Text, ToolCall, ToolResult, UnknownBlock

INLINE_BYTES = 48
"""Small, so that examples are."""
DIGEST = "5f" * 32

media = st.binary(max_size=120)
types = st.sampled_from(["image/png", "audio/wav", "application/pdf"])
lookalikes = st.sampled_from(
    [
        f"media+sha256://{DIGEST}",
        f"media+sha256://{DIGEST}?as=text",
        f"media+sha256:verbatim://{DIGEST}",
        "media+sha256:",
        f" media+sha256://{DIGEST}",
        f"data:text/plain;base64,media+sha256://{DIGEST}",
        "data:image/png;base64,",
        "A" * 100,
    ]
)
words = st.text(st.characters(codec="utf-8"), max_size=12) | lookalikes
unknown = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)
extra = st.dictionaries(words.map(lambda word: f"x_{word}"), unknown, max_size=2)


def plain(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _with_extra(shape: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return st.builds(lambda known, more: {**more, **known}, shape, extra)


def _parts(*shapes: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[list[dict[str, Any]]]:
    return st.lists(_with_extra(st.one_of(*shapes)), max_size=4)


text_part = st.builds(lambda text: {"type": "text", "text": text}, words)
data_url = st.builds(lambda kind, data: f"data:{kind};base64,{plain(data)}", types, media)

openai_chat = _with_extra(
    st.builds(
        lambda parts: {"role": "user", "content": parts},
        _parts(
            text_part,
            st.builds(
                lambda url: {"type": "image_url", "image_url": {"url": url, "detail": "auto"}}, data_url
            ),
            st.builds(
                lambda data: {"type": "input_audio", "input_audio": {"data": plain(data), "format": "wav"}},
                media,
            ),
            st.builds(
                lambda url: {"type": "file", "file": {"filename": "a.pdf", "file_data": url}}, data_url
            ),
        ),
    )
)
openai_responses = _with_extra(
    st.one_of(
        st.builds(
            lambda parts: {"role": "user", "content": parts},
            _parts(
                st.builds(lambda url: {"type": "input_image", "image_url": url}, data_url),
                st.builds(lambda data: {"type": "input_file", "file_data": plain(data)}, media),
            ),
        ),
        st.builds(
            lambda data: {
                "role": "assistant",
                "type": "image_generation_call",
                "id": "i",
                "result": plain(data),
            },
            media,
        ),
    )
)
anthropic_media = st.builds(
    lambda kind, data: {
        "type": "image",
        "source": {"type": "base64", "media_type": kind, "data": plain(data)},
    },
    types,
    media,
)
anthropic = _with_extra(
    st.builds(
        lambda parts: {"role": "user", "content": parts},
        _parts(
            text_part,
            anthropic_media,
            st.builds(
                lambda inner: {"type": "tool_result", "tool_use_id": "c", "content": inner},
                _parts(text_part, anthropic_media),
            ),
        ),
    )
)


def _langchain(parts: list[Any], kind: type[Any]) -> dict[str, Any]:
    more = {"tool_call_id": "c"} if kind is ToolMessage else {}
    found: dict[str, Any] = kind(content=parts, **more).model_dump(mode="json")
    return found


langchain = st.builds(
    _langchain,
    _parts(
        text_part,
        st.builds(lambda data: {"type": "image", "base64": plain(data), "mime_type": "image/png"}, media),
        st.builds(
            lambda data: {
                "type": "audio",
                "source_type": "base64",
                "data": plain(data),
                "mime_type": "audio/wav",
            },
            media,
        ),
        st.builds(lambda url: {"type": "image_url", "image_url": {"url": url}}, data_url),
    ),
    st.sampled_from([HumanMessage, AIMessage, ToolMessage]),
)
binary = st.builds(lambda data, kind: BinaryContent(data, media_type=kind), media, types)


def _pydantic_ai(content: list[Any], drawn: BinaryContent, more: dict[str, Any]) -> dict[str, Any]:
    messages: list[ModelRequest | ModelResponse] = [
        ModelRequest(
            parts=[
                UserPromptPart(content=content),
                ToolReturnPart(tool_name="t", tool_call_id="c", content=content),
            ]
        ),
        ModelResponse(parts=[TextPart("done"), FilePart(content=drawn)]),
    ]
    dumped = ModelMessagesTypeAdapter.dump_python(messages, mode="json")
    return {"role": "user", "messages": dumped, **more}


pydantic_ai = st.builds(_pydantic_ai, st.lists(words | binary, max_size=3), binary, extra)

# -- our own -------------------------------------------------------------------------------------------

metadata = st.dictionaries(words, unknown, max_size=1)
own_media = st.builds(
    lambda kind, data, name, more: Media(media_type=kind, data=data, name=name, metadata=more),
    types,
    st.none() | media,
    st.none() | words,
    metadata,
)
own_text = st.builds(Text, words, metadata)
own_result = st.builds(
    lambda content, value, more: ToolResult(call_id="c", content=content, value=value, metadata=more),
    words | st.lists(own_text | own_media, max_size=3).map(tuple),
    unknown | media.map(plain) | media.map(lambda data: {"screenshot": plain(data)}),
    metadata,
)
own_block: st.SearchStrategy[Block] = st.one_of(
    own_text,
    own_media,
    own_result,
    st.builds(Reasoning, words, metadata),
    st.builds(lambda args: ToolCall(id="c", name="t", args=args), unknown),
    st.builds(lambda more: UnknownBlock({"kind": "hologram", **more}), extra),
)
own = st.builds(
    lambda blocks, more: Message(role="user", blocks=tuple(blocks), metadata=more),
    st.lists(own_block, max_size=4),
    metadata,
)
