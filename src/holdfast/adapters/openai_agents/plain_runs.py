"""A warning about runs without a record inside a durable tool: they are made again whenever the tool is."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from agents.tracing import AgentSpanData, get_trace_provider

from .durable_run import find_around, find_recorder

log = logging.getLogger("holdfast")


class _WatchedSpans:
    """`create_span` of a trace provider. The SDK calls it for every agent that begins to run, also when
    tracing is off, and whatever the processors are."""

    def __init__(self, inner: Callable[..., Any]) -> None:
        self._inner = inner

    def __call__(self, span_data: Any, *args: Any, **options: Any) -> Any:
        if isinstance(span_data, AgentSpanData):
            _look_at(span_data.name)
        return self._inner(span_data, *args, **options)


def _look_at(agent: str) -> None:
    """Warn if the agent runs in a tool, and not by way of `DurableRunner`: once in a run."""
    around = find_around()
    if around is None or find_recorder() is not None or agent in around.plain_agents:
        return
    around.plain_agents.add(agent)
    log.warning(
        "session %s: agent %r runs inside a durable tool by way of Runner, so what it does is not on record, "
        "and is done again if the tool is run again. Use DurableRunner there, too",
        around.session.id,
        agent,
    )


def watch() -> None:
    """Warn of such runs from now on, as long as the trace provider stays."""
    provider: Any = get_trace_provider()
    if not isinstance(provider.create_span, _WatchedSpans):
        with suppress(AttributeError):  # Of a class with slots.
            provider.create_span = _WatchedSpans(provider.create_span)
