"""What did not change is not stored again, whatever the channel holds; and all of it comes back."""

from __future__ import annotations

import random
import string
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langgraph.checkpoint.serde.types import _DeltaSnapshot

import holdfast
from holdfast.adapters.langgraph import CheckedSerializer, HoldfastSaver
from holdfast.adapters.langgraph.change_tracking import LastWritten, mark_of
from holdfast.adapters.langgraph.checkpointer import Check
from holdfast.adapters.langgraph.delta_encode import Elements

from .checkpoints_by_hand import Writer, values_at
from .graphs import thread


@pytest.fixture
def url() -> str:
    """What is written does not depend on where."""
    return "memory:"


def kilobyte(chance: random.Random) -> str:
    """A text that nothing else holds."""
    return "".join(chance.choices(string.ascii_letters, k=1024))


async def written(store: holdfast.Store) -> list[int]:
    """How long each line of the thread is that holds a checkpoint."""
    session = "t.7c."
    journal = [entry async for entry in store.tail(session, follow=False)]
    return [len(bytes(entry.content or b"")) for entry in journal if entry.kind.endswith(".put")]


@dataclass
class Doc:
    """An entity, which says it is equal to itself in an earlier form."""

    id: int
    text: str
    tags: list[str] = field(default_factory=list)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Doc) and other.id == self.id


def grow_list(value: list[Any], text: str, step: int) -> list[Any]:
    return [*value, HumanMessage(text, id=f"h{step}")]


def grow_window(value: list[Any], text: str, step: int) -> list[Any]:
    return [*value[-9:], HumanMessage(text, id=f"h{step}")]


def grow_dict(value: dict[str, Any], text: str, step: int) -> dict[str, Any]:
    return {**value, f"key {step}": text}


def grow_nested(value: dict[str, Any], text: str, step: int) -> dict[str, Any]:
    return {**value, "docs": [*value.get("docs", []), {"text": text, "step": step}]}


def grow_in_place(value: list[Any], text: str, step: int) -> list[Any]:
    value.append(text)
    return value


def grow_numbers(value: list[Any], text: str, step: int) -> list[Any]:
    return [*value, *(ord(one) * 1.5 for one in text[:128])]


def grow_snapshot(value: Any, text: str, step: int) -> Any:
    return _DeltaSnapshot([*(value.value if value else []), HumanMessage(text, id=f"h{step}")])


GROWING: dict[str, tuple[Any, Any]] = {
    "messages": (grow_list, []),
    "a window of messages": (grow_window, []),
    "a dict": (grow_dict, {}),
    "a list in a dict": (grow_nested, {}),
    "a list that is the same object": (grow_in_place, []),
    "numbers": (grow_numbers, []),
    "snapshots of a delta channel": (grow_snapshot, None),
}


@pytest.mark.parametrize("check", ["objects", "bytes"])
@pytest.mark.parametrize("what", GROWING)
async def test_a_step_costs_what_is_new(store: holdfast.Store, what: str, check: Any) -> None:
    """The last of 150 steps is about as long as the tenth, and each loads as it was."""
    chance = random.Random(1)
    saver = HoldfastSaver(store, check=check)
    writer = Writer(saver)
    grow, value = GROWING[what]
    value = value.copy() if value is not None else None
    lengths: dict[int, tuple[Any, int]] = {}
    for step in range(150):
        value = grow(value, kilobyte(chance), step)
        config = await writer.put(value=value)
        if step in (9, 74, 149):
            inner = value.value if isinstance(value, _DeltaSnapshot) else value
            lengths[step] = config, len(inner)
    lines = await written(store)
    assert sum(lines[-10:]) < 1.5 * sum(lines[10:20])
    for fresh in (saver, HoldfastSaver(store)):
        for config, length in lengths.values():
            found = (await values_at(fresh, config))["value"]
            assert len(found.value if isinstance(found, _DeltaSnapshot) else found) == length
        assert (await values_at(fresh, thread()))["value"] == value


async def test_what_is_written_after_a_restart_is_what_is_new(store: holdfast.Store) -> None:
    """A saver that has read a thread knows what is there."""
    first = Writer(HoldfastSaver(store))
    messages: list[AnyMessage] = [HumanMessage("x" * 1000 + str(n), id=str(n)) for n in range(100)]
    await first.put(messages=messages)
    saver = HoldfastSaver(store)
    found = await saver.aget_tuple(thread(checkpoint_ns=""))
    assert found is not None
    second = Writer(saver)
    second.config = found.config
    await second.put(messages=[*found.checkpoint["channel_values"]["messages"], AIMessage("new", id="new")])
    assert (await written(store))[-1] < 2000
    assert len((await values_at(HoldfastSaver(store), thread()))["messages"]) == 101


