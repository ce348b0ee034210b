"""`Durable` takes a store as a URL, a path, or open, with or without an event loop."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import blocking
from holdfast.adapters.pydantic_ai import Durable, continue_run, fork_run
from holdfast.errors import BadInput, BadUrl

from .scripted_runs import SESSION, Script


async def test_runs_continue_and_fork_in_each(given: Any, tmp_path: Path) -> None:
    """A store that was given stays open; what was opened for a run is on disk."""
    agent = Script("one", "two").agent()
    durable = Durable(given, session=SESSION)
    assert (await agent.run("a", capabilities=[durable])).output == "one"
    again = await continue_run(given, session=SESSION)
    second = await agent.run("b", message_history=again.messages, capabilities=[durable])
    assert second.output == "two"
    assert (await fork_run(given, session=SESSION, into="copy")).session == "copy"
    async with holdfast.open_store(tmp_path / "agents.db", create=False) as store:
        assert [head.session async for head in store.sessions()] == ["copy", SESSION]
    if isinstance(given, holdfast.Store):
        assert (await given.head(SESSION)).session == SESSION
    elif isinstance(given, blocking.Store):
        assert given.head(SESSION).session == SESSION


def test_what_is_no_store_is_refused_when_the_capability_is_made() -> None:
    """Not in the middle of a run."""
    wrong: Any = 5
    with pytest.raises(BadInput, match="not an open store: pass a URL"):
        Durable(wrong, session=SESSION)
    with pytest.raises(BadUrl, match=r"did you mean 'sqlite:agents\.db'"):
        Durable("sqlit:agents.db", session=SESSION)
