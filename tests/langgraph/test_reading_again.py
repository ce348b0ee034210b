"""A message that was read before is made again from what is kept of it: it must not show."""

from __future__ import annotations

import string
from collections.abc import Iterator
from enum import Enum
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core import messages
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from pydantic import BaseModel

import holdfast
from holdfast.adapters.langgraph import HoldfastSaver, UnknownValue

from .checkpoints_by_hand import Writer, values_at
from .graphs import thread


@pytest.fixture
def url() -> str:
    """What is read does not depend on where it was written."""
    return "memory:"


class AwayAtTimes(JsonPlusSerializer):
    """A serializer whose key service goes away when it sees a reply."""

    goes = False
    away = False

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        self.away = self.away or (self.goes and isinstance(obj, AIMessage))
        if self.away:
            raise OSError("the key service is away")
        return super().dumps_typed(obj)


class Size(Enum):
    """The application's own."""

    LARGE = 3


def deep(depth: int) -> Any:
    """A list in a list, and so on."""
    return [deep(depth - 1)] if depth else "here"


def some_messages() -> list[Any]:
    """One of each kind, with something in every field that can hold a list or a dict."""
    call = {"name": "look", "args": {"where": ["a", {"b": 1}]}, "id": "c", "type": "tool_call"}
    bad = {"name": "look", "args": "{", "id": "d", "error": "?", "type": "invalid_tool_call"}
    usage = {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3, "input_token_details": {"audio": 1}}
    more: dict[str, Any] = {"note": {"by": ["somebody"]}, "response_metadata": {"at": 1.5, "tags": ["x"]}}
    noted = AIMessage("with a note", id="noted", **more)
    return [
        HumanMessage([{"type": "text", "text": "hi"}, "there"], id="h", additional_kwargs={"a": {"b": [1]}}),
        AIMessage("", id="a", tool_calls=[call], invalid_tool_calls=[bad], usage_metadata=usage),
        messages.AIMessageChunk(content="part", id="chunk", tool_call_chunks=[]),
        noted,
        messages.SystemMessage("rules", id="s", name="boss"),
        ToolMessage("done", id="t", tool_call_id="c", artifact={"rows": [[1, 2], [3]]}, status="error"),
        ToolMessage("others", id="own", tool_call_id="c", artifact=[{1, 2}, Size.LARGE]),
        ToolMessage("deep", id="deep", tool_call_id="c", artifact=deep(100)),
        messages.ChatMessage(content="chat", id="chat", role="judge"),
        messages.FunctionMessage(content="fun", id="fun", name="f"),
        messages.RemoveMessage(id="gone"),
    ]


def parts(value: Any) -> Iterator[Any]:
    """All that can be changed in a value, itself included."""
    if isinstance(value, BaseModel):
        yield value
        yield value.__pydantic_fields_set__
        yield from parts(vars(value))
        yield from parts(value.__pydantic_extra__)
    elif isinstance(value, dict):
        yield value
        yield from (one for inner in value.values() for one in parts(inner))
    elif isinstance(value, list):
        yield value
        yield from (one for inner in value for one in parts(inner))
    elif isinstance(value, set):
        yield value


def spoil(value: Any) -> None:
    """Change all of it, in place."""
    for one in list(parts(value)):
        match one:
            case dict():
                one["spoilt"] = "yes"
            case list() | set():
                getattr(one, "append" if isinstance(one, list) else "add")("spoilt")


async def read_messages(saver: Any) -> list[Any]:
    found: list[Any] = (await values_at(saver, thread()))["messages"]
    return found


def looks(found: list[Any]) -> list[Any]:
    """All that can be seen of messages."""
    return [
        (type(one), vars(one), one.__pydantic_fields_set__, one.__pydantic_extra__, one.__pydantic_private__)
        for one in found
    ]


async def test_a_message_is_the_same_each_time_it_is_read(store: holdfast.Store) -> None:
    """The first time it is decoded, later it is not; nothing tells the one from the other."""
    writer = Writer(HoldfastSaver(store, allow=[Size]))
    await writer.put(messages=some_messages())
    saver = HoldfastSaver(store, allow=[Size])
    first = await read_messages(saver)
    assert first == some_messages()
    for reader in (saver, saver, writer.saver, writer.saver, HoldfastSaver(store, allow=[Size])):
        again = await read_messages(reader)
        assert looks(again) == looks(first)
        assert [one.model_dump_json() for one in again] == [one.model_dump_json() for one in first]
    [listed] = [one async for one in saver.alist(thread())]
    assert listed.checkpoint["channel_values"]["messages"] == first


async def test_changing_what_was_read_changes_no_later_reading(store: holdfast.Store) -> None:
    """Not the first time, when it was decoded, and not later, however deep the change is."""
    saver = HoldfastSaver(store, allow=[Size])
    await Writer(saver).put(messages=some_messages())
    expected = looks(await read_messages(HoldfastSaver(store, allow=[Size])))
    for _ in range(4):
        found = await read_messages(saver)
        assert looks(found) == expected
        for message in found:
            spoil(message)
            message.content = "spoilt"
        found.append(HumanMessage("spoilt", id="spoilt"))


