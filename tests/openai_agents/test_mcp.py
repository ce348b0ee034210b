"""Tools of MCP servers under `DurableRunner`: calls that fail, or whose answer is lost."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.adapters.openai_agents import DurableRunner, HoldfastSession, RunWaits
from holdfast.adapters.openai_agents.mcp_retries import without_retries
from tests.crash.fork_server import Warm
from tests.mcp.killed_client import payments

from . import paying_over_mcp
from .paying_over_mcp import RETRIES, make_agent, serving
from .runs import approve

ONCE = ["ann:5"]


@pytest.fixture
async def store() -> AsyncIterator[holdfast.Store]:
    """In memory: what is shown here is the same on every store."""
    async with holdfast.open_store("memory:") as opened:
        yield opened


@pytest.mark.anyio
@pytest.mark.parametrize("how", ["garbage", "kill server"])
async def test_a_call_whose_answer_is_lost_is_in_doubt_and_not_sent_again(
    store: holdfast.Store, tmp_path: Path, how: str
) -> None:
    """Although the server is set to retry. The run goes on with what a person says."""
    (tmp_path / "do").write_text(how)
    session = HoldfastSession("ann", store)
    async with serving(tmp_path) as server:
        with pytest.raises(RunWaits) as waits:
            await DurableRunner.run(make_agent(server), "Pay.", session=session)
        assert server.max_retry_attempts == RETRIES
    assert payments(tmp_path) == ONCE
    (waiting,) = waits.value.waiting
    assert (waiting.tool, waiting.kind) == ("pay", "in_doubt")
    await store.resolve("ann", waiting.call, "landed", by="cat", result="paid")
    async with serving(tmp_path) as server:
        found = await DurableRunner.run(make_agent(server), "Pay.", session=session)
    assert found.final_output == "paid"
    assert payments(tmp_path) == ONCE


def test_a_process_that_is_killed_in_a_call_leaves_it_in_doubt(warm: Warm, quick_path: Path) -> None:
    """The payment was made, and its answer lost with the process. The next one does not pay again."""
    (quick_path / "do").write_text("kill client")
    with warm.child(paying_over_mcp.work, str(quick_path)) as child:
        assert child.outcome() is None, "it was not killed"
    for _ in range(2):
        assert warm.call(paying_over_mcp.work, str(quick_path)) == "in_doubt"
    assert payments(quick_path) == ONCE


@pytest.mark.anyio
@pytest.mark.parametrize(
    "declared", ["read", holdfast.tools.mutate(idempotent=True)], ids=["reads", "idempotent"]
)
async def test_a_call_that_may_be_repeated_is_sent_again(
    store: holdfast.Store, tmp_path: Path, declared: Any
) -> None:
    """By the server's own retries, as without a record."""
    (tmp_path / "do").write_text("garbage")
    runner = DurableRunner.with_options(effects={"pay": declared})
    async with serving(tmp_path) as server:
        found = await runner.run(make_agent(server), "Pay.", session=HoldfastSession("ann", store))
    assert "paid" in found.final_output
    assert payments(tmp_path) == ONCE * 2


@pytest.mark.anyio
async def test_an_error_that_a_server_reports_is_an_output(store: holdfast.Store, tmp_path: Path) -> None:
    """The call counts as done."""
    (tmp_path / "do").write_text("error")
    async with serving(tmp_path) as server:
        found = await DurableRunner.run(make_agent(server), "Pay.", session=HoldfastSession("ann", store))
    assert "no money" in found.final_output
    rows = (await store.load("ann")).facts.effects.rows.values()
    assert [row.status for row in rows] == ["completed"]


@pytest.mark.anyio
@pytest.mark.parametrize("by_state", [True, False], ids=["state", "holdfast"])
async def test_a_call_that_needs_an_approval_is_made_once_it_is_given(
    store: holdfast.Store, tmp_path: Path, by_state: bool
) -> None:
    """`require_approval` of a server: by a `RunState`, or by way of the store and the same call."""
    session = HoldfastSession("ann", store)
    async with serving(tmp_path, require_approval="always") as server:
        agent = make_agent(server)
        paused = await DurableRunner.run(agent, "Pay.", session=session)
        assert [one.name for one in paused.interruptions] == ["pay"]
        assert payments(tmp_path) == []
        given = await approve(store, paused, by_state=by_state) or "Pay."
        found = await DurableRunner.run(agent, given, session=session)
        assert not found.interruptions
    assert "paid" in found.final_output
    assert payments(tmp_path) == ONCE


@pytest.mark.anyio
async def test_a_server_retries_again_when_the_last_of_its_calls_has_ended(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        with without_retries(server):
            with without_retries(server):
                assert server.max_retry_attempts == 0
            assert server.max_retry_attempts == 0
        assert server.max_retry_attempts == RETRIES
