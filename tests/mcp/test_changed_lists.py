"""Servers that change what they say of their tools while they are used."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

import holdfast
from holdfast.adapters.mcp import McpTools, mcp_tools
from tests.crash.fork_server import DEADLINE_S, poll

from .killed_client import command
from .plain_server import FIND, PAY, SET
from .test_killed import lines
from .test_names_and_effects import ACTS, told

READS = {"annotations": {"readOnlyHint": True}}
WHOM = {"to": "ann", "cents": 1}


def listed(place: Path, *tools: dict[str, Any]) -> None:
    """Let the server list these tools."""
    (place / "new.json").write_text(json.dumps(tools))
    (place / "new.json").rename(place / "tools.json")


class Watched:
    """Tools of a server on stdio, and what `on_change` was told."""

    def __init__(self, place: Path, **options: Any) -> None:
        self.place, self.told = place, 0
        self._event = anyio.Event()
        self.tools: McpTools = mcp_tools(command(place, "legacy"), on_change=self._note, **options)

    def _note(self, tools: McpTools) -> None:
        assert tools is self.tools
        self.told += 1
        self._event.set()

    async def change(self, *specs: dict[str, Any]) -> None:
        """Let the server list these, say so in the middle of a call, and wait until it is known here."""
        self._event = anyio.Event()
        await self.announce(*specs)
        with anyio.fail_after(DEADLINE_S):
            await self._event.wait()

    async def announce(self, *specs: dict[str, Any]) -> None:
        """Let the server list these, say so in the middle of a call, and wait until it was asked again."""
        before = len(lines(self.place, "listed"))
        listed(self.place, *specs)
        (self.place / "do").write_text("change")
        await self.tools.get_tool("pay")(**WHOM)
        asked = partial(self._is_asked, before)
        await anyio.to_thread.run_sync(poll, asked, "the list to be asked for")

    def _is_asked(self, before: int) -> bool:
        return len(lines(self.place, "listed")) > before


@asynccontextmanager
async def watching(place: Path, *specs: dict[str, Any], **options: Any) -> AsyncIterator[Watched]:
    """The server with these tools at first."""
    listed(place, *specs)
    watched = Watched(place, **options)
    async with watched.tools:
        yield watched


async def test_a_tool_that_no_longer_only_reads_is_not_run_again(quick_path: Path) -> None:
    """Registries and agents that hold it go by what the server says now."""
    async with watching(quick_path, {**PAY, **READS}, FIND) as watched:
        (pay, _) = watched.tools
        registry = holdfast.Registry(watched.tools)
        assert told(pay) == (["read"], "call")
        await watched.change(PAY, FIND)
        assert [one is pay for one in watched.tools] == [True, False]
        assert told(pay) == ACTS
        async with holdfast.open_store("memory:") as store, store.session("s") as session:
            (quick_path / "do").write_text("kill server")
            result = await registry.dispatch("pay", WHOM, session=session)
            assert result.status == "in_doubt"
            assert len(session.in_doubt) == 1


async def test_what_a_server_says_later_does_not_win_over_a_declaration(quick_path: Path) -> None:
    """`effects` says what the tools do, whatever the server says of them then."""
    async with watching(quick_path, PAY, SET, effects={"pay": "mutate"}, trust=True) as watched:
        await watched.change({**PAY, **READS}, {**SET, **READS})
        assert [told(one) for one in watched.tools] == [(["mutate"], "session"), (["read"], "call")]


SCHEMA: Any = PAY["inputSchema"]
MORE = {**SCHEMA, "properties": {**SCHEMA["properties"], "note": {"type": "string"}}}
CHANGES = {
    "description": {**PAY, "description": "Pay somebody."},
    "schema": {**PAY, "inputSchema": MORE},
    "hints": {**PAY, **READS},
}


@pytest.mark.parametrize("what", CHANGES)
async def test_on_change_is_told_of_every_change(what: str, quick_path: Path) -> None:
    """Once, and not of a list that is as it was."""
    changed = CHANGES[what]
    async with watching(quick_path, PAY, SET) as watched:
        registry = holdfast.Registry(watched.tools)
        await watched.announce(PAY, SET)
        await watched.change(changed, SET)
        assert watched.told == 1
        pay = watched.tools.get_tool("pay")
        assert pay.description == changed["description"]
        assert pay.schema == changed["inputSchema"]
        assert registry.schemas()[0]["description"] == changed["description"]
        taken = await registry.dispatch("pay", {**WHOM, "note": "lunch"})
        assert (taken.status == "completed") is (what == "schema")


async def test_a_tool_that_is_no_longer_listed_is_removed_and_comes_back_the_same(quick_path: Path) -> None:
    """Its name stays its own meanwhile."""
    async with watching(quick_path, PAY, FIND, SET) as watched:
        pay, find, limit = watched.tools
        await watched.change(PAY, SET)
        assert list(watched.tools) == [pay, limit]
        await watched.change(PAY, {**FIND, "description": "Look."}, SET)
        assert list(watched.tools) == [pay, find, limit]
        assert find.description == "Look."


async def test_a_tool_whose_schema_cannot_be_used_any_more_is_left_out(
    quick_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As one that is listed like that from the beginning."""
    async with watching(quick_path, PAY, FIND) as watched:
        await watched.change(PAY, {**FIND, "inputSchema": {"type": "object", "$ref": "#"}})
        assert [one.name for one in watched.tools] == ["pay"]
    assert "is left out: tool 'find_payment': its JSON Schema cannot be used" in caplog.text


@pytest.mark.parametrize(("before", "after"), [("mutate", "read"), ("read", "mutate")])
async def test_a_call_under_way_is_judged_by_what_its_tool_was(before: Any, after: Any) -> None:
    """One that acted when it came in is in doubt if it fails, and one that read has failed."""

    async def pay() -> None:
        registry.get_tool("pay").become(other)
        raise ConnectionError("cut off")

    registry = holdfast.Registry([holdfast.tool(side_effects=before)(pay)])
    registry.get_tool("pay").may_change = True
    other = holdfast.tool(side_effects=after)(pay)
    async with holdfast.open_store("memory:") as store, store.session("s") as session:
        result = await registry.dispatch("pay", {}, session=session)
        assert result.status == ("in_doubt" if before == "mutate" else "failed")
        assert registry.get_tool("pay").side_effects == {after}
