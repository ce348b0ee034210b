"""Clients and servers that are killed in the middle of calls."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

import holdfast
from tests.crash.fork_server import Warm, poll

from . import killed_client
from .killed_client import SESSION, open_tools, payments

EVERY = ["ann:1", "ann:2", "ann:3", "ann:4"]
ERAS = pytest.mark.parametrize("era", ["modern", "legacy"])


def lines(place: Path, book: str) -> list[str]:
    found = place / book
    return found.read_text().splitlines() if found.exists() else []


@ERAS
def test_an_agent_whose_process_dies_after_an_effect_pays_once(
    era: str, warm: Warm, quick_path: Path
) -> None:
    """The server kills its client between the effect and the answer. In the next process, the tools have the
    same names and the calls the same digests, so `verify` finds what happened, and every payment is made
    once."""
    (quick_path / "do").write_text("kill client")
    options: dict[str, Any] = {"verifies": True, "era": era}
    with warm.child(killed_client.work, str(quick_path), **options) as child:
        assert child.outcome() is None, "it was not killed"
    assert payments(quick_path) == ["ann:1"]
    found = warm.call(killed_client.work, str(quick_path), **options)
    assert found == {"status": "completed", "doubts": 0}
    assert sorted(payments(quick_path)) == EVERY
    assert set(lines(quick_path, "eras")) == {era}


def test_without_a_way_to_ask_it_stays_in_doubt(warm: Warm, quick_path: Path) -> None:
    """It is not paid again, and a person is asked."""
    (quick_path / "do").write_text("kill client")
    with warm.child(killed_client.work, str(quick_path), verifies=False) as child:
        assert child.outcome() is None, "it was not killed"
    for _ in range(2):
        found = warm.call(killed_client.work, str(quick_path), verifies=False)
        assert found == {"status": "waiting", "doubts": 1}
    assert payments(quick_path) == ["ann:1"]


@ERAS
async def test_a_server_that_dies_in_a_call_leaves_it_in_doubt_and_is_started_again(
    era: str, quick_path: Path
) -> None:
    """The next call works, on a new server; the call in doubt is not made again."""
    async with open_tools(quick_path, verifies=False, era=era) as tools:
        registry = holdfast.Registry(tools)
        async with holdfast.open_store("memory:") as store, store.session(SESSION) as session:

            async def pay(cents: int) -> str:
                args = {"to": "ann", "cents": cents}
                return (await registry.dispatch("pay", args, session=session)).status

            assert await pay(1) == "completed"
            (quick_path / "do").write_text("kill server")
            assert await pay(2) == "in_doubt"
            assert await pay(3) == "completed"
            assert await pay(2) == "in_doubt"
            (quick_path / "do").write_text("die first")
            assert await pay(4) == "in_doubt"
            assert await pay(5) == "completed"
    assert payments(quick_path) == ["ann:1", "ann:2", "ann:3", "ann:5"]
    assert len(set(lines(quick_path, "started"))) == 3


async def test_a_tool_that_can_be_asked_is_asked_on_the_new_server(quick_path: Path) -> None:
    """One call happened, and the other did not: that one is made again by the model's next attempt."""
    async with open_tools(quick_path, verifies=True) as tools:
        registry = holdfast.Registry(tools)
        async with holdfast.open_store("memory:") as store, store.session(SESSION) as session:
            (quick_path / "do").write_text("kill server")
            landed = await registry.dispatch("pay", {"to": "ann", "cents": 1}, session=session)
            assert (landed.status, landed.value) == ("completed", "paid")
            (quick_path / "do").write_text("die first")
            missed = await registry.dispatch("pay", {"to": "ann", "cents": 2}, session=session)
            assert missed.status == "failed"
            again = await registry.dispatch("pay", {"to": "ann", "cents": 2}, session=session)
            assert again.status == "completed"
    assert payments(quick_path) == ["ann:1", "ann:2"]


async def test_an_answer_that_is_none_leaves_the_call_in_doubt(quick_path: Path) -> None:
    async with open_tools(quick_path, verifies=False) as tools:
        registry = holdfast.Registry(tools)
        async with holdfast.open_store("memory:") as store, store.session(SESSION) as session:
            (quick_path / "do").write_text("garbage")
            result = await registry.dispatch("pay", {"to": "ann", "cents": 1}, session=session)
            assert result.status == "in_doubt"
            assert "no result of a tool" in result.content


async def test_other_calls_under_way_are_in_doubt_too(quick_path: Path) -> None:
    """A call that the dead server was still working on, beside the one that killed it."""
    async with open_tools(quick_path, verifies=False) as tools:
        registry = holdfast.Registry(tools)
        found: list[str] = []
        async with holdfast.open_store("memory:") as store, store.session(SESSION) as session:

            async def pay(cents: int) -> None:
                result = await registry.dispatch("pay", {"to": "ann", "cents": cents}, session=session)
                found.append(result.status)

            (quick_path / "do").write_text("hang")
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(pay, 1)
                hangs = partial(lines, quick_path, "hangs")
                await anyio.to_thread.run_sync(poll, lambda: bool(hangs()), "the server to hang")
                (quick_path / "do").write_text("kill server")
                await pay(2)
    assert found == ["in_doubt", "in_doubt"]
    assert payments(quick_path) == ["ann:2"]
