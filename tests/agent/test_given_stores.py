"""A store is given as a URL, a path, or open, with or without an event loop: what opened it closes it."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import pytest

import holdfast
from holdfast import blocking
from holdfast.agents import ScriptedModel, Thread
from holdfast.errors import BadInput, BadUrl, Closed
from holdfast.workers import Worker

Given: TypeAlias = Any


def committers() -> list[threading.Thread]:
    """The threads of stores that are open and have written."""
    return [one for one in threading.enumerate() if one.name == "holdfast-committer"]


@asynccontextmanager
async def expect_as_it_was(given: Given) -> AsyncIterator[None]:
    """A store that was opened is closed again; one that was given is still open."""
    before = committers()
    yield
    if isinstance(given, str | Path):
        assert committers() == before
    else:
        assert await list_sessions(given)


async def list_sessions(given: Given) -> list[str]:
    async with open_of(given) as store:
        return [head.session async for head in store.sessions()]


@asynccontextmanager
async def open_of(given: Given) -> AsyncIterator[holdfast.Store]:
    """The same store, without the code that is tested."""
    if isinstance(given, str | Path):
        async with holdfast.open_store(given) as store:
            yield store
    else:
        yield given.with_loop if isinstance(given, blocking.Store) else given


async def test_an_agent_takes_it_in_run_resume_and_stream(given: Given) -> None:
    """All three see one journal."""
    agent = holdfast.Agent(ScriptedModel(lambda prompt: f"{len(prompt.messages)} said"), name="clerk")
    async with expect_as_it_was(given):
        first = await agent.run("Hi", session="s", store=given)
        again = await agent.resume("s", store=given)
        events = [event async for event in agent.stream("And?", session="s", store=given)]
    assert (first.output, again.output) == ("1 said", "1 said")
    assert events[-1] == await agent.resume("s", store=given)
    assert await list_sessions(given) == ["s"]


async def test_an_agent_takes_it_in_resume_all(given: Given) -> None:
    """A session that was cut off is found in it, and resumed."""
    agent = holdfast.Agent(ScriptedModel(["Hello."]), name="clerk")
    async with open_of(given) as store, store.session("s") as session:
        await session.run(agent="clerk").__aenter__()
        await session.add("Hi")
        await session.flush()
    async with expect_as_it_was(given):
        outcomes = await agent.resume_all(given)
        assert [(one.session, one.output) for one in outcomes] == [("s", "Hello.")]


async def test_a_registry_takes_it_in_settle_all(given: Given) -> None:
    """There is nothing to settle, and it is known in each way."""
    async with expect_as_it_was(given):
        await holdfast.Agent(ScriptedModel(["Hello."])).run("Hi", session="s", store=given)
        assert await holdfast.Registry().settle_all(given) == []


async def test_a_thread_takes_it(given: Given) -> None:
    """In `run` and in `resume`."""
    debate = Thread([holdfast.Agent(ScriptedModel(["Yes."]), name="ann")], max_iterations=1)
    async with expect_as_it_was(given):
        assert (await debate.run("Well?", session="s", store=given)).output == "Yes."
        assert (await debate.resume("s", store=given)).output == "Yes."


async def test_a_worker_takes_it(given: Given) -> None:
    """And has it open for as long as it works."""
    agent = holdfast.Agent(ScriptedModel(["Hello."]), name="clerk")
    async with expect_as_it_was(given):
        async with open_of(given) as store:
            await store.submit("s", "Hi", agent="clerk")
        await Worker(given, agent).run(until_idle=True)
    assert (await agent.resume("s", store=given)).output == "Hello."


OPENINGS: dict[str, Callable[[Path], AbstractContextManager[Given]]] = {}


def opening(function: Callable[[Path], Iterator[Given]]) -> Callable[[Path], Iterator[Given]]:
    """One of the ways, for code without an event loop."""
    OPENINGS[function.__name__] = contextmanager(function)
    return function


@opening
def by_url(path: Path) -> Iterator[Given]:
    yield f"sqlite:{path}"


@opening
def by_path(path: Path) -> Iterator[Given]:
    yield path


@opening
def by_store(path: Path) -> Iterator[Given]:
    with blocking.open_store(path) as store:
        yield store


@opening
def by_store_with_loop(path: Path) -> Iterator[Given]:
    with blocking.open_store(path) as store:
        yield store.with_loop


@pytest.mark.parametrize("way", OPENINGS)
def test_an_agent_without_an_event_loop_takes_it(way: str, tmp_path: Path) -> None:
    """Where there is no loop, one runs for the call."""
    agent = blocking.Agent(ScriptedModel(lambda prompt: f"{len(prompt.messages)} said"), name="clerk")
    before = committers()
    with OPENINGS[way](tmp_path / "agents.db") as given:
        assert agent.run("Hi", session="s", store=given).output == "1 said"
        assert agent.resume("s", store=given).output == "1 said"
        assert list(agent.stream("And?", session="s", store=given))[-1] == agent.resume("s", store=given)
        assert agent.resume_all(given) == []
        assert blocking.Registry().settle_all(given) == []
    assert committers() == before


async def test_what_is_no_store_is_refused_before_anything_happens() -> None:
    """With what can be given; a misspelt URL with what was meant."""
    agent = holdfast.Agent(ScriptedModel(["Hello."]), name="clerk")
    not_entered = blocking.open_store("memory:")
    for wrong in (5, not_entered, holdfast.Registry()):
        given: Any = wrong
        with pytest.raises(BadInput, match=r"not an open store: pass a URL such as .*, a Path, or the store"):
            await agent.run("Hi", session="s", store=given)
        with pytest.raises(BadInput, match="not an open store"):
            Worker(given, agent)
    with pytest.raises(BadUrl, match=r"did you mean 'sqlite:agents\.db'"):
        await agent.run("Hi", session="s", store="sqlit:agents.db")
    with pytest.raises(BadUrl, match=r"did you mean 'sqlite:agents\.db'"):
        Worker("sqlit:agents.db", agent)


async def test_a_store_that_is_not_open_says_so(tmp_path: Path) -> None:
    """It is the caller's to open."""
    agent = holdfast.Agent(ScriptedModel(["Hello."]))
    with pytest.raises(Closed, match="use `async with holdfast"):
        await agent.run("Hi", session="s", store=holdfast.open_store(tmp_path / "a.db"))
    assert not (tmp_path / "a.db").exists()
