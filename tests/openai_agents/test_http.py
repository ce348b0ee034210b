"""Requests of the SDK's tools in a durable run have keys and are noted, and recipes settle them."""

from __future__ import annotations

from typing import Any

import pytest
from agents import function_tool

import holdfast
from holdfast.adapters.openai_agents import DurableRunner, HoldfastSession, RunWaits, current_effect, effects
from holdfast.core.effects import Effect
from holdfast.tools import mutate
from tests.tools.http_services import KINDS, Service, make_body, refusing_url
from tests.tools.json_service import OrderService, find_order

from .runs import make

pytestmark = pytest.mark.anyio
EVERY_KIND = pytest.mark.parametrize("kind", KINDS)


def make_pay(kind: str, *urls: str, **options: Any) -> Any:
    """A tool that posts to these addresses, one after another."""
    body = make_body(kind, *(("POST", url) for url in urls))
    return effects(side_effects="mutate", **options)(function_tool(body, name_override="pay"))


async def get_row(store: holdfast.Store) -> Effect:
    """The only call in the ledger."""
    (row,) = (await store.load("ann")).facts.effects.rows.values()
    return row


@EVERY_KIND
async def test_a_tool_of_a_durable_run_sends_its_requests_with_keys(kind: str) -> None:
    """Sync tools run in threads of the SDK's, async ones in the event loop."""
    with Service() as service:
        async with holdfast.open_store("memory:") as store:
            agent = make(make_pay(kind, service.url(), service.url()))
            found = await DurableRunner.run(agent, "Pay.", session=HoldfastSession("ann", store))
            assert found.final_output == "[200, 200]"
            row = await get_row(store)
        assert [one["key"] for one in row.notes["requests"]] == service.keys
        assert None not in service.keys
        assert len(set(service.keys)) == 2


@EVERY_KIND
async def test_a_dropped_answer_is_a_doubt_that_shows_the_request(kind: str) -> None:
    """Of a service that knows keys it is none: the same call asks it again, with the same key."""
    with Service("drop", 200, deduplicates=True) as service:
        async with holdfast.open_store("memory:") as store:
            agent = make(make_pay(kind, service.url()))
            with pytest.raises(RunWaits):
                await DurableRunner.run(agent, "Pay.", session=HoldfastSession("ann", store))
            row = await get_row(store)
            assert row.status == "in_doubt"
            (noted,) = row.notes["requests"]
            assert (noted["url"], noted["key"]) == (service.url(), service.keys[0])
    with Service("drop", 200, deduplicates=True) as service:
        async with holdfast.open_store("memory:") as store:
            agent = make(make_pay(kind, service.url(), idempotent=True))
            found = await DurableRunner.run(agent, "Pay.", session=HoldfastSession("ann", store))
            assert found.final_output == "[200]"
        assert service.done == ["/pay"]
        assert len(service.keys) == 2
        assert len(set(service.keys)) == 1


@EVERY_KIND
async def test_a_refused_connection_is_no_doubt(kind: str) -> None:
    """The model is told of the library's own error, and the record says that nothing was done."""
    with refusing_url() as url:
        async with holdfast.open_store("memory:") as store:
            agent = make(make_pay(kind, url))
            found = await DurableRunner.run(agent, "Pay.", session=HoldfastSession("ann", store))
            assert "error" in found.final_output
            assert (await get_row(store)).status == "failed"


async def test_a_tool_in_doubt_is_settled_by_a_recipe() -> None:
    """It is declared by a glob, and has its effect once."""
    with OrderService() as service:

        @function_tool
        def order_tea(what: str) -> str:
            """Order tea."""
            service.add({"what": what, "reference": current_effect().key})
            raise ConnectionError("no answer")

        runner = DurableRunner.with_options(effects={"order_*": mutate(verify=find_order(service))})
        async with holdfast.open_store("memory:") as store:
            session = HoldfastSession("ann", store)
            result = await runner.run(make(order_tea, what="tea"), "Tea.", session=session)
        assert result.final_output == "order 1"
        assert len(service.orders) == 1