async def test_what_a_task_wrote_is_not_stored_again_with_the_checkpoint(store: holdfast.Store) -> None:
    """A message is written when its task ends; the checkpoint that has it refers to it."""
    saver = HoldfastSaver(store)
    writer = Writer(saver)
    await writer.put(messages=[])
    reply = AIMessage("y" * 5000, id="reply")
    await saver.aput_writes(writer.config, [("messages", [reply])], "task")
    await writer.put(messages=[reply])
    assert (await written(store))[-1] < 1000


async def test_a_changed_field_of_an_old_element_is_seen(store: holdfast.Store) -> None:
    """The same object with another object in a field has changed, even if the two call themselves equal."""
    saver = HoldfastSaver(store, allow=[Doc])
    writer = Writer(saver)
    messages: list[AnyMessage] = [
        AIMessage(f"m{n}", id=str(n), additional_kwargs={"n": n}, response_metadata={"doc": n})
        for n in range(20)
    ]
    docs = [Doc(n, f"text {n}") for n in range(20)]
    before = await writer.put(messages=messages, docs=docs)
    messages[3].content = "changed"
    messages[4].additional_kwargs = {"n": 4.0}
    docs[5] = Doc(5, "other text")
    docs[6].text = "changed"
    await writer.put(messages=[*messages], docs=[*docs])
    for fresh in (saver, HoldfastSaver(store, allow=[Doc])):
        found = await values_at(fresh, thread())
        assert found["messages"][3].content == "changed"
        assert found["messages"][4].additional_kwargs["n"].__class__ is float
        assert [doc.text for doc in found["docs"][4:8]] == ["text 4", "other text", "changed", "text 7"]
        old = await values_at(fresh, before)
        assert old["messages"][3].content == "m3"
        assert [doc.text for doc in old["docs"][5:7]] == ["text 5", "text 6"]


async def test_a_change_inside_of_a_field_is_seen_by_bytes_only(store: holdfast.Store) -> None:
    """`check="bytes"` costs more and sees more."""
    seen_by: dict[Check, list[str]] = {"objects": [], "bytes": ["new"]}
    for check, seen in seen_by.items():
        saver = HoldfastSaver(store, check=check, allow=[Doc])
        writer = Writer(saver, check)
        doc = Doc(1, "text")
        await writer.put(docs=[doc])
        doc.tags.append("new")
        await writer.put(docs=[doc])
        [found] = (await values_at(saver, thread(check)))["docs"]
        assert found.tags == seen


async def test_an_attribute_that_no_class_declares_is_seen_by_bytes_only(store: holdfast.Store) -> None:
    """pydantic keeps it apart from the fields."""
    seen_by: dict[Check, dict[str, str]] = {"objects": {}, "bytes": {"mood": "new"}}
    for check, seen in seen_by.items():
        saver = HoldfastSaver(store, check=check)
        writer = Writer(saver, check)
        message = HumanMessage("hello", id="h")
        await writer.put(messages=[message])
        setattr(message, "mood", "new")  # noqa: B010
        await writer.put(messages=[message])
        [found] = (await values_at(saver, thread(check)))["messages"]
        assert (found.model_extra or {}) == seen


async def test_values_that_are_read_are_nobody_elses(store: holdfast.Store) -> None:
    """Changing what was read changes neither the store nor what the next reader gets."""
    saver = HoldfastSaver(store)
    await Writer(saver).put(messages=[HumanMessage("hello", id="h")], notes={"a": [1]})
    first = await values_at(saver, thread())
    first["messages"][0].content = "spoilt"
    first["notes"]["a"].append(2)
    second = await values_at(saver, thread())
    assert second["messages"][0].content == "hello"
    assert second["notes"] == {"a": [1]}


# -- what was read in between -----------------------------------------------------------------------------


def said(text: str) -> HumanMessage:
    """Another message each time, of texts that are other objects."""
    return HumanMessage("".join(list(text)), id="".join(["m-", text]))