@pytest.mark.parametrize("check", ["objects", "bytes"])
async def test_a_message_that_was_changed_after_reading_it_again_is_stored(
    store: holdfast.Store, check: Any
) -> None:
    """Put back, it is what it was changed to; the checkpoint before still has what was there."""
    saver = HoldfastSaver(store, check=check)
    writer = Writer(saver)
    before = await writer.put(messages=[AIMessage(f"m{n}", id=str(n)) for n in range(20)])
    for _ in range(3):
        found = await read_messages(saver)
    found[3].content = "changed"
    found[4].tool_calls = [{"name": "look", "args": {}, "id": "c", "type": "tool_call"}]
    found[5] = AIMessage("another", id="5")
    await writer.put(messages=[*found, HumanMessage("new", id="new")])
    for reader in (saver, saver, HoldfastSaver(store)):
        now = await read_messages(reader)
        assert [now[3].content, len(now[4].tool_calls), now[5].content] == ["changed", 1, "another"]
        assert [one.id for one in now] == [*map(str, range(20)), "new"]
        old = (await values_at(reader, before))["messages"]
        assert [one.content for one in old] == [f"m{n}" for n in range(20)]
        assert not any(one.tool_calls for one in old)


async def test_a_reading_has_what_another_saver_wrote_since(store: holdfast.Store) -> None:
    """What is kept of a thread answers for nothing that it has not seen."""
    here, there = HoldfastSaver(store), HoldfastSaver(store)
    writer = Writer(here)
    now: list[AnyMessage] = [HumanMessage("x" * 200, id=str(n)) for n in range(5)]
    await writer.put(messages=now)
    for step in range(3):
        assert await read_messages(here) == now
        theirs = await read_messages(there)
        theirs[step].content = f"changed in step {step}"
        now = [*theirs, AIMessage("theirs", id=f"t{step}")]
        writer.saver = there
        await writer.put(messages=now)
        assert await read_messages(here) == now
        assert await read_messages(here) == now


async def test_reading_by_a_longer_list_sees_what_the_shorter_one_did_not(store: holdfast.Store) -> None:
    """LangGraph gives each graph a saver with its own list; what one of them read is not for all."""
    saver = HoldfastSaver(store)
    await Writer(saver).put(messages=[ToolMessage("c", id="c", tool_call_id="c", artifact=Size.LARGE)])
    longer = HoldfastSaver.with_allowlist(saver, [(Size.__module__, Size.__name__)])
    for reader, expected in ((saver, UnknownValue), (longer, Size), (saver, UnknownValue), (longer, Size)):
        [found] = await read_messages(reader)
        assert type(found.artifact) is expected


plain: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(string.printable, max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(string.ascii_letters), inner, max_size=4)
    ),
    max_leaves=20,
)
any_messages = st.lists(
    st.builds(HumanMessage, st.text(max_size=20), id=st.uuids().map(str))
    | st.builds(
        AIMessage,
        st.text(string.printable),
        id=st.uuids().map(str),
        additional_kwargs=st.dictionaries(st.text(string.ascii_letters), plain, max_size=3),
        response_metadata=st.dictionaries(st.text(string.ascii_letters), plain, max_size=3),
    )
    | st.builds(ToolMessage, st.text(), id=st.uuids().map(str), tool_call_id=st.just("c"), artifact=plain),
    max_size=6,
)


@settings(max_examples=30)
@given(given_messages=any_messages)
async def test_two_readings_share_nothing_that_can_change(given_messages: list[Any]) -> None:
    """Whatever a message holds."""
    async with holdfast.open_store("memory:") as store:
        saver = HoldfastSaver(store)
        await Writer(saver).put(messages=given_messages)
        readings = [await read_messages(saver) for _ in range(3)]
        assert readings == [readings[0]] * 3
        places = [{id(one) for one in parts(reading)} for reading in readings]
        assert len(set().union(*places)) == sum(map(len, places))


async def test_nothing_is_left_of_a_put_that_failed_in_the_middle(store: holdfast.Store) -> None:
    """Some of its messages were written down when the next one could not be."""
    serde = AwayAtTimes()
    saver = HoldfastSaver(store, serde=serde)
    writer = Writer(saver)
    said: list[AnyMessage] = [HumanMessage(f"{'x' * 200}{number}", id=str(number)) for number in range(15)]
    await writer.put(messages=said)
    said = (await values_at(saver, thread()))["messages"]
    serde.goes = True
    with pytest.raises(OSError, match="away"):
        await writer.put(messages=[*said, HumanMessage("a" * 200, id="a"), AIMessage("b" * 200, id="b")])
    serde.goes = serde.away = False
    found = (await values_at(saver, thread()))["messages"]
    assert found == said
    await writer.put(messages=[*found, HumanMessage("c" * 200, id="c")])
    for reader in (saver, HoldfastSaver(store, serde=serde)):
        ids = [message.id for message in (await values_at(reader, thread()))["messages"]]
        assert ids == [*map(str, range(15)), "c"]
