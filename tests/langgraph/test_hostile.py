"""Stored bytes name types; only those on the list are made, and nothing is called that they name."""

from __future__ import annotations

import logging
import os
import sys
from dataclasses import dataclass
from enum import Enum
from typing import Any

import ormsgpack
import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.types import Command, Interrupt, Send
from pydantic import BaseModel

import holdfast
from holdfast.adapters.langgraph import CheckedSerializer, HoldfastSaver, UnknownValue, serde
from holdfast.adapters.langgraph.thread_ids import ThreadNamespace
from holdfast.adapters.langgraph.thread_index import PUT
from holdfast.adapters.langgraph.thread_state import new_entry

from .checkpoints_by_hand import Writer, checkpoint, values_at
from .graphs import thread


@pytest.fixture
def url() -> str:
    """Reading does not depend on where it was written."""
    return "memory:"


@pytest.fixture(autouse=True)
def _warn_again() -> None:
    serde._warned.clear()  # A type is warned of once in a process, and the tests share one.


class Cart(BaseModel):
    """The application's own."""

    items: list[str]


@dataclass
class Point:
    """The same."""

    x: int
    inner: Any = None


class Size(Enum):
    """The same."""

    LARGE = 3


def packed(code: int, *stored: Any) -> tuple[str, bytes]:
    """What a process with write access to the store may put there."""
    return "msgpack", ormsgpack.packb(ormsgpack.Ext(code, ormsgpack.packb(stored)))


HIDDEN = ormsgpack.Ext(0, ormsgpack.packb(("os", "system", "touch HACKED")))
FIELDS = {"content": "x", "additional_kwargs": {"k": HIDDEN}}
INSIDE = ormsgpack.Ext(5, ormsgpack.packb(("langchain_core.messages.human", "HumanMessage", FIELDS, "m")))
"""In a message, which is a known type."""

HOSTILE = [
    packed(0, "os", "system", "touch HACKED"),
    packed(1, "os", "system", ("touch HACKED",)),
    packed(2, "subprocess", "Popen", {"args": ["touch", "HACKED"]}),
    packed(3, "builtins", "eval", "open('HACKED', 'w')", "__call__"),
    packed(3, "datetime", "datetime", "x", "strptime"),
    packed(4, "os", "system", {"command": "touch HACKED"}),
    packed(5, "os", "system", {"command": "touch HACKED"}, "model_validate_json"),
    packed(0, "antigravity", "x", "y"),
    ("msgpack", ormsgpack.packb(INSIDE)),
    ("json", b'{"lc": 2, "type": "constructor", "id": ["os", "system"], "args": ["touch HACKED"]}'),
    ("pickle", b"cos\nsystem\n(S'touch HACKED'\ntR."),
    ("msgpack", ormsgpack.packb(ormsgpack.Ext(0, b"\x00"))),
    ("msgpack", ormsgpack.packb(ormsgpack.Ext(99, b"anything"))),
]  # fmt: skip