def keep(*items: Any) -> LastWritten:
    """As a list of them is kept when it was written."""
    kept = LastWritten(None)
    for place, item in enumerate(items):
        kept.add(item, mark_of(item), b"%d" % place, None)
    return kept


def test_equal_items_are_known_again_once_a_list_began_with_them() -> None:
    """They take the place of those that were written; what is changed in them later is seen."""
    written, read = [said("one"), said("two")], [said("one"), said("two")]
    kept = keep(*written)
    assert kept.find(0, read[0]) is None
    assert kept.begins([*read, said("three")])
    assert [kept.find(place, one) for place, one in enumerate(read)] == [b"0", b"1"]
    assert kept.find(0, written[0]) is None
    assert kept.begins(read)
    read[1].content = "another"
    assert not kept.begins(read)
    assert kept.find(1, read[1]) is None


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ([said("one"), said("two")], [said("one"), said("another")]),
        ([said("one"), said("two")], [said("one")]),
        ([said("one"), said("two")], [said("one"), AIMessage("two", id="m-two")]),
        ([Doc(1, "text"), Doc(2, "text")], [Doc(1, "text"), Doc(2, "another")]),
        ([Doc(1, "text"), Doc(2, "text")], [Doc(1, "text"), Doc(2, "text")]),
    ],
    ids=["another", "fewer", "another type", "calls itself equal", "may only call itself equal"],
)
def test_no_item_is_taken_for_another_when_a_list_begins_otherwise(
    written: list[Any], read: list[Any]
) -> None:
    """Those that were written are still the ones that are known, even those that are equal."""
    kept = keep(*written)
    assert not kept.begins(read)
    assert [kept.find(place, one) for place, one in enumerate(written)] == [b"0", b"1"]
    assert [kept.find(place, one) for place, one in enumerate(read)] == [None] * len(read)


# -- any value, any change --------------------------------------------------------------------------------

scalars: st.SearchStrategy[Any] = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False)
    | st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=200)
    | st.binary(max_size=100)
    | st.datetimes()
    | st.builds(HumanMessage, st.text(alphabet=string.printable, max_size=50), id=st.uuids().map(str))
    | st.builds(deque, st.lists(st.integers(-9, 9), max_size=3))
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=12)
        | st.dictionaries(st.text(alphabet=string.ascii_letters + '"\\ü', max_size=8), inner, max_size=8)
        | st.dictionaries(st.integers(0, 9), st.text(string.printable, max_size=9), max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | inner.map(_DeltaSnapshot)
    ),
    max_leaves=40,
)


@pytest.mark.parametrize("trust_objects", [True, False])
@settings(max_examples=40)
@given(history=st.lists(values, min_size=1, max_size=6), chance=st.randoms(use_true_random=False))
def test_any_value_comes_back_whatever_came_before_it(
    trust_objects: bool, history: list[Any], chance: random.Random
) -> None:
    """Values of all shapes, each written as what changed since another, and parts of them used again."""
    elements = Elements(CheckedSerializer(), trust_objects=trust_objects)
    kept: LastWritten | None = None
    nodes: list[tuple[bytes, Any]] = []
    parts: list[Any] = []
    for value in history:
        if isinstance(value, list) and parts:
            value = [*chance.sample(parts, min(len(parts), 5)), *value]
        node, kept = elements.write(value, kept)
        nodes.append((node, value))
        parts.extend(value if isinstance(value, list) else [value])
        elements.take_fresh()
    for node, value in nodes:
        found, again = elements.read(node, keep=True)
        assert found == _as_stored(value)
        assert elements.read(elements.write(found, again)[0])[0] == found


def _as_stored(value: Any) -> Any:
    """What the serializer makes of tuples inside of what it writes as a whole."""
    if value.__class__ is dict and any(key.__class__ is not str for key in value):
        return {key: _listed(one) for key, one in value.items()}
    if value.__class__ in (list, tuple):
        return value.__class__(_as_stored(one) for one in value)
    if value.__class__ is dict:
        return {key: _as_stored(one) for key, one in value.items()}
    return _DeltaSnapshot(_as_stored(value.value)) if isinstance(value, _DeltaSnapshot) else value


def _listed(value: Any) -> Any:
    if value.__class__ in (list, tuple):
        return [_listed(one) for one in value]
    if value.__class__ is dict:
        return {key: _listed(one) for key, one in value.items()}
    return _DeltaSnapshot(_listed(value.value)) if isinstance(value, _DeltaSnapshot) else value
