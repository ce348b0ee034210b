"""A store or session that is used as another library's: the error says what to write."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import blocking
from holdfast.agents import ScriptedModel
from holdfast.errors import HoldfastError, Misuse

LISTED: list[tuple[str, tuple[str, ...]]] = [
    ("sessions", ()),
    ("runs", ()),
    ("workers", ()),
    ("in_doubt", ()),
    ("blobs", ()),
    ("checkpoints", ("s",)),
    ("tail", ("s",)),
    ("read_blob", ("0" * 64,)),
]


async def test_with_and_await_of_a_store_name_async_with() -> None:
    """And the store for code without an event loop; nothing is opened."""
    opening: Any = holdfast.open_store("memory:")
    with pytest.raises(Misuse, match=r"`async with holdfast\.open_store\(…\) as store`.*blocking"), opening:
        pass
    with pytest.raises(Misuse, match=r"write `async with holdfast\.open_store\(…\) as store`"):
        await opening
    async with opening as store:
        assert [head async for head in store.sessions()] == []


async def test_with_and_await_of_a_session_name_async_with() -> None:
    """No lease is taken."""
    async with holdfast.open_store("memory:") as store:
        opening: Any = store.session("s")
        with pytest.raises(Misuse, match=r"`async with store\.session\(…\) as session`"), opening:
            pass
        with pytest.raises(Misuse, match=r"`async with store\.session\(…\) as session`"):
            await opening
        assert [head async for head in store.sessions()] == []


async def test_a_framework_that_awaits_whatever_can_be_gets_the_open_store_back() -> None:
    """Such as one that takes values and awaitables of them alike."""
    async with holdfast.open_store("memory:") as store, store.session("s") as session:
        found: list[Any] = [store, session]
        assert [await one for one in found] == [store, session]


@pytest.mark.parametrize(("name", "args"), LISTED)
async def test_for_and_await_of_a_listing_name_async_for(name: str, args: tuple[str, ...]) -> None:
    """`list(…)` is a `for`, too."""
    async with holdfast.open_store("memory:") as store:
        async with store.session("s"):
            pass
        for use in (list, lambda items: [*items], lambda items: next(iter(items))):
            with pytest.raises(Misuse, match=rf"`async for item in ….{name}\(…\)`, or `\[item async for"):
                use(getattr(store, name)(*args))
        with pytest.raises(Misuse, match=rf"`async for item in ….{name}\(…\)`"):
            await getattr(store, name)(*args)


async def test_for_over_a_stream_names_async_for() -> None:
    """Nothing was asked of the model."""
    agent = holdfast.Agent(ScriptedModel(["Hello."]))
    async with holdfast.open_store("memory:") as store:
        stream: Any = agent.stream("Hi", session="s", store=store)
        with pytest.raises(Misuse, match=r"`async for item in …\.stream\(…\)`"):
            list(stream)
        assert [head async for head in store.sessions()] == []


async def test_a_store_or_session_is_neither_pickled_nor_copied() -> None:
    """The error says what to pass to another process."""
    ways: tuple[Callable[[Any], object], ...] = (pickle.dumps, copy.copy, copy.deepcopy)
    async with holdfast.open_store("memory:") as store, store.session("s") as session:
        for one, name in ((store, "store"), (session, "session")):
            for way in ways:
                with pytest.raises(Misuse, match=rf"a {name} belongs to the process .* pass the URL"):
                    way(one)


def test_the_same_holds_without_an_event_loop(tmp_path: Path) -> None:
    """A pickled store cannot be used, however it was opened."""
    with blocking.open_store(tmp_path / "a.db") as store, store.session("s") as session:
        for one, name in ((store, "store"), (session, "session")):
            with pytest.raises(Misuse, match=rf"a {name} belongs to the process .* pass the URL"):
                pickle.dumps(one)


async def test_async_with_of_blocking_names_the_other_one(tmp_path: Path) -> None:
    """The error names both: what to write here, and what to write with an event loop."""
    opening: Any = blocking.open_store(tmp_path / "a.db")
    with pytest.raises(Misuse, match=r"`async with holdfast\.open_store\(…\) as store`"):
        async with opening:
            pass
    with opening as store:
        session: Any = store.session("s")
        with pytest.raises(Misuse, match=r"write `with ….session\(…\) as session`"):
            async with session:
                pass
        with session as entered:
            assert entered.id == "s"


def test_a_blocking_store_that_was_not_entered_says_so(tmp_path: Path) -> None:
    """In the place of the name of an inner class."""
    opening: Any = blocking.open_store(tmp_path / "a.db")
    with pytest.raises(AttributeError, match=r"no 'sessions' before .* `with holdfast\.blocking"):
        opening.sessions()
    assert not (tmp_path / "a.db").exists()


def test_misuse_is_a_type_error_and_one_of_ours() -> None:
    """`except TypeError`, as Python itself raises it, and `except HoldfastError` both work."""
    assert issubclass(Misuse, TypeError)
    assert issubclass(Misuse, HoldfastError)