@pytest.mark.parametrize("stored", HOSTILE)
def test_nothing_that_stored_bytes_name_is_called(
    stored: tuple[str, bytes],
    tmp_path: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Not even imported; it comes back marked, or with what is inside of it marked, and with a warning."""
    monkeypatch.chdir(tmp_path)
    found = CheckedSerializer().loads_typed(stored)
    if isinstance(found, HumanMessage):
        found = found.additional_kwargs["k"]
    assert isinstance(found, UnknownValue)
    assert "UnknownValue" in caplog.text
    assert os.listdir(tmp_path) == []
    assert "antigravity" not in sys.modules


async def test_an_unknown_type_comes_back_marked_and_is_not_lost(
    store: holdfast.Store, caplog: pytest.LogCaptureFixture
) -> None:
    """The warning says what to do; written back by a process that does not know it, it is unchanged."""
    value = {"cart": Cart(items=["tea"]), "deep": [Point(1, inner=Cart(items=["milk"]))], "size": Size.LARGE}
    await Writer(HoldfastSaver(store)).put(**value)
    saver = HoldfastSaver(store)
    found = await values_at(saver, thread(checkpoint_ns=""))
    assert isinstance(found["cart"], UnknownValue)
    assert "Cart" in repr(found["cart"])
    assert "write HoldfastSaver(…, allow=[Cart])" in caplog.text
    writer = Writer(saver)
    await writer.put(**found, more=[found["cart"]])
    allow: list[type | tuple[str, str]] = [Cart, Point, (Size.__module__, "Size")]
    known = await values_at(HoldfastSaver(store, allow=allow), thread())
    assert known == {**value, "more": [Cart(items=["tea"])]}


async def test_langgraphs_list_of_the_graphs_types_is_heeded(store: holdfast.Store) -> None:
    """In its strict mode LangGraph hands over the types of the state; its copy is the same writer."""
    saver = HoldfastSaver(store)
    clone = saver.with_allowlist({(Cart.__module__, "Cart")})
    assert isinstance(clone, HoldfastSaver)
    writer = Writer(clone)
    await writer.put(cart=Cart(items=["tea"]))
    assert (await values_at(clone, thread()))["cart"] == Cart(items=["tea"])
    assert isinstance((await values_at(saver, thread()))["cart"], UnknownValue)
    await Writer(saver).put(cart=None)


def test_a_listed_type_that_cannot_be_made_again_comes_back_as_its_data(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As from LangGraph's serializer, so that a state that is a pydantic model can make it anew."""

    class Inner(BaseModel):
        number: int

    @dataclass
    class Once:
        old: int

    written = CheckedSerializer().dumps_typed([Inner(number=1), Once(old=2)])
    names = [(Inner.__module__, "Inner"), (Once.__module__, "Once")]
    by_name = CheckedSerializer(names)
    assert by_name.loads_typed(written) == [{"number": 1}, {"old": 2}]
    assert "Inner comes back as the data that was stored of it" in caplog.text
    stock = JsonPlusSerializer(allowed_msgpack_modules=names)
    assert stock.loads_typed(written) == [{"number": 1}, {"old": 2}]
    assert CheckedSerializer([Inner, Once]).loads_typed(written) == [Inner(number=1), Once(old=2)]
    assert all(isinstance(one, UnknownValue) for one in CheckedSerializer().loads_typed(written))


async def test_what_is_put_comes_back_tuples_and_sets_of_tuples_included(store: holdfast.Store) -> None:
    """LangGraph's serializer makes lists of all of these."""
    value = {
        "tuple": (1, [2, (3,)]),
        "list": [1, (2, [3])],
        "set": {(1, 2), ("a", (3,))},
        "frozen": [frozenset({(1, frozenset({(2,)}))})],
    }
    await Writer(HoldfastSaver(store)).put(**value)
    assert await values_at(HoldfastSaver(store), thread()) == value


async def test_metadata_has_lists_where_tuples_were_put(store: holdfast.Store) -> None:
    """As from every saver of LangGraph's, and LangGraph relies on it for its own counters."""
    made = checkpoint({}, {})
    metadata: Any = {"counters": {"messages": (2, 4)}, "deep": [{"x": ((1,), "y")}]}
    saver = HoldfastSaver(store)
    put = await saver.aput(thread(checkpoint_ns=""), made, metadata, {})
    for fresh in (saver, HoldfastSaver(store)):
        found = await fresh.aget_tuple(put)
        assert found is not None
        assert found.metadata == {"counters": {"messages": [2, 4]}, "deep": [{"x": [[1], "y"]}]}


@pytest.mark.parametrize("wrong", ["Cart", ["shop.models.Cart"], [("shop", "models", "Cart")]])
def test_a_list_of_types_that_would_match_nothing_is_refused(wrong: Any) -> None:
    """A name by itself would be taken for its letters."""
    with pytest.raises(holdfast.errors.BadInput, match="allow"):
        CheckedSerializer(wrong)


LOOPS = [
    b'{"elements":[["r",0]],"doc":["d",{}],"meta":["d",{}],"channels":["d",{"v":["r",0]}]}',
    b'{"elements":[["l",[1],0]],"doc":["d",{}],"meta":["d",{}],"channels":["d",{"v":["r",0]}]}',
    b'{"elements":[["d",{},0,[]]],"doc":["d",{}],"meta":["d",{}],"channels":["d",{"v":["r",0]}]}',
    b'{"elements":[["d",{},0,[]]],"doc":["d",{}],"meta":["d",{}],"channels":["r",0]}',
    b'{"elements":[["l",[["r",0]]]],"doc":["d",{}],"meta":["d",{}],"channels":["d",{"v":["r",0]}]}',
    b'{"elements":[["t",[["r",0]]]],"doc":["r",0],"meta":["d",{}],"channels":["d",{}]}',
    b'{"elements":[["r",1],["r",0]],"doc":["d",{}],"meta":["r",1],"channels":["d",{}]}',
    b'{"elements":[],"doc":["d",{}],"meta":["d",{}],"channels":["d",{"v":["r",7]}]}',
    b'{"elements":[]}',
    b"[]",
]


@pytest.mark.parametrize("content", LOOPS)
async def test_a_forged_line_is_corrupt_and_ends(store: holdfast.Store, content: bytes) -> None:
    """Elements that hold themselves or are not there, and lines that are none, in a valid chain."""
    saver = HoldfastSaver(store)
    await Writer(saver).put(v=1)
    forged = new_entry(PUT, {"n": 0, "id": "zzz"}, content)
    # Chained by the saver itself, so that nothing but the content is wrong.
    await saver._journals.append(ThreadNamespace("t", ""), lambda _: forged)
    for fresh in (HoldfastSaver(store), HoldfastSaver(store)):
        with pytest.raises(holdfast.errors.Corrupt):
            await fresh.aget_tuple(thread())


async def test_langgraphs_own_types_need_no_list(store: holdfast.Store) -> None:
    """Nor do LangChain's messages, and simple types of the standard library."""
    value = {
        "send": Send("node", {"x": 1}),
        "command": Command(goto="node", update={"a": 1}),
        "interrupt": Interrupt(value="why", id="i"),
        "message": AIMessage("x", id="a", tool_calls=[{"name": "f", "args": {"a": 1}, "id": "c"}]),
    }
    await Writer(HoldfastSaver(store)).put(**value)
    assert await values_at(HoldfastSaver(store), thread()) == value


async def test_what_cannot_be_written_is_marked_and_never_pickled(store: holdfast.Store) -> None:
    """The checkpoint is written all the same."""
    saver = HoldfastSaver(store)
    await Writer(saver).put(socket=sys.stdout, rest="fine")
    found = await values_at(saver, thread())
    assert found["rest"] == "fine"
    assert isinstance(found["socket"], UnknownValue)
    assert b"stdout" in found["socket"].payload or b"TextIO" in found["socket"].payload


async def test_nothing_of_a_value_goes_past_a_serializer_of_ones_own(store: holdfast.Store) -> None:
    """With one that encrypts, no text of the state is in the journal; and it is read again."""

    class Backwards:
        def encrypt(self, plaintext: bytes) -> tuple[str, bytes]:
            return "backwards", bytes(255 - one for one in plaintext)

        def decrypt(self, ciphername: str, ciphertext: bytes) -> bytes:
            return bytes(255 - one for one in ciphertext)

    serializer = EncryptedSerializer(Backwards(), JsonPlusSerializer())
    saver = HoldfastSaver(store, serde=serializer)
    writer = Writer(saver)
    value = {"secret": "the password", "list": ["the password", HumanMessage("the password", id="1")]}
    await writer.put(**value)
    await saver.aput_writes(writer.config, [("secret", "the password")], "task")
    lines = [bytes(one.content or b"") async for one in store.tail("t.7c.", follow=False)]
    assert lines
    assert not any(b"password" in line for line in lines)
    assert await values_at(HoldfastSaver(store, serde=serializer), thread()) == value
    with pytest.raises(holdfast.errors.BadInput):
        HoldfastSaver(store, serde=serializer, allow=[Cart])


def test_no_thread_is_logged_about(caplog: pytest.LogCaptureFixture) -> None:
    """A type on the list gives no warning."""
    caplog.set_level(logging.WARNING)
    known = CheckedSerializer([Cart])
    assert known.loads_typed(known.dumps_typed(Cart(items=[]))) == Cart(items=[])
    assert caplog.text == ""
