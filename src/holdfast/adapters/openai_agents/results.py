"""Results and events of a run, with the agents of the caller in the place of their copies."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import aclosing
from typing import Any

from agents import RunItem, RunResult, RunResultStreaming, StreamEvent
from agents._public_agent import get_public_agent
from agents.exceptions import AgentsException
from agents.items import HandoffOutputItem
from agents.stream_events import AgentUpdatedStreamEvent, RunItemStreamEvent


def show_result(result: RunResult | RunResultStreaming) -> None:
    """Have the result show the agents of the caller."""
    _show_items([*result.new_items, *result.interruptions])
    found: Any = result
    started = getattr(found, "_starting_agent_for_state", None)
    if started is not None:
        found._starting_agent_for_state = get_public_agent(started)
    if isinstance(result, RunResultStreaming):
        result.current_agent = get_public_agent(result.last_agent)
    else:
        result._last_agent = get_public_agent(result.last_agent)
    for one in result.output_guardrail_results:
        one.agent = get_public_agent(one.agent)


def show_error(error: BaseException) -> None:
    """Have the details of an error show the agents of the caller."""
    details = error.run_data if isinstance(error, AgentsException) else None
    if details is not None:
        _show_items(details.new_items)
        details.last_agent = get_public_agent(details.last_agent)


def _show_items(items: Iterable[RunItem]) -> None:
    for item in items:
        item.agent = get_public_agent(item.agent)
        if isinstance(item, HandoffOutputItem):
            item.source_agent = get_public_agent(item.source_agent)
            item.target_agent = get_public_agent(item.target_agent)


async def show_events(events: AsyncIterator[StreamEvent]) -> AsyncIterator[StreamEvent]:
    """The events, which show the agents of the caller."""
    found: Any = events
    async with aclosing(found):
        async for event in events:
            if isinstance(event, AgentUpdatedStreamEvent):
                event.new_agent = get_public_agent(event.new_agent)
            elif isinstance(event, RunItemStreamEvent):
                _show_items([event.item])
            yield event


