"""Step stores and media stores take a store as a URL, a path, or open, with or without an event loop."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from holdfast.adapters.pydantic_ai.media_store import HoldfastMediaStore
from holdfast.adapters.pydantic_ai.step_store import HoldfastStepStore
from holdfast.errors import BadInput, BadUrl, Closed

from .example_histories import event, history, run, snapshot


async def test_a_step_store_closes_what_it_opened(given: Any) -> None:
    """Events that were not waited for are written before; a store that was given stays open."""
    async with HoldfastStepStore(given) as steps:
        await steps.register_run(run("a"))
        await steps.save_snapshot(snapshot("a", history(2)))
        await steps.append_event(event("a", "model_request_completed"))
    if isinstance(given, str | Path):
        with pytest.raises(Closed):
            await steps.list_runs()
        steps = HoldfastStepStore(given)
    assert [one.run_id for one in await steps.list_runs()] == ["a"]
    assert [one.kind for one in await steps.list_events(run_id="a")] == ["model_request_completed"]
    found = await steps.latest_snapshot(run_id="a")
    assert found is not None
    assert found.messages == history(2)
    await steps.aclose()


async def test_a_media_store_closes_what_it_opened(given: Any) -> None:
    """The bytes are there for the next one."""
    async with HoldfastMediaStore(given) as media:
        uri = await media.put(b"picture")
    if isinstance(given, str | Path):
        with pytest.raises(Closed):
            await media.get(uri)
        media = HoldfastMediaStore(given)
    assert await media.get(uri) == b"picture"
    await media.aclose()


async def test_calls_at_once_open_a_store_once(tmp_path: Path) -> None:
    """All of them see the same journals."""
    async with HoldfastStepStore(tmp_path / "agents.db") as steps:
        async with anyio.create_task_group() as tasks:
            for name in "abcd":
                tasks.start_soon(steps.register_run, run(name))
        assert sorted(one.run_id for one in await steps.list_runs()) == ["a", "b", "c", "d"]


def test_an_object_of_a_module_serves_one_event_loop_after_another(tmp_path: Path) -> None:
    """As in a program that calls `anyio.run` for each question."""
    steps, media = HoldfastStepStore(tmp_path / "a.db"), HoldfastMediaStore(tmp_path / "a.db")
    anyio.run(steps.register_run, run("a"))
    assert [one.run_id for one in anyio.run(steps.list_runs)] == ["a"]
    uri = anyio.run(media.put, b"picture")
    assert anyio.run(media.get, uri) == b"picture"
    anyio.run(steps.aclose)
    anyio.run(media.aclose)


def test_what_is_no_store_is_refused_at_once(tmp_path: Path) -> None:
    """And a store that is never used is never made."""
    wrong: Any = 5
    for kind in (HoldfastStepStore, HoldfastMediaStore):
        with pytest.raises(BadInput, match="not an open store: pass a URL"):
            kind(wrong)
        with pytest.raises(BadUrl, match=r"did you mean 'sqlite:agents\.db'"):
            kind("sqlit:agents.db")
        kind(tmp_path / "unused.db")
    assert not (tmp_path / "unused.db").exists()
