"""Requests of LangChain's tools in a graph have keys and are noted, as those of holdfast's own."""

from __future__ import annotations

import pytest
from langchain_core.tools import StructuredTool

import holdfast
from holdfast.adapters.langgraph import durable_tools, effects
from tests.tools.http_services import KINDS, Service, make_body

from .graphs import thread


@pytest.mark.parametrize("kind", KINDS)
async def test_a_tool_of_a_graph_sends_its_requests_with_keys(kind: str, store: holdfast.Store) -> None:
    """Sync tools run in threads, async ones in the event loop."""
    with Service() as service:
        body = make_body(kind, ("POST", service.url()), ("POST", service.url()))
        how = {"coroutine": body} if kind == "httpx-async" else {"func": body}
        pay = StructuredTool.from_function(**how, name="pay", description="Pay.")
        (tool,) = durable_tools([effects(pay, side_effects="mutate")], store=store)
        assert await tool.ainvoke({}, thread()) == [200, 200]
        (session,) = [one async for one in store.sessions(label={"adapter": "langgraph.tools"})]
        (row,) = (await store.load(session.session)).facts.effects.rows.values()
        assert [one["key"] for one in row.notes["requests"]] == service.keys
        assert None not in service.keys
        assert len(set(service.keys)) == 2
