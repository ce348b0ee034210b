"""Requests of an agent's tools under `HoldfastMiddleware` have keys and are noted; recipes settle them."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.tools import BaseTool, StructuredTool
from langchain_core.tools import tool as langchain_tool

import holdfast
from holdfast.adapters.langgraph import current_effect, mutate
from tests.tools.http_services import KINDS, Service, make_body
from tests.tools.json_service import OrderService, find_order

from .agents import GO, drive, durable_agent, list_effects, results

EVERY_KIND = pytest.mark.parametrize("kind", KINDS)


def make_pay(kind: str, *urls: str) -> BaseTool:
    """A tool that posts to these addresses, one after another."""
    body = make_body(kind, *(("POST", url) for url in urls))
    how: dict[str, Any] = {"coroutine": body} if kind == "httpx-async" else {"func": body}
    return StructuredTool.from_function(**how, name="pay", description="Pay.")


@EVERY_KIND
async def test_a_tool_of_an_agent_sends_its_requests_with_keys(kind: str, store: holdfast.Store) -> None:
    """Sync tools run in threads, async ones in the event loop."""
    with Service() as service:
        pay = make_pay(kind, service.url(), service.url())
        agent = durable_agent(store, [[("pay", {})], "ok"], [pay], effects={"pay": "mutate"})
        assert results(await drive(agent, GO)) == ["[200, 200]"]
        (row,) = await list_effects(store)
        assert [one["key"] for one in row.notes["requests"]] == service.keys
        assert None not in service.keys
        assert len(set(service.keys)) == 2


@EVERY_KIND
async def test_a_dropped_answer_is_a_doubt_that_shows_the_request(kind: str, store: holdfast.Store) -> None:
    """The agent is interrupted. Of a service that knows keys it is no doubt: it is asked again."""
    with Service("drop", 200, deduplicates=True) as service:
        script: list[Any] = [[("pay", {})], "ok"]
        agent = durable_agent(store, script, [make_pay(kind, service.url())], effects={"pay": "mutate"})
        assert "__interrupt__" in await drive(agent, GO)
        (row,) = await list_effects(store)
        (noted,) = row.notes["requests"]
        assert (row.status, noted["url"], noted["key"]) == ("in_doubt", service.url(), service.keys[0])
    with Service("drop", 200, deduplicates=True) as service:
        declared = {"pay": mutate(idempotent=True)}
        agent = durable_agent(store, script, [make_pay(kind, service.url())], effects=declared)
        assert results(await drive(agent, GO, thread="other")) == ["[200]"]
        assert service.done == ["/pay"]
        assert len(service.keys) == 2
        assert len(set(service.keys)) == 1


async def test_a_tool_in_doubt_is_settled_by_a_recipe(store: holdfast.Store) -> None:
    """It is declared by a glob, and has its effect once."""
    with OrderService() as service:

        @langchain_tool
        def order_tea(what: str) -> str:
            """Order tea."""
            service.add({"what": what, "reference": current_effect().key})
            raise ConnectionError("no answer")

        script = [[("order_tea", {"what": "tea"})], "ok"]
        agent = durable_agent(
            store, script, [order_tea], effects={"order_*": mutate(verify=find_order(service))}
        )
        assert results(await drive(agent, GO)) == ["order 1"]
        assert len(service.orders) == 1
