"""A warning about runs without a record inside a durable tool: they are made again whenever the tool is."""

from __future__ import annotations

import logging
from typing import Any

from agents import add_trace_processor
from agents.tracing import AgentSpanData, Span, Trace, TracingProcessor

from .durable_run import find_around, find_recorder

log = logging.getLogger("holdfast")


class PlainRunWatcher(TracingProcessor):
    """Looks at the agents that begin to run. The SDK tells of them as long as tracing is on."""

    def on_span_start(self, span: Span[Any]) -> None:
        """Warn if the agent runs in a tool, and not by way of `DurableRunner`."""
        around = find_around()
        if isinstance(span.span_data, AgentSpanData) and around is not None and find_recorder() is None:
            log.warning(
                "session %s: agent %r runs inside a durable tool by way of Runner, so what it does is not on "
                "record, and is done again if the tool is run again. Use DurableRunner there, too",
                around.session.id,
                span.span_data.name,
            )

    def on_span_end(self, span: Span[Any]) -> None:
        """Nothing to do."""

    def on_trace_start(self, trace: Trace) -> None:
        """Nothing to do."""

    def on_trace_end(self, trace: Trace) -> None:
        """Nothing to do."""

    def shutdown(self) -> None:
        """Nothing to do."""

    def force_flush(self) -> None:
        """Nothing to do."""


_watcher: PlainRunWatcher | None = None


def watch() -> None:
    """Warn of such runs from now on."""
    global _watcher
    if _watcher is None:
        _watcher = PlainRunWatcher()
        add_trace_processor(_watcher)
