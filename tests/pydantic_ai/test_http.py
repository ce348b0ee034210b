"""Requests of pydantic-ai's tools have keys and are noted, as those of holdfast's own."""

from __future__ import annotations

import pytest

import holdfast
from holdfast.adapters.pydantic_ai import Durable, effects
from tests.tools.http_services import KINDS, Service, make_body, refusing_url

from .scripted_runs import SESSION, Script, call, look, results


@pytest.mark.parametrize("kind", KINDS)
async def test_a_tool_of_an_agent_sends_its_requests_with_keys(kind: str) -> None:
    """Sync tools run in threads of pydantic-ai's, async ones in the event loop."""
    with Service() as service:
        agent = Script([call("pay")], "paid").agent()
        pay = make_body(kind, ("POST", service.url()), ("POST", service.url()))
        agent.tool_plain(name="pay", metadata=effects(side_effects="mutate"))(pay)
        async with holdfast.open_store("memory:") as store:
            result = await agent.run("Pay.", capabilities=[Durable(store, session=SESSION)])
            assert results(result.all_messages()) == [[200, 200]]
            (row,) = (await look(store)).facts.effects.rows.values()
        assert [one["key"] for one in row.notes["requests"]] == service.keys
        assert None not in service.keys
        assert len(set(service.keys)) == 2


@pytest.mark.parametrize("kind", KINDS)
async def test_a_refused_connection_is_no_doubt_in_an_agent_either(kind: str) -> None:
    """The agent's run fails with the library's own error, and the record says that nothing was done."""
    with refusing_url() as url:
        agent = Script([call("pay")], "paid").agent()
        pay = make_body(kind, ("POST", url))
        agent.tool_plain(name="pay", metadata=effects(side_effects="mutate"))(pay)
        async with holdfast.open_store("memory:") as store:
            with pytest.raises(Exception, match=r"refused|failed|Max retries"):
                await agent.run("Pay.", capabilities=[Durable(store, session=SESSION)])
            (row,) = (await look(store)).facts.effects.rows.values()
    assert row.status == "failed"
